"""What ``kube/`` takes for granted, asked of a real API server."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.kube import client as client_module
from provisioner.kube import informer as informer_module
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.informer import Informer
from provisioner.kube.lease import LEASES, Leases, LeaseSettings
from provisioner.kube.resources import ATTACHMENTS, CLAIMS, PERSISTENT_VOLUMES, Resource
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.day import contract

FINALIZER = "ebs-provisioner.io/test"


def a_claim(name: str, **metadata: object) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",  # nobody provisions it
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": name} | metadata, "spec": spec}


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(kubeconfig=str(sandbox.plane.kubeconfig)) as connected:
        yield connected


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 -- the thing watched has no event
            await asyncio.sleep(0.01)


def following(client: KubeClient, namespace: str) -> Informer[Claim]:
    return Informer(client, CLAIMS, Metrics(), namespace=namespace)


async def test_an_informer_follows_changes(client: KubeClient, namespace: str) -> None:
    await client.create(CLAIMS, a_claim("before"), namespace)
    informer = following(client, namespace)
    told: list[tuple[str | None, str | None]] = []
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 60)
        informer.subscribe(
            lambda old, new: told.append((old.name if old else None, new.name if new else None))
        )
        await client.create(CLAIMS, a_claim("after"), namespace)
        await client.delete(CLAIMS, "before", namespace=namespace)
        await eventually(lambda: [claim.name for claim in informer.values()] == ["after"])

    assert told[:2] == [(None, "before"), (None, "after")]
    assert told[-1] == ("before", None)


async def test_an_informer_outlives_its_api_server(
    client: KubeClient, namespace: str, background: Any
) -> None:
    informer = following(client, namespace)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 60)
        await background.call(background.sandbox.plane.stop_api_server())
        with pytest.raises(KubeError) as caught:
            await client.get(CLAIMS, "any", namespace)
        await background.call(background.sandbox.plane.start_api_server())
        await client.create(CLAIMS, a_claim("later"), namespace)
        await eventually(lambda: informer.get(f"{namespace}/later"))

    assert caught.value.reason is Reason.UNREACHABLE


async def test_an_own_write_meets_its_echo(client: KubeClient, namespace: str) -> None:
    informer = following(client, namespace)
    told: list[str] = []
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 60)
        informer.subscribe(
            lambda _, new: told.append(new.metadata.resource_version if new else "-")
        )
        for number in range(20):
            informer.observe(await client.create(CLAIMS, a_claim(f"c-{number}"), namespace))
        await client.create(CLAIMS, a_claim("last"), namespace)
        await eventually(lambda: informer.get(f"{namespace}/last"))

    assert len(told) == len(set(told))


async def test_a_list_is_read_in_pages(
    client: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAGE_SIZE", 2)
    for number in range(5):
        await client.create(CLAIMS, a_claim(f"c-{number}"), namespace)

    found = await client.list(CLAIMS, namespace=namespace)

    assert [claim.name for claim in found.items] == [f"c-{number}" for number in range(5)]
    assert found.resource_version.isdecimal()


async def test_a_watch_ends_with_a_bookmark(client: KubeClient, namespace: str) -> None:
    version = (await client.list(CLAIMS)).resource_version
    await client.create(CLAIMS, a_claim("c"), namespace)
    watch = client.watch(CLAIMS, resource_version=version, timeout_s=4, namespace=namespace)
    async with asyncio.timeout(60), aclosing(watch) as lines:
        kinds = [(await anext(lines)).type]
        # A bookmark is only sent for what happened since, elsewhere.
        await client.create(CLAIMS, a_claim(namespace), "default")
        kinds += [line.type async for line in lines]
    await client.delete(CLAIMS, namespace, namespace="default")

    assert (kinds[0], kinds[-1]) == ("ADDED", "BOOKMARK")


async def test_the_one_in_memory_answers_as_this_one(client: KubeClient) -> None:
    assert await contract.answers(client, f"csi-{uuid.uuid4().hex}") == contract.EXPECTED


async def hangs(_: object) -> None:
    await asyncio.Event().wait()


async def test_a_quiet_kind_is_proven_by_a_watch_of_three_seconds_and_no_list(
    client: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_module, "_FEW", 0)  # as if there were many
    metrics, began_s = Metrics(), asyncio.get_running_loop().time()
    informer = Informer(client, ATTACHMENTS, metrics)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 60)
        for n in range(3):
            await client.create(CLAIMS, a_claim(f"other-{n}"), namespace)
            await informer.catch_up()

    assert asyncio.get_running_loop().time() - began_s < 3 * 6
    assert metrics.relists.labels(ATTACHMENTS.kind)._value.get() == 1


async def test_a_cache_catches_up_with_what_its_own_watch_has_not_shown(
    client: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_module, "_FEW", 0)
    monkeypatch.setattr(Informer, "_follow", hangs)
    metrics = Metrics()
    informer = Informer(client, CLAIMS, metrics, namespace=namespace)
    gone = await client.create(CLAIMS, a_claim("gone"), namespace)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 60)
        await client.delete(CLAIMS, gone.name, namespace=namespace)
        await client.create(CLAIMS, a_claim("new"), namespace)
        assert [each.name for each in informer.values()] == ["gone"]

        await informer.catch_up()

        assert [each.name for each in informer.values()] == ["new"]
    assert metrics.relists.labels(CLAIMS.kind)._value.get() == 1


async def test_a_watch_from_too_long_ago_has_expired(client: KubeClient) -> None:
    watch = client.watch(CLAIMS, resource_version="1", timeout_s=9)
    async with asyncio.timeout(60), aclosing(watch) as lines:
        with pytest.raises(KubeError) as caught:
            await anext(lines)

    assert caught.value.reason is Reason.EXPIRED


async def test_a_patch_with_a_stale_version_conflicts(client: KubeClient, namespace: str) -> None:
    made = await client.create(CLAIMS, a_claim("c"), namespace)
    version = made.metadata.resource_version

    async def annotate(value: str) -> Claim:
        meta = {"resourceVersion": version, "annotations": {"a": value}}
        return await client.patch(
            CLAIMS, "c", {"metadata": meta}, kind=Patch.MERGE, namespace=namespace
        )

    first = await annotate("1")
    with pytest.raises(KubeError) as caught:
        await annotate("2")

    assert first.annotations["a"] == "1"
    assert caught.value.reason is Reason.CONFLICT


async def test_a_strategic_patch_is_taken(client: KubeClient, namespace: str) -> None:
    await client.create(CLAIMS, a_claim("c"), namespace)
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "annotations": {"a": "1"}},
    }

    changed = await client.patch(CLAIMS, "c", body, kind=Patch.STRATEGIC, namespace=namespace)

    assert changed.annotations["a"] == "1"


async def test_says_what_exists_and_what_does_not(client: KubeClient, namespace: str) -> None:
    await client.create(CLAIMS, a_claim("c"), namespace)
    with pytest.raises(KubeError) as again:
        await client.create(CLAIMS, a_claim("c"), namespace)
    with pytest.raises(KubeError) as missing:
        await client.get(CLAIMS, "other", namespace)
    unserved = Resource("ebs-provisioner.io", "v1", "unknowns", "Unknown", Claim)
    with pytest.raises(KubeError) as not_served:
        await client.get(unserved, "c")

    assert again.value.reason is Reason.OBJECT_EXISTS
    assert missing.value.reason is Reason.OBJECT_NOT_FOUND
    assert not_served.value.reason is Reason.REJECTED


async def test_a_delete_means_one_object_and_waits_for_finalizers(
    client: KubeClient, namespace: str
) -> None:
    made = await client.create(CLAIMS, a_claim("c", finalizers=[FINALIZER]), namespace)
    with pytest.raises(KubeError) as caught:
        await client.delete(CLAIMS, "c", namespace=namespace, uid=str(uuid.uuid4()))
    kept = await client.delete(CLAIMS, "c", namespace=namespace, uid=made.uid)
    no_finalizers = {"metadata": {"finalizers": None}}
    await client.patch(CLAIMS, "c", no_finalizers, kind=Patch.MERGE, namespace=namespace)

    assert caught.value.reason is Reason.CONFLICT
    assert kept is not None
    assert kept.deleting


async def test_an_invalid_object_is_refused_with_the_reason(client: KubeClient) -> None:
    with pytest.raises(KubeError, match=r"spec.*Required value") as caught:
        await client.create(PERSISTENT_VOLUMES, {"metadata": {"name": "bad"}, "spec": {}})

    assert caught.value.reason is Reason.REJECTED


async def test_knows_which_kinds_are_served(client: KubeClient) -> None:
    served = await client.served()

    assert ("v1", "persistentvolumes") in served
    assert ("storage.k8s.io/v1", "volumeattachments") in served


async def test_a_token_without_rights_and_one_that_is_none(
    background: Any, namespace: str, tmp_path: Path
) -> None:
    plane = background.sandbox.plane
    token = await background.call(plane.service_account_token(namespace, "default"))
    for bearer, reason in ((token, Reason.FORBIDDEN), ("not-a-token", Reason.UNAUTHORIZED)):
        kubeconfig = plane.kubeconfig_for(bearer, tmp_path / "kubeconfig")
        async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client:
            with pytest.raises(KubeError) as caught:
                await client.list(PERSISTENT_VOLUMES)
        assert caught.value.reason is reason


async def test_events_are_written_and_counted(client: KubeClient, namespace: str, api: Api) -> None:
    claim = await client.create(CLAIMS, a_claim("c"), namespace)
    about = Regarding.of(claim, CLAIMS.kind, CLAIMS.api_version)
    recorder = EventRecorder(client, "ebs.csi.aws.com_host_1", Metrics())
    async with running(recorder.run()):
        for _ in range(2):
            recorder.record(about, warning=True, reason="ProvisioningFailed", message="no")
            assert await recorder.flush(10)

    path = f"/api/v1/namespaces/{namespace}/events"
    query = "?fieldSelector=reason=ProvisioningFailed"
    (event,) = (await api.get(path + query))["items"]
    assert (event["count"], event["type"], event["message"]) == (2, "Warning", "no")
    assert event["involvedObject"]["uid"] == claim.uid


async def test_leases_are_handed_over(client: KubeClient, namespace: str) -> None:
    names = ("ebs-csi-aws-com", "external-attacher-leader-ebs-csi-aws-com")

    def replica(identity: str) -> Leases:
        return Leases(
            client,
            LeaseSettings(namespace=namespace, names=names, identity=identity, retry_s=0.1),
            on_lost=lambda: pytest.fail("lost a lease"),
            metrics=Metrics(),
        )

    first, second = replica("first"), replica("second")
    await asyncio.wait_for(first.acquire(), 60)
    waiting = asyncio.create_task(second.acquire())
    async with running(first.hold()):
        await asyncio.sleep(0.5)
    standing_by = not waiting.done()
    await first.release()
    await asyncio.wait_for(waiting, 60)
    found = [(await client.get(LEASES, name, namespace)).spec for name in names]

    assert standing_by
    assert [spec.holder_identity for spec in found] == ["second", "second"]
    assert [spec.lease_transitions for spec in found] == [1, 1]
