"""An event loop whose clock jumps to the next timer: minutes of waiting in milliseconds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Clock = Callable[[], float]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when there is nothing else to do; for code without threads or sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers = self._scheduled  # type: ignore[attr-defined]
        if not self._ready:  # type: ignore[attr-defined]
            due = min((timer.when() for timer in timers if not timer.cancelled()), default=0.0)
            self._now = max(self._now, due)
        super()._run_once()  # type: ignore[misc]


def in_virtual_time(story: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    """Run a story that is given the clock; tasks that it leaves behind are an error."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(story(loop.time))
        left = asyncio.all_tasks(loop)
        assert not left, left
        return result
    finally:
        loop.close()
