"""What volumes come to: counted seldom, and told with a full quota only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from provisioner.ec2.usage import FRESH_FOR_S, PATIENCE_S, Usage
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason, StorageError
from provisioner.model.quota import InUse
from provisioner.model.volume import CreateRequest
from tests.ec2.builders import ZONE, a_request
from tests.ec2.virtual_time import Clock, in_virtual_time

if TYPE_CHECKING:
    from provisioner.sandbox.strict_ec2.client import StrictEc2


FULL = Ec2Error(
    Reason.QUOTA_EXCEEDED,
    "CreateVolume: EC2 answered VolumeLimitExceeded: You have exceeded your maximum gp3 storage "
    "limit of 1 TiB in this region; raise it",
    action="CreateVolume",
    code="VolumeLimitExceeded",
    retry_after_s=60.0,
)


@dataclass
class Counted:
    """An EC2 that takes its time to list volumes."""

    takes_s: float = 1.0
    fails: bool = False
    asked: list[str] = field(default_factory=list)

    async def in_use(self, volume_type: str) -> InUse:
        self.asked.append(volume_type)
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise Ec2Error(Reason.PERMISSION_DENIED, "no", action="DescribeVolumes")
        return InUse(volumes=10 * len(self.asked), gib=1000, iops=0)


def usage(ec2: Counted, clock: Clock) -> Usage:
    return Usage(cast("Volumes", ec2), clock=clock)


def test_a_full_quota_is_told_with_its_name_and_what_is_in_use():
    async def story(clock: Clock) -> StorageError:
        return await usage(Counted(), clock).explained(FULL, "gp3")

    told = in_virtual_time(story)

    assert isinstance(told, Ec2Error)
    assert told.message.startswith(FULL.message)
    assert "L-7A658B76" in told.message
    assert "10 gp3 volumes of this account and region use 1000 GiB" in told.message
    kept = (told.reason, told.code, told.action, told.outcome, told.retry_after_s)
    assert kept == (FULL.reason, FULL.code, FULL.action, Outcome.NOTHING, 60.0)


def test_a_thousand_claims_at_a_full_quota_cost_one_count_in_ten_minutes():
    ec2 = Counted()

    async def story(clock: Clock) -> list[str]:
        used, told = usage(ec2, clock), set()
        for _ in range(3):
            some = await asyncio.gather(*(used.explained(FULL, "gp3") for _ in range(1000)))
            told |= {error.message for error in some}
            await asyncio.sleep(60)
        assert len(ec2.asked) == 1
        await asyncio.sleep(FRESH_FOR_S)
        return [*told, (await used.explained(FULL, "gp3")).message]

    first, later = in_virtual_time(story)

    assert "10 gp3 volumes" in first
    assert "20 gp3 volumes" in later


def test_nobody_waits_long_for_a_count_and_the_next_one_has_it():
    ec2 = Counted(takes_s=PATIENCE_S + 20)

    async def story(clock: Clock) -> tuple[str, float, str]:
        used = usage(ec2, clock)
        early = (await used.explained(FULL, "gp3")).message
        waited_s = clock()
        await asyncio.sleep(60)
        return early, waited_s, (await used.explained(FULL, "gp3")).message

    early, waited_s, later = in_virtual_time(story)

    assert "L-7A658B76" in early
    assert "gp3 volumes of this account" not in early
    assert waited_s == PATIENCE_S
    assert "10 gp3 volumes" in later
    assert ec2.asked == ["gp3"]


def test_a_count_that_fails_leaves_the_name():
    async def story(clock: Clock) -> str:
        return (await usage(Counted(fails=True), clock).explained(FULL, "gp3")).message

    told = in_virtual_time(story)

    assert "L-7A658B76" in told
    assert "use" not in told.partition("L-7A658B76")[2]


@pytest.mark.parametrize(
    "error",
    [
        Ec2Error(Reason.ZONE_OUT_OF_CAPACITY, "none left", action="CreateVolume"),
        KubeError(Reason.CONFLICT, "changed"),
    ],
)
def test_any_other_error_stays_as_it_is_and_costs_nothing(error: StorageError):
    ec2 = Counted()

    async def story(clock: Clock) -> StorageError:
        return await usage(ec2, clock).explained(error, "gp3")

    assert in_virtual_time(story) is error
    assert ec2.asked == []


def test_closing_ends_a_count():
    async def story(clock: Clock) -> None:
        used = usage(Counted(takes_s=1000), clock)
        await used.explained(FULL, "gp3")
        await used.close()

    in_virtual_time(story)  # tasks left behind are an error


async def test_all_volumes_of_the_type_count_page_by_page_and_no_others(
    volumes: Volumes, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.ec2.volumes.PAGE", 5)
    await asyncio.gather(*(volumes.create(a_request(f"t{n}")) for n in range(12)))
    io2 = CreateRequest("io2", ZONE, 10, "io2", iops=700)
    await volumes.create(io2)
    strict_ec2.control(quotas={"gib": {"gp3": 50}}, reset_counts=True)

    with pytest.raises(Ec2Error) as caught:
        await volumes.create(a_request("another"))
    told = await Usage(volumes).explained(caught.value, "gp3")

    assert "L-7A658B76" in told.message
    assert "12 gp3 volumes of this account and region use 48 GiB" in told.message
    assert strict_ec2.counts()["DescribeVolumes"] == 3
    assert await volumes.in_use("io2") == InUse(1, 10, 700)
