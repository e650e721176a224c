"""Volumes and instances as EC2 tells them: frozen views, and the request that makes a volume."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from urllib.parse import unquote

from provisioner.model.ids import is_volume_id
from provisioner.model.zone import Place

GIB = 1024**3

_IN_TREE = "aws://"


class VolumeState(StrEnum):
    """EC2 VolumeState (DescribeVolumes)."""

    CREATING = "creating"
    AVAILABLE = "available"
    IN_USE = "in-use"
    DELETING = "deleting"
    DELETED = "deleted"
    ERROR = "error"


class AttachmentState(StrEnum):
    """EC2 VolumeAttachmentState (DescribeVolumes)."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    DETACHED = "detached"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class InstanceAttachment:
    """One volume on one instance, as DescribeVolumes lists it."""

    instance_id: str
    device: str
    state: AttachmentState


@dataclass(frozen=True, slots=True)
class Volume:
    """An EBS volume as DescribeVolumes or CreateVolume shows it."""

    volume_id: str
    state: VolumeState
    zone: str
    size_gib: int
    volume_type: str = "gp3"
    iops: int | None = None
    throughput_mibps: int | None = None
    encrypted: bool = False
    kms_key_id: str | None = None
    created_at: datetime | None = None
    outpost_arn: str = ""
    multi_attach: bool = False
    snapshot_id: str = ""  # what it was made of
    source_volume_id: str = ""  # what it is a copy of
    tags: Mapping[str, str] = field(default_factory=dict)
    attachments: tuple[InstanceAttachment, ...] = ()

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.zone, self.outpost_arn)

    @property
    def made_from(self) -> str:
        """The snapshot or the volume whose data it began with, "" if it began blank.

        EC2 names either for as long as the volume exists, even if it was overwritten since.
        """
        return self.snapshot_id or self.source_volume_id

    def on(self, instance_id: str) -> InstanceAttachment | None:
        """The attachment to this instance, if EC2 knows one that is not over."""
        for attachment in self.attachments:
            if (
                attachment.instance_id == instance_id
                and attachment.state is not AttachmentState.DETACHED
            ):
                return attachment
        return None


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """Everything that CreateVolume, or CopyVolumes, is told; frozen once it was sent.

    With ``source_volume_id`` it is sent as CopyVolumes: the copy is made in the zone of its source,
    which is the only one that ``zone`` may name. A request has one source at most.

    A lost reply is answered by sending the same record again: EC2 returns the volume that the
    client token already made, or makes it.
    Source: EC2 developer guide "Ensuring idempotency" (read 2026-11-21).
    """

    client_token: str
    zone: str
    size_gib: int
    volume_type: str
    iops: int | None = None
    throughput_mibps: int | None = None
    encrypted: bool = False
    kms_key_id: str | None = None
    multi_attach: bool = False
    initialization_rate_mibps: int | None = None
    outpost_arn: str | None = None
    snapshot_id: str | None = None
    source_volume_id: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> Place:
        """Where it asks for a volume."""
        return Place(self.zone, self.outpost_arn or "")


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance with the block devices that it uses."""

    instance_id: str
    zone: str
    state: str
    instance_type: str
    devices: Mapping[str, str] = field(default_factory=dict)  # device name -> volume id or ""
    private_dns_name: str = ""
    private_addresses: tuple[str, ...] = ()  # IPv4, the primary one of each interface


def normalised_handle(handle: str) -> str:
    """The bare volume id of a CSI handle, of an in-tree ``aws://ZONE/vol-…`` one, or of a serial.

    Text of any other form is returned as it is.
    """
    tail = _in_tree_id(handle) if handle.startswith(_IN_TREE) else handle
    if is_volume_id(tail):
        return tail
    dashed = f"vol-{handle.removeprefix('vol')}"
    return dashed if handle == serial_of(dashed) and is_volume_id(dashed) else handle


def _in_tree_id(handle: str) -> str:
    """The path of the URL, as Kubernetes reads it; without one, what stands in the zone's place.

    What Kubernetes takes for a volume's id must never be missed here, however it is spelled: by
    the id, pods are kept from volumes of other tenants. By hand, as ``urlsplit`` refuses what Go
    accepts.
    Source: Kubernetes csi-translation-lib plugins/aws_ebs.go (read 2026-11-30), Go net/url Parse.
    """
    url = handle.removeprefix(_IN_TREE).partition("#")[0].partition("?")[0]
    zone, _, path = url.partition("/")
    return unquote(path).strip("/") or zone


def serial_of(volume_id: str) -> str:
    """The serial number of a volume's disk: its id without the dash.

    Source: EC2 user guide "Map Amazon EBS volumes to NVMe device names".
    """
    return volume_id.replace("-", "", 1)
