"""From when on a new reign counts: after all that it has found, before all that it has made."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

from provisioner.controller.shared.unclaimed import Marks
from provisioner.ec2.volumes import Volumes
from provisioner.model.leadership import Reign
from tests.builders import VOLUME, a_claim, a_volume
from tests.controller.shared.test_unclaimed import MARKED, World

NOW = datetime.now(UTC).replace(microsecond=0)  # as EC2 and the API server tell times
AHEAD = NOW + timedelta(days=1)  # however long the whole run takes
OURS = a_volume("vol-0fffffffffffffff0", tags=MARKED.tags, created_at=AHEAD)


async def begun(marks: Marks) -> Reign:
    running = asyncio.create_task(marks.run())
    try:
        async with asyncio.timeout(5):
            reign = await marks.lineage.new_reign()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert reign is not None
    assert reign == marks.lineage.reign
    return reign


def marks_of(world: World, cluster_id: str = "prod") -> Marks:
    return Marks(cast("Volumes", world), world.caches, cluster_id=cluster_id)


async def test_claims_that_were_there_are_older_though_the_clock_of_the_api_server_is_ahead():
    marks = marks_of(World())
    marks.lineage.take_over(None, [a_claim(created_at=AHEAD), a_claim(created_at=None)])

    reign = await begun(marks)

    assert reign.may_predate(AHEAD)
    assert not reign.may_predate(AHEAD + timedelta(seconds=1))


async def test_a_volume_that_was_made_here_before_ec2_was_asked_is_of_the_new_reign():
    world = World(OURS, MARKED)
    marks = marks_of(world)
    marks.lineage.take_over(None, [])
    marks.note(OURS.volume_id)

    await begun(marks)

    assert marks.lineage.proves(OURS)
    assert not marks.lineage.proves(MARKED)
    assert set(marks._to_clear) <= {VOLUME}


async def test_without_a_cluster_id_a_new_reign_is_known_without_asking_ec2():
    world = World()
    world.is_away["find"] = True
    marks = marks_of(world, cluster_id="")
    marks.lineage.take_over(None, [])

    reign = await begun(marks)

    assert reign.covers(AHEAD)
    assert not reign.covers(NOW - timedelta(seconds=1))


async def test_a_reign_that_is_proven_does_not_begin_anew():
    marks = marks_of(World(MARKED))
    proven = Reign(NOW - timedelta(days=1))
    marks.lineage.take_over(proven, [a_claim(created_at=AHEAD)])

    assert await marks.lineage.new_reign() is None
    marks.lineage.found([MARKED])
    assert marks.lineage.reign == proven
