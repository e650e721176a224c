"""What comes of a controller that dies, or loses a reply, at any request of a VolumeMove."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster import walk, walk_world
from tests.cluster.background import Background
from tests.cluster.move_back_stories import MoveBack, MoveBackByCommand
from tests.cluster.move_copy_stories import (
    MoveCheckAborted,
    MoveCheckRefused,
    MoveChecks,
    MoveCopies,
    MoveCopyAborted,
    MoveTooSmall,
)
from tests.cluster.move_owner_stories import (
    MoveFought,
    MoveScalesDown,
    MoveScalesDownByCommand,
    MoveUnderStatefulSet,
    MoveUnderTwoOwners,
)
from tests.cluster.move_restart_stories import (
    MoveRestartDeleted,
    MoveRestarts,
    MoveRestartsIntruder,
    MoveRestartUndone,
    pods_held_back,
)
from tests.cluster.move_set_stories import MoveSetByCommand
from tests.cluster.move_stay_stories import MoveFromAutoMode, MoveToAutoMode, MoveToClass
from tests.cluster.move_stories import (
    MoveAborted,
    MoveAcross,
    MoveByCommand,
    MoveRefused,
    MoveToCsi,
    MoveWarms,
    moves_installed,
)
from tests.cluster.move_together_stories import (
    MoveTogether,
    MoveTogetherAborted,
    MoveTogetherBack,
    MoveTogetherUndone,
)
from tests.cluster.stories import Story
from tests.cluster.walk_world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOTS = 12
# Each request of two stories with one of the three fates takes two minutes; `make move-walk` gives
# each of fourteen stories all three.
EVERY_FATE = bool(os.environ.get("EVERY_FATE"))
TURNS = range(len(walk.FATES) if EVERY_FATE else 1)
KINDS: tuple[type[Story], ...] = (MoveAcross, MoveAborted)
if EVERY_FATE:
    KINDS += (MoveScalesDown, MoveToCsi, MoveToAutoMode, MoveWarms, MoveRestarts, MoveBack)
    KINDS += (MoveCopies, MoveCopyAborted, MoveChecks, MoveCheckAborted)
    KINDS += (MoveTogether, MoveTogetherAborted)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    background: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    async with (
        walk_world.opened(background, tmp_path_factory.mktemp("move"), SLOTS) as opened,
        moves_installed(opened.api),
        pods_held_back(opened.sandbox),
    ):
        yield opened


@pytest.fixture(scope="module")
def recordings() -> dict[type[Story], list[str]]:
    """The requests of each story without a crash; told once."""
    return {}


@pytest.mark.parametrize(
    "kind",
    [
        MoveUnderStatefulSet,
        MoveRefused,
        MoveByCommand,
        MoveToCsi,
        MoveToClass,
        MoveToAutoMode,
        MoveFromAutoMode,
        MoveWarms,
        MoveBack,
        MoveBackByCommand,
        MoveScalesDown,
        MoveScalesDownByCommand,
        MoveFought,
        MoveUnderTwoOwners,
        MoveRestarts,
        MoveRestartsIntruder,
        MoveRestartUndone,
        MoveRestartDeleted,
        MoveSetByCommand,
        MoveCopies,
        MoveTooSmall,
        MoveCopyAborted,
        MoveChecks,
        MoveCheckRefused,
        MoveCheckAborted,
        MoveTogetherBack,
        MoveTogetherUndone,
    ],
    ids=lambda k: k.__name__,
)
async def test_a_move_ends_as_it_should(world: World, kind: type[Story]):
    await walk.record(world, kind)


@every_kind
@pytest.mark.parametrize("turn", TURNS)
async def test_a_crash_or_a_lost_reply_at_any_request_loses_and_doubles_nothing(
    world: World, recordings: dict[type[Story], list[str]], kind: type[Story], turn: int
):
    labels = recordings.get(kind) or await walk.record(world, kind)
    recordings[kind] = labels
    print("\n".join(labels))  # noqa: T201
    assert kind.LEAST - set(map(walk.what, labels)) == set()

    # Each request with one of the three fates; with another one at each turn.
    fates = [walk.FATES[(turn + at) % len(walk.FATES)] for at in range(len(labels))]
    points = zip(labels, fates, strict=True)
    endings = await asyncio.gather(*(walk.tell(world, kind, *point) for point in points))

    print("\n".join(walk.summary(kind, endings)))  # noqa: T201
    assert [str(each) for each in endings if each.wrong] == []
    # How often a move shows that it waits depends on the time; each story has most of the others.
    missed = [each.at for each in endings if not each.reached]
    assert len([each for each in missed if walk.what(each) not in kind.BY_CHANCE]) <= 2, missed
