"""Clusters that are broken in one way each: ``explain`` and ``doctor`` name the right cause first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from tests.cluster.broken import looking, outage, refused, snapshot_setup
from tests.cluster.broken.held import Held
from tests.cluster.broken.looking import Said
from tests.cluster.broken.record import Broken
from tests.cluster.broken.table import (
    HEALTHY,
    KEYS,
    KILLED,
    MISSES,
    RELEASED,
    SETUP,
    SNAPSHOT_SETUP,
    TOGETHER,
)
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


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def without_snapshots(
    request: pytest.FixtureRequest,
) -> AsyncIterator[asyncio.Task[dict[str, Said]]]:
    """The other control plane's story, under way from the beginning: it waits for a minute."""
    telling = asyncio.create_task(snapshot_setup.told(_selected(request, SNAPSHOT_SETUP)))
    yield telling
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at_peace(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Seen]:
    async for seen in _together(cluster, _selected(request, HEALTHY)):
        yield seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keys(
    cluster: Cluster, request: pytest.FixtureRequest
) -> AsyncIterator[dict[str, asyncio.Task[Said]]]:
    """Slow stories, under way beside the others."""
    ways = _selected(request, KEYS)
    tasks = {way.what: asyncio.create_task(_said(cluster, way), name=way.what) for way in ways}
    yield tasks
    for each in tasks.values():
        each.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _said(cluster: Cluster, way: Broken) -> Said:
    async with a_place(cluster) as place:
        return await looking.said(place, way)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def in_trouble(
    cluster: Cluster,
    keys: dict[str, asyncio.Task[Said]],
    request: pytest.FixtureRequest,
) -> AsyncIterator[Seen]:
    del keys  # they begin at the same time
    await cluster.control(capacity=refused.FULL)
    async for seen in _together(cluster, _selected(request, TOGETHER)):
        yield seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def killed(cluster: Cluster) -> Cluster:
    """The cluster after its controller was killed; none is started again in this file."""
    await cluster.stop()
    return cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def released(killed: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Seen]:
    """The same, when nobody holds its leases any more."""
    await outage.release(killed)
    async for seen in _together(killed, _selected(request, RELEASED)):
        yield seen


def first_causes(explained: Json) -> list[str]:
    """The first link of each chain that is no mere waiting."""
    return [each["links"][0]["cause"] for each in explained["chains"] if not each.get("waits")]


@pytest.mark.parametrize("way", HEALTHY, ids=lambda way: way.name)
async def test_nothing_is_reported_of_a_healthy_object(at_peace: Seen, way: Broken):
    found = await at_peace.tasks[way.what]

    assert first_causes(found) == [], found


async def test_no_check_fails_beside_healthy_objects(at_peace: Seen):
    await asyncio.gather(*at_peace.tasks.values())

    found = {name: each for name, each in at_peace.checks.items() if each["verdict"] == "failed"}
    assert found == {}


def assert_named(way: Broken, found: Json, checks: dict[str, Json]) -> None:
    """The causes, no other, come first, and the check complains."""
    assert (set(first_causes(found)) == {*way.causes}) is (way.what not in MISSES), found
    assert not way.check or way.is_found(checks), checks.get(way.check)
    for each in way.words:
        assert each in json.dumps(found["chains"][0]["links"][0]), found


@pytest.mark.parametrize("way", TOGETHER, ids=lambda way: way.name)
async def test_the_cause_is_named_first(in_trouble: Seen, way: Broken):
    found = await in_trouble.tasks[way.what]

    assert_named(way, found, in_trouble.checks)


@pytest.mark.parametrize("way", SETUP, ids=lambda way: way.name)
async def test_a_wrong_setup_is_found(cluster: Cluster, way: Broken):
    assert_named(way, *await _said(cluster, way))


@pytest.mark.parametrize("way", KEYS, ids=lambda way: way.name)
async def test_a_key_that_cannot_be_used_is_named_first(
    keys: dict[str, asyncio.Task[Said]], way: Broken
):
    assert_named(way, *await keys[way.what])


@pytest.mark.parametrize("way", KILLED, ids=lambda way: way.name)
async def test_leases_of_nobody_are_named_first(killed: Cluster, way: Broken):
    assert_named(way, *await _said(killed, way))


@pytest.mark.parametrize("way", RELEASED, ids=lambda way: way.name)
async def test_that_no_controller_works_is_named_first(released: Seen, way: Broken):
    found = await released.tasks[way.what]

    assert_named(way, found, released.checks)


@pytest.mark.parametrize("way", SNAPSHOT_SETUP, ids=lambda way: way.name)
async def test_what_snapshots_lack_is_named_first(
    without_snapshots: asyncio.Task[dict[str, Said]], way: Broken
):
    assert_named(way, *(await asyncio.shield(without_snapshots))[way.what])
