"""Claims that wait for room at EC2 while nodes come and go: who is woken, and what that costs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from provisioner.model.errors import Reason, StorageError
from tests.builders import UID, a_claim, a_class, a_csi_node, a_node, a_term
from tests.controller.full_zones import A, B, C, FullZones, world_of
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.pods import a_pod

FULL = Reason.ZONE_OUT_OF_CAPACITY
D = "us-east-1d"


def join(world: FullZones, name: str, zone: str) -> None:
    world.caches.nodes._store.apply(a_node(name, zone=zone))
    world.caches.csi_nodes._store.apply(a_csi_node(name))


def asked_while_nodes_join(zone: str | None, *, allowed: list[str]) -> int:
    """How often EC2 is asked for one claim in five minutes, with the real queue."""

    async def story(_: Clock) -> int:
        world = world_of(a_claim(), waits=False, pod=a_pod(), a=FULL, b=FULL, c=FULL)
        world.caches.classes._store._objects["fast"] = a_class(allowed=[a_term(zone=allowed)])
        world.provisioner.subscribe()
        running = asyncio.create_task(world.provisioner.queue.run())
        world.provisioner.queue.add(UID)
        for number in range(300):
            await asyncio.sleep(1.0)
            if zone is not None:
                join(world, f"new-{number}", zone)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return len(world.zones_asked)

    return in_virtual_time(story)


@pytest.mark.parametrize("zone", [A, D], ids=["where it was refused", "where it may not be"])
def test_nodes_that_join_do_not_have_ec2_asked_more_often(zone):
    calm = asked_while_nodes_join(None, allowed=[A, B, C])

    assert asked_while_nodes_join(zone, allowed=[A, B, C]) == calm


async def test_a_node_in_a_zone_that_was_not_asked_yet_has_it_asked_at_once():
    world = world_of(a_claim(), waits=False, pod=a_pod(), a=FULL, b=FULL, c=FULL)
    world.provisioner.subscribe()
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    world.provisioner.queue._entries.clear()

    join(world, "new", D)

    assert list(world.provisioner.queue._entries) == [UID]
    await world.provisioner.reconcile(UID)
    assert world.zones_asked[3:] == [D]


async def test_a_node_where_ec2_has_refused_wakes_only_claims_that_were_refused_nothing():
    world = world_of(a_claim(), waits=False, pod=a_pod(), a=FULL, b=FULL, c=FULL)
    world.provisioner.subscribe()
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    world.provisioner.queue._entries.clear()
    world.provisioner._zones._without_zone["no-zone-at-all"] = frozenset()

    join(world, "new", A)

    assert list(world.provisioner.queue._entries) == ["no-zone-at-all"]


def waits_for(*names: str) -> FullZones:
    """Each claim, named like its node, has one on which the driver is not registered yet."""
    claims = [a_claim(name, uid=f"uid-of-{name}", node=name) for name in names]
    world = FullZones(*claims)
    for name in names:
        world.caches.nodes._store.apply(a_node(name, zone=A))
        world.kube.objects[name] = a_csi_node(name, driver=None)
    world.provisioner.subscribe()
    return world


async def is_refused(world: FullZones, uid: str) -> None:
    """It has its pass, and nobody has queued it again since."""
    world.provisioner.queue._entries.clear()
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(uid)


async def test_a_claim_that_waits_for_its_node_is_woken_by_no_other():
    world = waits_for("new")
    await is_refused(world, "uid-of-new")

    join(world, "other", A)
    assert not world.provisioner.queue._entries

    join(world, "new", A)
    assert list(world.provisioner.queue._entries) == ["uid-of-new"]


async def test_a_claim_that_was_given_another_node_is_woken_by_that_one_while_it_is_read():
    world = waits_for("new", "next")
    await is_refused(world, "uid-of-new")
    world.choose("next", "uid-of-new")
    plain = world.kube.get

    async def get(resource: Any, name: str, namespace: str = "") -> Any:
        join(world, "next", A)
        return await plain(resource, name, namespace)

    world.kube.get = get  # type: ignore[method-assign]
    await is_refused(world, "uid-of-new")

    assert list(world.provisioner.queue._entries) == ["uid-of-new"]


async def test_a_claim_that_no_longer_has_a_node_is_woken_by_any():
    world = waits_for("new")
    no_zone = a_class(allowed=[a_term(zone=[A], ebs_zone=[B])], waits=False)
    world.caches.classes._store._objects["fast"] = no_zone
    await is_refused(world, "uid-of-new")
    world.choose("", "uid-of-new")
    await is_refused(world, "uid-of-new")

    join(world, "other", A)

    assert list(world.provisioner.queue._entries) == ["uid-of-new"]


def test_a_hundred_nodes_that_register_do_not_have_the_others_read_for_each():
    names = [f"new-{number}" for number in range(100)]

    async def story(_: Clock) -> tuple[int, int]:
        world = waits_for(*names)
        running = asyncio.create_task(world.provisioner.queue.run())
        await asyncio.sleep(0.1)
        world.kube.read.clear()
        for name in names:
            world.caches.csi_nodes._store.apply(a_csi_node(name))
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return len(world.kube.read), len(world.ec2.requests)

    read, made = in_virtual_time(story)

    assert (read <= len(names), made) == (True, len(names))


async def test_a_change_of_the_class_has_all_of_it_asked_at_once():
    world = world_of(a_claim(), waits=False, a=FULL, b=FULL, c=FULL)
    world.provisioner.subscribe()
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    asked = len(world.zones_asked)
    world.full.clear()

    later = msgspec.structs.replace(a_class().metadata, resource_version="99")
    world.caches.classes._store.apply(msgspec.structs.replace(a_class(), metadata=later))

    await world.provisioner.reconcile(UID)
    assert len(world.zones_asked) == asked + 1


async def test_hundreds_of_zones_can_refuse_one_after_the_other():
    zones = [f"us-east-1{number}" for number in range(500)]
    world = world_of(a_claim(), waits=False)
    world.full = dict.fromkeys(zones, Reason.ZONE_NOT_FOUND)
    world.caches.classes._store._objects["fast"] = a_class(allowed=[a_term(zone=zones)])

    with pytest.raises(StorageError) as waits:
        await world.provisioner.reconcile(UID)

    assert sorted(world.zones_asked) == sorted(zones)
    assert waits.value.retry_after_s == 60.0
