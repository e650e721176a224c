"""Clusters that are broken in one way each: ``explain`` and ``doctor`` name the right cause first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from tests.cluster.broken import looking, refused
from tests.cluster.broken.held import Held
from tests.cluster.broken.record import Broken
from tests.cluster.broken.table import ALONE, HEALTHY, MISSES, SETUP, TOGETHER
from tests.cluster.cluster import Cluster, Json
from tests.cluster.place import a_place

pytestmark = pytest.mark.asyncio(loop_scope="module")

STORY_S = 200.0


@dataclass
class Seen:
    """What the commands said while all stories were held."""

    tasks: dict[str, asyncio.Task[Json]] = field(default_factory=dict)
    checks: dict[str, Json] = field(default_factory=dict)


async def _told(cluster: Cluster, way: Broken, held: Held) -> Json:
    """What ``explain`` says of one of them."""
    async with (
        asyncio.timeout(STORY_S),
        a_place(cluster) as place,
        held.story() as all_came,
        way.make(place) as target,
    ):
        found = await looking.explained(cluster.sandbox, target, place.name)
        await all_came()
    return found


async def _together(cluster: Cluster, ways: list[Broken]) -> AsyncIterator[Seen]:
    seen = Seen()

    async def at_last() -> None:
        try:
            seen.checks = await looking.checked(cluster.sandbox)
        finally:
            await cluster.control(faults=None, capacity=[])

    held = Held(len(ways), at_last)
    for way in ways:
        seen.tasks[way.what] = asyncio.create_task(_told(cluster, way, held), name=way.what)
    try:
        yield seen
    finally:
        for task in seen.tasks.values():
            task.cancel()
        await asyncio.gather(*seen.tasks.values(), return_exceptions=True)


def _selected(request: pytest.FixtureRequest, ways: list[Broken]) -> list[Broken]:
    """Those whose tests were selected, and which may be held together."""
    wanted = {
        each.callspec.params["way"].what
        for each in request.session.items
        if each.path == request.path and hasattr(each, "callspec")
    }
    return [way for way in ways if way.what in wanted]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at_peace(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Seen]:
    async for seen in _together(cluster, _selected(request, HEALTHY)):
        yield seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def in_trouble(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Seen]:
    await cluster.control(capacity=refused.FULL)
    async for seen in _together(cluster, _selected(request, TOGETHER)):
        yield seen


def first_causes(explained: Json) -> list[str]:
    """The first link of each chain that is no mere waiting."""
    return [each["links"][0]["cause"] for each in explained["chains"] if not each.get("waits")]


def is_found(checks: dict[str, Json], way: Broken) -> bool:
    """Whether the check of a way complains."""
    return checks[way.check]["verdict"] in ("failed", "warning")


@pytest.mark.parametrize("way", HEALTHY, ids=lambda way: way.name)
async def test_nothing_is_reported_of_a_healthy_object(at_peace: Seen, way: Broken):
    found = await at_peace.tasks[way.what]

    assert first_causes(found) == [], found


async def test_no_check_fails_beside_healthy_objects(at_peace: Seen):
    await asyncio.gather(*at_peace.tasks.values())

    found = {name: each for name, each in at_peace.checks.items() if each["verdict"] == "failed"}
    assert found == {}


@pytest.mark.parametrize("way", TOGETHER, ids=lambda way: way.name)
async def test_the_cause_is_named_first(in_trouble: Seen, way: Broken):
    found = await in_trouble.tasks[way.what]

    assert (set(first_causes(found)) == {*way.causes}) is (way.what not in MISSES), found
    if way.check:
        assert is_found(in_trouble.checks, way), in_trouble.checks[way.check]


@pytest.mark.parametrize("way", ALONE, ids=lambda way: way.name)
async def test_what_breaks_the_whole_cluster_is_named_first(cluster: Cluster, way: Broken):
    async with a_place(cluster) as place, way.make(place) as target:
        found = await looking.explained(cluster.sandbox, target, place.name)
        checks = await looking.checked(cluster.sandbox) if way.check else {}

        assert first_causes(found) == [*way.causes], found
        assert not way.check or is_found(checks, way), checks[way.check]


@pytest.mark.parametrize("way", SETUP, ids=lambda way: way.name)
async def test_a_wrong_setup_is_found(cluster: Cluster, way: Broken):
    async with a_place(cluster) as place, way.make(place) as arguments:
        checks = await looking.checked(cluster.sandbox, *arguments.split())

        assert is_found(checks, way), checks[way.check]
