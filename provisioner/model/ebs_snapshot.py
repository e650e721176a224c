"""EBS snapshots as EC2 shows them, and the requests that create and lock one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

# EC2 takes one snapshot of a volume in so many seconds, by its own clock.
# Source: EBS user guide "Create Amazon EBS snapshots" and SnapshotCreationPerVolumeRateExceeded.
EVERY_S = 15.0


class SnapshotState(StrEnum):
    """EC2 SnapshotState (DescribeSnapshots); the last two are of the Recycle Bin."""

    PENDING = "pending"
    COMPLETED = "completed"
    ERROR = "error"
    RECOVERABLE = "recoverable"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class EbsSnapshot:
    """A snapshot as DescribeSnapshots or CreateSnapshot shows it.

    Attributes:
        volume_id: what it was taken of; "vol-ffffffff" for one that was copied.
        size_gib: of the volume, and the least that one made of it can have.
        started_at: the point in time that it holds.
        message: EC2's own words, for ``error`` above all.
        full_bytes: all blocks that were written to the volume at that time, those of earlier
            snapshots included; None if EC2 does not say.
    """

    snapshot_id: str
    volume_id: str
    state: SnapshotState
    size_gib: int
    started_at: datetime | None = None
    progress_percent: int = 0
    encrypted: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    full_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """All parameters of CreateSnapshot.

    There is no client token: the same record sent again takes another snapshot. After a lost reply
    it is found again by its tags, or was not taken.
    """

    volume_id: str
    description: str
    tags: tuple[tuple[str, str], ...]
    outpost_arn: str | None = None


@dataclass(frozen=True, slots=True)
class LockRequest:
    """All parameters of LockSnapshot that are about the lock.

    Attributes:
        mode: "governance" or "compliance".
        duration_days: 1 to 36,500; this or ``expires_at``.
        expires_at: at least a day ahead.
        cool_off_hours: 1 to 72; in compliance mode only.
    """

    mode: str
    duration_days: int | None = None
    expires_at: datetime | None = None
    cool_off_hours: int | None = None
