"""From when on a new epoch counts: after all that it has found, before all that it has made."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.volumes import Volumes
from provisioner.model.leadership import Epoch
from tests.builders import VOLUME, a_claim, a_volume
from tests.controller.shared.test_unclaimed import TAGGED, World

NOW = datetime.now(UTC).replace(microsecond=0)  # as EC2 and the API server tell times
AHEAD = NOW + timedelta(days=1)  # however long the whole run takes
OURS = a_volume("vol-0fffffffffffffff0", tags=TAGGED.tags, created_at=AHEAD)


async def begun(unclaimed: UnclaimedTags) -> Epoch:
    running = asyncio.create_task(unclaimed.run())
    try:
        async with asyncio.timeout(30):
            epoch = await unclaimed.leadership.new_epoch()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert epoch is not None
    assert epoch == unclaimed.leadership.epoch
    return epoch


def tags_of(world: World, cluster_id: str = "prod") -> UnclaimedTags:
    return UnclaimedTags(cast("Volumes", world), world.caches, cluster_id=cluster_id)


async def test_claims_that_were_there_are_older_though_the_clock_of_the_api_server_is_ahead():
    unclaimed = tags_of(World())
    unclaimed.leadership.take_over(None, [a_claim(created_at=AHEAD), a_claim(created_at=None)])

    epoch = await begun(unclaimed)

    assert epoch.may_predate(AHEAD)
    assert not epoch.may_predate(AHEAD + timedelta(seconds=1))


async def test_a_volume_that_was_made_here_before_ec2_was_asked_is_of_the_new_epoch():
    world = World(OURS, TAGGED)
    unclaimed = tags_of(world)
    unclaimed.leadership.take_over(None, [])
    unclaimed.note(OURS.volume_id)

    await begun(unclaimed)

    assert unclaimed.leadership.covers(OURS)
    assert not unclaimed.leadership.covers(TAGGED)
    assert set(unclaimed._to_clear) <= {VOLUME}


async def test_without_a_cluster_id_a_new_epoch_is_known_without_asking_ec2():
    world = World()
    world.is_away["find"] = True
    unclaimed = tags_of(world, cluster_id="")
    unclaimed.leadership.take_over(None, [])

    epoch = await begun(unclaimed)

    assert epoch.covers(AHEAD)
    assert not epoch.covers(NOW - timedelta(seconds=1))


async def test_a_epoch_that_is_proven_does_not_begin_anew():
    unclaimed = tags_of(World(TAGGED))
    proven = Epoch(NOW - timedelta(days=1))
    unclaimed.leadership.take_over(proven, [a_claim(created_at=AHEAD)])

    assert await unclaimed.leadership.new_epoch() is None
    unclaimed.leadership.found([TAGGED])
    assert unclaimed.leadership.epoch == proven
