"""Snapshots of cross_zone_clones and those of users are of the same volumes: EC2's limits are shared."""

from __future__ import annotations

import asyncio

from provisioner.model.ebs_snapshot import EVERY_S
from provisioner.model.errors import Ec2Error, Reason
from tests.builders import UID, VOLUME
from tests.controller.source_world import SourceWorld
from tests.controller.sources.test_cross_zone import (
    PENDING,
    a_clone_across,
    once_across,
    until_settled,
)
from tests.ec2.virtual_time import Clock, in_virtual_time


def test_a_clone_across_zones_waits_for_the_snapshot_of_a_user():
    world = a_clone_across()

    async def story(clock: Clock) -> float:
        began_s = clock()
        turns = world.snapshots.turns
        turns.begin(VOLUME)
        turns.end(VOLUME, asyncio.get_running_loop().time())
        settling = asyncio.create_task(until_settled(world))
        while not world.snapshots.asked:  # noqa: ASYNC110 -- virtual time
            await asyncio.sleep(0.1)
        asked_s = clock() - began_s
        await settling
        await world.provisioner.close()
        return asked_s

    assert EVERY_S <= in_virtual_time(story) < EVERY_S + 5
    assert any("one snapshot of a volume every 15 s" in told for told in world.events.told)


def test_a_user_waits_for_the_snapshot_of_a_clone_across_zones():
    async def story(_: Clock) -> float:
        world = a_clone_across()
        await world.provisioner.reconcile(UID)
        now_s = asyncio.get_running_loop().time()
        waits_s = world.snapshots.turns.waits_s(VOLUME, now_s)
        asked = len(world.snapshots.asked)
        await world.provisioner.close()
        return waits_s if asked else 0.0

    # The first look at it takes two seconds, since others share it.
    assert EVERY_S - 3 < in_virtual_time(story) <= EVERY_S


def test_a_refusal_of_a_clone_across_zones_holds_back_the_volume():
    refused = Ec2Error(
        Reason.SNAPSHOT_RATE,
        "too many",
        action="CreateSnapshot",
        code="ConcurrentSnapshotLimitExceeded",
        retry_after_s=1.0,
    )
    world: SourceWorld = a_clone_across()
    world.snapshots.answers = [refused, PENDING]
    world = once_across(world)

    assert len(world.snapshots.asked) == 2
    assert any("too many" in told for told in world.events.told)
