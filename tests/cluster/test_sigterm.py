from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from provisioner.model.names import UNCLAIMED
from provisioner.sandbox.api import Api
from tests.cluster import epochs, hands, stock
from tests.cluster.background import Background
from tests.cluster.hands import Ec2Hand
from tests.cluster.replicas import Replica, eventually, installed

CLAIMS = 30
WITHIN_S = 10.0
"""For what EC2 has already, marks and events, and the end of a process; the queue would take 20."""


@pytest.fixture
async def hand(background: Background, api: Api, namespace: str) -> AsyncIterator[Ec2Hand]:
    """EC2 that takes its usual seconds for everything; nobody holds the leases."""
    await installed(background)
    await epochs.of_ours(api)
    await hands.make_class(api, namespace)
    made = Ec2Hand(background.sandbox.ec2_endpoint)
    made.watch(latency="real")
    yield made
    made.control(**hands.CALM)
    await hands.wipe(api, made, namespace)
    await hands.discard(api, f"{hands.CLASSES}/{namespace}")


async def test_sigterm_amid_creations_leaves_no_mark_no_lease_and_the_next_one_finishes(
    background: Background, api: Api, namespace: str, hand: Ec2Hand
):
    # A small quota: at SIGTERM some are saved, some are being made, some wait their turn.
    hand.control(throttle={"CreateVolume": [10, 1]})
    options = ("--cluster-id", namespace, "--ec2-rate", "CreateVolume=10:1")
    first = Replica(background.sandbox, *options, name=f"{namespace}-first")
    async with first:
        for number in range(CLAIMS):
            await hands.make_claim(api, namespace, f"c-{number}", namespace)

        async def some_are_saved() -> bool:
            return len(await hands.persistent_volumes(api, namespace)) >= 4

        await eventually("some are saved", some_are_saved)
        asked_at = asyncio.get_running_loop().time()
        assert await first.terminate() == 0
        assert asyncio.get_running_loop().time() - asked_at < WITHIN_S

    assert set(await stock.holders(api)) <= {""}
    saved = {
        each["spec"]["csi"]["volumeHandle"]
        for each in await hands.persistent_volumes(api, namespace)
    }
    assert 4 <= len(saved) < CLAIMS, "it was not stopped in the middle: this proves nothing"
    # Whoever leads next may be the stock driver: it would make a second volume beside one that no
    # persistent volume names, as it sends other tags under the same client token.
    made = hand.of_cluster(namespace)
    assert set(made) == saved
    assert [each for each in made.values() if UNCLAIMED in hands.tags_of(each)] == []

    hand.control(throttle="none")
    async with Replica(background.sandbox, *options[:2], name=f"{namespace}-next"):

        async def all_are_bound() -> bool:
            return len(await hands.bound(api, namespace)) == CLAIMS

        await eventually("all are Bound", all_are_bound, 60.0)

    named = {
        each["spec"]["csi"]["volumeHandle"]
        for each in await hands.persistent_volumes(api, namespace)
    }
    assert len(named) == CLAIMS
    assert set(hand.of_cluster(namespace)) == named
