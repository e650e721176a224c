"""Leases as a cluster keeps them, and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.kube.apiserver import ApiServer, Reply, status

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
NAMES = ("one", "two")
BASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Cluster:
    """Lease objects as an API server keeps them: versions, conflicts, merge patches."""

    def __init__(self, server: ApiServer, names: Sequence[str] = NAMES) -> None:
        self._names = names
        self.specs: dict[str, dict[str, Any]] = {}
        self.annotations: dict[str, dict[str, str]] = {}
        self.versions: dict[str, int] = {}
        self.writes = 0
        for name in names:
            server.on("GET", f"{BASE}/{name}", self._get)
            server.on("PATCH", f"{BASE}/{name}", self._patch)
        server.on("POST", BASE, self._post)

    def put(self, name: str, **spec: object) -> None:
        """Somebody else writes a lease, and keeps its annotations as client-go does."""
        self.specs[name] = spec
        self.versions[name] = self.versions.get(name, 0) + 1

    def holders(self) -> list[str]:
        return [self.specs.get(name, {}).get("holderIdentity", "-") for name in self._names]

    def _answer(self, name: str) -> web.Response:
        version = str(self.versions[name])
        meta = {"name": name, "resourceVersion": version, "labels": {"keep": "me"}}
        annotations = self.annotations.get(name, {})
        return web.json_response(
            {"metadata": meta | {"annotations": annotations}, "spec": self.specs[name]}
        )

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if name not in self.specs:
            return await status(404, "NotFound", name=name)(request)
        return self._answer(name)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        name = body["metadata"]["name"]
        if name in self.specs:
            return await status(409, "AlreadyExists")(request)
        self.writes += 1
        self.annotations[name] = body["metadata"].get("annotations", {})
        self.put(name, **body["spec"])
        return self._answer(name)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        body = await request.json()
        if name not in self.specs or body["metadata"]["resourceVersion"] != str(
            self.versions[name]
        ):
            return await status(409, "Conflict")(request)
        self.writes += 1
        self.annotations.setdefault(name, {}).update(body["metadata"].get("annotations", {}))
        self.put(name, **(self.specs[name] | body["spec"]))
        return self._answer(name)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Renewal:
    """How renewals of the second lease are answered."""

    def __init__(self, server: ApiServer, eventually: Eventually) -> None:
        self._server = server
        self._eventually = eventually
        self._path = f"{BASE}/two"

    def answer(self, *replies: Reply) -> None:
        self._server.on("PATCH", self._path, *replies)

    async def tried(self, times: int) -> None:
        await self._eventually(lambda: len(self._server.seen("PATCH", self._path)) >= times)


async def looked_twice(server: ApiServer, eventually: Eventually, name: str = "one") -> None:
    """Wait until a lease was asked for twice: then the first answer has been taken in."""
    path = f"{BASE}/{name}"
    looks = len(server.seen("GET", path))
    await eventually(lambda: len(server.seen("GET", path)) >= looks + 2)


@asynccontextmanager
async def background(work: Awaitable[None]) -> AsyncIterator["asyncio.Future[None]"]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
