"""CSI's Node service: each request is checked and becomes a record, which is then carried out.

Paths are checked as text here: absolute, normalised, and below the directories in which the kubelet
keeps pods and volumes. ``runtime/paths.py`` later makes sure that no link on the way leads out.
"""

import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from google.protobuf.message import Message

from provisioner.model.errors import NodeError, Reason
from provisioner.model.ids import is_volume_id
from provisioner.model.sentences import printable
from provisioner.model.volume import normalised_handle
from provisioner.node.csi.server import Rpc, untimed
from provisioner.node.csi.wire import csi_pb2
from provisioner.node.formatting.file_system_rules import chosen
from provisioner.node.instance.info import Info
from provisioner.node.mounting.expand import Expander, Usages
from provisioner.node.mounting.publish import Publisher
from provisioner.node.mounting.stage import Stager
from provisioner.node.requests import (
    AccessMode,
    Capability,
    Expand,
    Publish,
    Stage,
    Stats,
    Unpublish,
    Unstage,
)

_MODES = csi_pb2.VolumeCapability.AccessMode.Mode
_MOST_SHOWN = 120
_MOST_OF_A_PATH = 4095  # PATH_MAX, without the NUL
# Several nodes, at least one of which writes: this destroys ext4 and xfs.
_SHARED_WRITERS = frozenset(
    {AccessMode.MULTI_NODE_SINGLE_WRITER, AccessMode.MULTI_NODE_MULTI_WRITER}
)
_CAN = csi_pb2.NodeServiceCapability
_UNIT = csi_pb2.VolumeUsage

Q = TypeVar("Q")
R = TypeVar("R")
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class Requests:
    """Turns messages into records.

    Each method raises NodeError: INVALID_REQUEST with one sentence; for calls about mounted volumes
    also VOLUME_NOT_FOUND, for an id or a path that no volume of ours can have.

    Attributes:
        kubelet_dir: the kubelet's root directory, absolute and normalised.
    """

    kubelet_dir: str

    def stage(self, message: csi_pb2.NodeStageVolumeRequest) -> Stage:
        """NodeStageVolume."""
        return Stage(
            volume_id=_volume_id(message.volume_id),
            staging_path=self._path(message.staging_target_path, "staging_target_path"),
            capability=_capability(message),
            publish_context=_map(message.publish_context, "publish_context"),
            volume_context=_map(message.volume_context, "volume_context"),
        )

    def unstage(self, message: csi_pb2.NodeUnstageVolumeRequest) -> Unstage:
        """NodeUnstageVolume."""
        return Unstage(
            volume_id=_volume_id(message.volume_id),
            staging_path=self._path(message.staging_target_path, "staging_target_path"),
        )

    def publish(self, message: csi_pb2.NodePublishVolumeRequest) -> Publish:
        """NodePublishVolume."""
        return Publish(
            volume_id=_volume_id(message.volume_id),
            target_path=self._path(message.target_path, "target_path"),
            capability=_capability(message),
            staging_path=self._path(message.staging_target_path, "staging_target_path"),
            read_only=message.readonly,
            publish_context=_map(message.publish_context, "publish_context"),
            volume_context=_map(message.volume_context, "volume_context"),
        )

    def unpublish(self, message: csi_pb2.NodeUnpublishVolumeRequest) -> Unpublish:
        """NodeUnpublishVolume."""
        return Unpublish(
            volume_id=_volume_id(message.volume_id),
            target_path=self._path(message.target_path, "target_path"),
        )

    def expand(self, message: csi_pb2.NodeExpandVolumeRequest) -> Expand:
        """NodeExpandVolume."""
        volume_id, volume_path = self._mounted(message.volume_id, message.volume_path)
        size = message.capacity_range
        if size.required_bytes < 0 or size.limit_bytes < 0:
            _refuse("capacity_range has a negative size")
        if 0 < size.limit_bytes < size.required_bytes:
            _refuse(
                f"capacity_range contradicts itself: at least {size.required_bytes} bytes and at "
                f"most {size.limit_bytes} bytes"
            )
        return Expand(
            volume_id=volume_id,
            volume_path=volume_path,
            staging_path=self._optional_path(message.staging_target_path, "staging_target_path"),
            required_bytes=size.required_bytes,
            capability=_capability(message) if message.HasField("volume_capability") else None,
        )

    def stats(self, message: csi_pb2.NodeGetVolumeStatsRequest) -> Stats:
        """NodeGetVolumeStats."""
        volume_id, volume_path = self._mounted(message.volume_id, message.volume_path)
        self._optional_path(message.staging_target_path, "staging_target_path")
        return Stats(volume_id, volume_path)

    def _mounted(self, handle: str, path: str) -> tuple[str, str]:
        """The id and the path of a volume that should be mounted.

        CSI wants NotFound if the volume is not at the path, which is true of malformed ones, too.
        """
        if not handle:
            _volume_id(handle)
        if not path:
            self._path(path, "volume_path")
        try:
            return _volume_id(handle), self._path(path, "volume_path")
        except NodeError as error:
            raise NodeError(
                Reason.VOLUME_NOT_FOUND, f"no volume of this driver can be there: {error.message}"
            ) from error

    def _optional_path(self, path: str, field: str) -> str:
        return self._path(path, field) if path else ""

    def _path(self, path: str, field: str) -> str:
        if not path:
            _refuse(f"{field} is missing")
        fault = self._fault_of(path)
        if fault:
            _refuse(f"{field} {_shown(path)} {fault}")
        return path

    def _fault_of(self, path: str) -> str:
        """What is wrong with a path; "" for nothing."""
        if not path.startswith("/"):
            return "is not absolute"
        if not path.isprintable():
            return "has unprintable characters"
        if len(path.encode()) > _MOST_OF_A_PATH:
            return f"is longer than {_MOST_OF_A_PATH} bytes"
        # normpath keeps two slashes at the start.
        if posixpath.normpath(path) != path or path.startswith("//"):
            return "is not normalised: it contains .. or . or //, or ends with a slash"
        folders = [f"{self.kubelet_dir}/{name}/" for name in ("pods", "plugins/kubernetes.io")]
        if not path.startswith(tuple(folders)):
            return (
                f"is neither below {folders[0]} nor below {folders[1]}; if the kubelet has another "
                "--root-dir, set --kubelet-dir of the node plugin to the same"
            )
        return ""


def _volume_id(handle: str) -> str:
    if not handle:
        _refuse("volume_id is missing")
    volume_id = normalised_handle(handle)
    if not is_volume_id(volume_id):
        _refuse(
            f"volume_id {_shown(handle)} is not the id of an EBS volume, such as "
            "vol-0123456789abcdef0"
        )
    return volume_id


def _capability(
    message: csi_pb2.NodeStageVolumeRequest
    | csi_pb2.NodePublishVolumeRequest
    | csi_pb2.NodeExpandVolumeRequest,
) -> Capability:
    if not message.HasField("volume_capability"):
        _refuse("volume_capability is missing")
    requested = message.volume_capability
    kind = requested.WhichOneof("access_type")
    if kind is None:
        _refuse("volume_capability has neither block nor mount")
    is_block = kind == "block"
    mode = _access_mode(requested.access_mode.mode)
    if not is_block and mode in _SHARED_WRITERS:
        _refuse(
            f"access mode {mode} needs a raw block volume: ext4 and xfs are destroyed if several "
            "nodes write to them; use volumeMode: Block, or ReadWriteOnce"
        )
    if requested.mount.volume_mount_group:
        _refuse("volume_mount_group is not supported; the kubelet sets the group itself")
    try:
        chosen(requested.mount.fs_type)
    except ValueError as error:
        _refuse(str(error))
    return Capability(
        is_block=is_block,
        file_system=requested.mount.fs_type,
        mount_flags=tuple(_flag(flag) for flag in requested.mount.mount_flags),
        access_mode=mode,
    )


def _access_mode(number: int) -> AccessMode:
    if number not in _MODES.values() or number == csi_pb2.VolumeCapability.AccessMode.UNKNOWN:
        _refuse(f"access mode {number} is unknown; CSI 1.x has 1 to 7")
    return AccessMode(_MODES.Name(number))


def _flag(flag: str) -> str:
    if not flag or not flag.isprintable():
        _refuse(f"mount option {_shown(flag)} is empty or has unprintable characters")
    return flag


def _map(values: Mapping[str, str], field: str) -> dict[str, str]:
    for key, value in values.items():
        if "\0" in key + value:
            _refuse(f"{field} has a NUL in {_shown(key)}")
    return dict(values)


def _shown(text: str) -> str:
    short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
    return f'"{printable(short)}"'


def _refuse(sentence: str) -> NoReturn:
    raise NodeError(Reason.INVALID_REQUEST, sentence)


class NodeService:
    """The kubelet's calls; the parts do the work."""

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
        read, csi = self._requests, csi_pb2
        stage = _done(read.stage, self._stager.stage, csi.NodeStageVolumeResponse)
        unstage = _done(read.unstage, self._stager.unstage, csi.NodeUnstageVolumeResponse)
        publish = _done(read.publish, self._publisher.publish, csi.NodePublishVolumeResponse)
        unpublish = _done(
            read.unpublish, self._publisher.unpublish, csi.NodeUnpublishVolumeResponse
        )
        return [
            Rpc("NodeGetInfo", csi.NodeGetInfoRequest, untimed(self._get_info)),
            Rpc("NodeGetCapabilities", csi.NodeGetCapabilitiesRequest, untimed(_capabilities)),
            Rpc("NodeStageVolume", csi.NodeStageVolumeRequest, stage),
            Rpc("NodeUnstageVolume", csi.NodeUnstageVolumeRequest, unstage),
            Rpc("NodePublishVolume", csi.NodePublishVolumeRequest, publish),
            Rpc("NodeUnpublishVolume", csi.NodeUnpublishVolumeRequest, unpublish),
            Rpc("NodeExpandVolume", csi.NodeExpandVolumeRequest, self._expand),
            Rpc("NodeGetVolumeStats", csi.NodeGetVolumeStatsRequest, untimed(self._stats)),
        ]

    async def _get_info(self, _: csi_pb2.NodeGetInfoRequest) -> csi_pb2.NodeGetInfoResponse:
        info = await self._info.get()
        return csi_pb2.NodeGetInfoResponse(
            node_id=info.node_id,
            max_volumes_per_node=info.max_volumes,
            accessible_topology=csi_pb2.Topology(segments=info.segments),
        )

    async def _expand(
        self, message: csi_pb2.NodeExpandVolumeRequest, time_left_s: float | None
    ) -> csi_pb2.NodeExpandVolumeResponse:
        request = self._requests.expand(message)
        size_bytes = await self._expander.expand(request, time_left_s)
        return csi_pb2.NodeExpandVolumeResponse(capacity_bytes=size_bytes)

    async def _stats(
        self, message: csi_pb2.NodeGetVolumeStatsRequest
    ) -> csi_pb2.NodeGetVolumeStatsResponse:
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


async def _capabilities(
    _: csi_pb2.NodeGetCapabilitiesRequest,
) -> csi_pb2.NodeGetCapabilitiesResponse:
    """Which optional capabilities we have.

    Not SINGLE_NODE_MULTI_WRITER: the scheduler and the kubelet enforce ReadWriteOncePod. Not
    VOLUME_MOUNT_GROUP: the kubelet sets the group of ext4 and xfs itself.
    """
    kinds = (_CAN.RPC.STAGE_UNSTAGE_VOLUME, _CAN.RPC.EXPAND_VOLUME, _CAN.RPC.GET_VOLUME_STATS)
    return csi_pb2.NodeGetCapabilitiesResponse(
        capabilities=[_CAN(rpc=_CAN.RPC(type=kind)) for kind in kinds]
    )


def _done(
    read: Callable[[Q], R], work: Callable[[R, float | None], Awaitable[None]], reply: type[A]
) -> Callable[[Q, float | None], Awaitable[A]]:
    """Read the request, carry it out, and send an empty reply."""

    async def answer(message: Q, time_left_s: float | None) -> A:
        await work(read(message), time_left_s)
        return reply()

    return answer
