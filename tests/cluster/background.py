"""A sandbox that outlives the event loop of a single test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from provisioner.sandbox.up import Sandbox

T = TypeVar("T")


class Background:
    """Runs a sandbox on its own thread; ``call`` runs a coroutine of it from a test's loop."""

    def __init__(self, sandbox: contextlib.AbstractAsyncContextManager[Sandbox]) -> None:
        self._open = sandbox
        self._ready: Future[Sandbox] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Self:
        self._thread.start()
        self.sandbox = self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._open as sandbox:
                self._ready.set_result(sandbox)
                await self._over.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` where the sandbox lives: starting and stopping its parts."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
