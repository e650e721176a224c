"""What the stock driver did before us is kept in mind by every leader that follows, not one only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from provisioner.controller.placement.zone_rules import spread
from provisioner.model.names import VOLUME_NAME
from tests.cluster import hands, stock, tenants
from tests.cluster.background import Background
from tests.cluster.replicas import Replica, eventually
from tests.cluster.specimens import make_volume, owner_tags, sweeps
from tests.cluster.tenants import Tenant
from tests.cluster.together import Stories, Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

SWEEPS = ("--orphan-min-age", "1s", "--orphan-sweep-interval", "0.5s")
ALONE = "--no-leader-elect"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(background: Background, request: pytest.FixtureRequest) -> AsyncIterator[Stories]:
    async with (
        tenants.house(background) as api,
        together.started(lambda: Tenant.settled(background, api), request) as running,
    ):
        yield running


@contextlib.asynccontextmanager
async def stock_leads(place: Tenant) -> AsyncIterator[None]:
    async with place.stock.running():
        await eventually("stock leads", place.stock.leads)
        yield


async def stock_ends(place: Tenant, how: str) -> None:
    """Once it has been cut off, its leases have to expire unless it releases them."""
    for sidecar in place.stock.sidecars if how == "releases" else ():
        await sidecar.release()
    if how == "is forgotten":
        await stock.forget(place.api, place.driver)


def sweeper(place: Tenant, name: str, *options: str, **other: dict[str, str]) -> Replica:
    return place.replica(name, *SWEEPS, *options, **other)


async def volume(place: Tenant) -> str:
    """One with our mark, which no object names."""
    written = owner_tags(place.namespace, namespace=place.namespace)
    zone = place.sandbox.zones[0]
    place.by_hand.append(await asyncio.to_thread(make_volume, place.hand, zone, written))
    return place.by_hand[-1]


async def number_of_sweeps(place: Tenant) -> int:
    return len(await asyncio.to_thread(sweeps, place.hand, place.namespace))


@together.test
@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("dies", ()),
        ("releases", ()),
        ("is forgotten", ()),
        ("dies", (ALONE,)),
        ("releases", (ALONE,)),
    ],
    ids=lambda each: each if isinstance(each, str) else "".join(each),
)
async def test_what_stock_may_have_written_to_is_swept_by_no_leader_that_follows(
    place: Tenant, ending: str, options: tuple[str, ...]
):
    # Ours has made it and left the mark; stock has attached it since, and its persistent volume
    # was set to Retain and deleted to keep the data.
    precious = await volume(place)
    async with stock_leads(place):
        pass
    await stock_ends(place, ending)
    await place.deny("DeleteTags")

    async with sweeper(place, "first", *options) as first:
        await eventually("the first one leads", first.leads)
        await eventually("it is denied", lambda: "refuses to remove" in first.log)
        await asyncio.sleep(1.1)  # EC2 tells times in whole seconds
        ours = await volume(place)  # left behind by the first one, in its own epoch
        assert await first.terminate() == 0
    async with sweeper(place, "second", *options) as second:
        await eventually("the second one leads", second.leads)

        async def is_swept() -> bool:
            return ours not in await place.volumes()

        await eventually("it sweeps", is_swept)
        enough = await number_of_sweeps(place) + 3

        async def sweeps_again() -> bool:
            return await number_of_sweeps(place) >= enough

        # Before it decides, a sweep waits until its caches are proven: a list in a minute at most.
        await eventually("again", sweeps_again, 90.0, every_s=1.0)

        assert precious in await place.volumes()
        reports = [line for line in second.log.splitlines() if "no PersistentVolume names" in line]
        assert [precious in line for line in reports] == [True]


@together.test
@pytest.mark.parametrize("ending", ["dies", "is forgotten"])
async def test_what_stock_has_begun_is_not_doubled_by_the_leader_after_one_that_could_not_look(
    place: Tenant, ending: str
):
    claims, zones = hands.claims_of(place.namespace), sorted(place.sandbox.zones)
    async with stock_leads(place):
        claim = await place.claim("begun")
        # Not where ours would make it.
        elsewhere = zones[(spread("begun") + 1) % len(zones)]
        begun = await asyncio.to_thread(stock.begin_volume, place.hand, claim, elsewhere)
    place.by_hand.append(begun)
    await stock_ends(place, ending)
    await place.deny("DescribeVolumes")

    async with sweeper(place, "first") as first:
        await eventually("the first one leads", first.leads)

        async def is_doubted() -> bool:
            found = await place.api.get(f"{claims}/begun")
            pin = found["metadata"].get("annotations", {}).get("ebs-provisioner.io/zone", "")
            return str(pin).startswith("unknown/")

        await eventually("the doubt is written", is_doubted)
        assert await first.terminate() == 0
    # The role is repaired, the Deployment restarted: nobody denies this key anything.
    repaired = {"AWS_ACCESS_KEY_ID": f"{place.key}REPAIRED"}
    async with sweeper(place, "second", environment=repaired) as second:
        await eventually("the second one leads", second.leads)

        async def is_bound() -> bool:
            return "begun" in await hands.bound(place.api, place.namespace)

        await eventually("it is Bound", is_bound)

    name = f"pvc-{claim['metadata']['uid']}"
    everywhere = await asyncio.to_thread(place.hand.volumes)
    named = [v for v in everywhere if hands.tags_of(v).get(VOLUME_NAME) == name]
    assert [each["VolumeId"] for each in named] == [begun]
    assert await place.changes("CreateVolume") == []
