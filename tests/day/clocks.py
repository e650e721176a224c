"""The clocks of a simulated day: all of them show the virtual time of one event loop.

``install`` comes before anything of the product is imported, because defaults such as
``clock=time.monotonic`` are bound then.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from tests.ec2.virtual_time import VirtualLoop

BEGAN = datetime(2026, 11, 24, tzinfo=UTC)
_BOOTED_S = 1000.0

# What a call from a thread costs: until it arrives; and, asked after it ran, until it is answered.
Latency = tuple[Callable[[], float], Callable[[], float]]


class _Now:
    """Seconds since the machine booted."""

    def __init__(self) -> None:
        self.s = _BOOTED_S

    def __call__(self, *_: object) -> float:
        return self.s


NOW = _Now()


def wall_clock() -> datetime:
    """The time of day."""
    return BEGAN + timedelta(seconds=NOW.s - _BOOTED_S)


class WallClock(datetime):
    """A datetime whose ``now`` is that of the virtual day."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return wall_clock().astimezone(tz)


def install() -> None:
    """Have the process live in virtual time; what measures CPU keeps its clocks."""
    time.monotonic = NOW
    time.clock_gettime = NOW
    time.time = lambda: wall_clock().timestamp()
    time.time_ns = lambda: int(time.time() * 1e9)


def set_wall_clocks() -> None:
    """After the imports: modules of the product that ask for the time of day."""
    for name, module in list(sys.modules.items()):
        if name.startswith("provisioner.") and vars(module).get("datetime") is datetime:
            vars(module)["datetime"] = WallClock


class DayLoop(VirtualLoop):
    """Jumps to the next timer at a price that does not grow with their number.

    Work of threads is done on the loop: its arrival and its answer are late by what ``latency``
    says, and nothing blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = NOW.s
        self.latency: Latency = (lambda: 0.0, lambda: 0.0)

    def time(self) -> float:
        return NOW.s

    def _run_once(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not self._ready:  # type: ignore[attr-defined]
            while timers and timers[0].cancelled():
                self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
                heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
            if timers:
                NOW.s = max(NOW.s, timers[0].when())
        asyncio.SelectorEventLoop._run_once(self)  # type: ignore[attr-defined]

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it when it has arrived; an answer that nobody waits for is dropped."""
        answer: asyncio.Future[Any] = self.create_future()
        arrives_s, answers_s = self.latency

        def settle(result: Any, failure: BaseException | None) -> None:
            if answer.done():
                return
            if failure is not None:
                answer.set_exception(failure)
            else:
                answer.set_result(result)

        def arrived() -> None:
            result, failure = None, None
            try:
                result = func(*args)
            except Exception as raised:  # as a thread pool does it
                failure = raised
            self.call_later(answers_s(), settle, result, failure)

        self.call_later(arrives_s(), arrived)
        return answer
