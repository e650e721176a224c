"""The first look at a thing comes when it is usually ready: learned, in virtual time."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from provisioner.ec2.look_rules import looks_a_second
from provisioner.ec2.watcher import Watcher
from provisioner.model.volume import Volume, VolumeState
from tests.ec2.builders import a_volume
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.ec2.watched_ec2 import Ec2, Waker, asked, running

_NUMBERS = itertools.count(1)


async def make(ec2: Ec2, watcher: Watcher[Volume], takes_s: float, guess_s: float = 1.0) -> float:
    """Have a volume made; returns how long after it was ready that is known."""
    name, news = f"vol-{next(_NUMBERS)}", asyncio.Event()
    ec2.put(a_volume(name, VolumeState.CREATING))
    ready_at = ec2.clock() + takes_s
    done = replace(a_volume(name), state=VolumeState.AVAILABLE)
    timer = asyncio.get_running_loop().call_later(takes_s, ec2.put, done)
    watcher.watch(name, "create", news.set, asked=asked(guess_s))
    while True:
        await news.wait()
        news.clear()
        seen = watcher.sighting(name)
        if seen is not None and seen.found == done:
            break
    timer.cancel()
    watcher.forget(name, "create")
    return ec2.clock() - ready_at


def late(takes_s: Sequence[float], at_once: int = 1) -> tuple[list[float], int]:
    """How late each of these is known to be ready, one batch after the other; and the looks."""

    async def story(clock: Clock) -> tuple[list[float], int]:
        ec2, found = Ec2(clock), []
        async with running(ec2) as watcher:
            for each in takes_s:
                made = (make(ec2, watcher, each) for _ in range(at_once))
                found += await asyncio.gather(*made)
                await asyncio.sleep(10)
        return found, len(ec2.looks)

    return in_virtual_time(story)


@pytest.mark.parametrize("takes_s", [0.4, 1.5, 2.0, 3.0, 9.0])
@pytest.mark.parametrize("at_once", [1, 60])
def test_a_thing_is_known_to_be_ready_soon_after_it_is(takes_s: float, at_once: int) -> None:
    """Half a look's answer counts, 0.1 s; and a third of a second lies between two looks."""
    found, looks = late([takes_s] * 40, at_once)

    learned = found[30 * at_once :]
    assert max(learned) <= 0.1 + 1 / 3 + 0.1 * takes_s
    assert median(learned) <= 0.4
    assert looks <= 40 * 8


def test_what_was_learned_saves_looks() -> None:
    slow = [9.0] * 40

    _, at_first = late(slow[:5])
    _, in_all = late(slow)

    assert 3 * (in_all - at_first) / 35 <= at_first / 5


@pytest.mark.parametrize(("before_s", "now_s"), [(2.0, 8.0), (8.0, 2.0)])
def test_an_ec2_whose_times_change_is_followed(before_s: float, now_s: float) -> None:
    found, _ = late([before_s] * 30 + [now_s] * 30)

    assert max(found[-15:]) <= 0.1 + 1 / 3 + 0.1 * now_s
    # At no time is anybody kept waiting for longer than things took before.
    assert max(found) <= max(before_s - now_s, 0) + 1.0


def test_a_process_that_starts_has_learned_nothing() -> None:
    async def story(clock: Clock) -> list[float]:
        ec2, firsts = Ec2(clock), []
        for _ in range(2):
            async with running(ec2) as watcher:
                for number in range(20):
                    began, before = clock(), len(ec2.looks)
                    await make(ec2, watcher, 4.0, guess_s=1.5)
                    if number == 0:
                        firsts.append(ec2.looks[before][0] - began)
        return firsts

    assert in_virtual_time(story) == pytest.approx([1.5, 1.5])


def test_thousands_in_transition_stay_within_the_budget_and_all_are_seen() -> None:
    async def story(clock: Clock) -> tuple[list[tuple[float, int]], list[float]]:
        ec2 = Ec2(clock)
        async with running(ec2) as watcher:
            found = await asyncio.gather(*(make(ec2, watcher, 2.0) for _ in range(6000)))
        return ec2.looks, found

    looks, found = in_virtual_time(story)

    busiest = max(sum(at <= each < at + 0.999 for each, _ in looks) for at, _ in looks)
    assert busiest <= looks_a_second(6000) == 12
    assert max(ids for _, ids in looks) <= 500
    assert max(found) <= 4.0


def test_one_that_is_stuck_costs_ever_fewer_looks_and_delays_no_other() -> None:
    async def story(clock: Clock) -> tuple[list[int], list[float]]:
        ec2, counts = Ec2(clock), []
        ec2.put(a_volume("vol-stuck", VolumeState.CREATING))
        async with running(ec2) as watcher:
            watcher.watch("vol-stuck", "create", Waker(clock), asked=asked(1.0))
            for _ in range(4):
                before = len(ec2.looks)
                await asyncio.sleep(15)
                counts.append(len(ec2.looks) - before)
            found = [await make(ec2, watcher, 2.0) for _ in range(30)]
        return counts, found

    counts, found = in_virtual_time(story)

    assert counts == sorted(counts, reverse=True)
    assert counts[-1] <= 4
    assert median(found[20:]) <= 0.4


def test_looks_that_ec2_keeps_waiting_do_not_pile_up() -> None:
    """A throttled describe is sent again by ``Ec2Calls``: to the watcher it is a slow one."""

    async def story(clock: Clock) -> int:
        ec2 = Ec2(clock)
        ec2.takes_s = 5.0
        ec2.put(a_volume(state=VolumeState.CREATING))
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", Waker(clock), asked=asked(1.0))
            await asyncio.sleep(60)
        return len(ec2.looks)

    assert in_virtual_time(story) <= 12
