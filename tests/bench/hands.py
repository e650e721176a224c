"""The bench's own hands and eyes on the API server, as cheap as they can be made.

They share two cores with what is measured: bodies are bytes, answers to writes are not decoded,
and what happens is seen by one watch instead of polling.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

import aiohttp
import msgspec

from provisioner.sandbox.control_plane import ControlPlane

AT_ONCE = 32
_MERGE = "application/merge-patch+json"
_EXPIRED = 410
_TIMEOUT = aiohttp.ClientTimeout(total=60)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)


class BenchError(Exception):
    """The bench cannot go on; its numbers would be no numbers."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    attached: bool = False
    current_volume_attributes_class_name: str | None = None
    allocated_resource_statuses: dict[str, str] | None = None
    ready_to_use: bool | None = None


class Seen(msgspec.Struct):
    """As much of an object as any phase asks for."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LINE, _SEEN = msgspec.json.Decoder(_Line), msgspec.json.Decoder(Seen)
Reached = Callable[[str, Seen], bool]


class Hands:
    """Requests to one API server, as the administrator; an async context manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=str(self._plane.credentials.authority))
        self._session = aiohttp.ClientSession(
            self._plane.server,
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {self._plane.credentials.tokens['admin']}"},
            timeout=_TIMEOUT,
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, method: str, path: str, body: Any = None) -> bytes:
        """One request, a patch merges; raises BenchError when it is refused."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": _MERGE if method == "PATCH" else "application/json"}
        async with (
            self._turns,
            self._session.request(method, path, data=data, headers=headers) as reply,
        ):
            answer = await reply.read()
        if not reply.ok:
            raise BenchError(f"{method} {path}: {reply.status} {answer[:300]!r}")
        return answer

    async def send_all(self, requests: Iterable[tuple[str, str, Any]]) -> None:
        """Many requests, some at once, in order."""
        async with asyncio.TaskGroup() as tasks:
            for method, path, body in requests:
                tasks.create_task(self.send(method, path, body))

    async def version_of(self, path: str) -> str:
        """The resource version of a collection as it is now."""
        answer = await self.send("GET", f"{path}?limit=1")
        return _SEEN.decode(answer).metadata.resource_version

    def lines(self, path: str, version: str) -> Any:
        """A watch: the response, to be entered."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        return self._session.get(path, params=query, timeout=_WATCH_TIMEOUT)


class Eye:
    """Watches one kind, and notes when each object first was as it should be.

    Attributes:
        at_s: loop time by object name.
    """

    def __init__(self, hands: Hands, path: str, reached: Reached) -> None:
        self._hands, self._path, self._reached = hands, path, reached
        self.at_s: dict[str, float] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        version = await self._hands.version_of(self._path)
        self._task = asyncio.create_task(self._follow(version), name=f"watch {self._path}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def wait_for(self, count: int, timeout_s: float) -> float:
        """The loop time at which the last of ``count`` objects got there."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.at_s) < count:
                    self._news.clear()
                    await self._news.wait()
                    if self._task is not None and self._task.done():
                        self._task.result()
        except TimeoutError as late:
            got = f"{len(self.at_s)} of {count} objects in {timeout_s:.0f} s"
            raise BenchError(f"{self._path}: only {got}") from late
        return max(self.at_s.values(), default=0.0)

    async def _follow(self, version: str) -> None:
        try:
            while True:
                # Under load the API server closes watches; each goes on where it was.
                with suppress(aiohttp.ClientError):
                    async with self._hands.lines(self._path, version) as reply:
                        if not reply.ok:
                            raise BenchError(f"watch of {self._path}: {reply.status}")
                        async for line in reply.content:
                            version = self._take(line) or version
        finally:
            self._news.set()

    def _take(self, text: bytes) -> str:
        line = _LINE.decode(text)
        if line.type == "ERROR":
            raise BenchError(f"the watch of {self._path} broke: {bytes(line.object)[:300]!r}")
        seen = _SEEN.decode(line.object)
        name = seen.metadata.name
        if line.type != "BOOKMARK" and name not in self.at_s and self._reached(line.type, seen):
            self.at_s[name] = asyncio.get_running_loop().time()
            self._news.set()
        return seen.metadata.resource_version
