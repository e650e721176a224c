"""The webhook as its users meet it: persistent volumes and claims.

A real API server asks it, as the manifests' ServiceAccount. It registers itself by its URL; that, and
every object that a test has made, is taken away again.
"""

from __future__ import annotations

import json

import pytest
import yaml

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.kubectl import kubectl
from tests.cluster import audit
from tests.cluster.hands import CLASSES, DRIVER, PVS
from tests.cluster.replicas import WebhookReplica, eventually
from tests.cluster.static import ZONE, Store, pinned
from tests.cluster.webhook_hands import IN_A, A, B, Json, is_complete, refused

ACCOUNT = "system:serviceaccount:ebs-provisioner:ebs-webhook"


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


async def test_a_wrong_label_that_is_written_again_and_again_does_not_win(store: Store):
    await store.persistent_volume("data", store.volume(A))
    path = f"{PVS}/{store.namespace}-data"

    for _ in range(2):
        answer = await store.api.patch(path, {"metadata": {"labels": {ZONE: B, "app": "shop"}}})
        assert (answer["metadata"]["labels"][ZONE], answer["metadata"]["labels"]["app"]) == (
            A,
            "shop",
        )


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
    assert f"{requirement} was appended to nodeAffinity; add it" in str(warned.value)
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
    assert f'claim "films": class "{name}" binds immediately' in message
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

    assert f'storageclass "{store.namespace}-class": it binds immediately' in str(warned.value)
    assert "WaitForFirstConsumer" in str(warned.value)


async def test_the_classes_of_others_are_nobodys_business(store: Store):
    others = described_class(store, "efs.csi.aws.com", typ="gp3")

    assert await store.api.request("POST", CLASSES, others, dryRun="All")


# -- rights


async def test_of_aws_it_asks_one_thing_and_of_kubernetes_nothing_that_is_refused(
    store: Store, webhook: WebhookReplica
):
    store.hand.watch()
    await store.persistent_volume("data", store.volume(A))
    calls = {each["action"] for each in store.hand.log()} - {"CreateVolume"}  # ours, the test's
    assert calls == {"DescribeVolumes"}

    await audit.written(store.sandbox, store.sandbox.webhook_kubeconfig)
    assert audit.refused([audit.use_of(store.sandbox, ACCOUNT)]) == set()
