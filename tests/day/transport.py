"""The way of one process to the API server in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import msgspec

from provisioner.kube import failures
from provisioner.kube.client import WATCH_TIMEOUT
from provisioner.kube.failures import Attempt
from tests.day.api_server import ApiServer, Kind, Path, RefusedError
from tests.day.clocks import NOW

_WAY_S = (0.001, 0.008)  # of a request or an answer
_TOLD_S = (0.005, 0.05)  # from a change until a watch shows it
_BOOKMARK_S, _LAST_BOOKMARK_S = 60.0, 2.0
_GONE = RefusedError(410, "Expired", message="too old resource version")


class Transport:
    """Does what ``provisioner.kube.client.Transport`` does.

    Attributes:
        is_cut: its process is dead: nothing arrives any more, and no answer comes.
    """

    def __init__(self, api: ApiServer, *, concurrency: int = 64) -> None:
        self._api = api
        self._slots = asyncio.Semaphore(concurrency)
        self.is_cut = False

    async def close(self) -> None:
        """Nothing to close."""

    async def send(self, attempt: Attempt, method: str, path: str, **given: Any) -> bytes:
        """One request; the body of its successful answer."""
        data, _ = await self.exchange(attempt, method, path, **given)
        return data

    async def exchange(
        self,
        attempt: Attempt,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[bytes, Mapping[str, str]]:
        """One request; body and headers of its successful answer."""
        async with self._slots:
            await self._arrive(attempt)
            try:
                data = self._api.answer(method, path, query or {}, body, content_type)
            except RefusedError as refusal:
                await self._return(attempt)
                raise failures.of_answer(attempt, refusal.code, refusal.body) from None
            await self._return(attempt)
        return data, {}

    async def _arrive(self, attempt: Attempt) -> None:
        await asyncio.sleep(random.uniform(*_WAY_S))
        if self.is_cut:
            await asyncio.Event().wait()
        if self._api.is_down:
            raise failures.of_exception(attempt, aiohttp.ConnectionTimeoutError())

    async def _return(self, attempt: Attempt) -> None:
        await asyncio.sleep(random.uniform(*_WAY_S))
        if self.is_cut:
            await asyncio.Event().wait()
        if self._api.is_down:
            raise failures.of_exception(attempt, aiohttp.ServerDisconnectedError())

    async def lines(
        self, attempt: Attempt, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes]:
        """A watch; it ends without an error after a silence, as the real one does."""
        await self._arrive(attempt)
        kind, seen = self._api.kinds[Path.read(path).plural], int(query["resourceVersion"])
        self._api.requests[f"WATCH {kind.plural}"] += 1
        if seen < kind.forgotten:
            self._api.gone[kind.plural] += 1
            raise failures.of_answer(attempt, _GONE.code, _GONE.body)
        if query.get("fieldSelector"):
            assert not kind.objects, kind.plural
        try:
            async for line in self._follow(kind, seen, NOW.s + int(query["timeoutSeconds"])):
                if self.is_cut:
                    await asyncio.Event().wait()
                yield line
        except ConnectionResetError as broken:
            raise failures.of_exception(attempt, aiohttp.ClientPayloadError(str(broken))) from None

    async def _follow(self, kind: Kind, seen: int, ends_s: float) -> AsyncGenerator[bytes]:
        heard_s = NOW.s
        last_s = ends_s - _LAST_BOOKMARK_S
        bookmark_s = min(NOW.s + _BOOKMARK_S, last_s)
        while True:
            for change in kind.since(seen):
                seen, heard_s = change.version, NOW.s
                yield change.line
            if kind.changes and kind.changes[-1].version > seen:
                continue  # it came while the others were told
            silent_s = heard_s + (WATCH_TIMEOUT.sock_read or 0.0)
            if NOW.s >= min(ends_s, silent_s):
                return
            if NOW.s >= bookmark_s:
                bookmark_s = min(NOW.s + _BOOKMARK_S, last_s) if NOW.s < last_s else ends_s
                if kind.progress > seen:
                    seen, heard_s = kind.progress, NOW.s
                    yield _bookmark(kind, seen)
                    continue
            if await _change_of(kind, min(bookmark_s, ends_s, silent_s)):
                await asyncio.sleep(random.uniform(*_TOLD_S))
            if self._api.is_down:
                raise ConnectionResetError("the API server is away")


async def _change_of(kind: Kind, until_s: float) -> bool:
    waiter = asyncio.get_running_loop().create_future()
    kind.waiting.add(waiter)
    alarm = asyncio.get_running_loop().call_at(until_s, lambda: waiter.done() or waiter.cancel())
    try:
        await waiter
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return False
    finally:
        kind.waiting.discard(waiter)
        alarm.cancel()
    return True


def _bookmark(kind: Kind, version: int) -> bytes:
    meta = {"resourceVersion": str(version)}
    body = {"kind": kind.kind, "apiVersion": kind.group_version, "metadata": meta}
    return msgspec.json.encode({"type": "BOOKMARK", "object": body})
