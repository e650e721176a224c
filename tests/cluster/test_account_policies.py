"""What our own accounts may change, held by policies in the API server where RBAC cannot tell."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from tests.cluster.background import Background
from tests.cluster.hands import PVS, pods_of
from tests.cluster.replicas import eventually
from tests.cluster.static import a_pod, pinned

NAMESPACE = "ebs-provisioner"
ZONE = "topology.kubernetes.io/zone"
NODES = "/api/v1/nodes"
WEBHOOK, CONTROLLER = "ebs-webhook", "ebs-provisioner-controller"
FOLDERS = {WEBHOOK: MANIFESTS / "webhook", CONTROLLER: MANIFESTS}

Json = dict[str, Any]


@contextlib.asynccontextmanager
async def as_account(background: Background, account: str) -> AsyncIterator[Api]:
    """A client with the rights, and the name, of an account of ours, as the manifests make it."""
    plane = background.sandbox.plane
    names = ("service-account.yaml", "rbac.yaml", "policy.yaml")
    files = [argument for name in names for argument in ("-f", str(FOLDERS[account] / name))]
    await kubectl(plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
    await kubectl(plane, "apply", *files)
    token = await background.call(plane.service_account_token(NAMESPACE, account))
    async with Api(plane.server, plane.credentials.authority, token) as client:
        yield client


async def is_denied(client: Api, path: str, change: Json) -> bool:
    try:
        await client.patch(path, change, dryRun="All")
    except ApiError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return True
    return False


@pytest.fixture
async def volume(api: Api, namespace: str) -> AsyncIterator[str]:
    body = {
        "metadata": {"name": f"{namespace}-held", "annotations": {"a": "b"}},
        "spec": {
            "capacity": {"storage": "4Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "csi": {"driver": "policies.ebs.test", "volumeHandle": "vol-0123"},
        },
    }
    await api.create(PVS, body)
    yield f"{PVS}/{body['metadata']['name']}"
    await api.delete(f"{PVS}/{body['metadata']['name']}")


async def test_the_webhooks_account_writes_labels_and_affinities_and_nothing_else(
    background: Background, volume: str
):
    async with as_account(background, WEBHOOK) as client:
        theft = {"spec": {"claimRef": {"namespace": "shop", "name": "mine"}}}

        async def in_force() -> bool:
            return await is_denied(client, volume, theft)

        await eventually("the policy is in force", in_force)
        for change in (
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
            {"spec": {"storageClassName": "mine"}},
            {"spec": {"capacity": {"storage": "8Gi"}}},
            {"spec": {"mountOptions": ["suid"]}},
            {"metadata": {"annotations": {"a": "c"}}},
            {"metadata": {"finalizers": ["mine.example/held"]}},
            {"metadata": {"labels": {"app": "mine"}}},
            theft | {"metadata": {"labels": {ZONE: "us-east-1a"}}},
        ):
            assert await is_denied(client, volume, change), change
        right = {
            "metadata": {"labels": {ZONE: "us-east-1a", "topology.kubernetes.io/region": "r"}},
            "spec": {"nodeAffinity": pinned("us-east-1a")},
        }
        assert not await is_denied(client, volume, right)
        await client.patch(volume, right)
        assert not await is_denied(client, volume, {"metadata": {"labels": {ZONE: None}}})


async def test_the_controllers_account_writes_of_nodes_what_is_its_own(
    background: Background, api: Api
):
    found = (await api.get(NODES))["items"][0]
    node = f"{NODES}/{found['metadata']['name']}"
    others = found["spec"].get("taints") or []

    def tainted(key: str, effect: str = "NoSchedule") -> Json:
        return {"spec": {"taints": [*others, {"key": key, "effect": effect}]}}

    async with as_account(background, CONTROLLER) as client:

        async def in_force() -> bool:
            return await is_denied(client, node, {"spec": {"unschedulable": True}})

        await eventually("the policy is in force", in_force)
        for change in (
            tainted("example.com/mine"),
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            {"metadata": {"annotations": {"example.com/mine": "1"}}},
            {"metadata": {"finalizers": ["example.com/mine"]}},
        ):
            assert await is_denied(client, node, change), change
        for change in (
            tainted("node.kubernetes.io/out-of-service", "NoExecute"),
            tainted("ebs.csi.aws.com/agent-not-ready"),
            {"metadata": {"annotations": {"ebs-provisioner.io/attachment-limit": "27"}}},
            {"metadata": {"labels": {"node.kubernetes.io/instance-type": "m7i.large"}}},
        ):
            assert not await is_denied(client, node, change), change


async def test_where_it_is_asked_for_no_pod_names_a_volume_by_its_id(
    background: Background, api: Api, namespace: str
):
    plane, folder = background.sandbox.plane, str(MANIFESTS / "no-inline-volumes")
    inline = a_pod(volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-0123"}}])

    async def refused() -> bool:
        try:
            await api.request("POST", pods_of(namespace), inline, dryRun="All")
        except ApiError as error:
            return "use a persistentVolumeClaim" in str(error)
        return False

    assert not await refused()
    try:
        await kubectl(plane, "apply", "-k", folder)
        await eventually("inline volumes are refused", refused)
        await api.request("POST", pods_of(namespace), a_pod("data"), dryRun="All")
    finally:
        await kubectl(plane, "delete", "-k", folder, "--ignore-not-found")
