"""Decide what a VolumeSnapshotContent needs: a snapshot, a look-up, its release, nothing.

::

    take ──annotate──▶ send ──ok──▶ handle recorded ──▶ made fast, locked ──▶ completed: ready
     │ ▲                 │ lost reply, crash
     │ └─ none for 60 s ─┴─▶ look-ups by tag ──found──▶ handle recorded
     └─ refused: reported, retried later

CreateSnapshot has no client token. So the annotation ``being-created`` is written to the content
before EC2 is asked. A process that finds it there, and does not know what came of the request,
looks for the snapshot by its tag, for ``CONSISTENCY_S``, before another one is taken. The handle is
recorded before anything else is done with the snapshot, so whatever is missing after a crash is
seen and done then. Fast restore and the lock are requested as soon as EC2 shows the snapshot, the
lock before it is ready. So they may be missing as long as a content is not ready.
Source: external-snapshotter 8.6 pkg/sidecar-controller/snapshot_controller.go (``syncContent``,
``shouldDelete``, ``checkandUpdateContentStatus``); EC2 developer guide "Eventual consistency"; EC2
API LockSnapshot and EnableFastSnapshotRestores, which take pending snapshots (read 2026-11-21).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import SETTLED, WHEN_WOKEN, Later, Refuse, Settled, WhenWoken
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import NO_ANSWER, Outcome, Reason, StorageError
from provisioner.model.ids import is_snapshot_id
from provisioner.model.names import PENDING_SETTINGS
from provisioner.model.volume import normalised_handle
from provisioner.model.volume_snapshot import (
    BEING_DELETED,
    CONTENT_FINALIZER,
    DELETE,
    GROUP_HANDLE,
    RETAIN,
    VELERO_BACKUP,
    VELERO_RESTORE,
    VolumeSnapshot,
    VolumeSnapshotContent,
)

# The snapshot was not refused: the request is retried, and the annotation stays.
_IN_PASSING = NO_ANSWER | {Reason.SNAPSHOT_RATE}

# snapshot-controller creates the first content of a VolumeSnapshot at once.
_FIRST_WITHIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What this process knows of the snapshot of one content. Times of the monotonic clock.

    Attributes:
        looking_since_s: tag look-ups decide, since then; None: they do not.
        found: taken or found, and not recorded yet.
        is_new: taken by this process, so nothing was done with it before.
        is_prepared: it is locked as its class asks, and fast restore was requested.
        fast_due_s: when to request fast restore again, which EC2 has refused.
        fast_refusals: how often in a row it has refused that.
        kept: why EC2 has kept it: it is locked or in use; None if it has not.
        delete_due_s: when to request its deletion again.
        delete_refusals: how often in a row EC2 has kept it.
        began_s: when this process first tried to take it.
    """

    looking_since_s: float | None = None
    found: EbsSnapshot | None = None
    is_new: bool = False
    is_prepared: bool = False
    fast_due_s: float = 0.0
    fast_refusals: int = 0
    kept: StorageError | None = None
    delete_due_s: float = 0.0
    delete_refusals: int = 0
    began_s: float | None = None


@dataclass(frozen=True, slots=True)
class LookUp:
    """Search EC2 for a snapshot with the content's name tag."""


@dataclass(frozen=True, slots=True)
class Take:
    """Take the snapshot: no request was sent, or nothing came of it."""


@dataclass(frozen=True, slots=True)
class Record:
    """Write what EC2 shows of the snapshot to the status; ``ready``: it can be restored."""

    snapshot: EbsSnapshot
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove the annotation: it is known what came of the request."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Check how far the snapshot is."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class MakeFast:
    """Request fast restore of a ready snapshot again, which EC2 has refused."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the snapshot, then release the content."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Remove our finalizer from the content; ``why_kept``: why its snapshot is not deleted."""

    why_kept: str = ""


Step = Settled | LookUp | Take | Record | Withdraw | Follow | MakeFast | Delete | Release | Refuse


def begin(
    content: VolumeSnapshotContent, *, others_ended_at_s: float | None, now_s: float
) -> Attempt:
    """The attempt of a content that this process sees for the first time.

    ``others_ended_at_s``: when another controller, which takes the annotation off after a lost
    reply as well, may have taken its snapshot at last, or an earlier content had it taken; None: no
    other one can have.
    """
    if content.is_being_created:
        return Attempt(looking_since_s=now_s)
    return Attempt(looking_since_s=others_ended_at_s)


def may_be_second(content: VolumeSnapshotContent, owner: VolumeSnapshot | None) -> bool:
    """Whether the snapshot may have been taken for an earlier content of the same VolumeSnapshot.

    A content that was removed by force is applied again, or snapshot-controller creates it again:
    its name follows from the UID of the VolumeSnapshot. The stock driver looks for the snapshot
    each time.
    """
    if content.snapshot_id or owner is None or not content.belongs_to(owner):
        return False
    if owner.status is not None and (owner.status.creation_time or owner.status.ready_to_use):
        return True
    asked_at, made_at = owner.metadata.creation_timestamp, content.metadata.creation_timestamp
    return asked_at is not None and made_at is not None and made_at - asked_at > _FIRST_WITHIN


def taken_for_s(owner: VolumeSnapshot | None, now: datetime) -> float:
    """For how long the first snapshot of a VolumeSnapshot has existed.

    Infinite if it does not say so: then it was taken long ago, if at all.
    """
    at = owner.status.creation_time if owner is not None and owner.status is not None else None
    return math.inf if at is None else max(0.0, (now - at).total_seconds())


def decide(
    content: VolumeSnapshotContent,
    attempt: Attempt,
    *,
    driver: str,
    owner_is_gone: bool = False,
    kept_for: Collection[str] = (),
) -> Step:
    """Say what a content needs.

    Args:
        content: of whichever driver.
        attempt: what is known of its snapshot.
        driver: ours.
        owner_is_gone: the API server has no VolumeSnapshot of that UID any more.
        kept_for: other contents for which the same snapshot must stay (``keeps``).
    """
    if content.spec.driver != driver:
        return SETTLED
    if content.deleting:
        return _deletion(content, attempt, owner_is_gone=owner_is_gone, kept_for=kept_for)
    if _is_of_group(content):
        return SETTLED
    if _lacks_uid(content):
        return _without_uid(content)
    resolved = _resolution(content, attempt)
    if resolved is not None:
        return resolved
    if content.snapshot_id and not is_snapshot_id(content.snapshot_id):
        return _not_of_ebs(content)
    if content.snapshot_id:
        if content.is_being_created:
            return Withdraw()
        if not content.is_ready:
            return Follow(content.snapshot_id)
        return MakeFast(content.snapshot_id) if PENDING_SETTINGS in content.annotations else SETTLED
    return Take() if content.volume_id else SETTLED


def _resolution(content: VolumeSnapshotContent, attempt: Attempt) -> Step | None:
    """What has to be found out about a request that was sent, or may have been."""
    if content.snapshot_id or not content.volume_id:
        return None
    if attempt.found is not None:
        return Record(attempt.found)
    return LookUp() if attempt.looking_since_s is not None else None


def _deletion(
    content: VolumeSnapshotContent,
    attempt: Attempt,
    *,
    owner_is_gone: bool,
    kept_for: Collection[str],
) -> Step:
    """``shouldDelete`` of the sidecar, except that a missing VolumeSnapshot is enough (#1446).

    It is not enough for a snapshot that was given: whoever copies a content from another cluster
    copies the UID of a VolumeSnapshot there, and that cluster may still use the snapshot.

    A snapshot that other contents name is kept; the sidecar deletes it. A snapshot that was given
    is deleted even if no status was written yet; the sidecar keeps it, for nobody to find.
    Source: external-snapshotter 8.6 pkg/common-controller/snapshot_controller.go ``syncContent``,
    its note on copied YAML files.
    """
    if CONTENT_FINALIZER not in content.finalizers:
        return SETTLED
    if _lacks_uid(content):
        return Release()  # nothing was ever taken for it
    is_unbound = bool(content.spec.source.snapshot_handle) and not content.snapshot_uid
    if not is_unbound:
        resolved = None if _is_of_group(content) else _resolution(content, attempt)
        if resolved is not None:
            return resolved
        if content.is_being_created:
            return Withdraw()
        if BEING_DELETED not in content.annotations and not owner_is_gone:
            return SETTLED
    may_go = is_unbound or _ends_its_snapshot(content, owner_is_gone=owner_is_gone)
    return _end(content, may_go=may_go, kept_for=kept_for)


def _end(content: VolumeSnapshotContent, *, may_go: bool, kept_for: Collection[str]) -> Step:
    """What becomes of the snapshot of a content that goes."""
    made = (content.status.snapshot_handle or "") if content.status else content.snapshot_id
    if content.spec.deletion_policy != DELETE or _is_of_group(content) or not is_snapshot_id(made):
        return Release()
    if not may_go:
        return Release(
            f"snapshot {made} is kept, because another cluster may use it: the VolumeSnapshot that "
            "its content names does not exist in this one; delete the snapshot in EC2 if nobody "
            "needs it"
        )
    if kept_for:
        return Release(
            f"snapshot {made} is kept, because VolumeSnapshotContent {min(kept_for)} names it too; "
            "the deletion policy of the content that is deleted last decides what becomes of it"
        )
    return Delete(made)


def keeps(
    content: VolumeSnapshotContent, ending: VolumeSnapshotContent, *, owner_is_gone: bool
) -> bool:
    """Whether a content keeps its snapshot when another one, which names it too, is deleted.

    One that is being deleted as well, with its snapshot, keeps nothing: otherwise each of two would
    leave it to the other. Neither does one that Velero has restored, when Velero deletes the backup
    that it came from: it has the policy Retain only so that its own end does not delete the backup.

    Args:
        content: which may keep it.
        ending: which is being deleted.
        owner_is_gone: the API server has no VolumeSnapshot of ``content`` any more.
    """
    if _ends_backup_of(ending, content):
        return False
    if not content.deleting or content.spec.deletion_policy != DELETE:
        return True
    return bool(content.snapshot_uid) and not _ends_its_snapshot(
        content, owner_is_gone=owner_is_gone
    )


def _ends_its_snapshot(content: VolumeSnapshotContent, *, owner_is_gone: bool) -> bool:
    """Whether the end of its VolumeSnapshot is proven, so that its snapshot may go as well."""
    was_given = bool(content.spec.source.snapshot_handle)
    return BEING_DELETED in content.annotations or (owner_is_gone and not was_given)


def _ends_backup_of(ending: VolumeSnapshotContent, restored: VolumeSnapshotContent) -> bool:
    """Whether Velero deletes a backup with the one content, and has restored the other from it.

    Source: Velero 1.18.1 internal/delete/actions/csi/volumesnapshotcontent_action.go (a content
    that is bound to nothing), pkg/restore/restore.go ``addRestoreLabels`` (read 2026-11-23).
    """
    backup = ending.labels.get(VELERO_BACKUP)
    return (
        bool(backup)
        and not ending.snapshot_uid
        and restored.spec.deletion_policy == RETAIN
        and VELERO_RESTORE in restored.labels
        and restored.labels.get(VELERO_BACKUP) == backup
    )


def _not_of_ebs(content: VolumeSnapshotContent) -> Refuse:
    return Refuse(
        Reason.NOT_SUPPORTED,
        f"VolumeSnapshotContent {content.name} names {content.snapshot_id[:100]!r}, which is not "
        "an EBS snapshot; recreate it with the ID of a snapshot, such as snap-0123456789abcdef0",
    )


def _without_uid(content: VolumeSnapshotContent) -> Refuse:
    return Refuse(
        Reason.NOT_SUPPORTED,
        f"VolumeSnapshotContent {content.name} names a volume but no UID of a VolumeSnapshot, so "
        "its snapshot could not be told apart from others; create a VolumeSnapshot of the claim "
        "instead",
    )


def _lacks_uid(content: VolumeSnapshotContent) -> bool:
    """Whether a snapshot taken for it would have the same name tag as any other such."""
    return bool(content.volume_id) and not content.snapshot_uid and not content.snapshot_id


def after_failure(attempt: Attempt, error: StorageError, now_s: float) -> Attempt:
    """What a failed CreateSnapshot means for the attempt."""
    if error.outcome is Outcome.UNKNOWN:
        return replace(attempt, looking_since_s=now_s)
    return attempt


def is_final(error: StorageError) -> bool:
    """Whether EC2 has refused it for now, so that the content need not say ``being-created``."""
    return error.outcome is Outcome.NOTHING and error.reason not in _IN_PASSING


def after_look_up(
    attempt: Attempt, content: VolumeSnapshotContent, found: Sequence[EbsSnapshot], now_s: float
) -> Attempt:
    """What a look-up by tag means; the same attempt if another look-up is needed.

    Copies of a snapshot carry its tags; they have another volume, or none.
    """
    volume_id = normalised_handle(content.volume_id)
    ours = [each for each in found if each.volume_id == volume_id]
    if ours:
        return replace(attempt, found=min(ours, key=_age), looking_since_s=None)
    since_s = attempt.looking_since_s
    if since_s is not None and now_s - since_s < CONSISTENCY_S:
        return attempt
    return replace(attempt, looking_since_s=None)


def _age(snapshot: EbsSnapshot) -> tuple[bool, float, str]:
    """Usable ones first, of these the first one taken."""
    at_s = snapshot.started_at.timestamp() if snapshot.started_at is not None else 0.0
    return snapshot.state is SnapshotState.ERROR, at_s, snapshot.snapshot_id


def is_news(old: VolumeSnapshotContent | None, new: VolumeSnapshotContent) -> bool:
    """Whether a change may ask for something, and is not only what we have written ourselves.

    Otherwise our own report of a failure would end the pause after it (external-snapshotter #533).
    """
    return old is None or _asked(old) != _asked(new)


def _asked(content: VolumeSnapshotContent) -> tuple[object, ...]:
    status = content.status
    handle = None if status is None else status.snapshot_handle
    is_ended = BEING_DELETED in content.annotations
    return content.uid, content.spec, content.deleting, is_ended, handle, content.is_ready


def _is_of_group(content: VolumeSnapshotContent) -> bool:
    """Whether it is one of a group: the group's controller takes and deletes its snapshots.

    EC2 can (CreateSnapshots, of the volumes of one instance); neither we nor the stock driver do.
    """
    status = content.status
    return GROUP_HANDLE in content.annotations or bool(
        status is not None and status.volume_group_snapshot_handle
    )


@dataclass(frozen=True, slots=True)
class Prepare:
    """Lock the snapshot and enable fast restore, unless that is done."""

    snapshot_id: str


Progress = Record | Prepare | Refuse | Later | WhenWoken


def follow(
    content: VolumeSnapshotContent,
    attempt: Attempt,
    seen: EbsSnapshot | None,
    missing_for_s: float | None,
) -> Progress:
    """Say what a snapshot needs that exists, or should; while it is pending, the watcher wakes it.

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
            Reason.SNAPSHOT_STATE,
            f"snapshot {seen.snapshot_id} of volume {seen.volume_id} failed in EC2{why}; delete "
            "the VolumeSnapshot and create a new one",
        )
    if content.volume_id and not attempt.is_prepared:
        return Prepare(seen.snapshot_id)
    if seen.state is SnapshotState.COMPLETED:
        return Record(seen, ready=True)
    is_recorded = content.status is not None and content.status.snapshot_handle is not None
    return WHEN_WOKEN if is_recorded else Record(seen)


def _missing(content: VolumeSnapshotContent, missing_for_s: float | None) -> Progress:
    if missing_for_s is None:
        return WHEN_WOKEN
    if missing_for_s < CONSISTENCY_S:
        return Later(max(CONSISTENCY_S - missing_for_s, 1.0))
    return Refuse(
        Reason.SNAPSHOT_NOT_FOUND,
        f"snapshot {content.snapshot_id} of VolumeSnapshotContent {content.name} does not exist in "
        "EC2 in this account and Region",
    )
