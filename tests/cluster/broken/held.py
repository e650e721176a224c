"""Stories that break things side by side, all of them broken until all have been looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


class Held:
    """Where stories wait for each other; the last one to come has something done first.

    Args:
        count: how many stories come.
        at_last: what is done once all of them wait: a look at all that is broken at once, and the
            end of EC2's refusals, which cannot be taken back one by one.
    """

    def __init__(self, count: int, at_last: Callable[[], Awaitable[None]]) -> None:
        self._left = count
        self._at_last = at_last
        self._over = asyncio.Event()

    @asynccontextmanager
    async def story(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """One story's part; it calls what this gives once. One that fails before counts too."""
        came = False

        async def all_came() -> None:
            nonlocal came
            came = True
            await self._one_less()
            await self._over.wait()

        try:
            yield all_came
        finally:
            if not came:
                await self._one_less()

    async def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            try:
                await self._at_last()
            finally:
                self._over.set()
