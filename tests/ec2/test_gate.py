"""The last look before what cannot be undone: it holds nothing that others wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from provisioner.ec2.calls import AT_ONCE, GATE_S, Ec2Calls
from provisioner.ec2.limiter import Grant, Limiter, Rate, Rates, Turn
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


def passes() -> None:
    """A last look that asks nobody."""


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


class Ec2InVirtualTime(Ec2Calls):
    """Calls that take their time without a thread; some of them EC2 throttles."""

    def __init__(self, clock: Clock, *, takes_s: float, at_once: int, rates: Rates) -> None:
        limiter = Limiter(rates, at_once=at_once, clock=clock)
        client = cast("EC2Client", None)
        super().__init__(client, limiter=limiter, metrics=Metrics(), clock=clock)
        self.takes_s = takes_s
        self.throttles = 0
        self.sent_at: dict[str, list[float]] = {}

    async def _in_thread(self, grant: Grant, params: Any) -> dict[str, Any]:
        self.sent_at.setdefault(grant.action, []).append(self._clock())
        throttled, self.throttles = self.throttles > 0, max(0, self.throttles - 1)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.limiter.release()
        if throttled:
            raise ClientError({"Error": {"Code": "RequestLimitExceeded"}}, grant.action)
        return {}


def attached_after(clock: Clock, *, deletions: int, look_s: float) -> Coroutine[Any, Any, float]:
    """When the last of 50 attaches has ended that came half a second after some deletions."""

    async def story() -> float:
        rates = Rates(exact={"DeleteVolume": Rate(2000, 100), "AttachVolume": Rate(1000, 100)})
        calls = Ec2InVirtualTime(clock, takes_s=0.1, at_once=AT_ONCE, rates=rates)

        async def look() -> None:
            await asyncio.sleep(look_s)

        deleting = [
            asyncio.create_task(calls.call("DeleteVolume", {}, gate=look)) for _ in range(deletions)
        ]
        await asyncio.sleep(0.5)
        began_s = clock()
        await asyncio.gather(*(calls.call("AttachVolume", {}, gate=passes) for _ in range(50)))
        took_s = clock() - began_s
        await asyncio.gather(*deleting)
        calls.limiter.close()
        return took_s

    return story()


@pytest.mark.parametrize("look_s", [0.0, 0.1, 1.0, 3.0, 20.0])
def test_fifty_attaches_are_not_delayed_by_a_thousand_deletions(look_s: float) -> None:
    alone_s = in_virtual_time(lambda clock: attached_after(clock, deletions=0, look_s=look_s))
    beside_s = in_virtual_time(lambda clock: attached_after(clock, deletions=1000, look_s=look_s))

    assert beside_s < alone_s + 0.3


def test_deletions_before_an_api_server_that_hangs_keep_no_attach_waiting() -> None:
    async def story(clock: Clock) -> float:
        calls = made(clock, rates=Rates(exact={"DeleteVolume": Rate(1000, 1000)}))
        deletions = [
            asyncio.create_task(calls.call("DeleteVolume", {"VolumeId": f"vol-{n}"}, gate=hangs))
            for n in range(3 * AT_ONCE)
        ]
        await asyncio.sleep(1)
        await calls.limiter.acquire("AttachVolume")
        attached_at = clock()
        await asyncio.gather(*deletions, return_exceptions=True)
        calls.limiter.close()
        return attached_at

    assert in_virtual_time(story) == 1.0


def test_at_most_a_burst_is_sent_when_slow_looks_are_over() -> None:
    async def story(clock: Clock) -> list[float]:
        rates = Rates(exact={"DeleteVolume": Rate(10, 5)})
        calls = Ec2InVirtualTime(clock, takes_s=0.1, at_once=AT_ONCE, rates=rates)
        calls.throttles = 1  # from then on the rate is the documented one
        await calls.call("DeleteVolume", {})
        await asyncio.sleep(60)
        calls.sent_at.clear()

        async def look() -> None:
            await asyncio.sleep(20)

        deletions = [calls.call("DeleteVolume", {}, gate=look) for _ in range(30)]
        await asyncio.gather(*deletions)
        calls.limiter.close()
        return calls.sent_at["DeleteVolume"]

    sent_at = in_virtual_time(story)

    assert len(sent_at) == 30
    assert all(later - first > 15 for first, later in zip(sent_at, sent_at[10:], strict=False))


def test_a_throttle_during_their_looks_has_calls_wait_for_their_turn_and_look_again() -> None:
    async def story(clock: Clock) -> tuple[int, list[float]]:
        rates = Rates(exact={"DeleteVolume": Rate(20, 1)})
        calls = Ec2InVirtualTime(clock, takes_s=0.1, at_once=AT_ONCE, rates=rates)
        looks = [0]

        async def look() -> None:
            looks[0] += 1
            await asyncio.sleep(2)

        deleting = [
            asyncio.create_task(calls.call("DeleteVolume", {}, gate=look)) for _ in range(5)
        ]
        await asyncio.sleep(1)
        calls.throttles = 1
        await calls.call("DeleteVolume", {})
        await asyncio.gather(*deleting)
        calls.limiter.close()
        return looks[0], calls.sent_at["DeleteVolume"]

    looks, sent_at = in_virtual_time(story)

    assert looks == 10  # each once more
    assert len(sent_at) == 1 + 1 + 5  # the throttled one twice; no other was sent in vain


def test_a_look_that_is_old_when_there_is_a_thread_is_taken_again() -> None:
    async def story(clock: Clock) -> tuple[list[float], float]:
        calls = Ec2InVirtualTime(clock, takes_s=0.1, at_once=1, rates=Rates())
        looked_at: list[float] = []

        async def look() -> None:
            looked_at.append(clock())
            await asyncio.sleep(0.5)

        deleting = asyncio.create_task(calls.call("DeleteVolume", {}, gate=look))
        await asyncio.sleep(0.1)
        calls.takes_s = 12  # EC2 hangs
        await calls.call("DetachVolume", {})
        calls.takes_s = 0.1
        await deleting
        calls.limiter.close()
        return looked_at, calls.sent_at["DeleteVolume"][0]

    looked_at, sent_at = in_virtual_time(story)

    assert len(looked_at) == 2
    assert sent_at - looked_at[-1] < 1


def test_looks_end_when_the_process_ends() -> None:
    async def story(clock: Clock) -> float:
        calls = made(clock)
        deleting = asyncio.create_task(calls.call("DeleteVolume", {}, gate=hangs))
        await asyncio.sleep(1)
        calls.stop_changing()
        with pytest.raises(Ec2Error) as caught:
            await deleting
        assert caught.value.reason is Reason.NOT_LEADING
        calls.limiter.close()
        return clock()

    assert in_virtual_time(story) == 1.0


@pytest.mark.parametrize("after_s", [0.5, 1.5])
def test_a_call_given_up_during_its_look_or_after_it_holds_nothing(after_s: float) -> None:
    async def story(clock: Clock) -> float:
        rates = Rates(exact={"DeleteVolume": Rate(1, 0.01)})
        calls = Ec2InVirtualTime(clock, takes_s=0.1, at_once=1, rates=rates)

        async def look() -> None:
            await asyncio.sleep(1)

        deleting = asyncio.create_task(calls.call("DeleteVolume", {}, gate=look))
        await asyncio.sleep(0.1)
        held = await calls.limiter.acquire("AttachVolume")
        await asyncio.sleep(after_s)
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        calls.limiter.give_back(held)
        await calls.call("DeleteVolume", {})  # the only token is there, and the only thread
        calls.limiter.close()
        return clock()

    assert in_virtual_time(story) == pytest.approx(after_s + 0.2)


def test_a_look_that_begins_as_the_process_ends_ends_at_once() -> None:
    async def story(clock: Clock) -> float:
        calls = made(clock, at_once=1)
        held = await calls.limiter.acquire("AttachVolume")
        deleting = asyncio.create_task(calls.call("DeleteVolume", {}, gate=hangs))
        await asyncio.sleep(1)
        calls.limiter.give_back(held)  # granted, and not told yet
        calls.stop_changing()
        with pytest.raises(Ec2Error) as caught:
            await deleting
        assert caught.value.reason is Reason.NOT_LEADING
        calls.limiter.close()
        return clock()

    assert in_virtual_time(story) == 1.0


def test_a_call_whose_last_look_asks_nobody_waits_for_one_thread_only() -> None:
    async def story(clock: Clock) -> float:
        calls = Ec2InVirtualTime(clock, takes_s=1, at_once=1, rates=Rates())
        held = await calls.limiter.acquire("DescribeVolumes")
        attaching = asyncio.create_task(calls.call("AttachVolume", {}, gate=passes))
        await asyncio.sleep(1)
        calls.limiter.give_back(held)  # the attach has its turn, and does not know it yet
        await asyncio.gather(attaching, calls.call("DetachVolume", {}))  # more urgent
        calls.limiter.close()
        return calls.sent_at["AttachVolume"][0]

    assert in_virtual_time(story) == 1.0


def test_a_last_look_that_asks_nobody_and_refuses_costs_neither_token_nor_thread() -> None:
    def refuses() -> None:
        raise RuntimeError("not wanted any more")

    async def story(clock: Clock) -> float:
        calls = made(clock, at_once=1, rates=Rates(exact={"AttachVolume": Rate(1, 0.01)}))
        with pytest.raises(RuntimeError, match="not wanted"):
            await calls.call("AttachVolume", {}, gate=refuses)
        await calls.limiter.acquire("AttachVolume")
        calls.limiter.close()
        return clock()

    assert in_virtual_time(story) == 0.0


def test_whoever_waits_for_a_thread_after_its_look_can_be_told_that_it_is_in_vain() -> None:
    async def story(clock: Clock) -> float:
        rates = Rates(exact={"DeleteVolume": Rate(1, 0.01)})
        calls, turn = Ec2InVirtualTime(clock, takes_s=4, at_once=1, rates=rates), Turn()

        async def look() -> None:
            await asyncio.sleep(1)

        deleting = asyncio.create_task(calls.call("DeleteVolume", {}, gate=look, turn=turn))
        await asyncio.sleep(0.1)
        detaching = asyncio.create_task(calls.call("DetachVolume", {}))  # has the only thread
        await asyncio.sleep(2)
        turn.leave(RuntimeError("not wanted any more"))
        with pytest.raises(RuntimeError, match="not wanted"):
            await deleting
        told_at = clock()
        await detaching
        await calls.call("DeleteVolume", {})  # the only token is there still
        calls.limiter.close()
        assert clock() < 10
        return told_at

    assert in_virtual_time(story) == pytest.approx(2.1)


def test_whoever_is_in_vain_since_its_look_is_not_sent() -> None:
    async def story(clock: Clock) -> None:
        calls, turn = made(clock), Turn()

        async def look() -> None:
            turn.leave(RuntimeError("not wanted any more"))

        with pytest.raises(RuntimeError, match="not wanted"):
            await calls.call("DeleteVolume", {}, gate=look, turn=turn)
        calls.limiter.close()

    in_virtual_time(story)


def test_a_call_that_goes_after_its_look_lets_the_next_one_look() -> None:
    async def story(clock: Clock) -> list[float]:
        rates = Rates(exact={"DeleteVolume": Rate(1, 1)})
        calls = Ec2InVirtualTime(clock, takes_s=20, at_once=AT_ONCE, rates=rates)

        async def look() -> None:
            await asyncio.sleep(1.5)

        await asyncio.gather(*(calls.call("DeleteVolume", {}, gate=look) for _ in range(2)))
        calls.limiter.close()
        return calls.sent_at["DeleteVolume"]

    assert in_virtual_time(story) == pytest.approx([1.5, 3.0])
