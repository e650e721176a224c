"""All loops over one EC2, at one pace."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from provisioner.ec2.look_rules import LOOK_AGAIN_S, MOST_A_SECOND, looks_a_second
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import (
    Watchers,
    by_the_estimate,
    seldom_while_optimizing,
    seldom_while_pending,
)
from provisioner.metrics import Metrics
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.modification import (
    Initialization,
    Modification,
    ModificationState,
    ModifyRequest,
    Shape,
)
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request
from tests.ec2.virtual_time import Clock, in_virtual_time

PATIENCE_S = 15.0
SOONEST_S = LOOK_AGAIN_S[0]


class Ec2:
    """Everything that is asked for is there, and is another one at each look."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.looks = 0

    async def describe(self, ids: Sequence[str]) -> dict[str, Modification]:
        self.looks += 1
        await asyncio.sleep(0.1)
        shape = Shape(self.looks, "gp3")
        return {each: Modification(each, ModificationState.MODIFYING, shape) for each in ids}

    async def initializations(self, ids: Sequence[str]) -> dict[str, Initialization]:
        self.looks += 1
        await asyncio.sleep(0.1)
        return {each: Initialization(each, is_complete=False, estimated_s=0) for each in ids}


def over(ec2: Ec2, metrics: Metrics | None = None) -> Watchers:
    return Watchers.over(
        cast("Volumes", ec2),
        cast("Modifications", ec2),
        cast("Snapshots", ec2),
        metrics or Metrics(),
        clock=ec2.clock,
    )


def looks_in_a_minute(watch: Callable[[Watchers], None]) -> int:
    async def story(clock: Clock) -> int:
        ec2 = Ec2(clock)
        watchers = over(ec2)
        running = asyncio.create_task(watchers.run())
        watch(watchers)
        await asyncio.sleep(60)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return ec2.looks

    return in_virtual_time(story)


def watch_all(watchers: Watchers, count: int) -> None:
    for number in range(count):
        watchers.volumes.watch(f"vol-{number}", "test", print)
        watchers.modifications.watch(f"vol-{number}", "test", print)
        watchers.snapshots.watch(f"snap-{number}", "test", print)
        watchers.initializations.watch(f"vol-{number}", "test", print)


@pytest.mark.parametrize("count", [1, 300, 499])
def test_all_kinds_together_ask_as_often_as_all_their_things_allow(count: int) -> None:
    looks = looks_in_a_minute(lambda watchers: watch_all(watchers, count))

    allowed = 60 * looks_a_second(4 * count)
    assert 0.6 * allowed <= looks <= allowed + MOST_A_SECOND


def test_a_kind_for_which_no_pod_waits_asks_once_a_second() -> None:
    looks = looks_in_a_minute(lambda watchers: watchers.modifications.watch("vol-1", "test", print))

    assert looks <= 61


def test_nobody_is_asked_when_nothing_is_watched() -> None:
    assert looks_in_a_minute(lambda _: None) == 0


def test_each_kind_is_counted() -> None:
    async def story(clock: Clock) -> Metrics:
        metrics = Metrics()
        watchers = over(Ec2(clock), metrics)
        watchers.snapshots.watch("snap-1", "test", print)
        watchers.snapshots.watch("snap-2", "test", print)
        watchers.volumes.watch("vol-1", "test", print)
        watchers.volumes.forget("vol-1", "test")
        return metrics

    registry = in_virtual_time(story).registry
    counted = {
        kind: registry.get_sample_value("ebs_provisioner_in_transition", {"kind": kind})
        for kind in ("volumes", "snapshots", "modifications")
    }

    assert counted == {"volumes": 0, "snapshots": 2, "modifications": None}


@pytest.mark.parametrize(
    ("state", "watched_s", "after_s"),
    [
        (ModificationState.MODIFYING, 3600, SOONEST_S),
        (ModificationState.OPTIMIZING, 1, SOONEST_S),
        (ModificationState.OPTIMIZING, 60, 6.0),
        (ModificationState.OPTIMIZING, 3600, 30.0),
        (ModificationState.COMPLETED, 3600, SOONEST_S),
    ],
)
def test_optimizing_is_looked_at_less_and_less_however_its_progress_changes(
    state: ModificationState, watched_s: float, after_s: float
) -> None:
    found = Modification("vol-1", state, Shape(4, "gp3"))

    assert seldom_while_optimizing(found, 0.0, watched_s) == after_s


@pytest.mark.parametrize(
    ("estimated_s", "watched_s", "after_s"),
    [(None, 0, 1.0), (None, 60, 6.0), (None, 7200, 120.0), (40, 0, 40.0), (0, 9, 1.0)],
)
def test_an_initialization_is_looked_at_when_it_should_end(
    estimated_s: int | None, watched_s: float, after_s: float
) -> None:
    found = Initialization("vol-1", is_complete=False, estimated_s=estimated_s)

    assert by_the_estimate(found, 0.0, watched_s) == after_s
    assert by_the_estimate(None, 0.0, 0.0) == 1.0


async def until(news: asyncio.Event, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await news.wait()
            news.clear()


async def test_sees_a_modification_and_a_snapshot_come_to_an_end(
    volumes: Volumes, modifications: Modifications, snapshots: Snapshots, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"modify_s": 0.5, "optimize_s": 600.0, "snapshot_s": 0.5})
    watchers, news = Watchers.over(volumes, modifications, snapshots, Metrics()), asyncio.Event()
    one, never = [(await volumes.create(a_request(name))).volume_id for name in ("a", "b")]
    taken = (await snapshots.create(SnapshotRequest(never, "", ()))).snapshot_id
    await modifications.modify(ModifyRequest(one, size_gib=8))
    for volume_id in (one, never):
        watchers.modifications.watch(volume_id, "test", news.set)
    watchers.snapshots.watch(taken, "test", news.set)
    running = asyncio.create_task(watchers.run())

    def is_over() -> bool:
        grown, unknown = (watchers.modifications.sighting(each) for each in (one, never))
        full = watchers.snapshots.sighting(taken)
        return (
            grown is not None
            and grown.found is not None
            and grown.found.state is ModificationState.OPTIMIZING
            and full is not None
            and full.found is not None
            and full.found.state is SnapshotState.COMPLETED
            and unknown is not None
            and unknown.found is None
        )

    await until(news, is_over)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    ("state", "watched_s", "after_s"),
    [
        (SnapshotState.PENDING, 1, SOONEST_S),
        (SnapshotState.PENDING, 20, 2.0),
        (SnapshotState.PENDING, 3600, 5.0),
        (SnapshotState.COMPLETED, 3600, SOONEST_S),
    ],
)
def test_a_snapshot_is_looked_at_less_and_less_however_its_progress_changes(
    state: SnapshotState, watched_s: float, after_s: float
) -> None:
    found = EbsSnapshot("snap-1", "vol-1", state, 1, progress_percent=7)

    assert seldom_while_pending(found, 0.0, watched_s) == after_s


def test_percents_of_one_snapshot_do_not_keep_us_looking_each_second() -> None:
    class Slow(Ec2):
        async def describe(self, ids: Sequence[str]) -> dict[str, Any]:
            self.looks += 1
            shown = EbsSnapshot("snap-1", "vol-1", SnapshotState.PENDING, 1)
            return {each: replace(shown, progress_percent=self.looks % 100) for each in ids}

    async def story(clock: Clock) -> int:
        ec2 = Slow(clock)
        watchers = over(ec2)
        running = asyncio.create_task(watchers.run())
        watchers.snapshots.watch("snap-1", "test", print)
        await asyncio.sleep(600)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return ec2.looks

    assert in_virtual_time(story) <= 600 / 5 + 30
