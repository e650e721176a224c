"""Waits for a turn that somebody else ends: the object has gone, or the process ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.limiter import Limiter, Rate, Rates, Turn
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Outcome, Reason
from tests.ec2.virtual_time import Clock, in_virtual_time

FEW = Rates({name: Rate(1, 0.01) for name in ("AttachVolume", "DeleteTags", "DescribeInstances")})
ANSWER = {"ResponseMetadata": {"RequestId": "1"}}


class GoneError(Exception):
    """What the call was for has gone."""


def few(clock: Clock, *, at_once: int = 64) -> Limiter:
    return Limiter(FEW, at_once=at_once, clock=clock)


def test_a_wait_that_is_ended_ends_at_once_and_costs_the_others_nothing() -> None:
    async def story(clock: Clock) -> float:
        limiter, turn = few(clock, at_once=2), Turn()
        # A throttle: from then on the rate is the documented one.
        limiter.throttled(await limiter.acquire("AttachVolume"))
        waits = asyncio.create_task(limiter.acquire("AttachVolume", turn=turn))
        behind = asyncio.create_task(limiter.acquire("AttachVolume"))
        await asyncio.sleep(3)
        turn.leave(GoneError())
        with pytest.raises(GoneError):
            await waits
        assert clock() == 3.0
        await behind
        limiter.close()
        return clock()

    assert 90 < in_virtual_time(story) < 110  # one token, not two


def test_a_wait_that_was_ended_before_it_began_does_not_begin() -> None:
    async def story(clock: Clock) -> None:
        limiter, turn = few(clock), Turn()
        turn.leave(GoneError())
        with pytest.raises(GoneError):
            await limiter.acquire("AttachVolume", turn=turn)
        await limiter.acquire("AttachVolume")  # the only token is there still
        limiter.close()
        assert clock() == 0.0

    in_virtual_time(story)


def test_what_was_granted_is_not_taken_back() -> None:
    async def story(clock: Clock) -> None:
        limiter, turn = few(clock), Turn()
        grant = await limiter.acquire("AttachVolume", turn=turn)
        turn.leave(GoneError())
        assert grant.action == "AttachVolume"
        limiter.close()

    in_virtual_time(story)


@pytest.mark.parametrize("happens", ["granted", "ended"])
def test_a_waiter_cancelled_in_the_same_moment_gives_back_only_what_it_got(happens: str) -> None:
    async def story(clock: Clock) -> float:
        limiter, turn = few(clock, at_once=1), Turn()
        await limiter.acquire("DescribeInstances")  # the only place
        waits = asyncio.create_task(limiter.acquire("AttachVolume", turn=turn))
        await asyncio.sleep(1)
        if happens == "ended":
            turn.leave(GoneError())
        limiter.release()
        waits.cancel()
        await asyncio.wait({waits})
        assert waits.cancelled()
        await limiter.acquire("AttachVolume")
        limiter.close()
        return clock()

    assert in_virtual_time(story) == 1.0


def made(answers: list[Any], limiter: Limiter | None = None) -> Ec2Calls:
    calls = Ec2Calls(
        cast("Any", None), limiter=limiter or Limiter(FEW, at_once=2), metrics=Metrics()
    )
    every = Mock(side_effect=answers)
    calls._client = Mock(attach_volume=every, delete_tags=every, describe_instances=every)
    return calls


async def test_a_throttled_call_that_is_no_longer_wanted_is_not_sent_again() -> None:
    throttle = ClientError({"Error": {"Code": "RequestLimitExceeded"}}, "AttachVolume")
    calls, turn = made([throttle]), Turn()

    async def passes() -> None:
        turn.leave(GoneError())  # in the moment in which it is sent

    with pytest.raises(GoneError):
        await calls.call("AttachVolume", {}, gate=passes, turn=turn)
    await calls.close()


def test_at_the_end_of_the_process_whoever_waits_for_a_change_is_refused_at_once() -> None:
    async def story(clock: Clock) -> float:
        calls = made([], few(clock))
        await calls.limiter.acquire("AttachVolume")  # the only token
        waits = asyncio.create_task(calls.call("AttachVolume", {}))
        await asyncio.sleep(0.1)
        calls.stop_changing()
        for refused in (waits, calls.call("AttachVolume", {})):
            with pytest.raises(Ec2Error) as caught:
                await refused
            told = caught.value
            assert (told.reason, told.outcome) == (Reason.NOT_LEADING, Outcome.NOTHING)
        await calls.close()
        return clock()

    assert in_virtual_time(story) == pytest.approx(0.1)


@pytest.mark.parametrize("action", ["DeleteTags", "DescribeInstances"])
async def test_at_the_end_of_the_process_marks_come_off_and_ec2_is_looked_at(action: str) -> None:
    calls = made([ANSWER])

    calls.stop_changing()

    assert await calls.call(action, {}) == ANSWER
    await calls.close()


async def test_a_change_in_its_last_look_when_the_process_ends_is_not_sent() -> None:
    calls = made([])

    async def looks() -> None:
        calls.stop_changing()

    with pytest.raises(Ec2Error, match="this process shuts down"):
        await calls.call("AttachVolume", {}, gate=looks)
    await calls.close()


async def test_a_call_that_ec2_has_when_the_process_ends_is_answered() -> None:
    calls = made([])

    def answers(**_: Any) -> Any:
        loop.call_soon_threadsafe(calls.stop_changing)
        return ANSWER

    loop = asyncio.get_running_loop()
    calls._client = Mock(attach_volume=answers)

    assert await calls.call("AttachVolume", {}) == ANSWER
    await calls.close()
