"""A real node as such: pods run there, and its parts die and come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node import cloud
from provisioner.sandbox.real_node.node import CONTAINERD, KUBELET, PLUGIN, RealNode
from provisioner.sandbox.up import Sandbox
from tests.cluster import real_pods
from tests.cluster.background import Background
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE, pod, run, until_within, within

pytestmark = NEEDS_A_REAL_NODE


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    yield from real_pods.background()


@pytest.fixture
def box(real: Background) -> Sandbox:
    real.sandbox.crew.check()
    return real.sandbox


@pytest.fixture
async def sleeper(box: Sandbox) -> AsyncIterator[str]:
    """A pod on the first real node."""
    document = pod("sleeper", box.real_nodes[0].name, "sh", "-c", "echo began; exec sleep 100000")
    await run(box, document)
    yield "sleeper"
    await kubectl(box.plane, "delete", "pod", "sleeper", "--timeout=50s")


async def test_a_pod_runs_there_and_can_be_looked_into(box: Sandbox, sleeper: str) -> None:
    assert await within(box, sleeper, "cat", "/proc/1/cmdline") == "sleep\x00100000\0"
    assert await kubectl(box.plane, "logs", sleeper) == "began\n"


async def test_the_nodes_are_what_a_cloud_controller_makes_of_them(box: Sandbox) -> None:
    first, second = box.real_nodes
    for node in (first, second):
        found = json.loads(await kubectl(box.plane, "get", "node", node.name, "-o", "json"))
        labels = found["metadata"]["labels"]
        assert labels["topology.kubernetes.io/zone"] == node.instance.zone == "us-east-1a"
        assert labels["topology.kubernetes.io/region"] == "us-east-1"
        assert labels["node.kubernetes.io/instance-type"] == node.instance.instance_type
        assert found["spec"]["providerID"] == f"aws:///us-east-1a/{node.instance.instance_id}"
        assert "taints" not in found["spec"]
        # KWOK would answer for its pods.
        assert "kwok.x-k8s.io/node" not in found["metadata"]["annotations"]


async def test_the_node_plugin_is_registered_with_its_instance(box: Sandbox) -> None:
    node = box.real_nodes[0]
    found = json.loads(await kubectl(box.plane, "get", "csinode", node.name, "-o", "json"))

    (driver,) = found["spec"]["drivers"]
    assert (driver["name"], driver["nodeID"]) == ("ebs.csi.aws.com", node.instance.instance_id)
    assert driver["allocatable"]["count"] > 0


async def started(box: Sandbox, name: str) -> tuple[str, int]:
    """The id of a pod's container and how often it was started again."""
    found = json.loads(await kubectl(box.plane, "get", "pod", name, "-o", "json"))
    (status,) = found["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


@pytest.mark.parametrize("part", [KUBELET, CONTAINERD, PLUGIN])
async def test_a_part_that_is_killed_and_started_again_leaves_pods_running(
    real: Background, box: Sandbox, sleeper: str, part: str
) -> None:
    node, before = box.real_nodes[0], await started(box, sleeper)
    await within(box, sleeper, "touch", "/root/mine")

    await real.call(node.kill(part))
    await real.call(node.start(part))
    await real.call(node.ready())

    # A kubelet that has just begun may not have been told of its pods yet.
    await until_within(box, sleeper, "test", "-e", "/root/mine")
    assert await started(box, sleeper) == before
    real.sandbox.crew.check()


async def test_a_kubelet_that_begins_without_its_containerd_begins_again(
    real: Background, box: Sandbox, sleeper: str
) -> None:
    node, before = box.real_nodes[0], await started(box, sleeper)
    failures = node.log(KUBELET).read_text().count("command failed")

    async def has_failed() -> bool:
        return node.log(KUBELET).read_text().count("command failed") > failures

    await real.call(node.kill(CONTAINERD))
    await real.call(node.restart(KUBELET))
    async with asyncio.timeout(10):
        await until(has_failed)
    await real.call(node.start(CONTAINERD))
    await real.call(node.ready())

    assert await started(box, sleeper) == before
    real.sandbox.crew.check()


async def test_a_machine_that_comes_back_runs_its_pods_again(
    real: Background, box: Sandbox, sleeper: str
) -> None:
    node, before = box.real_nodes[0], await started(box, sleeper)

    await real.call(node.power_off())
    assert node.pid == 0
    await real.call(node.boot())

    async def started_again() -> bool:
        return (await started(box, sleeper))[1] > before[1]

    async with asyncio.timeout(50):
        await until(started_again)
    await until_within(box, sleeper, "true")


async def test_pods_of_two_nodes_see_two_machines(box: Sandbox, sleeper: str) -> None:
    def mounts(node: RealNode) -> set[str]:
        return {line.split()[2] for line in node.mounts() if "/var/lib/kubelet/pods" in line}

    first, second = box.real_nodes
    assert mounts(first)
    assert not mounts(first) & mounts(second)
    # The token of the sleeper's account is mounted there, and nowhere else.
    assert "/kubelet/pods" not in Path("/proc/self/mountinfo").read_text()


async def test_without_a_cloud_controller_a_node_waits_to_be_filled_in() -> None:
    start = Sandbox.start(
        nodes=0,
        zones=1,
        latency="none",
        controller=False,
        real_nodes=1,
        node_plugin=False,
        cloud_controller=False,
    )
    async with start as box:
        (node,) = box.real_nodes
        path = f"/api/v1/nodes/{node.name}"
        found = await box.plane.api.get(path)
        assert cloud.UNINITIALIZED in {each["key"] for each in found["spec"]["taints"]}
        assert "providerID" not in found["spec"]
        assert not [key for key in found["metadata"]["labels"] if key.startswith("topology.")]

        await cloud.initialize(box.plane.api, node.instance)
        found = await box.plane.api.get(path)
        assert found["spec"]["providerID"] == f"aws:///us-east-1a/{node.instance.instance_id}"
        assert cloud.UNINITIALIZED not in {e["key"] for e in found["spec"].get("taints", ())}
