"""When the user of a claim hears that its volume is being made: after 5 s, wherever it waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from provisioner.controller.provisioning.creation_rules import Attempt
from provisioner.ec2.calls import Gate
from provisioner.ec2.limiter import Limiter
from provisioner.ec2.volumes import Volumes
from provisioner.model.claim import Claim
from provisioner.model.volume import CreateRequest, Volume
from tests.builders import UID, VOLUME, a_claim, a_persistent_volume, a_plan, a_volume
from tests.controller.provisioning.test_flow import World
from tests.ec2.virtual_time import Clock, in_virtual_time

TEXT = 'External provisioner is provisioning volume for claim "{}"'
DONE = "Successfully provisioned volume pvc-{}"


@dataclass
class LimitedEc2:
    """Makes usable volumes at once, after the limiter has given leave."""

    limiter: Limiter
    made: dict[str, Volume]

    async def create(self, request: CreateRequest, *, gate: Gate) -> Volume:
        await self.limiter.acquire("CreateVolume")
        gate()
        self.limiter.release()
        self.made[VOLUME] = a_volume()
        return self.made[VOLUME]


class Story:
    """Creations with a limiter that somebody else keeps busy for ``granted_after_s``."""

    def __init__(self, clock: Clock, claim: Claim, granted_after_s: float) -> None:
        self.clock = clock
        self.claim = claim
        self.granted_after_s = granted_after_s
        self.limiter = limiter = Limiter(at_once=1, clock=clock)
        self.world = World(claim)
        self.world.kube.answers = [a_persistent_volume(f"pvc-{UID}")]
        self.creations = self.world.provisioner.creations
        self.creations._volumes = cast("Volumes", LimitedEc2(limiter, self.world.ec2.made))

    async def told_at(self, *at_s: float) -> list[list[str]]:
        """Create, and note what was told so far at each of these moments."""
        await self.limiter.acquire("DescribeVolumes")  # the one call that may be under way
        asyncio.get_running_loop().call_later(self.granted_after_s, self.limiter.release)
        self.creations.begin(UID, Attempt(a_plan(self.claim), self.clock()))
        advancing = asyncio.create_task(self.creations.advance(UID))
        told = []
        for moment_s in at_s:
            await asyncio.sleep(moment_s - self.clock())
            told.append(list(self.world.events.told))
        await advancing
        self.limiter.close()
        return told


def tell(granted_after_s: float, *at_s: float) -> list[list[str]]:
    async def story(clock: Clock) -> Any:
        return await Story(clock, CLAIM, granted_after_s).told_at(*at_s)

    told: list[list[str]] = in_virtual_time(story)
    return told


CLAIM = a_claim(node="node-1")


def test_a_claim_hears_after_five_seconds_that_its_call_waits_in_the_limiter() -> None:
    told = tell(12.0, 4.9, 5.1, 11.9, 12.1)

    provisioning = TEXT.format(CLAIM.key)
    assert told == [[], [provisioning], [provisioning], [provisioning, DONE.format(UID)]]


def test_a_claim_with_a_persistent_volume_by_then_hears_only_that_it_is_done() -> None:
    assert tell(4.0, 3.9, 4.1, 30.0) == [[], [DONE.format(UID)], [DONE.format(UID)]]
