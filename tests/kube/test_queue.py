import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from provisioner.kube.queue import KeyedQueue
from provisioner.metrics import Metrics
from provisioner.model.decision import SETTLED, Later, Next
from provisioner.model.errors import KubeError, Reason

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
REFUSED = KubeError(Reason.CONFLICT, "changed meanwhile")


class Recorder:
    """A handler whose calls are noted and whose ends the test may hold back."""

    def __init__(self, *results: Next | BaseException) -> None:
        self.calls: list[str] = []
        self.times: list[float] = []
        self.now = 0
        self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._results = list(results)

    async def __call__(self, key: str) -> Next:
        self.calls.append(key)
        self.times.append(asyncio.get_running_loop().time())
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
        finally:
            self.now -= 1
        result = self._results.pop(0) if self._results else SETTLED
        if isinstance(result, BaseException):
            raise result
        return result


def a_queue(handler: Recorder, metrics: Metrics, **more: Any) -> KeyedQueue:
    return KeyedQueue("flow", handler, metrics, random=lambda: 1.0, **more)


@asynccontextmanager
async def running(queue: KeyedQueue) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(queue.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_any_number_of_keys_run_at_once(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder()
    handler.gate.clear()
    queue = a_queue(handler, metrics)
    for n in range(1000):
        queue.add(f"key-{n}")
    async with running(queue):
        await eventually(lambda: handler.now == 1000)
        handler.gate.set()
        await eventually(lambda: queue.depth == 0)

    assert handler.calls == [f"key-{n}" for n in range(1000)]


async def test_a_key_that_is_added_while_it_runs_runs_once_more_afterwards(
    metrics: Metrics, eventually: Eventually
) -> None:
    handler = Recorder()
    handler.gate.clear()
    queue = a_queue(handler, metrics)
    async with running(queue):
        queue.add("a")
        await eventually(lambda: handler.now == 1)
        for _ in range(5):
            queue.add("a")
        handler.gate.set()
        await eventually(lambda: queue.depth == 0)

    assert (handler.calls, handler.most) == (["a", "a"], 1)


async def test_additions_before_a_key_runs_collapse(
    metrics: Metrics, eventually: Eventually
) -> None:
    handler = Recorder()
    queue = a_queue(handler, metrics)
    for _ in range(5):
        queue.add("a")
    async with running(queue):
        await eventually(lambda: queue.depth == 0)

    assert handler.calls == ["a"]


async def test_a_handler_says_when_to_look_again(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder(Later(0.02))
    queue = a_queue(handler, metrics)
    async with running(queue):
        queue.add("a")
        await eventually(lambda: queue.depth == 0)

    assert handler.times[1] - handler.times[0] >= 0.02


async def test_a_waiting_key_has_no_task(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder(Later(60.0), REFUSED)
    queue = a_queue(handler, metrics, base_s=60)
    async with running(queue):
        before = len(asyncio.all_tasks())
        queue.add("looks later")
        queue.add("failed")
        queue.add("delayed", after_s=60)
        await eventually(lambda: len(handler.calls) == 2 and handler.now == 0)

        assert (queue.depth, len(asyncio.all_tasks())) == (3, before)


async def test_an_event_wakes_a_waiting_key(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder(Later(60.0), REFUSED)
    queue = a_queue(handler, metrics, base_s=60)
    async with running(queue):
        queue.add("a")
        await eventually(lambda: len(handler.calls) == 1 and handler.now == 0)
        queue.add("a", after_s=90)
        queue.add("a")
        await eventually(lambda: len(handler.calls) == 2 and handler.now == 0)
        queue.add("a")
        await eventually(lambda: queue.depth == 0)

    assert len(handler.calls) == 3


async def test_failures_wait_twice_as_long_each_time_up_to_a_cap(
    metrics: Metrics, eventually: Eventually
) -> None:
    handler = Recorder(*[REFUSED] * 4)
    queue = a_queue(handler, metrics, base_s=0.01, cap_s=0.04)
    with capture_logs() as logs:
        async with running(queue):
            queue.add("a")
            await eventually(lambda: queue.depth == 0)

    gaps = [
        later - earlier for earlier, later in zip(handler.times, handler.times[1:], strict=False)
    ]
    assert all(gap >= least for gap, least in zip(gaps, (0.01, 0.02, 0.04, 0.04), strict=True))
    assert [line["reason"] for line in logs] == ["Conflict"] * 4
    assert (
        metrics.registry.get_sample_value(
            "ebs_provisioner_flow_failures_total", {"flow": "flow", "reason": "Conflict"}
        )
        == 4
    )


async def test_an_outage_is_waited_for_in_shorter_steps_than_a_refusal(
    metrics: Metrics, eventually: Eventually
) -> None:
    away = KubeError(Reason.UNREACHABLE, "connection refused")
    handler = Recorder(away, away, away, away, REFUSED)
    queue = a_queue(handler, metrics, base_s=0.01, cap_s=0.3, outage_cap_s=0.02)
    with capture_logs() as logs:
        async with running(queue):
            queue.add("a")
            await eventually(lambda: len(handler.calls) == 5)

    assert [line["in_s"] for line in logs] == [0.0, 0.0, 0.0, 0.0, 0.2]


async def test_a_success_ends_the_backoff(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder(REFUSED, REFUSED, REFUSED, SETTLED, REFUSED)
    queue = a_queue(handler, metrics, base_s=0.005)
    with capture_logs() as logs:
        async with running(queue):
            queue.add("a")
            await eventually(lambda: queue.depth == 0)
            queue.add("a")
            await eventually(lambda: len(handler.calls) == 6)

    assert len(logs) == 4
    assert handler.times[5] - handler.times[4] < 0.02


async def test_waits_at_least_as_long_as_the_error_asks(
    metrics: Metrics, eventually: Eventually
) -> None:
    handler = Recorder(KubeError(Reason.THROTTLED, "slow down", retry_after_s=0.05))
    queue = a_queue(handler, metrics, base_s=0.001)
    async with running(queue):
        queue.add("a")
        await eventually(lambda: queue.depth == 0)

    assert handler.times[1] - handler.times[0] >= 0.05


async def test_a_handler_that_wakes_itself_and_fails_is_slowed_down(metrics: Metrics) -> None:
    async def fails(key: str) -> Next:
        calls.append(key)
        queue.add(key)
        raise REFUSED

    calls: list[str] = []
    queue = KeyedQueue("flow", fails, metrics, base_s=0.05)
    with capture_logs():
        async with running(queue):
            queue.add("a")
            await asyncio.sleep(0.12)

    assert 3 <= len(calls) <= 6


@pytest.mark.parametrize(
    "exc", [ValueError("a bug"), asyncio.CancelledError()], ids=["bug", "foreign cancel"]
)
async def test_a_bug_is_logged_with_its_traceback_and_tried_again(
    metrics: Metrics, eventually: Eventually, exc: BaseException
) -> None:
    handler = Recorder(exc)
    queue = a_queue(handler, metrics, base_s=0.001)
    with capture_logs() as logs:
        async with running(queue):
            queue.add("a")
            await eventually(lambda: queue.depth == 0)

    assert handler.calls == ["a", "a"]
    assert logs[0]["exc_info"] is exc


async def test_drains_by_waiting_for_what_runs(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder()
    handler.gate.clear()
    queue = a_queue(handler, metrics)
    async with running(queue) as task:
        queue.add("a")
        queue.add("later", after_s=60)
        await eventually(lambda: handler.now == 1)
        draining = asyncio.create_task(queue.drain(3))
        await asyncio.sleep(0)
        queue.add("a")
        queue.add("refused")
        handler.gate.set()

        assert await draining
        await asyncio.wait_for(task, 30)

    assert (handler.calls, queue.depth) == (["a"], 0)


async def test_narrowed_it_goes_on_with_what_is_wanted_and_drops_the_rest(
    metrics: Metrics, eventually: Eventually
) -> None:
    handler = Recorder(Later(0.01), Later(60.0))
    queue = a_queue(handler, metrics)
    wanted = {"a"}
    async with running(queue):
        queue.add("later", after_s=60)
        queue.add("a")
        await eventually(lambda: handler.calls == ["a"])
        queue.narrow(wanted.__contains__)
        queue.add("refused")
        await eventually(lambda: handler.calls == ["a", "a"] and not queue.is_working)
        assert queue.depth == 1
        wanted.clear()
        queue.add("a")
        assert await queue.drain(3)

    assert (handler.calls, queue.depth) == (["a", "a"], 0)


async def test_a_drain_gives_up_in_time(metrics: Metrics, eventually: Eventually) -> None:
    handler = Recorder()
    handler.gate.clear()
    queue = a_queue(handler, metrics)
    async with running(queue):
        queue.add("a")
        await eventually(lambda: handler.now == 1)

        assert not await queue.drain(0.01)
    assert (handler.now, queue.depth) == (0, 0)


async def test_depth_is_a_metric(metrics: Metrics) -> None:
    queue = a_queue(Recorder(), metrics)
    queue.add("a")

    assert metrics.registry.get_sample_value("ebs_provisioner_queue_depth", {"queue": "flow"}) == 1
