"""Every request that changes something, and what comes of a controller that dies there.

The points are not written by hand: a first run of the whole story numbers its requests, and each
then gets a story of its own for each fate.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from tests.cluster import walk, walk_world
from tests.cluster.background import Background
from tests.cluster.hands import PVS
from tests.cluster.mortal import AFTER, BEFORE, EC2_CHANGES, LOST
from tests.cluster.walk import Ending
from tests.cluster.walk_world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOTS = 13
# What no volume's life can do without; the recording may hold more.
LEAST = {
    *EC2_CHANGES.values(),
    "POST persistentvolumes",
    "PATCH persistentvolumes",
    "DELETE persistentvolumes",
    "PATCH volumeattachments",
    "PATCH volumeattachments/status",
    "PATCH persistentvolumeclaims",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    background: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    async with walk_world.opened(background, tmp_path_factory.mktemp("walk"), SLOTS) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def labels(world: World) -> list[str]:
    """The requests of a life without a crash."""
    async with walk.a_story(world) as story:
        await story.tell()
        await story.check()
        return story.labels


async def told(world: World, points: Sequence[tuple[str, str]]) -> list[Ending]:
    endings = await asyncio.gather(*(walk.tell(world, at, fate) for at, fate in points))
    print("\n".join(map(str, endings)))  # noqa: T201 -- the summary
    counted = Counter((e.fate, "WRONG" if e.wrong else "ended well") for e in endings)
    print({f"{fate}: {came}": n for (fate, came), n in counted.items()})  # noqa: T201
    return endings


def assert_all_well(endings: Sequence[Ending], points: Sequence[tuple[str, str]]) -> None:
    assert [str(each) for each in endings if each.wrong] == []
    reached = {(each.at, each.fate) for each in endings if each.reached}
    assert set(points) - reached == set(), "requests that were recorded and have no point"


async def test_the_recording_holds_every_kind_of_request_that_a_volume_needs(labels: list[str]):
    assert LEAST - {label.partition(" #")[0] for label in labels} == set()
    assert len(labels) == len(set(labels))


async def test_a_crash_at_any_request_loses_and_doubles_nothing(world: World, labels: list[str]):
    points = list(itertools.product(labels, (BEFORE, AFTER)))

    endings = await told(world, points)

    assert_all_well(endings, points)
    assert {each.lives for each in endings} == {2}


async def test_a_lost_reply_to_any_request_loses_and_doubles_nothing(
    world: World, labels: list[str]
):
    points = [(label, LOST) for label in labels]

    endings = await told(world, points)

    assert_all_well(endings, points)
    assert {each.lives for each in endings} == {1}


async def test_a_claim_deleted_while_it_lies_dead_leaves_nothing_wherever_it_died(
    world: World, labels: list[str]
):  # race 1
    making = ("PATCH persistentvolumeclaims", "CreateVolume", "POST persistentv", "DeleteTags")
    points = [
        (label, fate)
        for label, fate in itertools.product(labels, (BEFORE, AFTER))
        if label.startswith(making)
    ]

    volumes = await asyncio.gather(*(deleted_while_dead(world, *point) for point in points))

    made = dict(zip(points, volumes, strict=True))
    print(f"volumes that EC2 had when the claim was gone: {made}")  # noqa: T201
    assert len(points) == 2 * len(making)
    assert [made["CreateVolume #1", BEFORE], made["CreateVolume #1", AFTER]] == [0, 1]


async def deleted_while_dead(world: World, at: str, fate: str) -> int:
    """How many volumes were there between the two lives; in the end there are none."""
    async with walk.a_story(world, at, fate) as story:
        story.may_live.clear()
        await story.make_claim()
        uid = (await world.api.get(story.claim_path))["metadata"]["uid"]
        await story.until(f"it {fate} at {at}", story.is_dead)
        await story.delete(story.claim_path)
        await story.is_gone(story.claim_path)
        between = len(await story.made())

        async def shown() -> bool:
            return len(await story.volumes()) == between

        await story.until("EC2 shows what it has made", shown)
        story.may_live.set()
        await story.until("the next life leads", story.leads_again)

        async def no_volume() -> bool:
            return not await story.volumes()

        await story.until("no volume is left", no_volume)
        await story.is_gone(f"{PVS}/pvc-{uid}")
        await story.check(volumes=between)
        return between
