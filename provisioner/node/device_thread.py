"""Blocking work on a device, in a thread of its own.

Not in asyncio's own threads: those are few, and the end of the process waits for them, while a disk
that has died keeps a thread for good.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from provisioner.model.errors import NodeError, Reason

T = TypeVar("T")
LINGER_S = 5.0


class NotStartedError(NodeError):
    """The machine gives no thread; nothing was done."""


def start_thread(work: Callable[[], None], *, name: str) -> None:
    """Start a thread of its own, that the end of the process does not wait for.

    Raises:
        NotStartedError: PROGRAM_MISSING.
    """
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        raise NotStartedError(
            Reason.PROGRAM_MISSING,
            f"no thread can be started ({str(error) or 'no memory'}): the node plugin's pod, or "
            "the node, has used up its memory or its limit of processes; it is tried again",
        ) from error


async def in_thread(
    work: Callable[[], T],
    *,
    if_cancelled: Callable[[], None] = lambda: None,
    undo: Callable[[T], None] = lambda _: None,
    linger_s: float = LINGER_S,
) -> T:
    """Do blocking work; a wait that is cancelled gives the thread some seconds to end, then leaves.

    Args:
        work: what is done; it goes on by itself when nobody waits any more.
        if_cancelled: tells it that nobody wants its result any more.
        undo: takes back a result that nobody gets, whenever it comes.
        linger_s: how long a cancelled wait still lasts, in seconds.

    Raises:
        NotStartedError: the work has not begun, and never will; and what the work raises.
    """
    ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def take_back(_: asyncio.Future[T]) -> None:
        if ended.exception() is None:
            undo(ended.result())

    start_thread(partial(_do, work, ended), name="device")
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        if_cancelled()
        ended.add_done_callback(take_back)
        with suppress(asyncio.CancelledError):  # said once already, and raised below
            await asyncio.wait({ended}, timeout=linger_s)
        raise
    return ended.result()


def _do(work: Callable[[], T], ended: asyncio.Future[T]) -> None:
    tell: Callable[[], None]
    try:
        tell = partial(ended.set_result, work())
    except BaseException as error:
        tell = partial(ended.set_exception, error)
    with suppress(RuntimeError):  # the loop has ended, and with it the waiter
        ended.get_loop().call_soon_threadsafe(tell)
