"""A node service on a real unix socket whose parts are played by a test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from provisioner.node.csi.endpoint import Endpoint
from provisioner.node.csi.server import service
from provisioner.node.csi.service import NodeService, Requests
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.node.requests import Expand, NodeInfo, Publish, Stage, Stats, Usage

ID = "vol-0123456789abcdef0"
STAGING = "/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0a/globalmount"
TARGET = "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~csi/pv/mount"
MOUNT = {"mount": {"fs_type": "ext4"}, "access_mode": {"mode": 1}}
UNSTAGE = {"volume_id": ID, "staging_target_path": STAGING}


class Parts:
    """All parts of the node in one, each call kept; ``does`` is what they all do."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.time_left_s: float | None = None
        self.does: Callable[[], Awaitable[None]] = _nothing

    async def stage(self, request: Stage, time_left_s: float | None) -> None:
        self.time_left_s = time_left_s
        await self._called(request)

    async def publish(self, request: Publish, time_left_s: float | None) -> None:
        self.time_left_s = time_left_s
        await self._called(request)

    async def unstage(self, request: Any, _: float | None) -> None:
        await self._called(request)

    async def unpublish(self, request: Any, _: float | None) -> None:
        await self._called(request)

    async def expand(self, request: Expand, time_left_s: float | None) -> int:
        self.time_left_s = time_left_s
        await self._called(request)
        return 7

    async def of(self, request: Stats) -> Usage:
        await self._called(request)
        return (
            Usage(10, 6, 3, 100, 40, 60)
            if request.volume_path == TARGET
            else Usage(total_bytes=4096)
        )

    async def get(self) -> NodeInfo:
        await self._called("info")
        return NodeInfo("i-1", 25, {"topology.kubernetes.io/zone": "eu-west-1a"})

    async def _called(self, request: Any) -> None:
        self.calls.append(request)
        await self.does()


async def _nothing() -> None:
    pass


@asynccontextmanager
async def served(path: Path, parts: Any, metrics: NodeMetrics) -> AsyncIterator[Endpoint]:
    node = NodeService(
        Requests("/var/lib/kubelet"),
        stager=parts,
        publisher=parts,
        expander=parts,
        usages=parts,
        info=parts,
    )
    endpoint = Endpoint(path, [service("csi.v1.Node", node.rpcs(), metrics)])
    await endpoint.open()
    try:
        yield endpoint
    finally:
        await endpoint.close(0.0)
