import asyncio

import pytest

from provisioner.ec2.look_rules import MOST_A_SECOND, looks_a_second
from provisioner.ec2.pace import Pace
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
        return [at - began for at in await takes(pace, clock, 7)]

    times = in_virtual_time(story)

    assert times == pytest.approx([0, 0, 0, 1, 1, 1, 2])


@pytest.mark.parametrize(
    ("things", "turns"),
    [(0, 3), (1, 3), (500, 3), (501, 2), (1000, 2), (1500, 3), (1501, 4), (60_000, 120)],
)
def test_no_second_has_more_turns_than_the_things_allow(things: int, turns: int) -> None:
    async def story(clock: Clock) -> list[float]:
        pace = Pace()
        pace.expect("volumes", things)
        return await takes(pace, clock, 10 * turns)

    times = in_virtual_time(story)

    assert looks_a_second(things) == turns
    assert times[-1] == pytest.approx(9)
    most = max(sum(at <= each < at + 0.999 for each in times) for at in times)
    assert most == turns


def test_things_of_all_kinds_count_together() -> None:
    async def story(clock: Clock) -> float:
        pace = Pace()
        for kind in ("volumes", "snapshots"):
            pace.expect(kind, 300)
        return (await takes(pace, clock, 5))[-1]

    assert in_virtual_time(story) == pytest.approx(2)


def test_what_is_no_longer_looked_at_changes_it_again() -> None:
    async def story(clock: Clock) -> float:
        pace = Pace()
        pace.expect("volumes", 5000)
        await takes(pace, clock, 20)
        pace.expect("volumes", 0)
        began = clock()
        return (await takes(pace, clock, MOST_A_SECOND + 1))[-1] - began

    assert in_virtual_time(story) == pytest.approx(2)


def test_turns_come_in_the_order_of_asking_and_those_who_leave_take_none() -> None:
    async def story(clock: Clock) -> list[str]:
        pace, came = Pace(), []

        async def ask(name: str) -> None:
            await pace.turn()
            came.append(f"{name} at {clock():.0f}")

        tasks = [asyncio.create_task(ask(name)) for name in "abcdefgh"]
        await asyncio.sleep(0.1)
        tasks[4].cancel()
        await asyncio.wait(tasks)
        return came

    assert in_virtual_time(story) == [
        *("a at 0", "b at 0", "c at 0"),
        *("d at 1", "f at 1", "g at 1"),
        "h at 2",
    ]
