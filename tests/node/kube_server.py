"""An API server on loopback that serves a few objects and is told what to say instead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.model.attachment import attachment_name
from provisioner.node.instance.kube import ApiServer, NodeKube

Json = dict[str, Any]
DRIVER = "ebs.csi.aws.com"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class KubeServer:
    """Objects by their path; ``asked`` holds each request as (path, query, token)."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, Json] = {}
        self.answers: list[Callable[[], web.StreamResponse]] = []
        self.hang: asyncio.Event | None = None
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.tokens = {"first"}
        self.token_file = folder / "token"
        self.token_file.write_text("first\n")
        self.port = 0
        self._news = asyncio.Condition()

    @property
    def server(self) -> ApiServer:
        return ApiServer(f"http://127.0.0.1:{self.port}", self.token_file, None)

    def client(self, node: str = "node-1") -> NodeKube:
        return NodeKube(self.server, node)

    def has_node(self, name: str = "node-1", **fields: Any) -> None:
        metadata = {"name": name, **fields.pop("metadata", {})}
        self.objects[f"/api/v1/nodes/{name}"] = {"metadata": metadata, **fields}

    def has_volume(self, volume_id: str, pv: str, **metadata: Any) -> None:
        claim = {"namespace": "shop", "name": f"{pv}-claim"}
        csi = {"driver": DRIVER, "volumeHandle": volume_id}
        spec = {"claimRef": claim, "csi": csi}
        self.objects[f"/api/v1/persistentvolumes/{pv}"] = {
            "metadata": {"name": pv, **metadata},
            "spec": spec,
        }
        self.has_attachment(volume_id, pv)

    def has_attachment(self, volume_id: str, pv: str = "pv-1", node: str = "node-1") -> None:
        found = attachment(volume_id, pv, node)
        self.objects[f"{ATTACHMENTS}/{found['metadata']['name']}"] = found

    async def times(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.asked) >= count)

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append((request.path, dict(request.query), token))
        async with self._news:
            self._news.notify_all()
        if self.hang is not None:
            await self.hang.wait()
        if self.answers:
            return self.answers.pop(0)()
        if token not in self.tokens:
            return status(401, "Unauthorized", "Unauthorized")
        if request.path in self.objects:
            return web.json_response(self.objects[request.path])
        name = request.path.rpartition("/")[2]
        return status(404, "NotFound", f'"{name}" not found', details={"name": name})


def attachment(volume_id: str, pv: str = "pv-1", node: str = "node-1", **spec: Any) -> Json:
    name = attachment_name(volume_id, DRIVER, node)
    source = {"persistentVolumeName": pv}
    return {
        "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": source, **spec},
        "status": {"attached": True, "attachmentMetadata": {"devicePath": "/dev/xvdba"}},
    }


def status(code: int, reason: str, message: str, **fields: Any) -> web.Response:
    body = {"kind": "Status", "reason": reason, "message": message, "code": code, **fields}
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[KubeServer]:
    server = KubeServer(folder)
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()
