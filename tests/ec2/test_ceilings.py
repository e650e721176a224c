"""How many IOPS a region gives: asked of EC2 seldom, by a call that makes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.ec2.ceilings import FAILED_FOR_S, FRESH_FOR_S, TOO_MANY, Ceilings, ceiling_in
from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.names import CLUSTER_NAME, MADE_BY_DRIVER, VOLUME_NAME
from provisioner.model.volume import CreateRequest as Request
from tests.ec2.builders import ZONE, a_request
from tests.ec2.virtual_time import Clock, in_virtual_time

if TYPE_CHECKING:
    from provisioner.sandbox.strict_ec2.client import StrictEc2

CALL_S = 0.3


def wanted(volume_type: str = "gp3", *, zone: str = ZONE, outpost: str | None = None) -> Request:
    return Request("token", zone, 100, volume_type, iops=90_000, outpost_arn=outpost)


def a_refusal(text: str, reason: Reason = Reason.INVALID_REQUEST) -> Ec2Error:
    return Ec2Error(reason, f"CreateVolume: EC2 answered X: {text}", action="CreateVolume")


TOO_HIGH = a_refusal(f"Volume iops of {TOO_MANY} is too high; maximum is 80000")
DENIED = a_refusal("not authorized", Reason.PERMISSION_DENIED)


@dataclass
class Tried:
    """An EC2 that answers dry runs, the last answer for ever."""

    answers: list[Ec2Error | None] = field(default_factory=lambda: [TOO_HIGH])
    requests: list[Request] = field(default_factory=list)

    async def dry_run(self, request: Request) -> Ec2Error | None:
        self.requests.append(request)
        await asyncio.sleep(CALL_S)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None and answer.reason is not Reason.INVALID_REQUEST:
            raise answer
        return answer


def ceilings(ec2: Tried, clock: Clock) -> Ceilings:
    extra = [tags.parse("cost=42"), tags.parse("part={{ .PVCName | substring 90 99 }}")]
    volumes = cast("Volumes", ec2)
    return Ceilings(volumes, cluster_id="prod", extra_tags=extra, clock=clock)


def test_any_number_of_claims_cost_one_call_for_a_type():
    ec2 = Tried()

    async def story(clock: Clock) -> set[int | None]:
        known = ceilings(ec2, clock)
        zones = [f"us-east-1{letter}" for letter in "abcdef"]
        at_once = await asyncio.gather(*(known.of(wanted(zone=zone)) for zone in zones * 100))
        return {*at_once, await known.of(wanted())}

    assert in_virtual_time(story) == {80_000}
    assert len(ec2.requests) == 1


def test_each_type_is_asked_for_with_our_tags_and_far_too_many():
    ec2 = Tried()

    async def story(clock: Clock) -> None:
        known = ceilings(ec2, clock)
        for volume_type in ("gp3", "io1", "gp3"):
            await known.of(wanted(volume_type))

    in_virtual_time(story)

    asked = [(r.volume_type, r.iops, r.size_gib, r.zone) for r in ec2.requests]
    assert asked == [(kind, TOO_MANY, 4, ZONE) for kind in ("gp3", "io1")]
    owner = tags.Owner("shop", "data", "pvc-1", "Delete")
    of_volumes = dict(tags.of_new_volume(owner, cluster_id="prod", extra={"cost": "42"}))
    tried = dict(ec2.requests[0].tags)
    assert tried.keys() == of_volumes.keys()  # whatever tag a policy asks for
    said = {VOLUME_NAME: "IopsLimitDryRun", MADE_BY_DRIVER: "true", CLUSTER_NAME: "prod"}
    assert tried.items() >= {**said, "cost": "42"}.items()


def test_an_outpost_has_a_ceiling_of_its_own():
    ec2, arn = Tried([TOO_HIGH, a_refusal("Volume iops of 9 is too high; maximum is 16000")]), "arn"

    async def story(clock: Clock) -> list[int | None]:
        known = ceilings(ec2, clock)
        return [await known.of(wanted(outpost=each)) for each in (None, arn, None, arn)]

    assert in_virtual_time(story) == [80_000, 16_000, 80_000, 16_000]
    assert [request.outpost_arn for request in ec2.requests] == [None, arn]


def test_what_was_learned_is_learned_again_after_twelve_hours_however_busy_it_is():
    ec2 = Tried([TOO_HIGH, a_refusal("Volume iops of 9 is too high; maximum is 120000")])

    async def story(clock: Clock) -> list[int | None]:
        known, seen = ceilings(ec2, clock), []
        while clock() < FRESH_FOR_S + 600:
            seen.append(await known.of(wanted()))
            await asyncio.sleep(60)
        return seen

    seen = in_virtual_time(story)

    assert (len(ec2.requests), seen[0], seen[-1]) == (2, 80_000, 120_000)


@pytest.mark.parametrize(
    "failure",
    [
        DENIED,
        a_refusal("The zone 'x' does not exist.", Reason.ZONE_NOT_FOUND),
        a_refusal("Something else is wrong"),
    ],
    ids=lambda failure: str(failure.reason),
)
def test_a_failure_is_remembered_shortly(failure: Ec2Error):
    ec2 = Tried([failure, TOO_HIGH])

    async def story(clock: Clock) -> list[int | None]:
        known = ceilings(ec2, clock)
        seen = [await known.of(wanted()) for _ in range(50)]
        assert len(ec2.requests) == 1
        await asyncio.sleep(FAILED_FOR_S)
        return [seen[0], seen[-1], await known.of(wanted())]

    assert in_virtual_time(story) == [None, None, 80_000]


@pytest.mark.parametrize("reason", [Reason.UNREACHABLE, Reason.REPLY_LOST, Reason.NOT_LEADING])
def test_while_ec2_is_away_nothing_is_frozen_and_nothing_remembered(reason: Reason):
    ec2 = Tried([a_refusal("EC2 is away", reason), TOO_HIGH])

    async def story(clock: Clock) -> int | None:
        known = ceilings(ec2, clock)
        asked = await asyncio.gather(
            *(known.of(wanted()) for _ in range(9)), return_exceptions=True
        )
        assert {each.reason for each in asked if isinstance(each, Ec2Error)} == {reason}
        assert len(ec2.requests) == 1
        return await known.of(wanted())

    assert in_virtual_time(story) == 80_000


@pytest.mark.parametrize("failure", [DENIED, a_refusal("EC2 is away", Reason.UNREACHABLE)])
def test_what_was_known_stays_true_while_it_cannot_be_learned_again(failure: Ec2Error):
    ec2 = Tried([TOO_HIGH, failure])

    async def story(clock: Clock) -> int | None:
        known = ceilings(ec2, clock)
        await known.of(wanted())
        await asyncio.sleep(FRESH_FOR_S)
        return await known.of(wanted())

    assert in_virtual_time(story) == 80_000


def test_a_refused_volume_tells_the_ceiling_that_no_dry_run_could():
    ec2 = Tried([DENIED])

    async def story(clock: Clock) -> list[int | None]:
        known = ceilings(ec2, clock)
        before = await known.of(wanted())
        known.learn(wanted(), DENIED)
        between = await known.of(wanted())
        known.learn(wanted(), TOO_HIGH)
        return [before, between, await known.of(wanted())]

    assert in_virtual_time(story) == [None, None, 80_000]


def test_nothing_against_so_many_is_no_ceiling():
    ec2 = Tried([None])

    async def story(clock: Clock) -> int | None:
        known = ceilings(ec2, clock)
        await known.of(wanted())
        return await known.of(wanted())

    assert in_virtual_time(story) is None
    assert len(ec2.requests) == 1


def test_one_who_leaves_does_not_take_the_answer_from_the_others():
    async def story(clock: Clock) -> int | None:
        known = ceilings(Tried(), clock)
        first = asyncio.create_task(known.of(wanted()))
        second = asyncio.create_task(known.of(wanted()))
        await asyncio.sleep(CALL_S / 2)
        first.cancel()
        return await second

    assert in_virtual_time(story) == 80_000


def test_closing_ends_a_call_under_way():
    async def story(clock: Clock) -> None:
        known = ceilings(Tried(), clock)
        asking = asyncio.create_task(known.of(wanted()))
        await asyncio.sleep(CALL_S / 2)
        await known.close()
        await asyncio.gather(asking, return_exceptions=True)

    in_virtual_time(story)  # tasks left behind are an error


@given(st.text())
def test_no_text_is_more_than_a_number_or_nothing(text: str):
    found = ceiling_in(a_refusal(text))

    assert found is None or 0 <= found < 10**9


@pytest.mark.parametrize(
    ("volume_type", "set_to", "ceiling"),
    [
        ("gp3", {}, 80_000),
        ("io1", {}, 64_000),
        ("io2", {}, 256_000),
        ("gp3", {"gp3": 16_000}, 16_000),
        ("io2", {"io2": 64_000}, 64_000),
    ],
)
async def test_ec2_names_its_ceiling_and_makes_nothing(
    volumes: Volumes,
    strict_ec2: StrictEc2,
    volume_type: str,
    set_to: dict[str, int],
    ceiling: int,
) -> None:
    strict_ec2.control(iops_ceilings=set_to)

    known = Ceilings(volumes, cluster_id="prod", extra_tags=())

    assert await known.of(wanted(volume_type)) == ceiling
    assert await volumes.find(tags={"CSIVolumeName": "IopsLimitDryRun"}) == []


async def test_a_dry_run_that_ec2_has_nothing_against_makes_nothing(volumes: Volumes) -> None:
    assert await volumes.dry_run(a_request("one")) is None
    assert await volumes.find(tags={"Name": "one"}) == []


async def test_a_dry_run_that_was_not_looked_at_is_a_failure(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    denial = {"action": "CreateVolume", "do": "error", "code": "UnauthorizedOperation"}
    strict_ec2.control(faults=[{**denial, "http_status": 403}])

    with pytest.raises(Ec2Error) as caught:
        await volumes.dry_run(a_request("one"))

    assert caught.value.reason is Reason.PERMISSION_DENIED
