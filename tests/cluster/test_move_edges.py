"""What comes of a move if somebody acts in one of its phases. Each story has a stated end.

And of a move during which the stock driver leads for a while; and of a script in place of a move,
which loses claims in the same walk.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster import move_edge_stories as stories
from tests.cluster import move_pod_stories, walk, walk_world
from tests.cluster import move_takeover_stories as takeovers
from tests.cluster.background import Background
from tests.cluster.mortal import AFTER, BEFORE, PAUSES
from tests.cluster.move_edge_stories import EdgeStory
from tests.cluster.move_limit_stories import LimitRefuses
from tests.cluster.move_owner_stories import GivenUp, ScaledUpInSwapping, TwoClaimsOfOnePod
from tests.cluster.move_script import CLAIM_LOST, SNAPSHOT_LEAKED, VOLUME_LEAKED, ScriptStory
from tests.cluster.move_states import PHASE_AT
from tests.cluster.move_stories import moves_installed
from tests.cluster.walk_world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOTS = 12
CREATE_SNAPSHOT, CREATE_VOLUME = "CreateSnapshot #1", "CreateVolume #1"
DELETE_CLAIM, CREATE_CLAIM = "DELETE persistentvolumeclaims #1", "POST persistentvolumeclaims #1"
CREATE_POD = "POST pods #1"

Point = tuple[type[EdgeStory], str, str]
BEGIN = "PATCH volumemoves #1"
BEGIN_SWAP = "PATCH volumemoves/status #6"
IN_EVERY_PHASE = [at for at in PHASE_AT if at not in {CREATE_CLAIM, BEGIN_SWAP}]
ACTED: list[Point] = [
    (kind, at, PAUSES)
    for kind, places in (
        (stories.ClaimDeleted, IN_EVERY_PHASE),
        (stories.NamespaceDeleted, [*IN_EVERY_PHASE, CREATE_CLAIM]),
        (stories.MoveDeleted, IN_EVERY_PHASE),
        (stories.MoveEdited, IN_EVERY_PHASE),
        (stories.PodSneaksIn, IN_EVERY_PHASE),
        (stories.ClaimDeletedWarm, [CREATE_SNAPSHOT]),
        (stories.MoveDeletedWarm, [CREATE_SNAPSHOT]),
        (stories.MoveEditedWarm, [CREATE_SNAPSHOT]),
        (stories.NamespaceDeletedWarm, [CREATE_SNAPSHOT]),
        (stories.QuotaFull, [CREATE_CLAIM]),
        (LimitRefuses, [CREATE_VOLUME]),
        (stories.SnapshotsFull, [CREATE_SNAPSHOT]),
        (stories.ZoneFull, [CREATE_VOLUME]),
        (stories.VolumesFull, [CREATE_VOLUME]),
        (stories.ClassDeleted, [CREATE_SNAPSHOT]),
        (stories.NodeGone, [CREATE_VOLUME]),
        (stories.CopyDeleted, [BEGIN_SWAP]),
        (stories.CopyRestored, [DELETE_CLAIM]),
        (stories.ClaimGrown, [CREATE_VOLUME]),
        (stories.ClaimGrownBefore, [BEGIN]),
        (stories.TwoMoves, [CREATE_SNAPSHOT]),
        (ScaledUpInSwapping, [DELETE_CLAIM]),
        (GivenUp, [CREATE_VOLUME]),
        *((kind, [CREATE_POD]) for kind in move_pod_stories.EVERY),
    )
    for at in places
]
TAKEN_OVER: list[Point] = [
    *((takeovers.PodStaysUnderStock, *death) for death in takeovers.DEATHS),
    *((takeovers.ClaimDeletedUnderStock, *death) for death in takeovers.DEATHS),
    (takeovers.ClaimCreatedUnderStock, DELETE_CLAIM, AFTER),
    (takeovers.PodOfDeletedClaim, DELETE_CLAIM, AFTER),
    (takeovers.PodOfDeletedClaimForgotten, DELETE_CLAIM, AFTER),
]
# These may act from any request on, as long as the claim is not deleted. `make move-walk` has all of
# them, before and after each request.
ANYWHERE: tuple[type[takeovers.TakeoverStory], ...] = (takeovers.PodUnderStock,)
EVERY_FATE = bool(os.environ.get("EVERY_FATE"))
if EVERY_FATE:
    ANYWHERE += (takeovers.PodStaysUnderStock, takeovers.ClaimDeletedUnderStock)
# Of these, EC2 cannot tell whose call is to fail.
ALONE: list[Point] = [
    (stories.SnapshotFails, CREATE_SNAPSHOT, PAUSES),
    (stories.VolumeFails, CREATE_VOLUME, PAUSES),
]


Endings = dict[Point, asyncio.Task[walk.Ending]]


def named(point: Point) -> str:
    kind, at, fate = point
    return "-".join([kind.__name__, *at.split(), *fate.split()])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    background: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    async with (
        walk_world.opened(background, tmp_path_factory.mktemp("edges"), SLOTS) as opened,
        moves_installed(opened.api),
    ):
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endings(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Endings]:
    """All stories that were selected, told at once as far as there are slots."""
    chosen = {
        item.callspec.params["point"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and "endings" in item.fixturenames
    }
    tasks = {
        point: asyncio.create_task(walk.tell(world, *point))
        for point in [*ACTED, *TAKEN_OVER]
        if point in chosen
    }
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("point", ALONE, ids=named)
async def test_a_move_whose_snapshot_or_volume_fails_ends_as_stated(world: World, point: Point):
    assert (await walk.tell(world, *point)).wrong == ""


@pytest.mark.parametrize("point", ACTED, ids=named)
async def test_a_move_in_which_somebody_acts_ends_as_stated(endings: Endings, point: Point):
    ended = await endings[point]
    print(named(point), ended)  # noqa: T201

    assert ended.wrong == ""
    assert ended.reached


@pytest.mark.parametrize("point", TAKEN_OVER, ids=named)
async def test_a_move_during_which_stock_leads_keeps_what_is_written(
    endings: Endings, point: Point
):
    ended = await endings[point]
    print(named(point), ended)  # noqa: T201

    assert ended.wrong == ""
    assert ended.reached


@pytest.mark.parametrize("kind", ANYWHERE, ids=lambda kind: kind.__name__)
async def test_stock_may_lead_from_any_request_on(
    world: World, kind: type[takeovers.TakeoverStory]
):
    labels = await walk.record(world, takeovers.Undisturbed)
    # Tags are removed beside all else, so that the claim may be gone by then.
    labels = [each for each in labels[: labels.index(DELETE_CLAIM)] if "DeleteTags" not in each]
    points = [
        (at, fate)
        for number, at in enumerate(labels)
        for fate in (walk.CRASHES if EVERY_FATE else [walk.CRASHES[number % 2]])
    ]
    points.append((DELETE_CLAIM, BEFORE))

    endings = await asyncio.gather(*(walk.tell(world, kind, *point) for point in points))

    print("\n".join(walk.summary(kind, endings)))  # noqa: T201
    assert [str(each) for each in endings if each.wrong] == []


async def test_two_claims_of_one_pod_are_moved_at_the_same_time(world: World):
    assert (await walk.tell(world, TwoClaimsOfOnePod, "", "")).wrong == ""


async def test_the_walk_finds_what_a_script_loses_that_deletes_the_claim_first(world: World):
    async with walk.a_story(world, ScriptStory) as story:
        await story.tell()
    assert story.found == set()

    async def died(at: str, fate: str) -> set[str]:
        async with walk.a_story(world, ScriptStory, at, fate) as story:
            await story.tell()
            return story.found

    points = list(itertools.product(dict.fromkeys(story.steps), walk.CRASHES))
    found = await asyncio.gather(*(died(*point) for point in points))

    for point, each in zip(points, found, strict=True):
        print(*point, sorted(each))  # noqa: T201
    assert set().union(*found) == {CLAIM_LOST, VOLUME_LEAKED, SNAPSHOT_LEAKED}
