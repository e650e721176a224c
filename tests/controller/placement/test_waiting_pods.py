"""Volumes where the pods that use them are, or have to be."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.model.decision import SETTLED
from provisioner.model.errors import Reason, StorageError
from tests.builders import UID, a_claim, a_node
from tests.controller.full_zones import CHOSEN, A, B, C, other_claim, with_volume, world_of
from tests.pods import a_placed_volume, a_pod

FULL = Reason.ZONE_OUT_OF_CAPACITY


@pytest.mark.parametrize("zone", [A, B, C])
async def test_a_claim_that_binds_at_once_is_made_beside_the_other_volumes_of_its_pod(zone):
    logs = with_volume(other_claim(), "pv-of-logs")
    world = world_of(a_claim(), logs, waits=False, pod=a_pod("web", "data", "logs"))
    world.kube.objects["pv-of-logs"] = a_placed_volume(zone=zone)

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [zone]


async def test_claims_that_bind_at_once_at_the_same_time_are_made_side_by_side():
    names = ("data", "cache")  # spread to different zones by their names
    claims = [a_claim(names[0]), other_claim(names[1])]
    alone = []
    for claim in claims:
        world = world_of(claim, waits=False)
        await world.provisioner.reconcile(claim.uid)
        alone += world.zones_asked
    assert len(set(alone)) == 2
    world = world_of(*claims, waits=False, pod=a_pod("web", *names))

    await asyncio.gather(*(world.provisioner.reconcile(claim.uid) for claim in claims))

    assert len(set(world.zones_asked)) == 1


async def test_a_pod_on_a_node_gets_the_volume_of_its_claim_there_though_nobody_asks():
    unasked = a_claim(annotations={})
    world = world_of(unasked)
    world.provisioner.subscribe()
    world.provisioner.queue._entries.clear()

    world.caches.pods._store.apply(a_pod(node="node-b"))

    assert list(world.provisioner.queue._entries) == [UID]
    await world.provisioner.reconcile(UID)
    assert world.zones_asked == [B]


async def test_a_pod_on_its_node_counts_more_than_a_choice_that_a_former_pod_has_left():
    world = world_of(CHOSEN, pod=a_pod(node="node-b"))

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [B]


async def test_a_choice_counts_while_the_scheduler_still_has_a_pod_to_place():
    world = world_of(CHOSEN, pod=a_pod(node="node-b"))
    world.caches.pods._store.apply(a_pod("job"))
    world.caches.nodes._store.apply(a_node("node-a", zone=A, version="2"))

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [A]


async def test_a_pod_on_a_node_in_a_full_zone_waits_there():
    world = world_of(a_claim(annotations={}), pod=a_pod(node="node-b"), b=FULL)

    with pytest.raises(StorageError) as waits:
        await world.provisioner.reconcile(UID)

    assert set(world.zones_asked) == {B}
    assert "'node-b'" in waits.value.message


async def test_a_pod_that_waits_for_the_scheduler_asks_for_nothing():
    world = world_of(a_claim(annotations={}), pod=a_pod())

    assert await world.provisioner.reconcile(UID) == SETTLED

    assert world.zones_asked == []


async def test_a_claim_whose_volume_others_gave_meanwhile_gets_none_beside_it():
    """Our cache is behind: the claim is bound already, which its version tells."""
    world = world_of(a_claim(annotations={}), pod=a_pod(node="node-b"))
    seen = world.claim()
    bound = with_volume(seen, "static")
    patch = world.kube.patch

    async def behind(resource, name, body, **given):
        world.caches.claims._store._objects["shop/data"] = bound
        return await patch(resource, name, body, **given)

    world.kube.patch = behind  # type: ignore[method-assign]

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == []
