"""Work that is done to its end, though who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def wholly(work: Coroutine[Any, Any, T]) -> T:
    """Do it to its end; who is cancelled meanwhile, once or more often, ends only then.

    So it is with what a thread does, which nobody can cancel.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        task.result()  # a failure is told
        raise
