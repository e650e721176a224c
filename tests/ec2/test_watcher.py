import asyncio

import pytest

from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.volume import Volume, VolumeState
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request, a_volume
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.ec2.watched_ec2 import Ec2, Waker, asked, running


def test_wakes_at_the_first_sighting_and_at_each_change() -> None:
    async def story(clock: Clock) -> None:
        ec2, wake = Ec2(clock), Waker(clock)
        ec2.put(a_volume(state=VolumeState.CREATING))
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", wake)
            assert watcher.sighting("vol-1") is None
            await asyncio.sleep(5)
            assert len(wake.times) == 1

            ec2.put(a_volume(state=VolumeState.AVAILABLE))
            await asyncio.sleep(2)

            assert len(wake.times) == 2
            seen = watcher.sighting("vol-1")
            assert seen is not None
            assert seen.found == a_volume(state=VolumeState.AVAILABLE)

    in_virtual_time(story)


def test_a_volume_that_is_not_there_is_a_sighting_too_and_says_for_how_long() -> None:
    async def story(clock: Clock) -> None:
        ec2, wake = Ec2(clock), Waker(clock)
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", wake)
            await asyncio.sleep(61)
            seen = watcher.sighting("vol-1")
            assert seen is not None
            assert seen.found is None
            assert 50 <= seen.missing_for_s <= 61
            assert len(wake.times) >= 2

            ec2.put(a_volume())
            await asyncio.sleep(10)
            seen = watcher.sighting("vol-1")
            assert seen is not None
            assert seen.missing_for_s == 0

    in_virtual_time(story)


def test_silence_of_ec2_does_not_make_a_volume_missing_for_longer() -> None:
    async def story(clock: Clock) -> float:
        ec2 = Ec2(clock)
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", Waker(clock))
            await asyncio.sleep(2)
            ec2.failure = Ec2Error(Reason.UNREACHABLE, "down", action="DescribeVolumes")
            await asyncio.sleep(120)
            seen = watcher.sighting("vol-1")
            assert seen is not None
            return seen.missing_for_s

    assert in_virtual_time(story) <= 2


def test_two_flows_can_watch_one_volume_and_leave_one_by_one() -> None:
    async def story(clock: Clock) -> None:
        metrics = Metrics()
        ec2, one, two = Ec2(clock), Waker(clock), Waker(clock)
        ec2.put(a_volume())
        async with running(ec2, metrics) as watcher:
            watcher.watch("vol-1", "one", one)
            watcher.watch("vol-1", "two", two)
            await asyncio.sleep(3)
            assert (len(one.times), len(two.times)) == (1, 1)

            watcher.forget("vol-1", "one")
            ec2.put(a_volume(on="i-1"))
            await asyncio.sleep(3)
            assert (len(one.times), len(two.times)) == (1, 2)
            assert in_transition(metrics) == 1

            watcher.forget("vol-1", "two")
            assert in_transition(metrics) == 0
            assert watcher.sighting("vol-1") is None

    in_virtual_time(story)


def test_what_was_seen_before_somebody_began_to_watch_does_not_count() -> None:
    async def story(clock: Clock) -> None:
        ec2 = Ec2(clock)
        ec2.takes_s = 2.0
        ec2.put(a_volume())
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", Waker(clock))
            await asyncio.sleep(2.5)
            assert watcher.sighting("vol-1") is not None
            # Another look is under way, from before the attach that begins now.
            ec2.put(a_volume(on="i-1"))
            watcher.watch("vol-1", "attach", Waker(clock))
            assert watcher.sighting("vol-1") is None
            await asyncio.sleep(1.9)
            assert watcher.sighting("vol-1") is None
            await asyncio.sleep(3)
            seen = watcher.sighting("vol-1")
            assert seen is not None
            assert seen.found == a_volume(on="i-1")

    in_virtual_time(story)


def test_watching_again_under_the_same_name_keeps_what_was_seen() -> None:
    async def story(clock: Clock) -> None:
        ec2, first, second = Ec2(clock), Waker(clock), Waker(clock)
        ec2.put(a_volume())
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", first)
            await asyncio.sleep(2)
            watcher.watch("vol-1", "create", second)
            assert watcher.sighting("vol-1") is not None
            ec2.put(a_volume(on="i-1"))
            await asyncio.sleep(3)
            assert (len(first.times), len(second.times)) == (1, 1)

    in_virtual_time(story)


def test_a_new_request_for_a_watched_volume_is_answered_by_a_look_that_shows_no_change() -> None:
    async def story(clock: Clock) -> None:
        ec2, wake = Ec2(clock), Waker(clock)
        ec2.put(a_volume())
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "attach", wake)
            await asyncio.sleep(3)
            assert len(wake.times) == 1

            watcher.watch("vol-1", "attach", wake, asked=asked(1.0))
            assert watcher.sighting("vol-1") is None
            await asyncio.sleep(3)

            assert len(wake.times) == 2

    in_virtual_time(story)


def test_a_waker_that_fails_does_not_stop_the_others() -> None:
    async def story(clock: Clock) -> int:
        def fail() -> None:
            raise RuntimeError("a bug")

        ec2, wake = Ec2(clock), Waker(clock)
        ec2.put(a_volume())
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "bad", fail)
            watcher.watch("vol-1", "good", wake)
            await asyncio.sleep(3)
        return len(wake.times)

    assert in_virtual_time(story) == 1


def denied(retry_after_s: float | None = 60.0) -> Ec2Error:
    return Ec2Error(
        Reason.PERMISSION_DENIED,
        "allow ec2:DescribeVolumes",
        action="DescribeVolumes",
        retry_after_s=retry_after_s,
    )


def test_a_look_that_is_denied_wakes_all_who_wait_at_once_and_is_over_after_a_good_one() -> None:
    async def story(clock: Clock) -> None:
        ec2, due, later = Ec2(clock), Waker(clock), Waker(clock)
        ec2.put(a_volume("vol-1"), a_volume("vol-2"))
        ec2.failure = refusal = denied()
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", due)
            watcher.watch("vol-2", "create", later, asked=asked(20.0))
            await asyncio.sleep(1)
            assert trouble_of(watcher) is refusal
            assert (len(due.times), len(later.times)) == (1, 1)

            ec2.failure = None
            await asyncio.sleep(65)
            assert trouble_of(watcher) is None
            assert watcher.sighting("vol-1") is not None

    in_virtual_time(story)


def test_a_denied_look_is_not_repeated_before_that_is_worth_it() -> None:
    async def story(clock: Clock) -> int:
        ec2, wake = Ec2(clock), Waker(clock)
        ec2.failure = denied(retry_after_s=60)
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", wake)
            await asyncio.sleep(590)
        return len(ec2.looks)

    assert in_virtual_time(story) == 10


@pytest.mark.parametrize(
    ("reason", "after_s", "told"),
    [
        (Reason.THROTTLED, 300, False),
        (Reason.REPLY_LOST, 300, False),
        (Reason.UNREACHABLE, 20, False),
        (Reason.UNREACHABLE, 70, True),
        (Reason.CREDENTIALS_INVALID, 1, True),
        (Reason.INVALID_REQUEST, 1, True),
    ],
)
def test_trouble_is_what_does_not_pass_by_itself(
    reason: Reason, after_s: float, *, told: bool
) -> None:
    async def story(clock: Clock) -> bool:
        ec2 = Ec2(clock)
        ec2.failure = Ec2Error(reason, "no", action="DescribeVolumes")
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", Waker(clock))
            await asyncio.sleep(after_s)
            return watcher.trouble is not None

    assert in_virtual_time(story) is told


def test_one_that_ec2_does_not_describe_keeps_no_other_from_being_seen() -> None:
    async def story(clock: Clock) -> None:
        ec2, good, bad = Ec2(clock), Waker(clock), Waker(clock)
        ec2.put(a_volume("vol-1"))
        refusal = Ec2Error(Reason.INVALID_REQUEST, "no such form", action="DescribeVolumes")
        ec2.refuses = {"vol-2": refusal}
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", good)
            watcher.watch("vol-2", "attach", bad)
            await asyncio.sleep(10)

            assert watcher.sighting("vol-1") is not None
            assert watcher.sighting("vol-2") is None  # which says nothing of whether it is there
            assert watcher.trouble_with("vol-2") is refusal
            assert (watcher.trouble_with("vol-1"), watcher.trouble) == (None, None)
            assert (len(good.times), len(bad.times)) == (1, 1)
            looks = sum(count == 2 for _, count in ec2.looks)
            assert looks == 1  # it is looked at again more seldom

            ec2.refuses = {}
            ec2.put(a_volume("vol-2"))
            await asyncio.sleep(60)
            assert watcher.sighting("vol-2") is not None
            assert watcher.trouble_with("vol-2") is None

    in_virtual_time(story)


def test_trouble_is_not_told_to_one_who_comes_when_nobody_has_looked_for_long() -> None:
    async def story(clock: Clock) -> None:
        ec2 = Ec2(clock)
        ec2.failure = denied()
        async with running(ec2) as watcher:
            watcher.watch("vol-1", "create", Waker(clock))
            await asyncio.sleep(1)
            watcher.forget("vol-1", "create")
            await asyncio.sleep(100)
            assert watcher.trouble is None

    in_virtual_time(story)


def trouble_of(watcher: Watcher[Volume]) -> StorageError | None:
    return watcher.trouble


def in_transition(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("ebs_provisioner_in_transition", {"kind": "volumes"})


async def test_sees_real_volumes_become_available_beside_one_that_vanished(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"create_s": 0.3, "visible_after_s": 0.1})
    watcher = Watcher(volumes, metrics=Metrics())
    made = [(await volumes.create(a_request(f"n-{n}"))).volume_id for n in range(5)]
    gone = "vol-0123456789abcdef0"
    news = asyncio.Event()
    for volume_id in [gone, *made]:
        watcher.watch(volume_id, "create", news.set)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(watcher.run())
        while states(watcher, made) != {VolumeState.AVAILABLE}:
            await news.wait()
            news.clear()
        running.cancel()

    missing = watcher.sighting(gone)
    assert missing is not None
    assert missing.found is None


def states(watcher: Watcher[Volume], volume_ids: list[str]) -> set[VolumeState | None]:
    seen = [watcher.sighting(volume_id) for volume_id in volume_ids]
    return {one.found.state if one is not None and one.found else None for one in seen}
