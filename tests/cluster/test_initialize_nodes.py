"""--initialize-nodes: Nodes as kubelet registers them where no cloud controller runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from provisioner.controller.nodes.initialize_rules import LABELS, TAINT
from provisioner.sandbox import nodes as whole_nodes
from provisioner.sandbox.strict_ec2.instances import Instance
from tests.cluster import bare_nodes
from tests.cluster.background import Background
from tests.cluster.bare_nodes import UNINITIALIZED, Nodes, taints_of
from tests.cluster.cluster import Cluster, Json, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
ZONE, REGION, TYPE = LABELS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(background: Background) -> AsyncIterator[Nodes]:
    async with (
        opened(background, "--initialize-nodes") as cluster,
        bare_nodes.some(cluster) as made,
    ):
        yield made


async def address_of(cluster: Cluster, instance: Instance) -> str:
    asked = {"InstanceIds": [instance.instance_id]}
    reply = await asyncio.to_thread(cluster.ec2.describe_instances, **asked)
    return str(reply["Reservations"][0]["Instances"][0]["PrivateIpAddress"])


def facts_of(instance: Instance) -> dict[str, str]:
    return {ZONE: instance.zone, REGION: instance.region, TYPE: instance.instance_type}


async def initialized(nodes: Nodes, node: Json, instance: Instance) -> None:
    """Wait for that, by one write; all that was there is there."""
    name = node["metadata"]["name"]
    after = await nodes.without_taint(name, TAINT)
    labels = after["metadata"]["labels"]
    assert labels.items() >= (node["metadata"]["labels"] | facts_of(instance)).items()
    assert after["spec"]["providerID"] == f"aws:///{instance.zone}/{instance.instance_id}"
    assert after["metadata"]["uid"] == node["metadata"]["uid"]
    assert instance.instance_id in await nodes.event(name, "Initialized")


async def refused(nodes: Nodes, node: Json, says: str) -> None:
    """Wait for the event, and see that nothing was written."""
    name = node["metadata"]["name"]
    assert says in await nodes.event(name, "NotInitialized")
    after = await nodes.now(name)
    assert TAINT in taints_of(after)
    assert after["metadata"]["labels"] == node["metadata"]["labels"]
    assert after["spec"].get("providerID") == node["spec"].get("providerID")
    assert await nodes.patches(name) == 0


async def test_a_dozen_that_come_at_once_are_found_by_name_and_filled_in_once(nodes: Nodes):
    await nodes.cluster.control(reset_counts=True)
    made = await nodes.instances(12)
    born = await asyncio.gather(*(nodes.born(each.private_dns_name) for each in made))

    for node, instance in zip(born, made, strict=True):
        await initialized(nodes, node, instance)

    names = [node["metadata"]["name"] for node in born]
    assert [await nodes.patches(name) for name in names] == [1] * len(names)
    report = await nodes.cluster.control()
    assert report["calls"]["DescribeInstances"] <= 4


async def test_a_node_is_found_by_its_address_and_keeps_its_other_taints(nodes: Nodes):
    [instance] = await nodes.instances()
    other = {"key": "example.com/other", "value": "x", "effect": "NoSchedule"}

    node = await nodes.born(
        taints=[other, UNINITIALIZED], address=await address_of(nodes.cluster, instance)
    )

    await initialized(nodes, node, instance)
    after = await nodes.now(node["metadata"]["name"])
    assert other in after["spec"]["taints"]


async def test_a_node_that_names_its_instance_needs_no_tag(nodes: Nodes):
    [instance] = await nodes.instances(cluster_id="another-cluster")
    provider_id = f"aws:///{instance.zone}/{instance.instance_id}"

    node = await nodes.born(provider_id=provider_id, labels={ZONE: instance.zone})

    await initialized(nodes, node, instance)


async def test_a_young_node_is_left_to_a_cloud_controller_that_may_come(nodes: Nodes):
    young, old = await nodes.instances(2)
    taint = {key: value for key, value in UNINITIALIZED.items() if key != "timeAdded"}

    first = await nodes.born(young.private_dns_name, taints=[taint])
    await initialized(nodes, await nodes.born(old.private_dns_name), old)

    assert TAINT in taints_of(await nodes.now(first["metadata"]["name"]))
    assert await nodes.patches(first["metadata"]["name"]) == 0


async def test_another_clusters_instance_is_not_taken_until_it_gets_our_tag(nodes: Nodes):
    cluster = nodes.cluster
    [instance] = await nodes.instances(cluster_id="another-cluster")
    node = await nodes.born(instance.private_dns_name)
    await refused(nodes, node, "no running instance with the tag kubernetes.io/cluster/")

    ours = {"Key": f"kubernetes.io/cluster/{cluster.sandbox.cluster_id}", "Value": "shared"}
    await asyncio.to_thread(cluster.ec2.create_tags, Resources=[instance.instance_id], Tags=[ours])
    await nodes.wake(instance.private_dns_name)

    await initialized(nodes, node, instance)


async def test_two_instances_of_one_address_are_none(nodes: Nodes):
    ec2 = nodes.cluster.ec2
    one, two = await nodes.instances(2)
    address = await address_of(nodes.cluster, one)

    def move() -> None:
        """Another interface of the second one, in a network that has the same addresses."""
        block = address.rpartition(".")[0] + ".0/24"
        vpc = ec2.create_vpc(CidrBlock=block)["Vpc"]["VpcId"]
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=two.zone)
        subnet = made["Subnet"]["SubnetId"]
        interface = ec2.create_network_interface(SubnetId=subnet, PrivateIpAddress=address)
        ec2.attach_network_interface(
            NetworkInterfaceId=interface["NetworkInterface"]["NetworkInterfaceId"],
            InstanceId=two.instance_id,
            DeviceIndex=1,
        )

    await asyncio.to_thread(move)

    node = await nodes.born(address=address)

    await refused(nodes, node, ", ".join(sorted((one.instance_id, two.instance_id))))


@pytest.mark.parametrize(
    ("labels", "provider_id", "says"),
    [
        ({ZONE: "us-east-1z"}, "", "the label topology.kubernetes.io/zone is us-east-1z"),
        ({}, "aws:///us-east-1z/{id}", "but EC2 has instance {id}"),
        ({}, "k3s://worker", "names no EC2 instance"),
    ],
)
async def test_what_stands_there_already_is_never_overwritten(
    nodes: Nodes, labels: dict[str, str], provider_id: str, says: str
):
    [instance] = await nodes.instances()

    node = await nodes.born(
        instance.private_dns_name,
        labels=labels,
        provider_id=provider_id.format(id=instance.instance_id),
    )

    await refused(nodes, node, says.format(id=instance.instance_id))


async def test_an_instance_is_never_given_to_two_nodes(nodes: Nodes):
    [instance] = await nodes.instances()
    node = await nodes.born(instance.private_dns_name)
    await initialized(nodes, node, instance)

    thief = await nodes.born(address=await address_of(nodes.cluster, instance))

    await refused(nodes, thief, f"is already node {instance.private_dns_name}")


async def test_the_address_of_a_machine_that_is_gone_makes_its_node_no_other(nodes: Nodes):
    [instance] = await nodes.instances()
    address = await address_of(nodes.cluster, instance)

    old = await nodes.born(address=address, ready="Unknown")
    await refused(nodes, old, "its kubelet does not answer")
    new = await nodes.born(address=address, ready="False")
    both = f"{old['metadata']['name']} may be instance {instance.instance_id} too (it has {address}"
    await refused(nodes, new, both)
    await refused(nodes, old, "its kubelet does not answer")
    await nodes.remove(old["metadata"]["name"])
    await nodes.wake(new["metadata"]["name"])

    await initialized(nodes, new, instance)


async def test_an_instance_that_does_not_run_is_no_node(nodes: Nodes):
    [instance] = await nodes.instances()
    stop = {"InstanceIds": [instance.instance_id]}
    await asyncio.to_thread(nodes.cluster.ec2.stop_instances, **stop)

    provider_id = f"aws:///{instance.zone}/{instance.instance_id}"
    await refused(nodes, await nodes.born(provider_id=provider_id), "is stopped")
    by_name = await nodes.born(instance.private_dns_name)
    await refused(nodes, by_name, "no running instance")


async def test_a_node_made_anew_is_initialized_anew_and_a_whole_one_is_left(nodes: Nodes):
    [instance] = await nodes.instances()
    name = instance.private_dns_name
    old = await nodes.born(name)
    await initialized(nodes, old, instance)
    await nodes.remove(name)

    new = await nodes.born(name)
    await initialized(nodes, new, instance)

    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    untouched = nodes.cluster.instance().private_dns_name
    assert whole_nodes.node(nodes.cluster.instance())["metadata"]["name"] == untouched
    assert await nodes.patches(untouched) == 0


@contextlib.asynccontextmanager
async def held(cluster: Cluster, name: str) -> AsyncIterator[None]:
    """A lease that somebody holds."""
    spec = {
        "holderIdentity": "ip-10-0-0-9_cloud",
        "leaseDurationSeconds": 600,
        "renewTime": "2026-11-22T05:00:00.000000Z",
    }
    await cluster.api.create(LEASES, {"metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        await cluster.api.delete(f"{LEASES}/{name}")


@pytest.mark.parametrize("name", ["cloud-controller-manager", "k3s-cloud-controller-manager"])
async def test_nodes_are_a_cloud_controllers_for_as_long_as_it_holds_its_lease(
    nodes: Nodes, name: str
):
    cluster = nodes.cluster
    [instance] = await nodes.instances()
    cluster.forget_log()
    async with held(cluster, name):
        node = await nodes.born(instance.private_dns_name)

        async def left() -> Any:
            return cluster.said("nodes are left to it")

        await cluster.until("the lease is heeded", left)
        assert await nodes.patches(instance.private_dns_name) == 0

    await initialized(nodes, node, instance)


async def test_a_controller_that_was_killed_meanwhile_goes_on_and_does_nothing_twice(nodes: Nodes):
    cluster = nodes.cluster
    one, two, three = await nodes.instances(3)
    first = await nodes.born(one.private_dns_name)
    await initialized(nodes, first, one)
    await cluster.stop()
    late = await nodes.born(two.private_dns_name)
    # As if what wrote before us had died between the labels and the taint.
    provider_id = f"aws:///{three.zone}/{three.instance_id}"
    begun = await nodes.born(labels=facts_of(three), provider_id=provider_id)

    await cluster.start("--initialize-nodes")

    await initialized(nodes, late, two)
    await initialized(nodes, begun, three)
    assert await nodes.patches(one.private_dns_name) == 1
