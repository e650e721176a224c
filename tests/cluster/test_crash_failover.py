"""Two zones are full, and a controller dies on the way to the third: never a second volume.

As in ``test_crash_walk``, the points are those requests that a first run has made; here only those
of the making of the volume.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from provisioner.decide.zones import spread
from tests.cluster import hands, walk_world
from tests.cluster.background import Background
from tests.cluster.hands import CLASSES, PVS
from tests.cluster.mortal import AFTER, BEFORE, LOST
from tests.cluster.walk import Ending, Story
from tests.cluster.walk_world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
A, B, C = ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
FULL = [{"zone": zone, "type": "gp2"} for zone in (A, B)]
MAKING = ("PATCH persistentvolumeclaims", "CreateVolume", "POST persistentv", "DeleteTags")
SLOTS = 24
# What a process before may have begun is looked for through a minute before another zone is asked.
STEP_S = 150.0


class FullZones(Story):
    """A volume's life whose class allows three zones, of which the first two are full."""

    async def make_claim(self) -> None:
        namespace = self.world.claims.split("/")[4]
        await hands.make_claim(self.world.api, namespace, self.name, class_of(self))

    async def tell(self) -> None:
        """From the claim to nothing; nobody attaches it."""
        await self.make_claim()
        await self.is_bound()
        await self.delete(self.claim_path)
        await self.is_gone(f"{PVS}/{self.pv}")


def class_of(story: Story) -> str:
    return f"{story.slot.driver}-zones"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    background: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("walk")
    async with walk_world.opened(background, folder, SLOTS) as opened:
        await asyncio.to_thread(lambda: opened.hand.control(capacity=FULL))
        try:
            yield opened
        finally:
            await asyncio.to_thread(lambda: opened.hand.control(capacity=[]))


@contextlib.asynccontextmanager
async def a_story(world: World, at: str = "", fate: str = "") -> AsyncIterator[Story]:
    """A story whose claim's name falls to the first zone."""
    slot = await world.slots.get()
    named = (f"full-{number}" for number in world.numbers)
    name = next(each for each in named if spread(each) % len(ZONES) == 0)
    story = FullZones(world, slot, name, at, fate, (), step_s=STEP_S)
    key = "topology.kubernetes.io/zone"
    allowed = [{"matchLabelExpressions": [{"key": key, "values": list(ZONES)}]}]
    await world.api.create(
        CLASSES,
        {
            "metadata": {"name": class_of(story)},
            "provisioner": slot.driver,
            "parameters": {"type": "gp2"},
            "allowedTopologies": allowed,
        },
    )
    try:
        async with story.supervised():
            yield story
    finally:
        await hands.discard(world.api, f"{CLASSES}/{class_of(story)}")
        world.slots.put_nowait(slot)


async def told(world: World, at: str, fate: str) -> tuple[Ending, set[str]]:
    """How it ended, and in which zones EC2 has made volumes."""
    async with a_story(world, at, fate) as story:
        began_s = time.monotonic()
        wrong = ""
        try:
            await story.tell()
            if fate in (BEFORE, AFTER) and story.is_reached:
                await story.until("the next life leads", story.leads_again)
            await story.check()
        except AssertionError as error:
            wrong = f"{error}\n{story.log[-3000:]}"
        zones = {zone for _, zone in await story.made()}
        took_s = time.monotonic() - began_s
        return Ending(at, fate, story.is_reached, len(story.pids), took_s, wrong), zones


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def labels(world: World) -> list[str]:
    """The requests of a creation without a crash."""
    async with a_story(world) as story:
        await story.make_claim()
        await story.is_bound()
        making = [label for label in story.labels if label.startswith(MAKING)]
        await story.delete(story.claim_path)
        await story.is_gone(f"{PVS}/{story.pv}")
        await story.check()
        return making


async def test_each_zone_is_written_to_the_claim_before_it_is_asked(labels: list[str]):
    pins, creates = ("PATCH persistentvolumeclaims", "CreateVolume")

    assert [label for label in labels if label.startswith((pins, creates))] == [
        f"{what} #{number}" for number in (1, 2, 3) for what in (pins, creates)
    ]


async def test_a_crash_or_a_lost_reply_on_the_way_makes_one_volume_in_the_zone_with_room(
    world: World, labels: list[str]
):
    points = list(itertools.product(labels, (BEFORE, AFTER, LOST)))

    endings = await asyncio.gather(*(told(world, at, fate) for at, fate in points))

    print("\n".join(str(ending) for ending, _ in endings))  # noqa: T201 -- the summary
    assert [str(each) for each, _ in endings if each.wrong] == []
    assert {(each.at, each.fate) for each, _ in endings if each.reached} == set(points)
    assert {frozenset(zones) for _, zones in endings} == {frozenset({C})}
