"""One request for all who ask the same at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from typing import Generic, TypeVar

R = TypeVar("R")


class SharedReads(Generic[R]):
    """Answers questions by key; each answer is to a request that began after the question.

    So whoever asks while a request is under way shares the next one with all others who do. A
    failure is everybody's. Who is cancelled takes nothing from the others.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[R]] = {}
        self._next: dict[Hashable, asyncio.Task[R]] = {}

    async def read(self, key: Hashable, ask: Callable[[], Awaitable[R]]) -> R:
        """The answer to ``ask``; raises what it raises."""
        task = self._next.get(key)
        if task is None:
            # Its log lines are not about the first who asks.
            task = asyncio.create_task(self._ask(key, ask), name=f"read {key}", context=Context())
            task.add_done_callback(_retrieved)
            self._next[key] = task
        return await asyncio.shield(task)

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[R]]) -> R:
        if (before := self._running.get(key)) is not None:
            await asyncio.wait([before])  # nobody else begins meanwhile: this is the only next one
        self._running[key] = self._next.pop(key)
        try:
            return await ask()
        finally:
            del self._running[key]


def _retrieved(task: asyncio.Task[R]) -> None:
    """Everybody who asked may be gone; a failure is no news to the event loop then."""
    if not task.cancelled():
        task.exception()
