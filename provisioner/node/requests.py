"""The kubelet's requests, after they were checked, and the answers.

Paths are those of the node, ids are EBS volume ids (``vol-…``), sizes are in bytes.
``node/csi/service.py`` creates the records and refuses malformed requests.

Source of the fields: csi.proto of CSI 1.x, service Node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class AccessMode(StrEnum):
    """How many nodes and pods may use a volume, and how; as CSI 1.x names the modes."""

    SINGLE_NODE_WRITER = "SINGLE_NODE_WRITER"
    SINGLE_NODE_READER_ONLY = "SINGLE_NODE_READER_ONLY"
    MULTI_NODE_READER_ONLY = "MULTI_NODE_READER_ONLY"
    MULTI_NODE_SINGLE_WRITER = "MULTI_NODE_SINGLE_WRITER"
    MULTI_NODE_MULTI_WRITER = "MULTI_NODE_MULTI_WRITER"
    SINGLE_NODE_SINGLE_WRITER = "SINGLE_NODE_SINGLE_WRITER"
    SINGLE_NODE_MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"


_READERS = frozenset({AccessMode.SINGLE_NODE_READER_ONLY, AccessMode.MULTI_NODE_READER_ONLY})


@dataclass(frozen=True, slots=True)
class Capability:
    """How a volume is to be used.

    Attributes:
        is_block: as a raw device; else with a file system.
        file_system: its name, "" for the default (ext4); always "" for a raw device.
        mount_flags: options for mount(8), one option or several with commas in each.
        access_mode: how many may use it.
    """

    is_block: bool
    file_system: str
    mount_flags: tuple[str, ...]
    access_mode: AccessMode

    @property
    def is_read_only(self) -> bool:
        """Whether the access mode has no writer at all."""
        return self.access_mode in _READERS


@dataclass(frozen=True, slots=True)
class Stage:
    """Make a volume's device usable on this node (NodeStageVolume)."""

    volume_id: str
    staging_path: str
    capability: Capability
    publish_context: Mapping[str, str]
    volume_context: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unstage:
    """Undo ``Stage`` (NodeUnstageVolume)."""

    volume_id: str
    staging_path: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Mount a staged volume for a pod (NodePublishVolume)."""

    volume_id: str
    staging_path: str
    target_path: str
    capability: Capability
    read_only: bool
    publish_context: Mapping[str, str]
    volume_context: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unpublish:
    """Undo ``Publish`` (NodeUnpublishVolume)."""

    volume_id: str
    target_path: str


@dataclass(frozen=True, slots=True)
class Expand:
    """Grow the file system to its device's size (NodeExpandVolume).

    Attributes:
        volume_path: where the volume is staged or published.
        staging_path: "" if the request has none.
        required_bytes: the minimum; 0 for none.
        capability: None if the request has none.
    """

    volume_id: str
    volume_path: str
    staging_path: str
    required_bytes: int
    capability: Capability | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Measure a volume (NodeGetVolumeStats)."""

    volume_id: str
    volume_path: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a volume; of a raw device only ``total_bytes`` is known."""

    total_bytes: int
    used_bytes: int | None = None
    available_bytes: int | None = None
    total_inodes: int | None = None
    used_inodes: int | None = None
    free_inodes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The answer to NodeGetInfo, which the kubelet writes into CSINode.

    Attributes:
        node_id: the instance id.
        max_volumes: how many volumes of ours fit; 0 if that is unknown.
        segments: topology keys and their values.
    """

    node_id: str
    max_volumes: int
    segments: Mapping[str, str]
