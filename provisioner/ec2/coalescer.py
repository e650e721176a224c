"""Many who ask for one thing each, answered by few calls for many things."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from typing import Generic, TypeVar

from provisioner.ec2.pace import Pace
from provisioner.model.errors import StorageError

V = TypeVar("V")


class Coalescer(Generic[V]):
    """Collects keys for a short window, fetches them together, remembers answers for a while.

    One fetch runs at a time; who asks meanwhile is in the next one.
    """

    def __init__(
        self,
        fetch: Callable[[list[str]], Awaitable[Mapping[str, V | StorageError]]],
        *,
        window_s: float,
        fresh_for_s: float,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fetch nothing yet.

        Args:
            fetch: answers for all of these keys.
            window_s: how long keys are collected.
            fresh_for_s: how long an answer counts, from when it came.
            pace: a budget that each fetch takes a turn of; keys are collected meanwhile.
            clock: monotonic seconds.
        """
        self._fetch = fetch
        self._pace = pace
        self._window_s = window_s
        self._fresh_for_s = fresh_for_s
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[V]] = {}
        self._known: dict[str, tuple[float, V]] = {}
        self._outdated: set[str] = set()  # keys whose fetch under way began too early
        self._worker: asyncio.Task[None] | None = None

    async def get(self, key: str) -> V:
        """The answer for a key; a refusal is not remembered.

        Raises:
            StorageError: what the fetch says about this key, or about the whole fetch.
        """
        known = self._known.get(key)
        if known is not None and self._is_fresh(known):
            return known[1]
        return await asyncio.shield(self.ask(key))

    def ask(self, key: str) -> asyncio.Future[V]:
        """Have a key fetched with the next batch; nobody need wait for it."""
        waiter = self._waiting.get(key)
        if waiter is None:
            waiter = self._waiting[key] = asyncio.get_running_loop().create_future()
            # The caller may have gone by then.
            waiter.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(
                self._work(),
                name="coalescer",
                context=Context(),  # its log lines are not about the first caller
            )
        return waiter

    def forget(self, key: str) -> None:
        """Ask EC2 again next time; the answer that is under way is not remembered."""
        self._known.pop(key, None)
        self._outdated.add(key)

    async def close(self) -> None:
        """Stop; all waiting callers are cancelled."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        for waiter in self._waiting.values():
            waiter.cancel()
        self._waiting.clear()

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._window_s)
            if self._pace is not None:
                await self._pace.turn()
            batch, self._waiting = self._waiting, {}
            self._answer_known(batch)
            self._outdated.clear()
            try:
                answers = await self._fetch(list(batch)) if batch else {}
            except asyncio.CancelledError:
                self._waiting = batch | self._waiting
                raise
            except Exception as failure:
                for waiter in batch.values():
                    waiter.set_exception(failure)
                continue
            self._answer(batch, answers)

    def _is_fresh(self, known: tuple[float, V]) -> bool:
        return self._clock() - known[0] < self._fresh_for_s

    def _answer_known(self, batch: dict[str, asyncio.Future[V]]) -> None:
        """Answer those who asked while the fetch before this one was under way."""
        for key in list(batch):
            known = self._known.get(key)
            if known is not None and self._is_fresh(known):
                batch.pop(key).set_result(known[1])

    def _answer(
        self, batch: dict[str, asyncio.Future[V]], answers: Mapping[str, V | StorageError]
    ) -> None:
        now = self._clock()
        self._known = {k: known for k, known in self._known.items() if self._is_fresh(known)}
        for key, waiter in batch.items():
            answer = answers[key]
            if isinstance(answer, StorageError):
                self._known.pop(key, None)
                waiter.set_exception(answer)
            else:
                if key not in self._outdated:
                    self._known[key] = now, answer
                waiter.set_result(answer)
