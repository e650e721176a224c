"""The startup taint, with nodes and registrations as kubelet writes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster import bare_nodes
from tests.cluster.background import Background
from tests.cluster.bare_nodes import AGENT, Nodes, taints_of
from tests.cluster.cluster import CSI_NODES, NODES, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = {"key": "example.com/other", "value": "x", "effect": "NoSchedule"}
KEY = AGENT["key"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(background: Background) -> AsyncIterator[Nodes]:
    async with opened(background) as cluster, bare_nodes.some(cluster) as made:
        yield made


async def test_a_node_is_freed_once_its_driver_tells_how_much_fits(nodes: Nodes):
    again = AGENT | {"effect": "NoSchedule"}
    node = await nodes.born(taints=[OTHER, AGENT, again])
    name = node["metadata"]["name"]
    await nodes.register(name, node, allocatable=None)
    freed = await nodes.born(taints=[AGENT])
    await nodes.register(freed["metadata"]["name"], freed, {"count": 25})
    await nodes.without_taint(freed["metadata"]["name"], KEY)  # so the first one has been seen
    assert KEY in taints_of(await nodes.now(name))

    await nodes.cluster.api.delete(f"{CSI_NODES}/{name}")
    await nodes.register(name, node, {"count": 25})

    after = await nodes.without_taint(name, KEY)
    assert OTHER in after["spec"]["taints"]
    assert await nodes.patches(name) == 1


async def test_a_taint_that_comes_again_goes_again(nodes: Nodes):
    node = await nodes.born(taints=[])
    name = node["metadata"]["name"]
    await nodes.register(name, node, {"count": 0})
    for _ in range(2):
        taints = (await nodes.now(name))["spec"].get("taints", [])
        await nodes.cluster.api.patch(f"{NODES}/{name}", {"spec": {"taints": [*taints, AGENT]}})

        await nodes.without_taint(name, KEY)


async def test_what_is_registered_for_another_node_frees_nobody(nodes: Nodes):
    before = await nodes.born(taints=[])
    node = await nodes.born(taints=[AGENT])
    name = node["metadata"]["name"]
    await nodes.register(name, before, {"count": 25})
    freed = await nodes.born(taints=[AGENT])
    await nodes.register(freed["metadata"]["name"], freed, {"count": 25})
    await nodes.without_taint(freed["metadata"]["name"], KEY)
    assert KEY in taints_of(await nodes.now(name))

    await nodes.cluster.api.delete(f"{CSI_NODES}/{name}")
    await nodes.register(name, node, {"count": 25})

    await nodes.without_taint(name, KEY)


async def test_nodes_made_anew_wait_for_their_own_registration(nodes: Nodes):
    old = await nodes.born(taints=[AGENT])
    name = old["metadata"]["name"]
    await nodes.register(name, old, {"count": 25})
    await nodes.without_taint(name, KEY)
    await nodes.remove(name)

    new = await nodes.born(name, taints=[AGENT])
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    await nodes.register(name, new, {"count": 25})

    await nodes.without_taint(name, KEY)
