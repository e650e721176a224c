"""Argo CD beside us: what it has applied stays as it is in Git, by its own way of telling.

It compares what is there with what an apply would make of it, and heals a difference by applying
again. So an apply of the same manifests has to change nothing, whatever our programs have written
meanwhile. docs/neighbours.md names the version, and the files in which this was read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import yaml

from provisioner.sandbox import nodes
from provisioner.sandbox.installation import MANIFESTS, unregister_webhook
from provisioner.sandbox.kubectl import kubectl, run
from provisioner.sandbox.up import Sandbox
from tests.cluster import copies
from tests.cluster.cluster import CLASSES, Json
from tests.cluster.copies import API_VERSION, SNAPSHOT_CLASSES, snapshots_of
from tests.cluster.hands import discard
from tests.cluster.kustomizations import rendered
from tests.cluster.place import Place
from tests.cluster.replicas import WebhookReplica
from tests.cluster.static import Store
from tests.cluster.together import Together
from tests.cluster.webhook_hands import (
    CONFIGURATIONS,
    LEASE,
    A,
    complete,
    is_complete,
)
from tests.test_neighbours import NOT_APPLIED_BY_ARGO_CD

CLIENT_SIDE: tuple[str, ...] = ()
SERVER_SIDE = ("--server-side", "--field-manager=argocd-controller", "--force-conflicts")
WAYS = pytest.mark.parametrize(
    "way", [CLIENT_SIDE, SERVER_SIDE], ids=["client-side", "server-side"]
)
together = Together()


async def sync(sandbox: Sandbox, objects: Sequence[Json], way: Sequence[str]) -> None:
    """Apply objects in Argo CD's order, namespaces first."""
    wanted = sorted(objects, key=lambda each: each["kind"] != "Namespace")
    await kubectl(sandbox.plane, "apply", *way, "-f", "-", text=yaml.safe_dump_all(wanted))


async def out_of_sync(sandbox: Sandbox, objects: Sequence[Json], way: Sequence[str]) -> str:
    """What an apply of the same objects would change."""
    text = yaml.safe_dump_all(objects)
    code, told, errors = await run(sandbox.plane, "diff", *way, "-f", "-", text=text)
    assert code in (0, 1), errors
    return told


async def test_our_manifests_stay_in_sync_while_our_programs_write_to_them(
    store: Store, webhook: WebhookReplica
):
    """Applied client-side, which is Argo CD's default, and then changed to server-side apply."""
    sandbox = store.sandbox
    found = [
        each
        for folder in (".", "node", "webhook")
        for each in await rendered(sandbox, MANIFESTS / folder)
    ]
    objects = [
        each
        for each in found
        if each["kind"] not in NOT_APPLIED_BY_ARGO_CD
        and each["kind"] not in ("Deployment", "DaemonSet")
    ]
    await webhook.kill()
    await unregister_webhook(sandbox.plane)
    await discard(store.api, LEASE)
    try:
        assert not is_complete(await store.create("before", store.volume(A)))
        await sync(sandbox, objects, CLIENT_SIDE)
        options = ("--listen=127.0.0.1:0",)
        async with WebhookReplica(sandbox, *options, registers=False, name="argo"):
            # By a lease that Argo CD has not applied.
            await complete(store, "before")
            trusted = [await bundles(store, path) for path in CONFIGURATIONS]
            assert all(all(each) for each in trusted)

            for way in (CLIENT_SIDE, SERVER_SIDE):
                assert await out_of_sync(sandbox, objects, way) == ""
                await sync(sandbox, objects, way)
                assert [await bundles(store, path) for path in CONFIGURATIONS] == trusted
    finally:
        await unregister_webhook(sandbox.plane)
        await webhook.register()
        await discard(store.api, LEASE)
        webhook.begin()
        await webhook.ready()


async def bundles(store: Store, path: str) -> list[str]:
    """The caBundle of each webhook of a configuration, "" for none."""
    hooks = (await store.api.get(path))["webhooks"]
    return [hook["clientConfig"].get("caBundle", "") for hook in hooks]


@WAYS
async def test_a_persistent_volume_from_git_stays_in_sync_although_the_webhook_completes_it(
    store: Store, webhook: WebhookReplica, way: Sequence[str]
):
    body = store.described("data", store.volume(A))
    await sync(store.sandbox, [body], way)

    assert is_complete(await store.read("data"))
    assert await out_of_sync(store.sandbox, [body], way) == ""
    body["metadata"]["labels"] = {"team": "shop"}
    assert "team: shop" in await out_of_sync(store.sandbox, [body], way)


@pytest.mark.asyncio(loop_scope="module")
@together.test
@WAYS
async def test_class_claim_and_snapshot_from_git_stay_in_sync_and_become_healthy(
    place: Place, way: Sequence[str]
):
    name, sandbox = place.name, place.cluster.sandbox
    expandable = {"allowVolumeExpansion": True, "volumeBindingMode": "Immediate"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    of_snapshot = {
        "volumeSnapshotClassName": name,
        "source": {"persistentVolumeClaimName": "data"},
    }
    objects: list[Json] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": nodes.DRIVER,
            "parameters": {"type": "gp3"},
            **expandable,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": name},
            "spec": spec,
        },
        {
            "apiVersion": API_VERSION,
            "kind": "VolumeSnapshotClass",
            "metadata": {"name": name},
            "driver": nodes.DRIVER,
            "deletionPolicy": "Delete",
        },
        {
            "apiVersion": API_VERSION,
            "kind": "VolumeSnapshot",
            "metadata": {"name": "monday", "namespace": name},
            "spec": of_snapshot,
        },
    ]
    try:
        await sync(sandbox, objects, way)
        await place.bound()  # what Argo CD calls healthy, as it does the next
        await copies.ready(place)
        assert await out_of_sync(sandbox, objects, way) == ""

        spec["resources"] = {"requests": {"storage": "2Gi"}}
        await sync(sandbox, objects, way)

        async def grown() -> bool:
            pv = await place.bound()
            return bool(pv["spec"]["capacity"]["storage"] == "2Gi")

        await place.cluster.until("the volume has grown", grown)
        assert await out_of_sync(sandbox, objects, way) == ""
    finally:
        await place.remove(f"{snapshots_of(place)}/monday")
        await discard(place.api, f"{SNAPSHOT_CLASSES}/{name}")
        await place.remove(f"{place.claims}/data")
        await discard(place.api, f"{CLASSES}/{name}")
