"""Blocking work that may never come back: on a disk that died a read, or a stat, can hang for good.

Each piece has a thread of its own that the end of the process does not wait for (asyncio's own
threads are few, and are waited for), and there is one at most per resource, such as a device or a
path: a dead disk costs one thread for each, and neither the event loop nor another resource hangs
on it. So what does not touch the disk, as an unmount, is tried all the same.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from provisioner import clock
from provisioner.model.errors import NodeError, Reason

T = TypeVar("T")
TIMEOUT_S = 10.0


class NotStartedError(NodeError):
    """The machine gives no thread; nothing was done."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What runs in a thread, and since when."""

    end: asyncio.Future[Any]
    since_s: float


class BlockingCalls:
    """Calls functions that may hang.

    Args:
        timeout_s: how long one is waited for, in seconds.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._running: dict[str, _Work] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def call(
        self,
        resource: str,
        function: Callable[[], T],
        *,
        what: str,
        is_bounded: bool = True,
        if_left: Callable[[], None] = lambda: None,
        undo: Callable[[T], None] = lambda _: None,
    ) -> T:
        """Call a function in a thread of its own, which goes on when nobody waits any more.

        Args:
            resource: of one, one runs at a time; others wait for it, as long as for their own.
            function: what is called.
            what: it in words, for the middle of a sentence: "looking at /var/…".
            is_bounded: whether it is given up after a while; else it is waited for until it ends.
            if_left: tells it that nobody wants its result any more.
            undo: takes back a result that nobody gets, whenever it comes.

        Raises:
            NodeError: TIMED_OUT, it hangs, or the one before it does; PROGRAM_MISSING, no
                thread can be started; and what the function raises.
        """
        until_s = clock.now_s() + self._timeout_s
        while (before := self._running.get(resource)) is not None:
            await _waited(before, until_s, what)
        work = self._begin(resource, function)
        try:
            await _waited(work, until_s if is_bounded else None, what)
        except BaseException:
            if_left()
            work.end.add_done_callback(partial(_take_back, undo))
            raise
        result: T = work.end.result()
        return result

    def _begin(self, resource: str, function: Callable[[], T]) -> _Work:
        loop = asyncio.get_running_loop()
        work = _Work(loop.create_future(), loop.time())

        def ended(result: T | None, error: BaseException | None) -> None:
            del self._running[resource]
            if error is not None:
                work.end.set_exception(error)
                work.end.exception()  # whoever waited may have left: it is not "never retrieved"
            else:
                work.end.set_result(result)

        def run() -> None:
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop has ended meanwhile, and with it all who waited
                loop.call_soon_threadsafe(ended, result, error)

        try:
            threading.Thread(target=run, name=f"look {resource}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            raise NotStartedError(
                Reason.PROGRAM_MISSING,
                f"no thread can be started ({str(error) or 'no memory'}): the node plugin's pod, "
                "or the node, has used up its memory or its limit of processes; it is tried again",
            ) from error
        # Only now: what was never begun never ends. Its end waits for this loop.
        self._running[resource] = work
        return work


async def _waited(work: _Work, until_s: float | None, what: str) -> None:
    loop = asyncio.get_running_loop()
    remaining_s = None if until_s is None else max(0.0, until_s - loop.time())
    done, _ = await asyncio.wait({work.end}, timeout=remaining_s)
    if not done:
        raise NodeError(
            Reason.TIMED_OUT,
            f"{what} has not come back for {loop.time() - work.since_s:.0f} s: the disk may have "
            "died; look at the node's kernel log and at the volume's status in EC2",
        )


def _take_back(undo: Callable[[T], None], end: asyncio.Future[T]) -> None:
    if not end.cancelled() and end.exception() is None:
        undo(end.result())
