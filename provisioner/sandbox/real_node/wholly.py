"""Work that is done to its end, though who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def wholly(work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end; who is cancelled meanwhile ends only then.

    So it is with what a thread does, which nobody can cancel.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.result()  # a failure is told
        raise
