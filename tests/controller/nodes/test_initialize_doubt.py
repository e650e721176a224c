"""An instance is given to no Node while another Node may be that instance."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.controller.nodes.initialize import AGAIN_S
from provisioner.model.decision import Later
from tests.builders import a_csi_node, owned_csi_node
from tests.controller.initialize_world import (
    ADDRESS,
    ID,
    NAME,
    OTHER_ID,
    World,
    a_node,
    an_instance,
    is_initialized,
)


def with_ready(node: dict[str, Any], status: str) -> dict[str, Any]:
    node["status"]["conditions"] = [{"type": "Ready", "status": status}]
    return node


@pytest.fixture
def world() -> World:
    world = World()
    world.cloud.running = [an_instance(private_dns_name="")]
    return world


async def test_two_nodes_that_claim_one_address_get_the_instance_neither(world: World):
    names = ("worker-1", "worker-2")
    for name in names:
        world.api.put(a_node(name, uid=name))

    waits = await asyncio.gather(*map(world.flow.reconcile, names))

    assert waits == [Later(AGAIN_S)] * 2
    assert world.api.sent == []
    assert f"node worker-1 may be instance {ID} too (it has {ADDRESS})" in str(world.told)
    assert f"node worker-2 may be instance {ID} too (it has {ADDRESS})" in str(world.told)


async def test_two_nodes_with_two_addresses_of_one_instance_get_it_neither(world: World):
    world.cloud.running = [an_instance(private_addresses=(ADDRESS, "10.0.1.1"))]
    second = a_node("worker-2", uid="worker-2")
    second["status"]["addresses"][0]["address"] = "10.0.1.1"
    world.api.put(a_node("worker-1", uid="worker-1"))
    world.api.put(second)

    for name in ("worker-1", "worker-2"):
        assert await world.flow.reconcile(name) == Later(AGAIN_S)

    assert world.api.sent == []


async def test_a_name_kept_in_an_image_does_not_make_it_the_machine_of_that_name(world: World):
    world.cloud.running = [an_instance()]
    copy = a_node()
    copy["status"]["addresses"][0]["address"] = "10.0.77.7"
    world.api.put(copy)

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)

    assert world.api.sent == []
    [(reason, message)] = world.told
    assert (reason, "10.0.77.7" in message) == ("NotInitialized", True)


async def test_the_address_of_a_dead_node_given_out_again_makes_it_no_other_machine(world: World):
    world.api.put(with_ready(a_node("old", uid="old"), "Unknown"))
    assert await world.flow.reconcile("old") == Later(AGAIN_S)
    assert world.cloud.asked == []
    world.api.put(with_ready(a_node("new", uid="new"), "False"))
    assert await world.flow.reconcile("old") == Later(AGAIN_S)
    assert await world.flow.reconcile("new") == Later(AGAIN_S)
    assert world.api.sent == []

    # As the event says: the Node that is gone is deleted.
    world.api.caches.nodes._store.remove("old", "999")
    await world.flow.reconcile("new")

    assert is_initialized(world, "new")


async def test_a_node_that_falls_silent_meanwhile_is_left(world: World):
    world.api.put(with_ready(a_node(), "True"))
    world.api.put(with_ready(a_node(), "Unknown"), is_seen=False)

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)

    assert "providerID" not in world.spec()


async def test_another_instance_by_its_own_node_plugin_is_refused(world: World):
    world.api.put(a_node())
    world.api.caches.csi_nodes._store.apply(owned_csi_node(NAME, uid="uid-1", instance=OTHER_ID))

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)

    assert world.api.sent == []
    assert OTHER_ID in world.told[0][1]


async def test_what_was_told_of_a_node_of_the_same_name_before_does_not_count(world: World):
    world.api.put(a_node())
    world.api.caches.csi_nodes._store.apply(owned_csi_node(NAME, uid="old", instance=OTHER_ID))

    await world.flow.reconcile(NAME)

    assert is_initialized(world)


async def test_an_instance_that_another_node_names_is_refused(world: World):
    world.api.put(a_node())
    world.api.put(a_node("worker-9", "uid-9", providerID=f"aws:///us-east-1a/{ID}"))

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)

    assert world.api.sent == []
    assert "is already node worker-9" in world.told[0][1]


async def test_an_instance_of_another_nodes_plugin_is_refused(world: World):
    world.api.put(a_node())
    world.api.caches.csi_nodes._store.apply(a_csi_node("worker-9", instance=ID))

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)

    assert world.api.sent == []
    assert "is already node worker-9" in world.told[0][1]
