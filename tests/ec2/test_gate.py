"""The last look before what cannot be undone holds a place at EC2, and not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from provisioner.ec2.calls import AT_ONCE, GATE_S, Ec2Calls
from provisioner.ec2.limiter import Grant, Limiter
from provisioner.ec2.rates import Rate, Rates
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Outcome, Reason
from tests.ec2.virtual_time import Clock, in_virtual_time

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def made(clock: Clock, *, at_once: int = AT_ONCE, rates: Rates | None = None) -> Ec2Calls:
    limiter = Limiter(rates, at_once=at_once, clock=clock)
    client = cast("EC2Client", None)  # nothing of what follows may reach it
    return Ec2Calls(client, limiter=limiter, metrics=Metrics(), clock=clock)


async def hangs() -> None:
    await asyncio.Event().wait()


def test_a_call_whose_last_look_hangs_is_not_sent_and_gives_its_place_back() -> None:
    async def story(clock: Clock) -> float:
        calls = made(clock, at_once=1)
        with pytest.raises(Ec2Error, match="DeleteVolume was not sent") as caught:
            await calls.call("DeleteVolume", {"VolumeId": "vol-1"}, gate=hangs)
        assert (caught.value.reason, caught.value.outcome) == (Reason.TIMED_OUT, Outcome.NOTHING)
        await calls.limiter.acquire("AttachVolume")
        calls.limiter.close()
        return clock()

    assert in_virtual_time(story) == GATE_S


def test_a_call_that_its_last_look_keeps_from_being_sent_costs_no_token() -> None:
    async def refuses() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("it is still wanted")

    async def story(clock: Clock) -> float:
        calls = made(clock, rates=Rates(exact={"DeleteVolume": Rate(1, 0.01)}))
        with pytest.raises(RuntimeError, match="still wanted"):
            await calls.call("DeleteVolume", {"VolumeId": "vol-1"}, gate=refuses)
        await calls.limiter.acquire("DeleteVolume")
        calls.limiter.close()
        return clock()

    assert in_virtual_time(story) == 1.0


async def test_a_call_counts_as_sent_when_its_last_look_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1.0]
    calls = made(lambda: now[0])
    throttle = ClientError({"Error": {"Code": "RequestLimitExceeded"}}, "DeleteVolume")
    answers: list[Any] = [throttle, {"ResponseMetadata": {"RequestId": "1"}}]
    calls._client = Mock(delete_volume=Mock(side_effect=answers))
    throttled: list[Grant] = []
    monkeypatch.setattr(calls.limiter, "throttled", throttled.append)

    async def looks() -> None:
        now[0] += 5.0

    await calls.call("DeleteVolume", {"VolumeId": "vol-1"}, gate=looks)

    assert [grant.sent_at for grant in throttled] == [6.0]
    await calls.close()


def test_a_gate_that_ran_out_of_time_itself_says_so_itself() -> None:
    async def gives_up() -> None:
        raise TimeoutError("the API server is slow")

    async def story(clock: Clock) -> None:
        calls = made(clock)
        with pytest.raises(TimeoutError, match="the API server is slow"):
            await calls.call("DeleteVolume", {}, gate=gives_up)
        calls.limiter.close()

    in_virtual_time(story)


def test_deletions_before_an_api_server_that_hangs_keep_an_attach_ten_seconds_a_round() -> None:
    async def story(clock: Clock) -> float:
        calls = made(clock, rates=Rates(exact={"DeleteVolume": Rate(1000, 1000)}))
        deletions = [
            asyncio.create_task(calls.call("DeleteVolume", {"VolumeId": f"vol-{n}"}, gate=hangs))
            for n in range(3 * AT_ONCE)
        ]
        await asyncio.sleep(1)
        await calls.limiter.acquire("AttachVolume")
        calls.limiter.close()
        await asyncio.gather(*deletions, return_exceptions=True)
        return clock()

    assert in_virtual_time(story) == 3 * GATE_S
