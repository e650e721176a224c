"""The webhook as its users meet it: a real API server asks it, as the manifests' ServiceAccount.

It registers itself by its URL; that, and every object that a test has made, is taken away again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
import yaml

from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installation import (
    MANIFESTS,
    kubectl,
    let_webhook_register,
    unregister_webhook,
)
from provisioner.sandbox.up import Sandbox
from tests.cluster import audit
from tests.cluster.background import Background
from tests.cluster.hands import ATTACHMENTS, CLASSES, DRIVER, PVS, items, pods_of
from tests.cluster.replicas import WebhookReplica, eventually, installed
from tests.cluster.static import ZONE, Store, a_pod, pinned
from webhook.certificates import Names
from webhook.issuing import issue

ACCOUNT = "system:serviceaccount:ebs-provisioner:ebs-webhook"
EVENTS = "/api/v1/namespaces/default/events"
CONFIGURATIONS = [
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/ebs-webhook"
    for kind in ("mutating", "validating")
]
SECRET = "/api/v1/namespaces/ebs-provisioner/secrets/ebs-webhook-tls"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ebs-provisioner/leases/ebs-webhook-repairs"
REGION = "topology.kubernetes.io/region"
A, B = "us-east-1a", "us-east-1b"
IN_A = {ZONE: A, REGION: "us-east-1"}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def webhook(background: Background) -> Iterator[WebhookReplica]:
    """One replica for all tests of this file, which may kill it and start it again."""

    async def started() -> WebhookReplica:
        sandbox = await installed(background)
        await let_webhook_register(sandbox.plane)
        return await WebhookReplica(sandbox).__aenter__()

    replica = asyncio.run(started())
    yield replica
    asyncio.run(replica.kill())
    asyncio.run(unregister_webhook(background.sandbox.plane))


@pytest.fixture
async def store(
    webhook: WebhookReplica, sandbox: Sandbox, api: Api, namespace: str
) -> AsyncIterator[Store]:
    mine = Store(sandbox, api, namespace)
    yield mine
    await mine.cleared()


@contextlib.asynccontextmanager
async def refused(status: int, *words: str) -> AsyncIterator[None]:
    """What is done in this block is refused by the webhook, in words that a user understands."""
    with pytest.raises(ApiError) as caught:
        yield
    message = str(caught.value)
    assert "admission webhook" in message
    assert "denied the request" in message
    assert caught.value.status == status, message
    assert [word for word in words if word not in message] == [], message


# -- persistent volumes


@pytest.mark.parametrize("form", ["csi", "vol-", "aws:///", f"aws://{B}/"])
async def test_a_static_persistent_volume_gains_labels_and_affinity(store: Store, form: str):
    volume = store.volume(A)
    body = store.described("data", volume)
    if form != "csi":
        del body["spec"]["csi"]
        handle = volume if form == "vol-" else f"{form}{volume}"
        body["spec"]["awsElasticBlockStore"] = {"volumeID": handle}

    made = await store.api.create(PVS, body)

    assert made["metadata"]["labels"] == IN_A
    assert made["spec"]["nodeAffinity"] == pinned(A)


async def test_one_in_the_wrong_zone_is_refused_and_both_zones_are_named(store: Store):
    volume = store.volume(A)

    async with refused(422, f"{store.namespace}-data", volume, A, B):
        await store.persistent_volume("data", volume, B)


async def test_its_user_reads_what_is_wrong_and_what_would_help(store: Store):
    volume = store.volume(A)
    manifest = f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {store.namespace}-data}}
spec:
  capacity: {{storage: 4Gi}}
  accessModes: [ReadWriteOnce]
  csi: {{driver: {DRIVER}, volumeHandle: {volume}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{{key: {ZONE}, operator: In, values: [{B}]}}]
"""

    with pytest.raises(SandboxError) as caught:
        await kubectl(store.sandbox.plane, "create", "-f", "-", text=manifest)

    told = str(caught.value)
    assert f"volume {volume} is in {A}, but spec.nodeAffinity only allows {B}" in told
    assert f"set the zone to {A} or leave nodeAffinity out" in told


async def test_a_volume_that_does_not_exist_is_refused(store: Store):
    async with refused(422, "vol-0123456789abcdef0"):
        await store.persistent_volume("data", "vol-0123456789abcdef0")


async def test_a_wrong_label_is_overwritten(store: Store):
    metadata = {"labels": {ZONE: B, "team": "shop"}}

    made = await store.persistent_volume("data", store.volume(A), metadata=metadata)

    assert made["metadata"]["labels"] == {**IN_A, "team": "shop"}


async def test_it_is_all_the_same_for_server_side_apply(store: Store):
    body = store.described("data", store.volume(A))
    path = f"{PVS}/{body['metadata']['name']}"

    made = await store.api.patch(path, body, "apply", fieldManager="gitops")
    again = await store.api.patch(path, body, "apply", fieldManager="gitops")

    assert made["metadata"]["labels"] == again["metadata"]["labels"] == IN_A
    assert made["spec"]["nodeAffinity"] == again["spec"]["nodeAffinity"] == pinned(A)


async def apply(store: Store, body: Json) -> str:
    """``kubectl apply``; a warning of the API server is a failure that quotes it."""
    return await kubectl(
        store.sandbox.plane, "apply", "--warnings-as-errors", "-f", "-", text=json.dumps(body)
    )


async def test_without_affinity_a_manifest_can_be_applied_again_as_it_is(store: Store):
    body = store.described("data", store.volume(A))

    for _ in range(2):
        assert await apply(store, body)
        assert is_complete(await store.read("data"))


async def test_applied_again_a_manifest_has_to_say_what_was_appended(store: Store):
    body = store.described("data", store.volume(A), A)
    expressions = [{"key": "disk", "operator": "In", "values": ["ssd"]}]
    body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = [
        {"matchExpressions": expressions}
    ]

    with pytest.raises(SandboxError) as warned:
        await apply(store, body)
    with pytest.raises(SandboxError) as refused_again:
        await apply(store, body)

    requirement = f"{{key: {ZONE}, operator: In, values: [{A}]}}"
    assert f"{requirement} was appended to nodeAffinity; append it" in str(warned.value)
    assert "immutable" in str(refused_again.value)
    expressions.append(yaml.safe_load(requirement))
    for _ in range(2):
        assert await apply(store, body)


async def test_others_volumes_pass_as_they_are(store: Store):
    body = store.described("data", "fs-1")
    body["spec"]["csi"]["driver"] = "efs.csi.aws.com"

    made = await store.api.create(PVS, body)

    assert "labels" not in made["metadata"]
    assert "nodeAffinity" not in made["spec"]


# -- pods


async def test_a_pod_with_two_volumes_in_different_zones_is_refused(store: Store):
    first, second = await store.claim("films", A), await store.claim("music", B)

    async with refused(403, "films", "music", A, B):
        await store.pod(first, second)


async def test_two_volumes_in_one_zone_are_fine(store: Store):
    first, second = await store.claim("films", A), await store.claim("music", A)

    assert await store.pod(first, second)


@pytest.mark.parametrize("kind", ["replicasets", "statefulsets"])
async def test_what_a_controller_makes_of_a_template_is_refused_too(store: Store, kind: str):
    for name, zone in (("films", A), ("music", B)):
        await store.claim(name, zone)
    pod = a_pod("films", "music")
    labels = {"app": "player"}
    await store.api.create(
        f"/apis/apps/v1/namespaces/{store.namespace}/{kind}",
        {
            "metadata": {"name": "player"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                **({"serviceName": "player"} if kind == "statefulsets" else {}),
                # A controller's pods always start anew, and end when they like.
                "template": {
                    "metadata": {"labels": labels},
                    "spec": pod["spec"] | {"terminationGracePeriodSeconds": 30},
                },
            },
        },
    )

    async def told() -> str:
        found = await items(store.api, f"/api/v1/namespaces/{store.namespace}/events")
        return next((each["message"] for each in found if each["reason"] == "FailedCreate"), "")

    message = await eventually(f"one of {kind} tells why it has no pod", told)
    assert "pods.ebs-provisioner.io" in message
    assert A in message
    assert B in message
    assert await items(store.api, pods_of(store.namespace)) == []


@pytest.mark.parametrize("by", ["nodeName", "nodeSelector", "affinity"])
async def test_a_pod_that_wants_to_be_elsewhere_than_its_volume_is_refused(store: Store, by: str):
    claim = await store.claim("films", A)
    wanted: dict[str, Any] = {
        "nodeName": store.node_in(B),
        "nodeSelector": {ZONE: B},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": pinned(B)["required"]
            }
        },
    }

    async with refused(403, "films", A, B):
        await store.pod(claim, **{by: wanted[by]})
    right = {**wanted, "nodeName": store.node_in(A), "nodeSelector": {ZONE: A}}
    right["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pinned(A)["required"]}
    }
    assert await store.pod(claim, **{by: right[by]})


async def test_an_inline_volume_on_a_node_elsewhere_is_refused(store: Store):
    inline = [{"name": "old", "awsElasticBlockStore": {"volumeID": store.volume(A)}}]

    async with refused(403, A, B):
        await store.pod(volumes=inline, nodeName=store.node_in(B))


async def test_a_pod_whose_claims_do_not_exist_yet_passes(store: Store):
    assert await store.pod("not-yet", "nor-this")


# -- claims


async def test_a_claim_that_may_end_in_another_zone_than_its_pods_is_warned_about(store: Store):
    name = f"{store.namespace}-at-once"
    within = {"matchLabelExpressions": [{"key": ZONE, "values": [A, B]}]}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "films", "namespace": store.namespace},
        "spec": {
            "storageClassName": name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "4Gi"}},
        },
    }
    made = {"metadata": {"name": name}, "provisioner": DRIVER, "allowedTopologies": [within]}
    await store.api.create(CLASSES, made)

    async def warned() -> str:
        # The webhook hears of the class by a watch of its own; a dry run makes nothing.
        dry = ("create", "--dry-run=server", "--warnings-as-errors", "-f", "-")
        try:
            await kubectl(store.sandbox.plane, *dry, text=json.dumps(claim))
        except SandboxError as error:
            return str(error)
        return ""

    try:
        message = await eventually("the claim is warned about", warned)
    finally:
        await store.api.delete(f"{CLASSES}/{name}")
    assert f'claim "films": class "{name}" binds at once' in message
    assert f"{A} or {B}" in message
    assert "WaitForFirstConsumer" in message


# -- classes


def described_class(store: Store, provisioner: str = DRIVER, **parameters: str) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": f"{store.namespace}-class"},
        "provisioner": provisioner,
        "parameters": parameters,
    }


@pytest.mark.parametrize("provisioner", [DRIVER, "kubernetes.io/aws-ebs"])
async def test_a_class_that_can_never_work_is_refused(store: Store, provisioner: str):
    async with refused(422, f"{store.namespace}-class", "can never work", "'typ'"):
        await store.api.create(CLASSES, described_class(store, provisioner, typ="gp3"))


async def test_a_doubtful_class_is_warned_about(store: Store):
    dry = ("create", "--dry-run=server", "--warnings-as-errors", "-f", "-")

    with pytest.raises(SandboxError) as warned:
        await kubectl(store.sandbox.plane, *dry, text=json.dumps(described_class(store)))

    assert f'storageclass "{store.namespace}-class": it binds at once' in str(warned.value)
    assert "WaitForFirstConsumer" in str(warned.value)


async def test_the_classes_of_others_are_nobodys_business(store: Store):
    others = described_class(store, "efs.csi.aws.com", typ="gp3")

    assert await store.api.request("POST", CLASSES, others, dryRun="All")


# -- attachments


@contextlib.asynccontextmanager
async def attachments_guarded(store: Store) -> AsyncIterator[None]:
    """The entry of the component webhook-attachments, led to the replica as all others are.

    In a configuration of its own: a replica that registers by its URL owns the usual one alone.
    """
    file = MANIFESTS / "webhook-attachments" / "attachments.yaml"
    body = yaml.safe_load(file.read_text())
    (validating,) = (path for path in CONFIGURATIONS if "validating" in path)
    known = (await store.api.get(validating))["webhooks"][0]["clientConfig"]
    (hook,) = body["webhooks"]
    path = hook["clientConfig"]["service"]["path"]
    url = f"{known['url'].partition('/validate/')[0]}{path}"
    hook["clientConfig"] = {"url": url, "caBundle": known["caBundle"]}
    body["metadata"]["name"] = f"{store.namespace}-attachments"
    kind = validating.rpartition("/")[0]
    await store.api.create(kind, body)
    try:
        yield
    finally:
        await store.api.delete(f"{kind}/{body['metadata']['name']}")


async def test_with_the_component_an_attachment_across_zones_is_refused(store: Store):
    await store.persistent_volume("data", store.volume(A))
    attachment: Json = {
        "metadata": {"name": f"{store.namespace}-by-hand"},
        "spec": {
            "attacher": DRIVER,
            "nodeName": store.node_in(B),
            "source": {"persistentVolumeName": f"{store.namespace}-data"},
        },
    }

    async with attachments_guarded(store):

        async def guarded() -> bool:
            try:
                await store.api.request("POST", ATTACHMENTS, attachment, dryRun="All")
            except ApiError as error:
                return "volumeattachments.ebs-provisioner.io" in str(error)
            return False

        await eventually("attachments are guarded", guarded)
        async with refused(403, f"{store.namespace}-data", A, B, store.node_in(B)):
            await store.api.create(ATTACHMENTS, attachment)
        attachment["spec"]["nodeName"] = store.node_in(A)
        await store.api.request("POST", ATTACHMENTS, attachment, dryRun="All")


# -- bindings


async def bind(store: Store, node: str, path: str = "pods/pod/binding", **query: str) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "pod", "namespace": store.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await store.api.request(
        "POST", f"/api/v1/namespaces/{store.namespace}/{path}", binding, **query
    )


@pytest.mark.parametrize("path", ["pods/pod/binding", "bindings"])
async def test_where_it_is_asked_for_a_pod_is_not_bound_across_zones(store: Store, path: str):
    claim = await store.claim("films", A)
    await store.pod(claim, schedulerName="nobody")
    labels = {"ebs-provisioner.io/zone-guard": "enforce"}
    namespace = f"/api/v1/namespaces/{store.namespace}"
    await store.api.patch(namespace, {"metadata": {"labels": labels}})

    async def guarded() -> bool:
        # The API server hears of the label by a watch of its own; a dry run binds nothing.
        try:
            await bind(store, store.node_in(B), path, dryRun="All")
        except ApiError as error:
            return "bindings.ebs-provisioner.io" in str(error)
        return False

    await eventually("the namespace is guarded", guarded)
    async with refused(403, "films", A, B, store.node_in(B)):
        await bind(store, store.node_in(B), path)
    await bind(store, store.node_in(A), path)


async def test_elsewhere_bindings_are_nobodys_business(store: Store):
    claim = await store.claim("films", A)
    await store.pod(claim, schedulerName="nobody")

    await bind(store, store.node_in(B))


# -- outages


def is_complete(volume: Json) -> bool:
    labels = volume["metadata"].get("labels") or {}
    return labels == IN_A and volume["spec"].get("nodeAffinity") == pinned(A)


async def complete(store: Store, name: str) -> None:
    async def so() -> bool:
        return is_complete(await store.read(name))

    # The lease of a replica that was killed expires after 15 s.
    await eventually(f"{name} has labels and affinity", so, within_s=60)


async def test_before_during_and_after_an_outage_all_get_labels_and_affinity(
    store: Store, webhook: WebhookReplica
):
    await webhook.kill()
    await unregister_webhook(store.sandbox.plane)
    await store.api.patch(LEASE, {"spec": None})  # as it was before there was any webhook
    assert not is_complete(await store.persistent_volume("before", store.volume(A)))

    await let_webhook_register(store.sandbox.plane)
    webhook.begin()
    await webhook.ready()
    assert is_complete(await store.persistent_volume("beside", store.volume(A)))
    await complete(store, "before")

    await webhook.kill()
    assert not is_complete(await store.persistent_volume("during", store.volume(A)))
    # Nobody could refuse it, and now nobody can correct it.
    await store.persistent_volume("wrong", store.volume(A), B)

    webhook.begin()
    await webhook.ready()
    assert is_complete(await store.persistent_volume("after", store.volume(A)))
    for name in ("before", "beside", "during"):
        await complete(store, name)

    async def warnings() -> list[Json]:
        found = await items(store.api, EVENTS)
        name = f"{store.namespace}-wrong"
        return [each for each in found if each["involvedObject"]["name"] == name]

    (event,) = await eventually("the wrong one is told about", warnings, within_s=60)
    assert (event["type"], event["reason"]) == ("Warning", "WrongNodeAffinity")
    assert A in event["message"]
    assert B in event["message"]
    assert event["count"] == 1
    await store.api.delete(f"{EVENTS}/{event['metadata']['name']}")


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
        await store.api.patch(LEASE, {"spec": None})  # the dead would hold it for 15 s
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
        await let_webhook_register(plane)
        await store.api.patch(LEASE, {"spec": None})  # the dead would hold it for 15 s
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
        await let_webhook_register(plane)
        await store.api.patch(SECRET, {"data": None})
        await store.api.patch(LEASE, {"spec": None})
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


# -- rights


async def test_of_aws_it_asks_one_thing_and_of_kubernetes_nothing_that_is_refused(
    store: Store, webhook: WebhookReplica
):
    store.hand.watch()
    await store.persistent_volume("data", store.volume(A))
    calls = {each["action"] for each in store.hand.log()} - {"CreateVolume"}  # ours, the test's
    assert calls == {"DescribeVolumes"}

    await audit.written(store.sandbox, store.sandbox.webhook_kubeconfig)
    assert audit.refused(store.sandbox, ACCOUNT) == set()
