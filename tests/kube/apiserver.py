"""A scripted Kubernetes API server over real HTTP: each test says what is answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from multidict import CIMultiDictProxy

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: CIMultiDictProxy[str]
    body: Any


def document(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return reply


def status(
    code: int,
    reason: str,
    message: str = "no",
    name: str = "",
    headers: dict[str, str] | None = None,
) -> Reply:
    body = {
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
    return document(body | {"details": {"name": name}}, code, headers)


def text(body: str, code: int) -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=code, content_type="text/html")

    return reply


def listing(*items: dict[str, Any], version: str = "1", token: str = "") -> Reply:
    return document({"metadata": {"resourceVersion": version, "continue": token}, "items": items})


def echo() -> Reply:
    """The object of the request, as saved."""

    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(await request.json(), status=201)

    return reply


def reset() -> Reply:
    """The request is taken, then the connection breaks."""

    async def reply(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return reply


class Hang:
    """The request is taken and never answered, until the test lets it go."""

    def __init__(self, then: Reply | None = None) -> None:
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()
        self._then = then or document({})

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.reached.set()
        await self.let_go.wait()
        return await self._then(request)


class Watch:
    """An open watch: the test sends lines while it runs."""

    def __init__(self, *events: tuple[str, dict[str, Any]]) -> None:
        self.opened = asyncio.Event()
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        for kind, obj in events:
            self.send(kind, obj)

    def send(self, kind: str, obj: dict[str, Any]) -> None:
        self.send_raw(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        self._out.put_nowait(data)

    def end(self) -> "Watch":
        self._out.put_nowait(None)
        return self

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.opened.set()
        while (data := await self._out.get()) is not None:
            await response.write(data)
        return response


@dataclass
class ApiServer:
    """Answers each path with its replies in order; the last one is given for ever."""

    url: str = ""
    requests: list[Seen] = field(default_factory=list)
    _replies: dict[tuple[str, str], list[Reply]] = field(default_factory=dict)

    def on(self, method: str, path: str, *replies: Reply) -> None:
        """Say how requests are answered; ``WATCH`` is a GET with ``watch=true``."""
        self._replies[method, path] = list(replies)

    def seen(self, method: str, path: str = "") -> list[Seen]:
        return [r for r in self.requests if r.method == method and path in {"", r.path}]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = "WATCH" if "watch" in request.query else request.method
        data = await request.read()
        self.requests.append(
            Seen(
                method,
                request.path,
                dict(request.query),
                request.headers,
                json.loads(data) if data else None,
            )
        )
        replies = self._replies.get((method, request.path))
        if not replies:
            return await text(f"nothing scripted for {method} {request.path}", 404)(request)
        return await (replies.pop(0) if len(replies) > 1 else replies[0])(request)
