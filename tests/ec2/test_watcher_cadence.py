import asyncio
import itertools
from collections.abc import Mapping

import pytest

from provisioner.ec2.look_rules import looks_a_second
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.volume import Volume, VolumeState
from tests.ec2.builders import a_volume
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.ec2.watched_ec2 import Ec2, Waker, asked, running


def most_in_a_second(looks: list[tuple[float, int]]) -> int:
    return max(sum(at <= each < at + 0.999 for each, _ in looks) for at, _ in looks)


def test_asks_nothing_when_nothing_is_watched() -> None:
    async def story(clock: Clock) -> int:
        ec2 = Ec2(clock)
        async with running(ec2) as watcher:
            await asyncio.sleep(60)
            watcher.watch("vol-1", "create", Waker(clock))
            watcher.forget("vol-1", "create")
            await asyncio.sleep(60)
        return len(ec2.looks)

    assert in_virtual_time(story) == 0


def test_does_not_ask_before_there_can_be_anything_to_see() -> None:
    async def story(clock: Clock) -> float:
        ec2 = Ec2(clock)
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", Waker(clock), asked=asked(1.2))
            await asyncio.sleep(3)
        return ec2.looks[0][0]

    assert in_virtual_time(story) == pytest.approx(1.2)


@pytest.mark.parametrize("count", [1, 500, 501, 1000, 2500])
def test_no_second_has_more_looks_than_so_many_things_allow(count: int) -> None:
    async def story(clock: Clock) -> list[tuple[float, int]]:
        ec2 = Ec2(clock)
        ec2.put(*(a_volume(f"vol-{number}", VolumeState.CREATING) for number in range(count)))
        async with running(ec2) as watcher:
            for number in range(count):
                watcher.watch(f"vol-{number}", "create", Waker(clock))
            await asyncio.sleep(10)
            assert all(watcher.sighting(f"vol-{number}") for number in range(count))
        return ec2.looks

    looks = in_virtual_time(story)

    assert most_in_a_second(looks) <= looks_a_second(count)
    assert max(ids for _, ids in looks) <= 500


def test_what_does_not_change_is_looked_at_less_and_less() -> None:
    async def story(clock: Clock) -> int:
        ec2 = Ec2(clock)
        ec2.put(a_volume(state=VolumeState.CREATING))
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "attach", Waker(clock))
            await asyncio.sleep(600)
        return len(ec2.looks)

    assert in_virtual_time(story) <= 600 / 5 + 40


def test_wakes_every_30_s_even_if_nothing_changes() -> None:
    async def story(clock: Clock) -> list[float]:
        ec2, wake = Ec2(clock), Waker(clock)
        ec2.put(a_volume(state=VolumeState.CREATING))
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "attach", wake)
            await asyncio.sleep(200)
        return wake.times

    times = in_virtual_time(story)

    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= 30 + 5 + 1
    assert min(gaps) >= 30


def test_missing_volumes_are_asked_for_apart_from_the_others() -> None:
    async def story(clock: Clock) -> None:
        ec2 = Ec2(clock)
        apart: list[list[str]] = []

        async def look_for(volume_ids: list[str]) -> Mapping[str, Volume]:
            apart.append(volume_ids)
            return {}

        ec2.look_for = look_for  # type: ignore[method-assign]
        ec2.put(a_volume("vol-1"))
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "attach", Waker(clock))
            watcher.watch("vol-gone", "attach", Waker(clock))
            await asyncio.sleep(10)

        assert ec2.looks[0][1] == 2
        assert {ids for _, ids in ec2.looks[1:]} == {1}
        assert apart
        assert all(ids == ["vol-gone"] for ids in apart)

    in_virtual_time(story)


def test_outlives_an_ec2_that_is_away_and_asks_less_often_meanwhile() -> None:
    async def story(clock: Clock) -> None:
        ec2, wake = Ec2(clock), Waker(clock)
        ec2.put(a_volume())
        ec2.failure = Ec2Error(Reason.UNREACHABLE, "down", action="DescribeVolumes")
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", wake)
            await asyncio.sleep(120)
            assert len(ec2.looks) <= 10
            assert wake.times  # deadlines are applied all the same

            ec2.failure = RuntimeError("a bug")
            await asyncio.sleep(60)
            ec2.failure = None
            await asyncio.sleep(31)
            assert watcher.sighting("vol-1") is not None

    in_virtual_time(story)


def test_a_new_request_for_a_volume_watched_for_long_is_looked_at_soon() -> None:
    async def story(clock: Clock) -> float:
        ec2 = Ec2(clock)
        ec2.put(a_volume())
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "attach", Waker(clock))
            await asyncio.sleep(120)  # looks are 5 s apart by now
            before = len(ec2.looks)
            await asyncio.sleep(5.5 - (clock() - ec2.looks[-1][0]))  # just after the next one
            assert len(ec2.looks) == before + 1
            asked_at = clock()
            watcher.watch("vol-1", "attach", Waker(clock), asked=asked(1.5))
            await asyncio.sleep(4)
        return ec2.looks[before + 1][0] - asked_at

    assert in_virtual_time(story) == pytest.approx(1.5)
