import asyncio
from collections.abc import Mapping

import pytest

from provisioner.ec2.coalescer import Coalescer
from provisioner.model.errors import Ec2Error, Reason
from tests.ec2.virtual_time import Clock, in_virtual_time


class Upper:
    """Answers in upper case after a second; keeps what it was asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[list[str]] = []
        self.failure = failure

    async def __call__(self, keys: list[str]) -> Mapping[str, str | Ec2Error]:
        self.asked.append(keys)
        await asyncio.sleep(1)
        if self.failure is not None:
            raise self.failure
        return {key: no(key) if key == "bad" else key.upper() for key in keys}


def no(key: str) -> Ec2Error:
    return Ec2Error(Reason.INSTANCE_NOT_FOUND, key, action="DescribeInstances")


def make(fetch: Upper, clock: Clock, fresh_for_s: float = 2.0) -> Coalescer[str]:
    return Coalescer[str](fetch, window_s=0.05, fresh_for_s=fresh_for_s, clock=clock)


def test_those_who_ask_together_share_a_fetch() -> None:
    async def story(clock: Clock) -> list[list[str]]:
        fetch = Upper()
        coalescer = make(fetch, clock)

        answers = await asyncio.gather(*(coalescer.get(key) for key in ["a", "b", "a"]))

        assert answers == ["A", "B", "A"]
        await coalescer.close()
        return fetch.asked

    assert in_virtual_time(story) == [["a", "b"]]


def test_a_refused_key_does_not_fail_the_others() -> None:
    async def story(clock: Clock) -> None:
        coalescer = make(Upper(), clock)

        good, bad = await asyncio.gather(
            coalescer.get("a"), coalescer.get("bad"), return_exceptions=True
        )

        assert good == "A"
        assert isinstance(bad, Ec2Error)
        await coalescer.close()

    in_virtual_time(story)


def test_an_answer_is_good_for_a_while_and_a_refusal_is_not() -> None:
    async def story(clock: Clock) -> list[list[str]]:
        fetch = Upper()
        coalescer = make(fetch, clock)
        await coalescer.get("a")
        await coalescer.get("a")
        for _ in range(2):
            with pytest.raises(Ec2Error):
                await coalescer.get("bad")
        await asyncio.sleep(2)
        await coalescer.get("a")
        await coalescer.close()
        return fetch.asked

    assert in_virtual_time(story) == [["a"], ["bad"], ["bad"], ["a"]]


def test_who_asks_during_a_fetch_is_answered_by_it_if_it_is_fresh_enough() -> None:
    async def story(clock: Clock) -> list[list[str]]:
        fetch = Upper()
        coalescer = make(fetch, clock)
        first = asyncio.create_task(coalescer.get("a"))
        await asyncio.sleep(0.5)

        assert await coalescer.get("a") == "A"

        await first
        await coalescer.close()
        return fetch.asked

    assert in_virtual_time(story) == [["a"]]


def test_a_failed_fetch_is_everybodys_failure_and_the_next_may_succeed() -> None:
    async def story(clock: Clock) -> None:
        fetch = Upper(no("all"))
        coalescer = make(fetch, clock)
        for failure in await asyncio.gather(
            coalescer.get("a"), coalescer.get("b"), return_exceptions=True
        ):
            assert isinstance(failure, Ec2Error)
        fetch.failure = None

        assert await coalescer.get("a") == "A"
        await coalescer.close()

    in_virtual_time(story)


def test_one_who_leaves_does_not_take_the_answer_from_the_others() -> None:
    async def story(clock: Clock) -> str:
        coalescer = make(Upper(), clock)
        leaving = asyncio.create_task(coalescer.get("a"))
        staying = asyncio.create_task(coalescer.get("a"))
        await asyncio.sleep(0.5)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        answer = await staying
        await coalescer.close()
        return answer

    assert in_virtual_time(story) == "A"


def test_closing_cancels_whoever_waits() -> None:
    async def story(clock: Clock) -> bool:
        coalescer = make(Upper(), clock)
        waiting = asyncio.create_task(coalescer.get("a"))
        await asyncio.sleep(0.5)
        await coalescer.close()
        await asyncio.gather(waiting, return_exceptions=True)
        return waiting.cancelled()

    assert in_virtual_time(story)


def test_an_answer_that_was_forgotten_while_it_was_fetched_is_not_remembered() -> None:
    async def story(clock: Clock) -> list[list[str]]:
        fetch = Upper()
        coalescer = make(fetch, clock)
        asking = asyncio.create_task(coalescer.get("a"))
        await asyncio.sleep(0.5)
        coalescer.forget("a")

        assert await asking == "A"  # who has asked before is answered all the same
        assert await coalescer.get("a") == "A"
        assert await coalescer.get("a") == "A"  # this one is remembered
        await coalescer.close()
        return fetch.asked

    assert in_virtual_time(story) == [["a"], ["a"]]
