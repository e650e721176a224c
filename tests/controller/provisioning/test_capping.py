"""More IOPS than the region gives, and quotas that are full: what is sent, and what is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from provisioner.ec2.ceilings import TOO_MANY
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.names import VOLUME_NAME
from provisioner.model.quota import InUse
from provisioner.model.volume import CreateRequest
from tests.builders import (
    UID,
    a_claim,
    a_class,
    a_persistent_volume,
    a_volume,
    an_ec2_error,
)
from tests.controller.provisioning.test_flow import World
from tests.controller.services import Ec2

CLAIM = a_claim(node="node-1", size="1000Gi")
MADE = a_volume(size_gib=1000)
TOLD = (
    "IopsCapped: the class requests 90000 IOPS for the gp3 volume of 1000 GiB, but it gets 80000: "
    "EC2 allows volumes of type gp3 at most 80000 IOPS in this region"
)
TOLD_OF_ANOTHER = (
    "IopsCapped: the class requests 90000 IOPS for the gp3 volume of 1000 GiB, but it gets {}: "
    "an earlier process created it, and requested no more"
)


def too_high(most: int, asked: int = TOO_MANY) -> Ec2Error:
    text = f"EC2 answered InvalidParameterValue: Volume iops of {asked} is too high; maximum is"
    return Ec2Error(Reason.INVALID_REQUEST, f"{text} {most}", action="CreateVolume")


@dataclass
class CappingEc2(Ec2):
    """``ceiling``: what a dry run is answered; ``tried``: dry runs."""

    ceiling: Ec2Error = field(default_factory=lambda: too_high(80_000))
    tried: list[CreateRequest] = field(default_factory=list)
    used: InUse = field(default_factory=lambda: InUse(3, 51_200, 0))

    async def dry_run(self, request: CreateRequest) -> Ec2Error:
        self.tried.append(request)
        if self.ceiling.reason is not Reason.INVALID_REQUEST:
            raise self.ceiling
        return self.ceiling

    async def in_use(self, volume_type: str) -> InUse:
        return self.used


class CappingWorld(World):
    """One claim of a class with so many IOPS."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, iops: str = "90000") -> None:
        monkeypatch.setattr("tests.controller.provisioning.test_flow.Ec2", CappingEc2)
        super().__init__(CLAIM)
        assert isinstance(self.ec2, CappingEc2)
        self.ec2_: CappingEc2 = self.ec2
        self.caches.classes._store.remove("fast", "")
        self.caches.classes._store.apply(a_class(waits=True, parameters={"iops": iops}))
        self.kube.answers = [CLAIM, a_persistent_volume()]

    async def look(self) -> None:
        await self.provisioner.reconcile(UID)

    def asked_iops(self) -> list[int | None]:
        return [request.iops for request in self.ec2.requests]


async def test_iops_above_the_ceiling_are_lowered_and_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch)
    world.ec2.answers = [replace(MADE, iops=80_000)]

    await world.look()

    assert world.asked_iops() == [80_000]
    assert len(world.ec2_.tried) == 1
    assert TOLD in world.events.told


async def test_iops_that_every_region_gives_cost_no_call(monkeypatch: pytest.MonkeyPatch):
    world = CappingWorld(monkeypatch, iops="16000")
    world.ec2.answers = [MADE]

    await world.look()

    assert (world.asked_iops(), world.ec2_.tried) == ([16_000], [])
    assert not any("IopsCapped" in told for told in world.events.told)


async def test_a_request_that_was_sent_stays_as_it_is_whatever_is_learned_later(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch)
    world.ec2.answers = [an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN), MADE]
    with pytest.raises(Ec2Error):
        await world.look()
    world.provisioner._ceilings.learn(world.ec2.requests[0], too_high(16_000))

    await world.look()

    first, second = world.ec2.requests
    assert first == second  # else the token would stand for another request
    assert first.iops == 80_000


async def test_where_no_dry_run_is_allowed_the_refusal_itself_tells_the_ceiling(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch)
    world.ec2_.ceiling = Ec2Error(Reason.PERMISSION_DENIED, "no", action="CreateVolume")
    world.kube.answers = [CLAIM, CLAIM, a_persistent_volume()]
    world.ec2.answers = [too_high(80_000, 90_000), MADE]
    with pytest.raises(Ec2Error, match="maximum is 80000"):
        await world.look()

    await world.look()

    assert world.asked_iops() == [90_000, 80_000]
    assert TOLD in world.events.told


async def test_while_ec2_cannot_be_asked_nothing_is_frozen(monkeypatch: pytest.MonkeyPatch):
    world = CappingWorld(monkeypatch)
    answer = world.ec2_.ceiling
    world.ec2_.ceiling = Ec2Error(Reason.CREDENTIALS_INVALID, "no role", action="CreateVolume")
    world.ec2.answers = [MADE]
    with pytest.raises(Ec2Error):
        await world.look()
    assert (world.kube.sent, world.ec2.requests) == ([], [])
    assert world.events.told == ["CredentialsInvalid: no role"]
    world.ec2_.ceiling = answer

    await world.look()

    assert world.asked_iops() == [80_000]


async def test_one_that_was_made_before_with_a_lower_ceiling_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch)
    named = {VOLUME_NAME: f"pvc-{UID}"}
    world.ec2.answers = [an_ec2_error(Reason.TOKEN_MISMATCH)]  # the token stands for 16,000
    world.ec2.shown = [replace(MADE, iops=16_000, tags=named)]

    await world.look()

    assert len(world.ec2.requests) == 1
    assert world.kube.sent[-1][:2] == ("create", "persistentvolumes")
    assert TOLD_OF_ANOTHER.format(16_000) in world.events.told


async def test_fewer_iops_than_we_would_have_asked_for_are_told_of_as_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch)
    world.ec2.answers = [replace(MADE, iops=64_000)]  # by the process before us

    await world.look()

    assert TOLD_OF_ANOTHER.format(64_000) in world.events.told


async def test_as_many_iops_as_were_asked_for_are_nothing_to_tell_of(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch)
    world.ec2.answers = [replace(MADE, iops=90_000)]  # before the ceiling came down

    await world.look()

    assert not any("IopsCapped" in told for told in world.events.told)


async def test_a_full_quota_is_told_with_its_name_and_the_amount_in_use(
    monkeypatch: pytest.MonkeyPatch,
):
    world = CappingWorld(monkeypatch, iops="3000")
    text = "EC2 answered VolumeLimitExceeded: You have exceeded your maximum gp3 storage limit"
    full = Ec2Error(Reason.QUOTA_EXCEEDED, text, action="CreateVolume", code="VolumeLimitExceeded")
    world.ec2.answers = [full]

    await world.look()

    [told] = [each for each in world.events.told if "QuotaExceeded" in each]
    assert "Storage for General Purpose SSD (gp3) volumes, in TiB (L-7A658B76)" in told
    assert "3 gp3 volumes of this account and region use 50.00 TiB" in told
