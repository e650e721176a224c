"""A real kubelet and the node plugin find each other again, whoever of them was gone."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from provisioner.sandbox import control_plane
from provisioner.sandbox.real_node import cloud, requirements
from provisioner.sandbox.real_node.node import KUBELET, PLUGIN, RealNode
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background

KUBELETS_ROUND_S = 1.0  # in which it compares its registry with what is registered
BACK_S = 30.0
SOCKET = "var/lib/kubelet/plugins_registry/ebs.csi.aws.com-reg.sock"


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    if why := requirements.missing():
        pytest.skip(why)
    start = Sandbox.start(
        nodes=0, zones=1, real_nodes=1, latency="none", throttle="none", controller=False
    )
    with Background(start) as running:
        yield running


@pytest.fixture
def node(real: Background) -> RealNode:
    assert real.sandbox.fleet is not None
    (found,) = real.sandbox.fleet.nodes
    return found


async def is_registered(real: Background, node: RealNode) -> bool:
    api = real.sandbox.plane.api
    return await real.call(cloud.has_driver(api, node.name, node.instance.instance_id))


def times_told(node: RealNode, part: str, words: str) -> int:
    return node.log(part).read_text().count(words)


@asynccontextmanager
async def more_told(node: RealNode, part: str, words: str) -> AsyncIterator[None]:
    """Wait, after the block, until a part's log has more of these words than before it."""
    before = times_told(node, part, words)
    yield

    async def told() -> bool:
        return await asyncio.to_thread(times_told, node, part, words) > before

    await asyncio.wait_for(control_plane.until(told), BACK_S)


@asynccontextmanager
async def registered_anew(real: Background, node: RealNode) -> AsyncIterator[None]:
    """Wait, after the block, until the kubelet has told that it registered the plugin once more."""
    async with more_told(node, PLUGIN, "registered with the kubelet"):
        yield
    await asyncio.wait_for(real.call(node.ready()), BACK_S)
    assert await is_registered(real, node)


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
