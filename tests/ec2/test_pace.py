import asyncio

import pytest

from provisioner.ec2.pace import BURST, PER_S, Pace
from tests.ec2.virtual_time import Clock, in_virtual_time


async def takes(pace: Pace, clock: Clock, turns: int) -> list[float]:
    """When each of so many turns came."""
    times = []
    for _ in range(turns):
        await pace.turn()
        times.append(clock())
    return times


def test_after_a_quiet_time_a_few_need_not_wait() -> None:
    async def story(clock: Clock) -> list[float]:
        pace = Pace()
        await takes(pace, clock, 10)
        await asyncio.sleep(60)
        began = clock()
        return [at - began for at in await takes(pace, clock, 5)]

    times = in_virtual_time(story)

    assert times == pytest.approx([0, 0, 0, 1 / PER_S, 2 / PER_S])


@pytest.mark.parametrize(
    ("things", "calls"), [(0, 1), (1, 1), (500, 1), (501, 2), (1500, 3), (1501, 4)]
)
def test_many_things_of_one_kind_raise_it(things: int, calls: int) -> None:
    async def story(clock: Clock) -> int:
        pace = Pace()
        pace.expect("volumes", things)
        pace.expect("snapshots", 1)
        begun, turns = clock(), 0
        while clock() - begun <= 30:
            await pace.turn()
            turns += 1
        return turns

    assert in_virtual_time(story) == pytest.approx(30 * PER_S * calls + BURST, abs=1)


def test_what_is_no_longer_looked_at_lowers_it_again() -> None:
    async def story(clock: Clock) -> float:
        pace = Pace()
        pace.expect("volumes", 5000)
        await takes(pace, clock, 20)
        pace.expect("volumes", 0)
        began = clock()
        return (await takes(pace, clock, 5))[-1] - began

    assert in_virtual_time(story) == pytest.approx(5 / PER_S, abs=BURST / PER_S)


def test_turns_come_in_the_order_of_asking_and_those_who_leave_take_none() -> None:
    async def story(clock: Clock) -> list[str]:
        pace, came = Pace(burst=1.0), []

        async def ask(name: str) -> None:
            await pace.turn()
            came.append(f"{name} at {clock() * PER_S:.0f}")

        tasks = [asyncio.create_task(ask(name)) for name in "abcd"]
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        return came

    assert in_virtual_time(story) == ["a at 0", "c at 1", "d at 2"]
