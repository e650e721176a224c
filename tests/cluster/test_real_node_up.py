"""A real node as such: pods run there, its parts die and come back and find each other again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from provisioner.controller.nodes.initialize_rules import LABELS
from provisioner.model.tags import cluster_key
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node import cloud, fleet
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.node import CONTAINERD, KUBELET, PLUGIN, RealNode
from provisioner.sandbox.strict_ec2.instances import make_instances
from provisioner.sandbox.up import Sandbox
from tests.cluster import real_pods
from tests.cluster.background import Background
from tests.cluster.bare_nodes import AGENT, UNINITIALIZED, Nodes, taints_of
from tests.cluster.cluster import CSI_NODES, NODES
from tests.cluster.kustomizations import mine, rendered
from tests.cluster.place import a_place
from tests.cluster.real_nodes import (
    NEEDS_A_REAL_NODE,
    is_registered,
    more_told,
    registered_anew,
    run,
    until_within,
    within,
)

pytestmark = NEEDS_A_REAL_NODE

KUBELETS_ROUND_S = 1.0  # in which it compares its registry with what is registered
SOCKET = "var/lib/kubelet/plugins_registry/ebs.csi.aws.com-reg.sock"


@pytest.fixture
def box(real: Background) -> Sandbox:
    real.sandbox.crew.check()
    return real.sandbox


@pytest.fixture
def node(box: Sandbox) -> RealNode:
    return box.real_nodes[0]


@pytest.fixture
async def sleeper(box: Sandbox) -> AsyncIterator[str]:
    """A pod on the first real node."""
    document = pod(
        "sleeper",
        "echo began; exec sleep 100000",
        {},
        image=POD_IMAGE,
        node=box.real_nodes[0].name,
        restartPolicy="Always",
        automountServiceAccountToken=True,
    )
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


async def started(box: Sandbox, name: str, namespace: str = "default") -> tuple[str, int]:
    """The id of a pod's container and how often it was started again."""
    asked = ("get", "pod", name, "--namespace", namespace, "-o", "json")
    found = json.loads(await kubectl(box.plane, *asked))
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
    async with asyncio.timeout(60):
        await until(has_failed)
    await real.call(node.start(CONTAINERD))
    await real.call(node.ready())

    assert await started(box, sleeper) == before
    real.sandbox.crew.check()


async def test_a_machine_that_comes_back_runs_its_pods_again_with_their_bytes(
    real: Background, box: Sandbox, node: RealNode
) -> None:
    write = "dd if=/dev/urandom of=/data/file bs=1M count=20 && touch /data/done && sync"
    script = f"[ -e /data/done ] || {{ {write}; }}; exec sleep 100000"
    look = ("user", "sha256sum", "/data/file")
    async with real_pods.watched(real) as cluster, a_place(cluster) as place:
        here = {"namespace": place.name}
        await real_pods.a_claim(place)
        await real_pods.start(place, "user", script, node=node.name, restartPolicy="Always")
        await real_pods.is_running(place, "user")
        await until_within(box, "user", "pidof", "sleep", **here)
        written, before = await within(box, *look, **here), await started(box, "user", **here)

        await real.call(node.power_off())
        assert node.pid == 0
        await real.call(node.boot())

        async def started_again() -> bool:
            return (await started(box, "user", **here))[1] > before[1]

        async with asyncio.timeout(50):
            await until(started_again)
        await until_within(box, "user", "pidof", "sleep", **here)
        assert await within(box, *look, **here) == written
        await real_pods.gone(place, "user")


async def test_pods_of_two_nodes_see_two_machines(box: Sandbox, sleeper: str) -> None:
    def mounts(node: RealNode) -> set[str]:
        return {line.split()[2] for line in node.mounts() if "/var/lib/kubelet/pods" in line}

    first, second = box.real_nodes
    assert mounts(first)
    assert not mounts(first) & mounts(second)
    # The token of the sleeper's account is mounted there, and nowhere else.
    assert "/kubelet/pods" not in Path("/proc/self/mountinfo").read_text()


@contextlib.asynccontextmanager
async def a_bare_node(real: Background) -> AsyncIterator[RealNode]:
    """One node more, as its kubelet registers it: no cloud controller, no node plugin."""
    box = real.sandbox
    tags = {cluster_key(box.cluster_id): "owned"}
    [instance] = await asyncio.to_thread(
        make_instances, box.ec2_endpoint, 1, box.zones[:1], tags=tags
    )
    node = RealNode(box.plane, instance, box.disks, initialized=False)
    try:
        await real.call(node.boot())
        yield node
    finally:
        await real.call(node.power_off())
        for kind in ("node", "csinode"):
            await kubectl(box.plane, "delete", kind, node.name, "--ignore-not-found")


async def test_without_a_cloud_controller_a_node_is_filled_in_and_freed_by_ours(
    real: Background,
) -> None:
    options = ("--initialize-nodes",)
    async with a_bare_node(real) as node, real_pods.watched(real, *options) as cluster:
        nodes, path = Nodes(cluster), f"{NODES}/{node.name}"
        found = await nodes.now(node.name)
        assert cloud.UNINITIALIZED in taints_of(found)
        assert "providerID" not in found["spec"]
        assert not found["metadata"]["labels"].keys() & set(LABELS)

        # As if it had waited for a minute; and as with --register-with-taints, for our plugin.
        await cluster.api.patch(path, {"spec": {"taints": [UNINITIALIZED, AGENT]}})
        found = await nodes.without_taint(node.name, cloud.UNINITIALIZED)

        instance = node.instance
        assert found["spec"]["providerID"] == f"aws:///us-east-1a/{instance.instance_id}"
        filled = ("us-east-1a", "us-east-1", instance.instance_type)
        assert tuple(found["metadata"]["labels"][key] for key in LABELS) == filled
        assert AGENT["key"] in taints_of(found)
        assert not (await cluster.api.get(f"{CSI_NODES}/{node.name}"))["spec"]["drivers"]

        await real.call(fleet.start_plugins(real.sandbox.plane, [node]))
        found = await nodes.without_taint(node.name, AGENT["key"])
        assert found["metadata"]["labels"]["topology.ebs.csi.aws.com/zone"] == "us-east-1a"
        assert await is_registered(real, node)


async def test_our_pods_come_up_on_a_node_that_waits_for_them(
    real: Background, tmp_path: Path
) -> None:
    """Their tolerations as kubectl renders them; on a new cluster all nodes are like this one."""
    box = real.sandbox
    folder = mine(tmp_path, resources=["", "webhook"], components=["initialize-nodes"])
    deployments = [each for each in await rendered(box, folder) if each["kind"] == "Deployment"]
    async with a_bare_node(real) as node:
        taints = [UNINITIALIZED, AGENT]
        patch = json.dumps({"spec": {"taints": taints}})
        await kubectl(box.plane, "patch", "node", node.name, "--type=merge", f"--patch={patch}")
        for each in deployments:
            name = each["metadata"]["name"]
            document = pod(
                name,
                "exec sleep 100000",
                {},
                image=POD_IMAGE,
                nodeSelector={"kubernetes.io/hostname": node.name},
                tolerations=each["spec"]["template"]["spec"]["tolerations"],
            )
            await run(box, document)
            found = json.loads(await kubectl(box.plane, "get", "node", node.name, "-o", "json"))
            assert {UNINITIALIZED["key"], AGENT["key"]} <= set(taints_of(found))
            await kubectl(box.plane, "delete", "pod", name, "--timeout=50s")
    assert len(deployments) == 2


async def test_while_the_plugin_is_replaced_its_driver_stays_in_csinode(
    real: Background, node: RealNode
):
    async with registered_anew(real, node):
        await real.call(node.host.kill(PLUGIN, signal.SIGTERM))
        await asyncio.sleep(3 * KUBELETS_ROUND_S)  # that nothing happens can only be waited for
        assert await is_registered(real, node)
        await real.call(node.start(PLUGIN))


async def test_a_plugin_that_was_killed_is_registered_again(real: Background, node: RealNode):
    async with registered_anew(real, node):
        await real.call(node.restart(PLUGIN))


async def test_a_registration_that_is_removed_comes_back(real: Background, node: RealNode):
    async with registered_anew(real, node):
        await asyncio.to_thread((node.root / SOCKET).unlink)


async def test_a_kubelet_that_restarts_registers_it(real: Background, node: RealNode):
    async with registered_anew(real, node):
        await real.call(node.restart(KUBELET))


async def test_a_kubelet_whose_folders_were_wiped_registers_it(real: Background, node: RealNode):
    async with registered_anew(real, node):
        await real.call(node.kill(KUBELET))
        for name in ("plugins_registry", "plugins/ebs.csi.aws.com"):
            wipe = partial(shutil.rmtree, node.root / "var/lib/kubelet" / name)
            await asyncio.to_thread(wipe)
        await real.call(node.start(KUBELET))


async def test_a_kubelet_that_finds_a_dead_socket_takes_the_next_one(
    real: Background, node: RealNode
):
    """As after a reboot: what were the sockets is still in the folders."""
    async with registered_anew(real, node):
        await real.call(node.kill(PLUGIN))
        await real.call(node.kill(KUBELET))
        assert await asyncio.to_thread((node.root / SOCKET).is_socket)
        async with more_told(node, KUBELET, SOCKET):
            await real.call(node.start(KUBELET))
        await real.call(node.start(PLUGIN))
