"""What a tag that was found at the start proves, and for which volumes."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import VOLUME, a_volume
from tests.controller.shared.test_unclaimed import (
    AFTER_THAT,
    MADE_AT,
    TAGGED,
    Everything,
    World,
    running,
)


async def test_a_tagged_volume_that_nothing_names_stays_tagged_for_the_sweep():
    world = World(TAGGED)
    async with running(world) as unclaimed:
        await unclaimed.settled()

        assert await unclaimed.volume_for("pvc-1") == TAGGED
        await unclaimed.flush(1)
    assert world.untagged == []


@pytest.mark.parametrize("epoch", [AFTER_THAT, None], ids=["made before", "nobody knows"])
async def test_a_tag_from_before_the_epoch_of_ours_proves_nothing_and_comes_off(epoch):
    world = World(TAGGED)
    async with running(world, epoch) as unclaimed:
        assert await unclaimed.volume_for("pvc-1") is None
        await unclaimed.flush(5)
    assert world.untagged == [VOLUME]


async def test_such_a_tag_that_may_not_come_off_holds_up_no_sweep_of_others():
    world = World(TAGGED)
    world.forbidden = Everything()
    async with running(world, AFTER_THAT) as unclaimed, asyncio.timeout(30):
        await unclaimed.settled()
    assert world.untagged == []


async def test_what_was_found_at_the_start_is_told_as_often_as_it_is_asked_for_until_it_is_gone():
    world = World(TAGGED, a_volume("vol-0fffffffffffffff0", tags=TAGGED.tags, created_at=MADE_AT))
    async with running(world) as unclaimed:
        first = await unclaimed.volume_for("pvc-1")
        assert await unclaimed.volume_for("pvc-1") == first == TAGGED
        unclaimed.forget(VOLUME)
        assert await unclaimed.volume_for("pvc-1") is None
