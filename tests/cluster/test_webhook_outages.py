"""The webhook away, and back: what came past it is repaired, and nobody else's things are touched."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime

import aiohttp
import pytest

from provisioner.sandbox import api_server
from provisioner.sandbox.api import Api
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.installation import MANIFESTS, unregister_webhook
from provisioner.sandbox.kubectl import kubectl
from tests.cluster.background import Background
from tests.cluster.hands import PVS, discard, items
from tests.cluster.replicas import WebhookReplica, eventually
from tests.cluster.static import Store, pinned
from tests.cluster.webhook_hands import (
    CONFIGURATIONS,
    LEASE,
    SECRET,
    A,
    B,
    Json,
    complete,
    is_complete,
)
from tests.webhook.pairs import issue
from webhook.certificates.issuing import Names

EVENTS = "/api/v1/namespaces/default/events"


async def test_created_by_kubectl_before_during_and_after_an_outage_all_get_labels_and_affinity(
    store: Store, webhook: WebhookReplica
):
    await webhook.kill()
    await unregister_webhook(store.sandbox.plane)
    await discard(store.api, LEASE)  # as it was before there was any webhook
    assert not is_complete(await store.create("before", store.volume(A)))

    await webhook.register()
    webhook.begin()
    await webhook.ready()
    assert is_complete(await store.create("beside", store.volume(A)))
    await complete(store, "before")

    await webhook.kill()
    assert not is_complete(await store.create("during", store.volume(A)))
    # Nobody could refuse it, and now nobody can correct it.
    await store.create("wrong", store.volume(A), B)

    webhook.begin()
    await webhook.ready()
    assert is_complete(await store.create("after", store.volume(A)))
    for name in ("before", "beside", "during"):
        await complete(store, name)

    async def warnings() -> list[Json]:
        found = await items(store.api, EVENTS)
        name = f"{store.namespace}-wrong"
        # Others' events need not have a name (a cluster's own components send such).
        return [each for each in found if each["involvedObject"].get("name") == name]

    (event,) = await eventually("the wrong one is told about", warnings, within_s=60)
    assert (event["type"], event["reason"]) == ("Warning", "WrongNodeAffinity")
    assert A in event["message"]
    assert B in event["message"]
    assert event["count"] == 1
    await store.api.delete(f"{EVENTS}/{event['metadata']['name']}")


async def restarted(plane: ControlPlane) -> None:
    await plane.stop_api_server()
    await plane.start_api_server()


async def test_where_the_api_server_lets_an_affinity_change_a_wrong_one_is_corrected(
    store: Store, webhook: WebhookReplica, background: Background, monkeypatch: pytest.MonkeyPatch
):
    plane, usual = store.sandbox.plane, api_server.without_kubelets()
    gate = "--feature-gates=MutablePVNodeAffinity=true"
    monkeypatch.setattr(api_server, "without_kubelets", lambda: [*usual, gate])
    await webhook.kill()
    try:
        await background.call(restarted(plane))
        await store.create("wrong", store.volume(A), B)
        webhook.begin()
        await webhook.ready()

        async def corrected() -> bool:
            return bool((await store.read("wrong"))["spec"]["nodeAffinity"] == pinned(A))

        await eventually("the affinity is that of its zone", corrected, within_s=60)
    finally:
        monkeypatch.undo()
        await background.call(restarted(plane))
    await webhook.ready()


async def test_while_ec2_says_nothing_it_is_let_through_and_repaired_later(
    store: Store, webhook: WebhookReplica
):
    volume = store.volume(A)
    answers = {"code": "UnauthorizedOperation", "message": "not you", "http_status": 403}
    denied = {"action": "DescribeVolumes", "do": "error", "n": 1000, **answers}
    store.hand.watch(faults=[denied])
    try:
        made = await store.persistent_volume("data", volume)
        assert not is_complete(made)
    finally:
        store.hand.watch()

    await complete(store, "data")


async def test_strict_it_refuses_meanwhile_and_says_when_to_try_again(
    store: Store, webhook: WebhookReplica
):
    volume = store.volume(A)
    answers = {"code": "UnauthorizedOperation", "message": "not you", "http_status": 403}
    await webhook.kill()
    try:
        async with WebhookReplica(store.sandbox, "--strict", name="strict"):
            denied = {"action": "DescribeVolumes", "do": "error", "n": 1000, **answers}
            store.hand.watch(faults=[denied])
            status, headers, told = await posted(store.api, PVS, store.described("data", volume))
            store.hand.watch()

            assert (status, told["reason"]) == (503, "ServiceUnavailable")
            assert int(headers["Retry-After"]) >= 1
            assert volume in told["message"]
            assert is_complete(await store.persistent_volume("data", volume))
    finally:
        store.hand.watch()
        await webhook.register()
        await discard(store.api, LEASE)  # the dead would hold it for 15 s
        webhook.begin()
        await webhook.ready()


async def posted(api: Api, path: str, body: Json) -> tuple[int, Mapping[str, str], Json]:
    """What is answered to a POST: status, headers, body."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=api.authority))
    headers = {"Authorization": f"Bearer {api.token}"}
    async with (
        aiohttp.ClientSession(api.server, connector=connector, headers=headers) as session,
        session.post(path, json=body) as reply,
    ):
        return reply.status, reply.headers, await reply.json()


async def test_registered_by_the_manifests_it_adds_what_it_is_trusted_by_and_nothing_else(
    store: Store, webhook: WebhookReplica
):
    plane, file = store.sandbox.plane, str(MANIFESTS / "webhook" / "webhooks.yaml")
    await webhook.kill()
    await unregister_webhook(plane)
    try:
        await kubectl(plane, "apply", "-f", file)
        async with WebhookReplica(
            store.sandbox, "--listen=127.0.0.1:0", registers=False, name="by-service"
        ):
            for path in CONFIGURATIONS:
                assert await trusted(store, path)
            await kubectl(plane, "apply", "-f", file)
            await kubectl(plane, "apply", "-f", file, "--server-side", "--force-conflicts")
            for path in CONFIGURATIONS:
                assert await trusted(store, path)
    finally:
        await unregister_webhook(plane)
        await webhook.register()
        await discard(store.api, LEASE)  # the dead would hold it for 15 s
        webhook.begin()
        await webhook.ready()


async def test_with_somebody_elses_certificate_it_serves_that_and_writes_nothing(
    store: Store, webhook: WebhookReplica
):
    plane, file = store.sandbox.plane, str(MANIFESTS / "webhook" / "webhooks.yaml")
    theirs = issue(Names.of_service("ebs-webhook", "ebs-provisioner"), datetime.now(UTC))
    data = {"ca.crt": theirs.authority, "tls.crt": theirs.certificate, "tls.key": theirs.key}
    await webhook.kill()
    await unregister_webhook(plane)
    try:
        await kubectl(plane, "apply", "-f", file)
        encoded = {key: b64encode(value).decode() for key, value in data.items()}
        await store.api.patch(SECRET, {"data": None})
        written = await store.api.patch(SECRET, {"data": encoded})
        options = ("--listen=127.0.0.1:0", "--tls-manage=false")
        async with WebhookReplica(store.sandbox, *options, registers=False, name="theirs") as it:
            expiry = "ebs_webhook_certificate_expiry_timestamp_seconds"
            assert await it.metric(expiry) > datetime.now(UTC).timestamp()
        assert await store.api.get(SECRET) == written
        for path in CONFIGURATIONS:
            hooks = (await store.api.get(path))["webhooks"]
            assert [hook for hook in hooks if "caBundle" in hook["clientConfig"]] == []
    finally:
        await unregister_webhook(plane)
        await webhook.register()
        await store.api.patch(SECRET, {"data": None})
        await discard(store.api, LEASE)
        webhook.begin()
        await webhook.ready()


async def trusted(store: Store, path: str) -> bool:
    """Whether all webhooks of a configuration carry a bundle, and that is all that is ours of it."""
    found = await store.api.get(path, showManagedFields="true")
    owned = [
        each["fieldsV1"]["f:webhooks"]
        for each in found["metadata"]["managedFields"]
        if each["manager"] == "ebs-webhook"
    ]
    names = {hook["name"] for hook in found["webhooks"]}
    ours: Json = {"f:clientConfig": {"f:caBundle": {}}}
    assert owned == [{f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}, **ours} for name in names}]
    return all(hook["clientConfig"].get("caBundle") for hook in found["webhooks"])


async def test_asked_to_end_it_ends_well_and_lets_another_repair(
    store: Store, webhook: WebhookReplica
):
    def repairs() -> bool:
        return "repairing persistent volumes" in webhook.log_of_this_life

    await eventually("it holds the lease", repairs)

    assert await webhook.terminate() == 0
    assert not (await store.api.get(LEASE))["spec"].get("holderIdentity")

    webhook.begin()
    await webhook.ready()
    assert is_complete(await store.persistent_volume("data", store.volume(A)))
