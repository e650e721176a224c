"""A lock that many may hold together, or one alone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class SharedLock:
    """Who wants it alone waits for those who share it; whoever comes after that waits too."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._sharing = 0
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[None]:
        """Hold it together with others."""
        async with self._turn:
            self._sharing += 1
            self._free.clear()
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._free.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Hold it alone."""
        async with self._turn:
            await self._free.wait()
            yield
