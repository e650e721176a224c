"""Looks at files that may never come back: on a disk that died, a stat can hang for good.

Each look has a thread of its own that nobody waits for beyond its time, and there is one at most
per key: a dead disk costs one thread, and neither the event loop nor the end of the process hangs
on it (asyncio's own threads are few, and are waited for at the end).
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from provisioner.model.errors import NodeError, Reason
from provisioner.node.device_thread import start_thread

T = TypeVar("T")
PATIENCE_S = 10.0


class Patience:
    """Calls functions that may hang.

    Args:
        patience_s: how long one is waited for, in seconds.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._running: dict[str, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def call(self, key: str, function: Callable[[], T], *, what: str) -> T:
        """Call a function in a thread of its own.

        Args:
            key: of one key, one runs at a time; others wait, as long as for their own.
            function: what is called.
            what: it in words, for the middle of a sentence: "looking at /var/…".

        Raises:
            NodeError: TIMED_OUT, it hangs, or the one before it does; PROGRAM_MISSING, no
                thread can be started; and what the function raises.
        """
        until_s = asyncio.get_running_loop().time() + self._patience_s
        while (before := self._running.get(key)) is not None:
            await self._waited(before, until_s, what)
        future = self._begin(key, function)
        await self._waited(future, until_s, what)
        return future.result()

    async def _waited(self, future: asyncio.Future[Any], until_s: float, what: str) -> None:
        remaining_s = max(0.0, until_s - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait({future}, timeout=remaining_s)
        if not done:
            raise NodeError(
                Reason.TIMED_OUT,
                f"{what} has not come back for {self._patience_s:.0f} s: the disk may have died; "
                "look at the node's kernel log",
            )

    def _begin(self, key: str, function: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def ended(result: T | None, error: BaseException | None) -> None:
            del self._running[key]
            if error is not None:
                future.set_exception(error)
                future.exception()  # whoever waited may have left: it is not "never retrieved"
            else:
                future.set_result(result)  # type: ignore[arg-type]  # T, for there was no error

        def run() -> None:
            result, error = None, None
            try:
                result = function()
            except Exception as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(ended, result, error)
            except RuntimeError:  # the loop has ended meanwhile, and with it all who waited
                return

        start_thread(run, name=f"look {key}")
        # Only now: what was never begun never ends. Its end waits for this loop.
        self._running[key] = future
        return future
