"""What a mark that was found at the start proves, and for which volumes."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import VOLUME, a_volume
from tests.controller.shared.test_unclaimed import (
    AFTER_THAT,
    MADE_AT,
    MARKED,
    Everything,
    World,
    running,
)


async def test_a_marked_volume_that_nothing_names_stays_marked_for_the_sweep():
    world = World(MARKED)
    async with running(world) as marks:
        await marks.settled()

        assert await marks.unowned("pvc-1") == MARKED
        await marks.flush(1)
    assert world.untagged == []


@pytest.mark.parametrize("reign", [AFTER_THAT, None], ids=["made before", "nobody knows"])
async def test_a_mark_from_before_the_reign_of_ours_proves_nothing_and_comes_off(reign):
    world = World(MARKED)
    async with running(world, reign) as marks:
        assert await marks.unowned("pvc-1") is None
        await marks.flush(5)
    assert world.untagged == [VOLUME]


async def test_such_a_mark_that_may_not_come_off_holds_up_no_sweep_of_others():
    world = World(MARKED)
    world.forbidden = Everything()
    async with running(world, AFTER_THAT) as marks, asyncio.timeout(5):
        await marks.settled()
    assert world.untagged == []


async def test_what_was_found_at_the_start_is_told_as_often_as_it_is_asked_for_until_it_is_gone():
    world = World(MARKED, a_volume("vol-0fffffffffffffff0", tags=MARKED.tags, created_at=MADE_AT))
    async with running(world) as marks:
        first = await marks.unowned("pvc-1")
        assert await marks.unowned("pvc-1") == first == MARKED
        marks.forget(VOLUME)
        assert await marks.unowned("pvc-1") is None
