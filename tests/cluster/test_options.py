"""Options that most tests leave at their defaults, with a running controller: what each changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import pytest

from provisioner.model import leadership
from provisioner.sandbox import nodes
from provisioner.sandbox.api import Api
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from provisioner.sandbox.up import Sandbox
from tests.cluster import epochs, hands
from tests.cluster.background import Background
from tests.cluster.hands import Ec2Hand, Json
from tests.cluster.replicas import Replica, eventually, installed

DRIVER = "my-ebs.csi.example.com"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@pytest.fixture
async def sandbox(background: Background) -> Sandbox:
    return await installed(background)


@pytest.fixture
async def hand(
    sandbox: Sandbox, api: Api, namespace: str, node: Instance
) -> AsyncIterator[Ec2Hand]:
    """It cleans up while the node of the test's pods is still there."""
    made = Ec2Hand(sandbox.ec2_endpoint)
    yield made
    await hands.wipe(api, made, namespace)
    await hands.discard(api, f"{hands.CLASSES}/{namespace}")


@pytest.fixture
async def node(sandbox: Sandbox, api: Api) -> AsyncIterator[Instance]:
    """One on which a driver of another name is registered; no pod comes there by itself."""
    [made] = await asyncio.to_thread(make_instances, sandbox.ec2_endpoint, 1, [sandbox.zones[1]])
    document = _renamed(nodes.node(made))
    document["spec"]["unschedulable"] = True
    saved = await api.create("/api/v1/nodes", document)
    plugin = _renamed(nodes.csi_node(made, saved["metadata"]["uid"]))
    await api.create("/apis/storage.k8s.io/v1/csinodes", plugin)
    yield made
    await nodes.remove(api, made.private_dns_name)


def _renamed(document: Json) -> Json:
    renamed: Json = json.loads(json.dumps(document).replace(nodes.DRIVER, DRIVER))
    return renamed


@pytest.fixture
async def replica(sandbox: Sandbox, api: Api, namespace: str) -> AsyncIterator[Replica]:
    """With leases where the manifests' account may hold none, so that is granted here."""
    rules = [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "create", "patch"],
        }
    ]
    account = {
        "kind": "ServiceAccount",
        "namespace": "ebs-provisioner",
        "name": "ebs-provisioner-controller",
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"}
    meta = {"metadata": {"name": "leases"}}
    await api.create(f"{RBAC}/{namespace}/roles", {**meta, "rules": rules})
    await api.create(
        f"{RBAC}/{namespace}/rolebindings", {**meta, "roleRef": role, "subjects": [account]}
    )
    await epochs.let_write_volumes(api, DRIVER)
    options = [
        *("--driver-name", DRIVER),
        *("--cluster-id", namespace),
        *("--extra-tags", "team=storage,cost=none"),
        *("--default-fstype", "xfs"),
        *("--leader-election-namespace", namespace),
        *("--log-format", "json"),
    ]
    async with Replica(sandbox, *options, name=f"{namespace}-options") as running:

        async def leads() -> bool:
            return await running.metric("ebs_provisioner_leader") == 1

        await eventually("it leads", leads)  # claims from before its first lease ever wait a minute
        yield running


async def a_pod_with_a_volume(api: Api, namespace: str, node: Instance) -> Json:
    """A pod on the node, and a claim; its persistent volume, once that is attached there."""
    await hands.make_class(api, namespace, driver=DRIVER)
    await hands.make_claim(api, namespace, "data", namespace)
    pod: dict[str, Any] = {
        "nodeName": node.private_dns_name,
        "containers": [{"name": "main", "image": "main"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    await eventually("the claim is Bound", lambda: hands.bound(api, namespace))
    pod["terminationGracePeriodSeconds"] = 0
    await api.create(hands.pods_of(namespace), {"metadata": {"name": "main"}, "spec": pod})
    [found] = await hands.persistent_volumes(api, namespace)

    async def attached() -> bool:
        return any(
            each["spec"]["source"].get("persistentVolumeName") == found["metadata"]["name"]
            and each.get("status", {}).get("attached")
            for each in await hands.items(api, hands.ATTACHMENTS)
        )

    await eventually("it is attached", attached)
    return found


async def test_names_tags_file_system_leases_and_logs_are_as_its_options_say(
    api: Api, namespace: str, hand: Ec2Hand, node: Instance, replica: Replica
):
    found = await a_pod_with_a_volume(api, namespace, node)
    [volume] = hand.of_cluster(namespace).values()

    assert (found["spec"]["csi"]["driver"], found["spec"]["csi"]["fsType"]) == (DRIVER, "xfs")
    assert found["spec"]["csi"]["volumeHandle"] == volume["VolumeId"]
    assert volume["Attachments"][0]["InstanceId"] == node.instance_id
    tags = hands.tags_of(volume)
    assert (tags["team"], tags["cost"]) == ("storage", "none")
    held = await hands.items(api, f"{LEASES}/{namespace}/leases")
    assert {each["metadata"]["name"] for each in held} == set(leadership.lease_names(DRIVER))
    assert len({each["spec"]["holderIdentity"] for each in held}) == 1
    lines = [json.loads(line) for line in replica.log.splitlines()]
    [start] = [line for line in lines if line["event"] == "starting"]
    assert (start["version"], start["driver"], start["cluster_id"]) == (
        *(version("ebs-provisioner"), DRIVER),
        namespace,
    )


async def test_each_flow_is_counted_with_its_duration(
    api: Api, namespace: str, hand: Ec2Hand, node: Instance, replica: Replica
):
    await a_pod_with_a_volume(api, namespace, node)
    await hands.discard(api, hands.pods_of(namespace))
    await hands.discard(api, hands.claims_of(namespace))

    async def nothing_left() -> bool:
        return not hand.of_cluster(namespace)

    await eventually("the volume is gone", nothing_left)
    for flow in ("provision", "attach", "detach", "delete"):

        async def counted(flow: str = flow) -> bool:
            return await replica.metric(f'ebs_provisioner_flow_seconds_count{{flow="{flow}"}}') == 1

        await eventually(f"{flow} is counted once", counted)
        assert 0 < await replica.metric(f'ebs_provisioner_flow_seconds_sum{{flow="{flow}"}}') < 60
