"""One operation per volume at a time; joined, refused, left and taken over."""

import asyncio

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.operations import Operations, shielded

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
VOLUME = "vol-0123456789abcdef0"


class Work:
    """Work that a test lets end; counts how it went."""

    def __init__(self, *, is_unbroken: bool = False) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.is_unbroken = is_unbroken
        self.starts = self.ends = self.cancels = 0

    async def __call__(self) -> int:
        self.starts += 1
        self.begun.set()
        try:
            if self.is_unbroken:
                with shielded("mkfs.ext4 on /dev/nvme1n1"):
                    await self.may_end.wait()
            else:
                await self.may_end.wait()
            await asyncio.sleep(0)  # where a cancelling that was put off arrives
        except asyncio.CancelledError:
            self.cancels += 1
            raise
        self.ends += 1
        return self.starts


async def left(*waiters: asyncio.Task[int]) -> None:
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def started(operations: Operations, work: Work, key: object = "stage") -> asyncio.Task[int]:
    return asyncio.ensure_future(operations.run(VOLUME, key, work, what=f"The {key} of {VOLUME}"))


async def test_gives_the_result_and_keeps_nothing():
    operations, work = Operations(), Work()
    work.may_end.set()

    assert await operations.run(VOLUME, "stage", work, what="Staging volume vol-1") == 1
    assert len(operations) == 0


async def test_the_same_request_joins_and_gets_the_same_result():
    operations, work = Operations(), Work()
    waiters = [started(operations, work) for _ in range(3)]
    await work.begun.wait()
    work.may_end.set()

    assert await asyncio.gather(*waiters) == [1, 1, 1]
    assert work.starts == 1


async def test_another_request_is_told_what_runs():
    operations, work = Operations(), Work(is_unbroken=True)
    waiter = started(operations, work)
    await work.begun.wait()

    with pytest.raises(NodeError) as refused:
        await operations.run(VOLUME, "unstage", work, what="Unstaging volume vol-1")
    work.may_end.set()
    await waiter

    assert refused.value.reason is Reason.OPERATION_RUNNING
    assert refused.value.message == (
        "Unstaging volume vol-1 has to wait for another operation on the volume: The stage of "
        f"{VOLUME} has been running for 0 s (now: mkfs.ext4 on /dev/nvme1n1). No action is needed: "
        "the kubelet tries again"
    )


async def test_other_volumes_do_not_wait():
    operations, work, other = Operations(), Work(), Work()
    waiter = started(operations, work)
    other.may_end.set()

    assert await operations.run("vol-2", "stage", other, what="Staging volume vol-1") == 1
    work.may_end.set()
    await waiter


async def test_a_failure_reaches_all_who_wait_and_the_next_try_starts_anew():
    operations, gate = Operations(), asyncio.Event()

    async def fails() -> int:
        await gate.wait()
        raise NodeError(Reason.MOUNT_FAILED, "no")

    waiters = [
        asyncio.ensure_future(operations.run(VOLUME, "stage", fails, what="Staging volume vol-1"))
        for _ in range(2)
    ]
    await turns()
    gate.set()
    found = await asyncio.gather(*waiters, return_exceptions=True)

    assert [getattr(each, "reason", None) for each in found] == [Reason.MOUNT_FAILED] * 2
    work = Work()
    work.may_end.set()
    assert await operations.run(VOLUME, "stage", work, what="Staging volume vol-1") == 1


async def test_is_cancelled_once_the_last_waiter_leaves():
    operations, work = Operations(), Work()
    first, second = started(operations, work), started(operations, work)
    await work.begun.wait()

    await left(first)
    await turns()
    assert (work.cancels, len(operations)) == (0, 1)
    await left(second)
    await turns()
    assert (work.cancels, len(operations)) == (1, 0)


async def test_is_not_cancelled_within_a_stretch_but_right_after():
    operations, work = Operations(), Work(is_unbroken=True)
    waiter = started(operations, work)
    await work.begun.wait()

    await left(waiter)
    await turns()
    assert (work.cancels, len(operations)) == (0, 1)
    work.may_end.set()
    await turns()
    assert (work.cancels, work.ends, len(operations)) == (1, 0, 0)


async def test_a_retry_takes_over_what_was_left_within_a_stretch():
    operations, work = Operations(), Work(is_unbroken=True)
    waiter = started(operations, work)
    await work.begun.wait()
    await left(waiter)

    retry = started(operations, work)
    await turns()
    work.may_end.set()

    assert await retry == 1
    assert (work.starts, work.cancels) == (1, 0)


async def test_the_same_request_waits_out_one_that_is_being_cancelled():
    operations, cleaned = Operations(), asyncio.Event()
    runs: list[str] = []

    async def slow_to_end() -> int:
        runs.append("begun")
        if len(runs) > 1:
            return len(runs)
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()
            runs.append("cleaned")
        return 0

    def run(key: str) -> asyncio.Task[int]:
        return asyncio.ensure_future(operations.run(VOLUME, key, slow_to_end, what="It"))

    await turns()
    waiter = run("stage")
    await turns()
    await left(waiter)
    retry, other = run("stage"), run("unstage")
    await turns()
    assert isinstance(other.exception(), NodeError)
    cleaned.set()

    assert await retry == 3
    assert runs == ["begun", "cleaned", "begun"]


async def test_stretches_within_each_other_end_with_the_outermost():
    operations, inner, outer = Operations(), asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def work() -> int:
        with shielded("formatting"):
            with shielded("mkfs.ext4"):
                await inner.wait()
            seen.append("mkfs has ended")
            await outer.wait()
            seen.append("mark cleared")
        await asyncio.sleep(0)
        seen.append("mounted")
        return 0

    waiter = asyncio.ensure_future(operations.run(VOLUME, "stage", work, what="It"))
    await turns()
    await left(waiter)
    inner.set()
    await turns()
    outer.set()
    await turns()

    assert seen == ["mkfs has ended", "mark cleared"]


async def test_a_failure_with_nobody_waiting_is_logged(capsys):
    operations, gate = Operations(), asyncio.Event()

    async def fails() -> int:
        with shielded("mkfs.ext4"):
            await gate.wait()
            raise NodeError(Reason.FORMAT_FAILED, "mkfs ended with exit code 1")

    waiter = asyncio.ensure_future(operations.run(VOLUME, "stage", fails, what="It"))
    await turns()
    await left(waiter)
    gate.set()
    await turns()

    assert len(operations) == 0
    assert "mkfs ended with exit code 1" in capsys.readouterr().out


async def test_idle_waits_for_those_that_nobody_waits_for():
    operations, go, began = Operations(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        with shielded("formatting"):
            began.set()
            await go.wait()

    waiter = asyncio.create_task(operations.run(VOLUME, "a", work, what="A"))
    await began.wait()
    waiter.cancel()
    idle = asyncio.create_task(operations.idle())
    await asyncio.wait({waiter})
    assert not idle.done()

    go.set()
    await idle
    assert len(operations) == 0
