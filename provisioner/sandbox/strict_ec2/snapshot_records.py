"""The life of one snapshot, kept beside moto's Snapshot object.

pending → completed, or → error. What moto makes itself (images, copies) is completed at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from provisioner.sandbox.strict_ec2.errors import Ec2Error, snapshots_not_found
from provisioner.sandbox.strict_ec2.locks import Lock
from provisioner.sandbox.strict_ec2.motos import Snapshot, ec2_utils

_PUBLIC: Final = 3
_SOMEBODY: Final = "999999999999"


@dataclass(slots=True)
class SnapshotRecord:
    """What we know of a snapshot beyond moto; seconds are of the world's clock."""

    volume_id: str
    size_gib: int
    state: str = "completed"
    message: str = ""
    begun_s: float = 0.0
    completed_from_s: float = 0.0
    visible_at_s: float = 0.0
    outpost_arn: str = ""
    deleted: bool = False
    lock: Lock | None = None
    fast_restores: dict[str, "FastRestore"] = field(default_factory=dict)  # by zone

    def progress(self, now_s: float) -> str:
        """Return how much is done as EC2 writes it, in step with time."""
        if self.state == "completed":
            return "100%"
        whole_s = self.completed_from_s - self.begun_s
        done = min(99, int(100 * (now_s - self.begun_s) / whole_s)) if whole_s > 0 else 0
        return f"{done}%"


def snapshot_record_of(snapshot: Any) -> SnapshotRecord:
    """Return a snapshot's record, made on first sight with the size that the volume has then."""
    record: SnapshotRecord | None = snapshot.__dict__.get("strict")
    if record is None:
        volume = snapshot.volume
        record = SnapshotRecord(volume_id=str(volume.id), size_gib=int(volume.size))
        snapshot.__dict__["strict"] = record
    return record


@dataclass(frozen=True, slots=True)
class FastRestore:
    """Fast snapshot restore of a snapshot in one zone; absent means disabled."""

    snapshot: Any  # moto's
    zone: str
    zone_id: str
    clock: Callable[[], float]
    asked_s: float
    optimizing_for_s: float

    @property
    def state(self) -> str:
        """Enabling while the snapshot is pending, then optimizing, then enabled."""
        record = snapshot_record_of(self.snapshot)
        if record.state != "completed":
            return "enabling"
        ready_s = max(self.asked_s, record.completed_from_s) + self.optimizing_for_s
        return "optimizing" if self.clock() < ready_s else "enabled"


def find_snapshots(backend: Any, snapshot_ids: list[str], now_s: float) -> list[Any]:
    """Return moto's snapshots.

    Raises: ``InvalidSnapshot.NotFound`` that names those that are not there, or not yet visible.
    """
    found = [backend.snapshots.get(each) for each in snapshot_ids]
    absent = [
        snapshot_id
        for snapshot_id, snapshot in zip(snapshot_ids, found, strict=True)
        if snapshot is None or snapshot_record_of(snapshot).visible_at_s > now_s
    ]
    if absent:
        raise snapshots_not_found(absent)
    return found


def find_snapshot(backend: Any, snapshot_id: str, now_s: float) -> Any:
    """Return moto's snapshot; raises as ``find_snapshots``."""
    return find_snapshots(backend, [snapshot_id], now_s)[0]


def public_snapshots(backend: Any) -> list[Any]:
    """Return snapshots that somebody else lets everybody see, as in every region.

    Whoever forgets OwnerIds sees them. They can be looked at and no more.
    """
    known: list[Any] = backend.__dict__.setdefault("strict_public_snapshots", [])
    while len(known) < _PUBLIC:
        volume = SimpleNamespace(id="vol-ffffffff", size=8)
        snapshot_id = ec2_utils.random_snapshot_id()
        known.append(Snapshot(backend, snapshot_id, volume, "public", owner_id=_SOMEBODY))
    return known


def unfinished(backend: Any) -> list[SnapshotRecord]:
    """Return what counts against the limits on concurrent snapshots, of one region.

    Pending ones, also those that were deleted meanwhile, and failed ones until they are deleted
    (AWS knowledge centre "ebs-snapshot-stuck", read 2026-11-22).
    """
    begun: list[SnapshotRecord] = backend.__dict__.setdefault("strict_snapshots", [])
    begun[:] = [
        each
        for each in begun
        if each.state == "pending" or (each.state == "error" and not each.deleted)
    ]
    return begun


def remove_snapshot(snapshot: Any) -> None:
    """Take a snapshot and its tags out of moto."""
    snapshot_record_of(snapshot).deleted = True
    backend = snapshot.ec2_backend
    if backend.snapshots.get(snapshot.id) is snapshot:
        del backend.snapshots[snapshot.id]
        backend.tags.pop(snapshot.id, None)


def check_restorable(snapshot: Any) -> None:
    """Refuse to make a volume of a snapshot that is not complete.

    Raises: ``IncorrectState``.
    """
    state = snapshot_record_of(snapshot).state
    if state != "completed":
        raise Ec2Error("IncorrectState", f"Snapshot is in invalid state - {state}")
