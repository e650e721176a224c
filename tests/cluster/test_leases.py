from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from provisioner.sandbox.api import Api
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from tests.cluster import epochs, hands, stock
from tests.cluster.background import Background
from tests.cluster.hands import Ec2Hand
from tests.cluster.replicas import START_S, Replica, eventually, installed
from tests.cluster.stock import Stock
from tests.ec2.aws_keys import AwsKeys, Trouble, serving

RENEW_DEADLINE_S = 10.0
RETRY_S = 7.5  # ours, with its jitter
TAKEN_OVER_S = 30.0  # 15 of a dead holder's leases, up to 7.5 until seen, and the work
LOST_LEASE = 3  # exit code


class House:
    """What these tests share: a namespace, a cluster id, EC2 watched, leases nobody holds."""

    def __init__(self, background: Background, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.hand = Ec2Hand(background.sandbox.ec2_endpoint)
        self.sandbox = background.sandbox

    def replica(self, name: str, *options: str, **other: Any) -> Replica:
        own = ("--cluster-id", self.namespace, *options)
        return Replica(self.sandbox, *own, name=f"{self.namespace}-{name}", **other)

    def of_an_instance(self, name: str, metadata: str) -> Replica:
        """One whose credentials are its instance's; without them it soon stops leading."""
        nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), "/dev/null")
        environment = {
            **dict.fromkeys(CREDENTIALS, ""),
            **nowhere,
            "AWS_EC2_METADATA_DISABLED": "false",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{metadata}/",
        }
        return self.replica(name, environment=environment, module="tests.cluster.impatient")

    @staticmethod
    async def complains(replica: Replica, why: str) -> None:
        async def does() -> bool:
            return why in await replica.why_not_ready()

        await eventually(f"{replica.name} is not ready: {why}", does, START_S)

    async def claim(self, name: str) -> hands.Json:
        return await hands.make_claim(self.api, self.namespace, name, self.namespace)

    async def bound(self, name: str, within_s: float = 20.0) -> hands.Json:
        """The claim once it is Bound."""
        path = f"{hands.claims_of(self.namespace)}/{name}"

        async def is_bound() -> hands.Json | None:
            claim: hands.Json = await self.api.get(path)
            return claim if claim["status"].get("phase") == "Bound" else None

        claim: hands.Json = await eventually(f"{name} is Bound", is_bound, within_s)
        return claim

    async def volume_of(self, name: str) -> str:
        claim = await self.bound(name)
        found = await self.api.get(f"{hands.PVS}/{claim['spec']['volumeName']}")
        return str(found["spec"]["csi"]["volumeHandle"])


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
    await hands.discard(api, f"{hands.CLASSES}/{namespace}")


async def test_the_stock_driver_and_two_replicas_hand_over_in_both_directions(house: House):
    api, hand, stock_driver = house.api, house.hand, Stock(house.api)
    first = house.replica("first")
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(first)
        await eventually("ours leads", first.leads)  # who is ready may still be a standby
        await stack.enter_async_context(stock_driver.running())
        await house.claim("ours")
        await house.bound("ours")
        assert stock.IDENTITY not in await stock.holders(api)
        # From us to stock: released, not expired.
        assert await first.terminate() == 0
        await eventually("stock leads", stock_driver.leads, 2 * stock.RETRY_S)

        begun = await house.claim("begun")
        hand.control(delays={"visible_after_s": 600.0})
        volume_id = stock.begin_volume(hand, begun, house.sandbox.zones[0])
        before_s = hand.now_s
        async with house.replica("second") as second, house.replica("third") as third:
            # Ready as standbys (entering has waited for it), and later with three leases of four.
            *others, last = stock_driver.sidecars
            for sidecar in others:
                await stock_driver.stop(sidecar)

            async def three_are_ours() -> bool:
                return [who.startswith("ebs-provisioner_") for who in await stock.holders(api)] == [
                    *(True, True, True),
                    False,
                ]

            await eventually("one of us holds three leases", three_are_ours, 2 * RETRY_S)
            assert await second.is_ready()
            assert await third.is_ready()
            assert hand.changes(after_s=before_s) == []
            released_s = hand.now_s
            await stock_driver.cut_off(last)

            leader = await eventually("one leads", lambda: _leader(second, third), 45)
            standby = third if leader is second else second
            # What stock had begun is looked for, for as long as EC2 may not show it, and adopted.
            await eventually("the volume is looked for", lambda: _looked_for(hand, begun))
            hand.control(advance_s=600.0, delays={"visible_after_s": 0.0})
            assert await house.volume_of("begun") == volume_id
            assert hand.changes("CreateVolume", after_s=before_s) == []
            assert all(call["at_s"] > released_s for call in hand.changes(after_s=before_s))

            # From one of us to the other.
            assert await leader.terminate() == 0
            await house.claim("others")
            await eventually("the other leads", standby.leads, 2 * RETRY_S)
            await house.bound("others")


async def _leader(*replicas: Replica) -> Replica | None:
    for replica in replicas:
        if await replica.leads():
            return replica
    return None


def _looked_for(hand: Ec2Hand, claim: hands.Json) -> bool:
    name = f"pvc-{claim['metadata']['uid']}"
    return any(name in call["params"].values() for call in hand.changes("DescribeVolumes"))


async def test_the_leader_gauge_tells_who_works_also_without_an_election(house: House):
    async with house.replica("alone", "--no-leader-elect") as alone:
        await eventually("it works", alone.leads)
        assert await alone.metric("ebs_provisioner_leader") == 1


async def test_a_hot_standby_works_soon_after_the_leader_was_killed(house: House):
    clock = asyncio.get_running_loop().time
    async with house.replica("killed") as killed:
        await eventually("it leads", killed.leads)
        async with house.replica("heir") as heir:
            assert await heir.metric("ebs_provisioner_leader") == 0
            await killed.kill()
            died_s = clock()
            await house.claim("late")
            await house.bound("late", TAKEN_OVER_S)
            print(f"bound {clock() - died_s:.1f} s after the kill")  # noqa: T201 -- a measurement
            assert await heir.leads()
            assert await heir.metric("ebs_provisioner_leader") == 1
            assert "releasing those that are ours" not in heir.log


async def test_a_holder_that_was_stopped_too_long_ends_before_it_changes_anything(house: House):
    # A slow limiter keeps creations waiting, so that there is work at the moment it wakes up.
    async with house.replica("sleeper", "--ec2-rate", "CreateVolume=2:2") as sleeper:
        for number in range(30):
            await house.claim(f"c-{number}")
        await eventually("it works", lambda: len(house.hand.changes("CreateVolume")) > 4)
        sleeper.send(signal.SIGSTOP)
        for number in range(5):
            await house.claim(f"late-{number}")
        await asyncio.sleep(RENEW_DEADLINE_S + 1)

        woken_s = house.hand.now_s
        sleeper.send(signal.SIGCONT)
        assert await sleeper.ended(5) == LOST_LEASE

    assert len(house.hand.changes("CreateVolume")) < 30
    assert house.hand.changes(after_s=woken_s) == []


async def test_a_stolen_lease_ends_the_process_at_the_next_renewal(house: House):
    async with house.replica("robbed") as robbed:
        await eventually("it leads", robbed.leads)
        assert await robbed.metric("ebs_provisioner_leader") == 1
        record = {"spec": {"holderIdentity": "a-thief", "leaseDurationSeconds": 15}}
        await house.api.patch(f"{stock.LEASES}/{stock.NAMES[2]}", record)

        assert await robbed.ended(RETRY_S) == LOST_LEASE

    # What was the thief's is left to it.
    assert (await stock.holders(house.api))[2] == "a-thief"


async def test_credentials_that_come_late_are_waited_for_by_the_same_process(house: House):
    keys = AwsKeys()
    keys.trouble.absent = True
    async with serving(keys) as metadata:
        alone = house.of_an_instance("alone", metadata)
        alone.begin()
        try:
            await house.claim("data")
            await house.complains(alone, "no AWS credentials: none are found")
            # There, but slower than anybody waits.
            keys.trouble = Trouble(token_delay_s=30, slow_tokens=1)
            await eventually("the metadata service is asked", lambda: keys.asked["PUT token"])
            await house.complains(alone, "no AWS credentials: none are found")
            await eventually("it leads", alone.leads)
            await house.bound("data")
            assert await alone.why_not_ready() == ""
        finally:
            await alone.kill()


async def test_a_standby_with_credentials_takes_over_from_who_lost_them(house: House):
    keys = AwsKeys()
    keys.trouble.key_id = "ASIALOST"
    async with serving(keys) as metadata, house.of_an_instance("first", metadata) as first:
        await eventually("it leads", first.leads)
        async with house.replica("second") as second:
            house.hand.control(refused_keys={"ASIALOST": "ExpiredToken"})
            await house.claim("data")
            assert await first.ended() == 1
            assert "stops leading" in first.log
            await house.bound("data")
            assert await second.leads()
            assert len(house.hand.of_cluster(house.namespace)) == 1
            # Begun again, it waits by itself.
            first.begin()
            await house.complains(first, "ExpiredToken")
            assert await second.metric("ebs_provisioner_leader") == 1
