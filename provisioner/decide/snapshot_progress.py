"""Decide what a snapshot needs that is taken and not ready: fast restore, its lock, time.

Both are asked for as soon as EC2 shows the snapshot, and volumes are made of it only afterwards. So
a content that is not ready says that they may be missing, whoever took its snapshot.
Source: external-snapshotter 8.6 ``checkandUpdateContentStatus``; EC2 API LockSnapshot and
EnableFastSnapshotRestores, which take pending snapshots (read 2026-11-21).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.decide.creation import CONSISTENCY_S
from provisioner.decide.snapshot import Attempt, Record, Refuse
from provisioner.decide.snapshot_class import SnapshotParameters
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume_snapshot import VolumeSnapshotContent

_ALONE_S = 60.0  # nothing but a human changes it


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the snapshot fast and lock it, where that is not done."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Await:
    """The snapshot is on its way; a sighting wakes the content, at the latest after ``again_s``."""

    again_s: float | None = None


Look = Record | Prepare | Await | Refuse


def follow(
    content: VolumeSnapshotContent,
    attempt: Attempt,
    seen: EbsSnapshot | None,
    missing_for_s: float | None,
) -> Look:
    """Say what a snapshot needs that is there, or should be.

    Args:
        content: not ready yet.
        attempt: whether the snapshot is prepared.
        seen: its newest description.
        missing_for_s: for how long EC2 has not known it; None when it does, or was not asked.
    """
    if seen is None:
        return _missing(content, missing_for_s)
    if seen.state is SnapshotState.ERROR:
        why = f": {seen.message}" if seen.message else ""
        return Refuse(
            StorageError(
                Reason.SNAPSHOT_STATE,
                f"EC2 could not finish snapshot {seen.snapshot_id} of {seen.volume_id}{why}; "
                "delete the VolumeSnapshot and make another one",
                retry_after_s=_ALONE_S,
            )
        )
    if content.volume_id and not attempt.is_prepared:
        return Prepare(seen.snapshot_id)
    if seen.state is SnapshotState.COMPLETED:
        return Record(seen, ready=True)
    is_recorded = content.status is not None and content.status.snapshot_handle is not None
    return Await() if is_recorded else Record(seen)


def _missing(content: VolumeSnapshotContent, missing_for_s: float | None) -> Look:
    if missing_for_s is None:
        return Await()
    if missing_for_s < CONSISTENCY_S:
        return Await(max(CONSISTENCY_S - missing_for_s, 1.0))
    return Refuse(
        StorageError(
            Reason.SNAPSHOT_NOT_FOUND,
            f"EC2 does not know snapshot {content.snapshot_id} of volumesnapshotcontent "
            f"{content.name}, in this account and Region",
            retry_after_s=_ALONE_S,
        )
    )


def is_done(parameters: SnapshotParameters | None) -> bool:
    """Whether a class asks for nothing besides the snapshot."""
    return parameters is None or not (parameters.fast_zones or parameters.lock)


def slow_zones(parameters: SnapshotParameters, states: Mapping[str, str]) -> tuple[str, ...]:
    """The zones in which fast restore is neither on nor on its way; ``states`` by zone."""
    off = ("", "disabling", "disabled")
    return tuple(zone for zone in parameters.fast_zones if states.get(zone, "") in off)


def fast_zones_left(states: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Zones whose fast restore has to be disabled, and whether some is on its way off.

    Whether EC2 deletes a snapshot with fast restores is told both ways: the user guide says that
    they end with it, others met a refusal (ekristen/aws-nuke #453).
    """
    on = tuple(zone for zone, state in states.items() if state not in ("disabling", "disabled"))
    return on, "disabling" in states.values()
