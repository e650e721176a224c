"""Modifications of volumes as EC2 shows them, and the request that starts one."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from provisioner.model.volume import Volume


class ModificationState(StrEnum):
    """EC2 VolumeModificationState (DescribeVolumesModifications).

    ``optimizing`` counts as done for size: it is there, and stays. Only ``completed`` (or
    ``failed``) lets another modification begin.
    Source: EBS user guide "Monitor the progress of volume modifications" (read 2026-11-21).
    """

    MODIFYING = "modifying"
    OPTIMIZING = "optimizing"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a volume can be modified.

    Attributes:
        size_gib: only ever grows.
        volume_type: such as "gp3".
        iops: None where EC2 shows none (st1, sc1, standard).
        throughput_mibps: None for every type but gp3.
    """

    size_gib: int
    volume_type: str
    iops: int | None = None
    throughput_mibps: int | None = None


@dataclass(frozen=True, slots=True)
class Modification:
    """The latest modification of a volume; EC2 shows no earlier one.

    Attributes:
        target: what the volume becomes; while ``modifying`` DescribeVolumes shows the old shape.
        original: what it was; None if EC2 did not say.
        progress_percent: 0 to 100.
        message: EC2's own words, for ``failed`` above all.
    """

    volume_id: str
    state: ModificationState
    target: Shape
    original: Shape | None = None
    started_at: datetime | None = None
    progress_percent: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class ModifyRequest:
    """All parameters of ModifyVolume: only what changes; None stays as it is.

    There is no client token, and EC2 counts a call that changes nothing as a modification: after a
    lost reply the latest modification shows whether it was carried out.
    """

    volume_id: str
    size_gib: int | None = None
    volume_type: str | None = None
    iops: int | None = None
    throughput_mibps: int | None = None


@dataclass(frozen=True, slots=True)
class Initialization:
    """How far the blocks of a volume made of a snapshot, or of another volume, have arrived.

    What EC2 shows can be five minutes old. For a volume that was created empty it shows nothing.
    Source: EBS user guide "Monitor the status of Amazon EBS volume initialization" (read
    2026-11-22).

    Attributes:
        is_complete: EC2 says that all is there.
        state: EC2's word for it; "" if it shows nothing (yet).
        progress_percent: 0 to 100; None if EC2 does not say.
        estimated_s: what is left, in seconds; known only for volumes with a provisioned rate.
    """

    volume_id: str
    is_complete: bool
    state: str = ""
    progress_percent: int | None = None
    estimated_s: int | None = None


def shape_of(volume: Volume) -> Shape:
    """What of this volume can be modified, as DescribeVolumes shows it."""
    return Shape(volume.size_gib, volume.volume_type, volume.iops, volume.throughput_mibps)
