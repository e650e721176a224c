"""What comes of a controller that dies, or loses a reply, at any request of a story.

All stories of all kinds are told at once; each test waits for the end of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster import volume_stories, walk, walk_world
from tests.cluster.background import Background
from tests.cluster.copy_stories import Clone, CloneAcross, Restore
from tests.cluster.hands import PVS
from tests.cluster.modify_stories import BringTags, GrowAndChange, GrowBlock, GrowByAnnotations
from tests.cluster.mortal import AFTER, BEFORE, LOST
from tests.cluster.snapshot_stories import FastLockedSnapshot, Snapshot
from tests.cluster.stories import Story
from tests.cluster.volume_stories import FullZones, VolumeLife
from tests.cluster.walk import Walk
from tests.cluster.walk_world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOTS = 16
# Those first of which some wait long before they try again.
KINDS: tuple[type[Story], ...] = (
    FullZones,
    FastLockedSnapshot,
    CloneAcross,
    Snapshot,
    GrowAndChange,
    GrowBlock,
    GrowByAnnotations,
    BringTags,
    VolumeLife,
    Clone,
    Restore,
)
MAKING = ("PATCH persistentvolumeclaims", "CreateVolume", "POST persistentv", "DeleteTags")
Walks = dict[type[Story], Walk]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    background: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    async with walk_world.opened(background, tmp_path_factory.mktemp("walk"), SLOTS) as opened:
        # The Region's quotas of five would have the stories wait for each other.
        room = {"fast_restore_snapshots": SLOTS, "copies_in_progress": SLOTS}
        await asyncio.to_thread(lambda: opened.hand.control(capacity=volume_stories.FULL, **room))
        try:
            yield opened
        finally:
            await asyncio.to_thread(
                lambda: opened.hand.control(capacity=[], **dict.fromkeys(room, 5))
            )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def walks(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Walks]:
    """The walks that the selected tests are about; all, for one that is not about a single kind."""
    here = [item for item in request.session.items if item.path == request.path]
    about = [item.callspec.params["kind"] if hasattr(item, "callspec") else None for item in here]
    async with walk.walked(world, [k for k in KINDS if k in about or None in about]) as made:
        yield made


@every_kind
async def test_the_recording_holds_every_kind_of_request_that_a_story_needs(
    walks: Walks, kind: type[Story]
):
    labels = await walks[kind].labels

    assert kind.LEAST - set(map(walk.what, labels)) == set()
    assert len(labels) == len(set(labels))


@every_kind
async def test_a_crash_at_any_request_loses_and_doubles_nothing(walks: Walks, kind: type[Story]):
    endings = await walks[kind].ended(walk.CRASHES)

    print("\n".join(walk.summary(kind, endings)))  # noqa: T201
    walk.assert_all_well(endings, await walks[kind].labels)
    assert {each.lives for each in endings} == {2}


@every_kind
async def test_a_lost_reply_to_any_request_loses_and_doubles_nothing(
    walks: Walks, kind: type[Story]
):
    endings = await walks[kind].ended({LOST})

    print("\n".join(walk.summary(kind, endings)))  # noqa: T201
    walk.assert_all_well(endings, await walks[kind].labels)
    assert {each.lives for each in endings} == {1}


async def test_no_way_back_from_a_crash_sends_a_request_that_has_no_point(walks: Walks):
    recorded = {walk.what(label) for each in walks.values() for label in await each.labels}
    sent = {
        walk.what(label)
        for each in walks.values()
        for ending in await each.endings
        for label in ending.labels
    }

    # Who comes after a life that has died takes its leases over; the first in a slot creates them.
    assert sent - recorded <= {"PATCH leases"}


async def test_each_zone_is_written_to_the_claim_before_it_is_asked(walks: Walks):
    pins, creates = ("PATCH persistentvolumeclaims", "CreateVolume")

    labels = await walks[FullZones].labels

    assert [label for label in labels if label.startswith((pins, creates))] == [
        f"{what} #{number}" for number in (1, 2, 3) for what in (pins, creates)
    ]


async def test_a_claim_deleted_while_it_lies_dead_leaves_nothing_wherever_it_died(
    world: World, walks: Walks
):  # race 1
    labels = await walks[VolumeLife].labels
    points = [
        (label, fate)
        for label, fate in itertools.product(labels, walk.CRASHES)
        if label.startswith(MAKING)
    ]

    volumes = await asyncio.gather(*(deleted_while_dead(world, *point) for point in points))

    made = dict(zip(points, volumes, strict=True))
    print(f"volumes that EC2 had when the claim was gone: {made}")  # noqa: T201
    assert len(points) == 2 * len(MAKING)
    assert [made["CreateVolume #1", BEFORE], made["CreateVolume #1", AFTER]] == [0, 1]


async def deleted_while_dead(world: World, at: str, fate: str) -> int:
    """How many volumes were there between the two lives; in the end there are none."""
    async with walk.a_story(world, VolumeLife, at, fate) as story:
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
