"""What the stock driver did before us is kept in mind by every leader that follows, not one only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from provisioner.controller.placement.zone_rules import spread
from provisioner.model.names import VOLUME_NAME
from provisioner.sandbox.api import Api
from tests.cluster import epochs, hands, stock
from tests.cluster.background import Background
from tests.cluster.hands import Ec2Hand
from tests.cluster.replicas import Replica, eventually, installed
from tests.cluster.specimens import make_volume, owner_tags, sweeps

SWEEPS = ("--orphan-min-age", "1s", "--orphan-sweep-interval", "0.5s")
ALONE = "--no-leader-elect"


class House:
    """A cluster in which ours led for a day, and then the stock driver."""

    def __init__(self, background: Background, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.sandbox = background.sandbox
        self.hand = Ec2Hand(self.sandbox.ec2_endpoint)
        self.stock = stock.Stock(api)
        self.by_hand: list[str] = []

    @contextlib.asynccontextmanager
    async def stock_leads(self) -> AsyncIterator[None]:
        async with self.stock.running():
            await eventually("stock leads", self.stock.leads)
            yield

    async def stock_ends(self, how: str) -> None:
        """Once it has been cut off, its leases have to expire unless it releases them."""
        for sidecar in self.stock.sidecars if how == "releases" else ():
            await sidecar.release()
        if how == "is forgotten":
            await stock.forget(self.api)

    def replica(self, name: str, *options: str) -> Replica:
        own = ("--cluster-id", self.namespace, *SWEEPS, *options)
        return Replica(self.sandbox, *own, name=f"{self.namespace}-{name}")

    def deny(self, action: str) -> None:
        denied = {"action": action, "do": "error", "code": "UnauthorizedOperation"}
        self.hand.control(faults=[{**denied, "http_status": 403, "n": 10**6}])

    def volume(self) -> str:
        """One with our mark, which no object names."""
        written = owner_tags(self.namespace, namespace=self.namespace)
        self.by_hand.append(make_volume(self.hand, self.sandbox.zones[0], written))
        return self.by_hand[-1]


@pytest.fixture
async def house(background: Background, api: Api, namespace: str) -> AsyncIterator[House]:
    await installed(background)
    await epochs.of_ours(api)
    made = House(background, api, namespace)
    await hands.make_class(api, namespace)
    made.hand.watch()
    yield made
    made.hand.control(**hands.CALM)
    await hands.wipe(api, made.hand, namespace)
    made.hand.remove(made.by_hand)
    await hands.discard(api, f"{hands.CLASSES}/{namespace}")


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
    house: House, ending: str, options: tuple[str, ...]
):
    # Ours has made it and left the mark; stock has attached it since, and its persistent volume
    # was set to Retain and deleted to keep the data.
    precious = house.volume()
    async with house.stock_leads():
        pass
    await house.stock_ends(ending)
    house.deny("DeleteTags")

    async with house.replica("first", *options) as first:
        await eventually("the first one leads", first.leads)
        await eventually("it is denied", lambda: "refuses to remove" in first.log)
        await asyncio.sleep(1.1)  # EC2 tells times in whole seconds
        ours = house.volume()  # left behind by the first one, in its own epoch
        assert await first.terminate() == 0
    async with house.replica("second", *options) as second:
        await eventually("the second one leads", second.leads)
        there = house.hand.of_cluster
        await eventually("it sweeps", lambda: ours not in there(house.namespace))
        enough = len(sweeps(house.hand, house.namespace)) + 3
        # Before it decides, a sweep waits until its caches are proven: a list in a minute at most.
        await eventually("again", lambda: len(sweeps(house.hand, house.namespace)) >= enough, 90.0)

        assert precious in there(house.namespace)
        reports = [line for line in second.log.splitlines() if "no PersistentVolume names" in line]
        assert [precious in line for line in reports] == [True]


@pytest.mark.parametrize("ending", ["dies", "is forgotten"])
async def test_what_stock_has_begun_is_not_doubled_by_the_leader_after_one_that_could_not_look(
    house: House, ending: str
):
    claims, zones = hands.claims_of(house.namespace), sorted(house.sandbox.zones)
    async with house.stock_leads():
        claim = await hands.make_claim(house.api, house.namespace, "begun", house.namespace)
        # Not where ours would make it.
        elsewhere = zones[(spread("begun") + 1) % len(zones)]
        begun = stock.begin_volume(house.hand, claim, elsewhere)
    house.by_hand.append(begun)
    await house.stock_ends(ending)
    house.deny("DescribeVolumes")

    async with house.replica("first") as first:
        await eventually("the first one leads", first.leads)

        async def is_doubted() -> bool:
            found = await house.api.get(f"{claims}/begun")
            pin = found["metadata"].get("annotations", {}).get("ebs-provisioner.io/zone", "")
            return str(pin).startswith("unknown/")

        await eventually("the doubt is written", is_doubted)
        assert await first.terminate() == 0
    house.hand.control(faults=None)  # the role is repaired, the Deployment restarted
    async with house.replica("second") as second:
        await eventually("the second one leads", second.leads)

        async def is_bound() -> bool:
            return "begun" in await hands.bound(house.api, house.namespace)

        await eventually("it is Bound", is_bound)

    name = f"pvc-{claim['metadata']['uid']}"
    named = [v for v in house.hand.volumes() if hands.tags_of(v).get(VOLUME_NAME) == name]
    assert [volume["VolumeId"] for volume in named] == [begun]
    assert house.hand.changes("CreateVolume")[1:] == []  # stock's own was the only one
