"""Every request of a story that changes something, and what comes of a controller that dies there.

The points are not written by hand: a first run of the whole story numbers its requests, and each
then gets a story of its own for each fate.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tests.cluster.mortal import AFTER, BEFORE, LOST
from tests.cluster.stories import Story
from tests.cluster.walk_world import World

CRASHES = (BEFORE, AFTER)
FATES = (*CRASHES, LOST)
_LOG_CHARS = 3000
S = TypeVar("S", bound=Story)


@dataclass(frozen=True, slots=True)
class Ending:
    """What a story came to: ``wrong`` is "" when it ended as it should."""

    at: str
    fate: str
    reached: bool
    lives: int
    took_s: float
    wrong: str
    labels: tuple[str, ...]

    def __str__(self) -> str:
        came = "ended well" if not self.wrong else f"WRONG: {self.wrong}"
        unreached = "" if self.reached or not self.at else " (never came to that request)"
        return (
            f"{self.at or 'no crash':36} {self.fate:22} {self.lives} lives {self.took_s:5.1f} s"
            f"  {came}{unreached}"
        )


@contextlib.asynccontextmanager
async def a_story(
    world: World, kind: type[S], at: str = "", fate: str = "", freezes: tuple[str, ...] = ()
) -> AsyncIterator[S]:
    """A story in a free slot, its first controller alive; killed at the end."""
    slot = await world.slots.get()
    try:
        story = kind(world, slot, at=at, fate=fate, freezes=freezes)
        try:
            await story.furnish()
            async with story.supervised():
                yield story
        finally:
            await story.clear()
    finally:
        world.slots.put_nowait(slot)


async def record(world: World, kind: type[Story]) -> list[str]:
    """The requests of a story without a crash, in order."""
    async with a_story(world, kind) as story:
        try:
            await story.tell()
            await story.check()
        except AssertionError as error:
            raise AssertionError(_with_log(error, story)) from error
        return story.labels


async def tell(world: World, kind: type[Story], at: str, fate: str) -> Ending:
    """The whole story, with one crash or lost reply in it."""
    async with a_story(world, kind, at, fate) as story:
        began_s = time.monotonic()
        wrong = ""
        try:
            await story.tell()
            if fate in CRASHES and story.is_reached:
                await story.until("the next life leads", story.leads_again)
            await story.check()
        except AssertionError as error:
            wrong = _with_log(error, story)
        took_s = time.monotonic() - began_s
        lives, labels = len(story.pids), tuple(story.labels)
        return Ending(at, fate, story.is_reached, lives, took_s, wrong, labels)


def _with_log(error: AssertionError, story: Story) -> str:
    return f"{error}\n{story.labels}\n{story.log[-_LOG_CHARS:]}"


class Walk:
    """All stories of one kind. ``labels``: its requests; ``endings``: of a story for each fate."""

    def __init__(self, world: World, kind: type[Story], turn: asyncio.Event) -> None:
        self._world, self.kind, self._turn = world, kind, turn
        self.labels = asyncio.create_task(record(world, kind), name=f"record {kind.__name__}")
        self.endings = asyncio.create_task(self._tell(), name=f"walk {kind.__name__}")

    async def _tell(self) -> list[Ending]:
        labels = await asyncio.shield(self.labels)
        await self._turn.wait()
        points = itertools.product(labels, FATES)
        return await asyncio.gather(*(tell(self._world, self.kind, *point) for point in points))

    async def ended(self, fates: Collection[str]) -> list[Ending]:
        """How the stories with these fates ended."""
        return [each for each in await self.endings if each.fate in fates]


@contextlib.asynccontextmanager
async def walked(
    world: World, kinds: Iterable[type[Story]]
) -> AsyncIterator[dict[type[Story], Walk]]:
    """Walks of all kinds at once; those that are first in line wait longest, and so begin first."""
    turn = asyncio.Event()
    walks = {kind: Walk(world, kind, turn) for kind in kinds}
    tasks = [task for walk in walks.values() for task in (walk.labels, walk.endings)]
    opening = asyncio.create_task(_open(turn, walks.values()), name="open the walks")
    try:
        yield walks
    finally:
        for task in (opening, *tasks):
            task.cancel()
        await asyncio.gather(opening, *tasks, return_exceptions=True)


async def _open(turn: asyncio.Event, walks: Collection[Walk]) -> None:
    await asyncio.gather(*(asyncio.shield(walk.labels) for walk in walks), return_exceptions=True)
    turn.set()


def assert_all_well(endings: Collection[Ending], labels: Iterable[str]) -> None:
    """Each recorded request had a story for each fate, and all ended as they should."""
    assert [str(each) for each in endings if each.wrong] == []
    reached = {(each.at, each.fate) for each in endings if each.reached}
    points = set(itertools.product(labels, {each.fate for each in endings}))
    assert points - reached == set(), "requests that were recorded and have no point"


def what(label: str) -> str:
    """A label without its number."""
    return label.partition(" #")[0]


def summary(kind: type[Story], endings: Iterable[Ending]) -> Iterator[str]:
    """Each story's line, and how many ended how."""
    yield kind.title()
    ended = list(endings)
    yield from map(str, ended)
    counted = Counter((each.fate, "WRONG" if each.wrong else "ended well") for each in ended)
    yield f"{kind.__name__}: { ({f'{fate}: {came}': n for (fate, came), n in counted.items()}) }"
