"""Blocking calls that may never return: on a dead disk, a read or a stat can hang forever.

Each call has a thread of its own, which does not delay the end of the process (asyncio's threads
are few, and do). Each resource, such as a device or a path, has at most one: a dead disk costs one
thread for each, and blocks neither the event loop nor other resources. So what does not touch the
disk, such as an unmount, still works.
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
    """No thread could be started; nothing was done."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A call that runs in a thread, and since when."""

    end: asyncio.Future[Any]
    since_s: float


class BlockingCalls:
    """Runs functions that may hang, each in a thread of its own.

    Args:
        timeout_s: how long to wait for one, in seconds.
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
        """Call a function in a thread, which continues if the waiter gives up.

        Args:
            resource: only one call of it runs at a time; waiting for the one before counts, too.
            function: what to call.
            what: the call, to begin a sentence with: "stat of /var/…".
            is_bounded: whether the timeout applies; else the call is waited for until it ends.
            if_left: called if the waiter gives up.
            undo: called with the result, once it is there, if the waiter gave up.

        Raises:
            NodeError: TIMED_OUT, the call hangs, or the one before it does; PROGRAM_MISSING, no
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
        work = _Work(loop.create_future(), clock.now_s())

        def ended(result: T | None, error: BaseException | None) -> None:
            del self._running[resource]
            if error is not None:
                work.end.set_exception(error)
                work.end.exception()  # marks it as retrieved: the waiter may have given up
            else:
                work.end.set_result(result)

        def run() -> None:
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(ended, result, error)

        try:
            threading.Thread(target=run, name=f"blocking {resource}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            raise NotStartedError(
                Reason.PROGRAM_MISSING,
                f"cannot start a thread ({str(error) or 'no memory'}): the node plugin's pod, or "
                "the node, is out of memory or at its limit of processes; this is retried",
            ) from error
        # Only once the thread has started; it ends by a callback, so not before this line.
        self._running[resource] = work
        return work


async def _waited(work: _Work, until_s: float | None, what: str) -> None:
    remaining_s = None if until_s is None else max(0.0, until_s - clock.now_s())
    done, _ = await asyncio.wait({work.end}, timeout=remaining_s)
    if not done:
        raise NodeError(
            Reason.TIMED_OUT,
            f"{what} has been hanging for {clock.now_s() - work.since_s:.0f} s: the disk may have "
            "failed; check the node's kernel log and the volume's status in EC2",
        )


def _take_back(undo: Callable[[T], None], end: asyncio.Future[T]) -> None:
    if not end.cancelled() and end.exception() is None:
        undo(end.result())
