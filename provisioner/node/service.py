"""CSI's Node service: a request becomes a record, which is carried out, and then a reply."""

from collections.abc import Sequence
from typing import Any, Protocol

from provisioner.model.node_requests import (
    Expand,
    NodeInfo,
    Publish,
    Stage,
    Stats,
    Unpublish,
    Unstage,
    Usage,
)
from provisioner.node.requests import Requests
from provisioner.node.server import Rpc, untimed
from provisioner.node.wire import csi_pb2

_CAN = csi_pb2.NodeServiceCapability
_UNIT = csi_pb2.VolumeUsage


class Stager(Protocol):
    """Makes devices usable on this node."""

    async def stage(self, request: Stage, /, *, time_left_s: float | None) -> None:
        """NodeStageVolume."""

    async def unstage(self, request: Unstage, /) -> None:
        """NodeUnstageVolume."""


class Publisher(Protocol):
    """Shows staged volumes to pods."""

    async def publish(self, request: Publish, /, *, time_left_s: float | None) -> None:
        """NodePublishVolume."""

    async def unpublish(self, request: Unpublish, /) -> None:
        """NodeUnpublishVolume."""


class Expander(Protocol):
    """Grows file systems."""

    async def expand(self, request: Expand, /, *, time_left_s: float | None) -> int:
        """NodeExpandVolume; the size afterwards, in bytes."""
        ...


class Usages(Protocol):
    """Measures volumes."""

    async def of(self, request: Stats, /) -> Usage:
        """NodeGetVolumeStats."""
        ...


class Info(Protocol):
    """Knows the node."""

    async def get(self) -> NodeInfo:
        """NodeGetInfo."""
        ...


class NodeService:
    """The kubelet's calls; all work is done by the parts."""

    def __init__(
        self,
        requests: Requests,
        *,
        stager: Stager,
        publisher: Publisher,
        expander: Expander,
        usages: Usages,
        info: Info,
    ) -> None:
        self._requests = requests
        self._stager = stager
        self._publisher = publisher
        self._expander = expander
        self._usages = usages
        self._info = info

    def rpcs(self) -> Sequence[Rpc[Any, Any]]:
        """The methods of csi.v1.Node."""
        return [
            Rpc("NodeGetInfo", csi_pb2.NodeGetInfoRequest, untimed(self.get_info)),
            Rpc(
                "NodeGetCapabilities",
                csi_pb2.NodeGetCapabilitiesRequest,
                untimed(self.capabilities),
            ),
            Rpc("NodeStageVolume", csi_pb2.NodeStageVolumeRequest, self.stage),
            Rpc("NodeUnstageVolume", csi_pb2.NodeUnstageVolumeRequest, untimed(self.unstage)),
            Rpc("NodePublishVolume", csi_pb2.NodePublishVolumeRequest, self.publish),
            Rpc("NodeUnpublishVolume", csi_pb2.NodeUnpublishVolumeRequest, untimed(self.unpublish)),
            Rpc("NodeExpandVolume", csi_pb2.NodeExpandVolumeRequest, self.expand),
            Rpc("NodeGetVolumeStats", csi_pb2.NodeGetVolumeStatsRequest, untimed(self.stats)),
        ]

    async def get_info(self, _: csi_pb2.NodeGetInfoRequest) -> csi_pb2.NodeGetInfoResponse:
        """Which instance this is, where it is, and how many volumes it takes."""
        info = await self._info.get()
        return csi_pb2.NodeGetInfoResponse(
            node_id=info.node_id,
            max_volumes_per_node=info.max_volumes,
            accessible_topology=csi_pb2.Topology(segments=info.segments),
        )

    async def capabilities(
        self, _: csi_pb2.NodeGetCapabilitiesRequest
    ) -> csi_pb2.NodeGetCapabilitiesResponse:
        """What of the service is served.

        Not SINGLE_NODE_MULTI_WRITER: that ReadWriteOncePod is kept is seen to by the scheduler and
        the kubelet. Not VOLUME_MOUNT_GROUP: the kubelet sets the group of ext4 and xfs by itself.
        """
        kinds = (
            _CAN.RPC.STAGE_UNSTAGE_VOLUME,
            _CAN.RPC.EXPAND_VOLUME,
            _CAN.RPC.GET_VOLUME_STATS,
        )
        return csi_pb2.NodeGetCapabilitiesResponse(
            capabilities=[_CAN(rpc=_CAN.RPC(type=kind)) for kind in kinds]
        )

    async def stage(
        self, message: csi_pb2.NodeStageVolumeRequest, time_left_s: float | None = None
    ) -> csi_pb2.NodeStageVolumeResponse:
        """Format if it may be, and mount."""
        await self._stager.stage(self._requests.stage(message), time_left_s=time_left_s)
        return csi_pb2.NodeStageVolumeResponse()

    async def unstage(
        self, message: csi_pb2.NodeUnstageVolumeRequest
    ) -> csi_pb2.NodeUnstageVolumeResponse:
        """Unmount."""
        await self._stager.unstage(self._requests.unstage(message))
        return csi_pb2.NodeUnstageVolumeResponse()

    async def publish(
        self, message: csi_pb2.NodePublishVolumeRequest, time_left_s: float | None = None
    ) -> csi_pb2.NodePublishVolumeResponse:
        """Show it to a pod."""
        await self._publisher.publish(self._requests.publish(message), time_left_s=time_left_s)
        return csi_pb2.NodePublishVolumeResponse()

    async def unpublish(
        self, message: csi_pb2.NodeUnpublishVolumeRequest
    ) -> csi_pb2.NodeUnpublishVolumeResponse:
        """Take it away from a pod."""
        await self._publisher.unpublish(self._requests.unpublish(message))
        return csi_pb2.NodeUnpublishVolumeResponse()

    async def expand(
        self, message: csi_pb2.NodeExpandVolumeRequest, time_left_s: float | None = None
    ) -> csi_pb2.NodeExpandVolumeResponse:
        """Grow the file system to its device."""
        size_bytes = await self._expander.expand(
            self._requests.expand(message), time_left_s=time_left_s
        )
        return csi_pb2.NodeExpandVolumeResponse(capacity_bytes=size_bytes)

    async def stats(
        self, message: csi_pb2.NodeGetVolumeStatsRequest
    ) -> csi_pb2.NodeGetVolumeStatsResponse:
        """How full it is."""
        usage = await self._usages.of(self._requests.stats(message))
        inodes = csi_pb2.VolumeUsage(
            unit=_UNIT.INODES,
            total=usage.total_inodes,
            used=usage.used_inodes,
            available=usage.free_inodes,
        )
        size = csi_pb2.VolumeUsage(
            unit=_UNIT.BYTES,
            total=usage.total_bytes,
            used=usage.used_bytes,
            available=usage.available_bytes,
        )
        known = [size] if usage.total_inodes is None else [size, inodes]
        return csi_pb2.NodeGetVolumeStatsResponse(usage=known)
