"""Marks: taken off in batches, flushed at the end, and worth nothing after another controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume import Volume
from provisioner.reconcile.live import LiveLists, Snapshot
from provisioner.reconcile.marks import Marks
from tests.builders import VOLUME, a_volume, an_ec2_error

MARKED = a_volume(tags={tags.UNCLAIMED: "Delete", tags.VOLUME_NAME: "pvc-1"})


class World:
    """EC2 with marked volumes, and an API server without any persistent volume."""

    def __init__(self, *marked: Volume) -> None:
        self.marked = list(marked)
        self.untagged: list[str] = []
        self.failures = 0
        self.denials: list[StorageError] = []

    async def find(self, **_: object) -> list[Volume]:
        if self.denials:
            raise self.denials.pop()
        return self.marked

    async def untag(self, volume_ids: Sequence[str], _: str) -> None:
        if self.failures:
            self.failures -= 1
            raise an_ec2_error(Reason.REPLY_LOST)
        self.untagged += volume_ids

    async def snapshot(self) -> Snapshot:
        return Snapshot(1, {}, {}, {})


@asynccontextmanager
async def running(world: World, *, after_stranger: bool = False) -> AsyncIterator[Marks]:
    marks = Marks(cast("Volumes", world), cast("LiveLists", world), cluster_id="prod")
    marks.after_stranger = after_stranger
    task = asyncio.create_task(marks.run())
    try:
        yield marks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_end_waits_until_marks_are_off():
    world = World()
    async with running(world) as marks:
        await marks.settled()
        marks.note(VOLUME)
        marks.clear(VOLUME)

        await marks.flush(5)

    assert world.untagged == [VOLUME]
    assert not marks.is_marked(VOLUME)


async def test_the_end_does_not_wait_for_ever():
    world = World()
    world.failures = 1_000
    async with running(world) as marks:
        await marks.settled()
        marks.clear(VOLUME)

        await marks.flush(0.01)

    assert world.untagged == []


async def test_a_marked_volume_that_nothing_names_stays_marked_for_the_sweep():
    world = World(MARKED)
    async with running(world) as marks:
        await marks.settled()

        assert await marks.unowned("pvc-1") == MARKED
        await marks.flush(1)
    assert world.untagged == []


async def test_after_another_controller_every_mark_comes_off():
    world = World(MARKED)
    async with running(world, after_stranger=True) as marks:
        await marks.settled()

        assert await marks.unowned("pvc-1") is None
    assert world.untagged == [VOLUME]


async def test_who_asks_for_an_unowned_volume_hears_why_that_cannot_be_told():
    world = World(MARKED)
    denied = an_ec2_error(Reason.PERMISSION_DENIED)
    denied.retry_after_s = 0.05
    world.denials = [denied]
    async with running(world) as marks, asyncio.timeout(5):
        with pytest.raises(StorageError) as told:
            await marks.unowned("pvc-1")
        assert told.value.reason is Reason.PERMISSION_DENIED
        assert told.value.retry_after_s == denied.retry_after_s

        await marks.settled()
        assert await marks.unowned("pvc-1") == MARKED
