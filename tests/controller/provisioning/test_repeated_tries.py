"""Claims that EC2 serves in vain again and again: how often it is asked, and who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, cast

import pytest

from provisioner.controller.provisioning.client_token_rules import client_token
from provisioner.controller.provisioning.creation_rules import MOST_PAUSE_S
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.limiter import Bucket, Limiter, Rate, Rates, Urgency
from provisioner.ec2.volumes import Volumes
from provisioner.model.claim import Claim
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.quota import InUse
from provisioner.model.volume import VolumeState
from tests.builders import UID, a_claim, a_volume, an_ec2_error
from tests.controller.full_zones import CHOSEN, FullZones
from tests.ec2.virtual_time import Clock, in_virtual_time

CROWD = 20
# So that the crowd, once in two minutes each, would ask for more than that.
QUOTA = Rate(6, 0.1)
HOUR_S = 3600.0


class Account:
    """EC2's CreateVolume behind a limiter: refuses all but ``healthy``.

    Attributes:
        error: the refusal.
        asked_at: when it was asked, by the claim's persistent volume.
        urgencies: of each call.
        used_up: client tokens of volumes that are gone.
        deleted: volumes.
    """

    def __init__(self, clock: Clock, error: Callable[[], Ec2Error], rate: Rate) -> None:
        self.clock, self.error = clock, error
        self.urgencies: list[Urgency] = []
        self.used_up: set[str] = set()
        self.deleted: list[str] = []
        self.limiter = Limiter(Rates({"CreateVolume": rate}), clock=clock)
        self.quota = Bucket(rate, clock())
        self.healthy: set[str] = set()
        self.asked_at: dict[str, list[float]] = {}

    async def call(
        self, action: str, params: Mapping[str, Any], *, gate: Any, patient: bool = False
    ) -> dict[str, Any]:
        if action == "DeleteVolume":
            self.deleted.append(params["VolumeId"])
            return {}
        urgency = Urgency.PATIENT if patient else Urgency.NORMAL
        self.urgencies.append(urgency)
        place = None
        while True:
            grant = await self.limiter.acquire("CreateVolume", urgency, place=place)
            gate()
            await asyncio.sleep(0.2)
            self.limiter.release()
            self.quota.advance(self.clock(), hungry=False)
            if self.quota.take():
                break
            self.limiter.throttled(grant)
            place = grant.place
        tags = params["TagSpecifications"][0]["Tags"]
        name = next(tag["Value"] for tag in tags if tag["Key"] == "CSIVolumeName")
        self.asked_at.setdefault(name, []).append(self.clock())
        if params["ClientToken"] in self.used_up:
            raise an_ec2_error(Reason.TOKEN_MISMATCH)
        if name not in self.healthy:
            raise self.error()
        return {"Volume": a_volume(f"vol-{len(self.urgencies)}", state=VolumeState.CREATING)}


class Crowd(FullZones):
    """Claims of one class, all of them refused by the account; their queue runs."""

    def __init__(self, account: Account, *claims: Claim) -> None:
        super().__init__(*claims)
        self.account = account
        self.provisioner.creations._volumes = Volumes(cast("Ec2Calls", account))
        self.ec2.in_use = _in_use  # type: ignore[attr-defined]

    def fails(self) -> None:
        """Of each volume that begins well, a description shows after a while that it has failed."""
        create = self.account.call

        async def failing(action: str, params: Mapping[str, Any], **given: Any) -> dict[str, Any]:
            answer = await create(action, params, **given)
            if action == "CreateVolume":
                asyncio.get_running_loop().call_later(2.0, self._fail, answer["Volume"].volume_id)
            return answer

        self.account.call = failing  # type: ignore[method-assign]

    def _fail(self, volume_id: str) -> None:
        self.ec2.made[volume_id] = a_volume(volume_id, state=VolumeState.ERROR)
        self.provisioner.queue.add(UID)

    async def lives(self, for_s: float) -> None:
        self.provisioner.subscribe()
        running = asyncio.create_task(self.provisioner.queue.run())
        for claim in self.caches.claims.values():
            self.provisioner.queue.add(claim.uid)
        await asyncio.sleep(for_s)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await self.provisioner.close()
        await self.provisioner.creations._lookups.close()
        self.account.limiter.close()


async def _in_use(*_: Any, **__: Any) -> InUse:
    return InUse(volumes=1, gib=1, iops=1)


def refusal(reason: Reason, retry_after_s: float | None) -> Callable[[], Ec2Error]:
    def made() -> Ec2Error:
        text = f"EC2 says {reason}"
        return Ec2Error(reason, text, action="CreateVolume", retry_after_s=retry_after_s)

    return made


def uid(number: int) -> str:
    return f"0c5a1b2e-7f00-4a7e-9d61-3b1f{number:08d}"


@pytest.mark.parametrize(
    ("reason", "retry_after_s"),
    [
        (Reason.QUOTA_EXCEEDED, 60.0),
        (Reason.INITIALIZATION_RATE, 60.0),
    ],
)
def test_what_ec2_refuses_is_requested_less_and_less_often(reason: Reason, retry_after_s: float):
    async def story(clock: Clock) -> list[float]:
        account = Account(clock, refusal(reason, retry_after_s), Rate(100, 5))
        await Crowd(account, CHOSEN).lives(3 * HOUR_S)
        return account.asked_at[CHOSEN.persistent_volume_name]

    asked_at = in_virtual_time(story)

    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert MOST_PAUSE_S <= gaps[-1] <= 1.25 * MOST_PAUSE_S + 62.0
    assert sum(at_s < HOUR_S for at_s in asked_at) <= 20


def test_a_copy_that_has_to_wait_is_requested_each_minute_as_others_stand_behind_it():
    async def story(clock: Clock) -> list[float]:
        account = Account(clock, refusal(Reason.COPY_RATE, 30.0), Rate(100, 5))
        await Crowd(account, CHOSEN).lives(HOUR_S)
        return account.asked_at[CHOSEN.persistent_volume_name]

    asked_at = in_virtual_time(story)

    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert 30.0 <= min(gaps) < 35.0
    assert 60.0 <= max(gaps) <= 70.0


def test_a_new_claim_does_not_wait_for_those_that_are_refused_again_and_again():
    crowd = [a_claim(f"data-{each}", uid=uid(each), node="node-a") for each in range(CROWD)]

    async def story(clock: Clock) -> list[float]:
        account = Account(clock, refusal(Reason.QUOTA_EXCEEDED, 60.0), QUOTA)
        world = Crowd(account, *crowd)
        living = asyncio.create_task(world.lives(HOUR_S))
        waited = []
        for number in range(3):
            await asyncio.sleep(HOUR_S / 4 + 7.0 * number)
            late = a_claim(f"late-{number}", uid=uid(CROWD + number), node="node-a")
            account.healthy.add(late.persistent_volume_name)
            came_at_s = clock()
            world.caches.claims._store.apply(late)
            await asyncio.sleep(120.0)
            [asked_at_s] = account.asked_at.get(late.persistent_volume_name, [clock()])
            waited.append(asked_at_s - came_at_s)
        await living
        return waited

    waited = in_virtual_time(story)

    assert max(waited) < 5.0


def test_how_often_a_claim_was_refused_is_forgotten_with_it():
    async def story(clock: Clock) -> Crowd:
        account = Account(clock, refusal(Reason.QUOTA_EXCEEDED, 60.0), QUOTA)
        world = Crowd(account, CHOSEN)
        await world.lives(HOUR_S)
        return world

    world = in_virtual_time(story)
    creations = world.provisioner.creations
    assert creations._given_up[UID] > 1

    creations.forget(UID)

    assert UID not in creations._given_up


def test_a_volume_that_fails_again_and_again_is_created_less_and_less_often():
    async def story(clock: Clock) -> Account:
        account = Account(clock, refusal(Reason.QUOTA_EXCEEDED, None), Rate(100, 5))
        account.healthy.add(CHOSEN.persistent_volume_name)
        world = Crowd(account, CHOSEN)
        world.fails()
        await world.lives(3 * HOUR_S)
        return account

    account = in_virtual_time(story)

    asked_at = account.asked_at[CHOSEN.persistent_volume_name]
    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert gaps[0] < 10.0  # a single failure may be an accident
    assert gaps[0] < gaps[1] < gaps[2]
    assert gaps[-1] >= MOST_PAUSE_S
    assert sum(at_s < HOUR_S for at_s in asked_at) <= 20
    assert len(account.deleted) >= len(asked_at) - 1


def test_client_tokens_that_were_used_up_before_us_are_told_once_and_hold_nobody_up():
    name, burned = CHOSEN.persistent_volume_name, 50

    async def story(clock: Clock) -> Crowd:
        account = Account(clock, refusal(Reason.QUOTA_EXCEEDED, None), Rate(10, 1))
        account.healthy.add(name)
        account.used_up = {client_token(name, each) for each in range(1, burned + 1)}
        world = Crowd(account, CHOSEN)
        await world.lives(HOUR_S)
        return world

    world = in_virtual_time(story)

    assert len(world.account.asked_at[name]) == burned + 1
    assert world.account.urgencies == [Urgency.NORMAL] + burned * [Urgency.PATIENT]
    assert sum(Reason.TOKEN_MISMATCH in each for each in world.events.told) == 1
