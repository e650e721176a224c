"""Decide whether a volume can be made from a claim's data source, and from what in EC2.

Every rule of external-provisioner 6.3 (pkg/controller/controller.go ``getSnapshotSource`` and
``getPVCSource``) is here, in its order. Where it compares the source's driver with the provisioner
that the class names, we compare with the driver, so that classes of the in-tree plugin can restore
and clone as well.

None of these refusals is retried on a timer: only a change of an object helps, and that wakes the
claim.
"""

from collections.abc import Iterable

from provisioner.model.claim import BETA_STORAGE_CLASS, Claim, DataSource
from provisioner.model.data_source import CLAIM_FINALIZER, Source
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.ids import is_snapshot_id, is_volume_id
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB
from provisioner.model.volume_snapshot import (
    ALLOW_VOLUME_MODE_CHANGE,
    SOURCE_FINALIZER,
    VolumeSnapshot,
    VolumeSnapshotContent,
)

_BOUND = "Bound"
_PENDING = frozenset({"", "Pending"})


def of_snapshot(
    claim: Claim,
    snapshot: VolumeSnapshot | None,
    content: VolumeSnapshotContent | None,
    *,
    driver: str,
    is_served: bool = True,
) -> Source | Refuse:
    """The EBS snapshot that a claim is restored from.

    Args:
        claim: names a VolumeSnapshot.
        snapshot: the one of that name; None only when the API server has none.
        content: what it is bound to; None only when the API server has none.
        driver: ours.
        is_served: whether the API server has VolumeSnapshots at all.
    """
    what = f"VolumeSnapshot {_name_of(claim)!r}"
    if snapshot is None:
        return _no_snapshot(what, is_served=is_served)
    if snapshot.deleting and SOURCE_FINALIZER not in snapshot.finalizers:
        return _refuse(f"{what} is being deleted and cannot be restored any more")
    if not snapshot.content_name:
        return _not_yet(snapshot, what, "is not bound to a VolumeSnapshotContent yet")
    if content is None:
        return _refuse(f"{what} is bound to {_content_of(snapshot)}, which does not exist")
    return (
        _wrong_content(what, snapshot, content, driver)
        or (None if snapshot.is_ready else _not_yet(snapshot, what, "is not ready to use yet"))
        or _no_handle(what, content)
        or _too_small(claim, snapshot.restore_size, what)
        or _other_mode_of_snapshot(claim, content)
        or Source(snapshot_id=content.snapshot_id, size_gib=_gib(snapshot.restore_size))
    )


def of_claim(
    claim: Claim,
    source: Claim | None,
    persistent_volume: PersistentVolume | None,
    *,
    driver: str,
) -> Source | Refuse:
    """The EBS volume that a claim is cloned from; how large it is, EC2 knows.

    One that is being deleted can be cloned while it is held, as a snapshot can be restored then:
    the finalizer stays until its clones are made, so otherwise neither would come to an end.

    Args:
        claim: names another claim.
        source: the one of that name; None only when the API server has none.
        persistent_volume: what it is bound to; None only when the API server has none.
        driver: ours.
    """
    what = f"source claim {_name_of(claim)!r}"
    if source is None:
        return _refuse(f"{what} does not exist", Reason.OBJECT_NOT_FOUND)
    if source.uid == claim.uid:
        return _refuse("the claim names itself as its data source")
    if source.deleting and CLAIM_FINALIZER not in source.finalizers:
        return _refuse(f"{what} is being deleted and cannot be cloned any more")
    if not source.spec.volume_name or source.status is None or source.status.phase != _BOUND:
        return _wait(f"{what} is not bound yet; waiting for it")
    if source.spec.storage_class_name is None and BETA_STORAGE_CLASS not in source.annotations:
        return _refuse(f"{what} has no StorageClass, so it cannot be cloned")
    if persistent_volume is None:
        name = source.spec.volume_name
        return _refuse(f"PersistentVolume {name} of {what} does not exist", Reason.OBJECT_NOT_FOUND)
    return (
        _too_small(claim, source.requested_storage, what)
        or _wrong_volume(what, source, persistent_volume, driver)
        or _other_mode_of_claim(claim, source, what)
        or Source(volume_id=persistent_volume.volume_id(driver) or "")
    )


def _name_of(claim: Claim) -> str:
    return (claim.source or DataSource()).name


def _no_snapshot(what: str, *, is_served: bool) -> Refuse:
    if is_served:
        return _refuse(f"{what} does not exist", Reason.OBJECT_NOT_FOUND)
    return _refuse(
        f"the cluster does not serve VolumeSnapshots, so {what} cannot be restored; install the "
        "CRDs of external-snapshotter and its snapshot-controller",
        Reason.NOT_SUPPORTED,
    )


def _not_yet(snapshot: VolumeSnapshot, what: str, why: str) -> Refuse:
    error = snapshot.status.error if snapshot.status is not None else None
    if error is not None and error.message:
        return _refuse(f"{what} {why}: {error.message}")
    return _wait(f"{what} {why}; waiting for it")


def _wrong_content(
    what: str, snapshot: VolumeSnapshot, content: VolumeSnapshotContent, driver: str
) -> Refuse | None:
    bound = _content_of(snapshot)
    if not content.belongs_to(snapshot):
        owner = content.spec.volume_snapshot_ref
        of = f"VolumeSnapshot {owner.namespace}/{owner.name} (uid {owner.uid or 'none'})"
        return _refuse(f"{what} refers to {bound}, which belongs to {of}")
    if content.spec.driver != driver:
        return _refuse(
            f"{what} is of driver {content.spec.driver!r}, but the class is of driver {driver}; "
            "use a class of the snapshot's driver"
        )
    if content.deleting and SOURCE_FINALIZER not in snapshot.finalizers:
        return _refuse(f"{bound} of {what} is being deleted")
    return None


def _no_handle(what: str, content: VolumeSnapshotContent) -> Refuse | None:
    # Not what the content was imported from: only its status says that the driver has seen it.
    handle = (content.status.snapshot_handle or "") if content.status is not None else ""
    if is_snapshot_id(handle):
        return None
    if handle:
        return _refuse(
            f"VolumeSnapshotContent {content.name!r} of {what} names {handle!r}, which "
            "is not an EBS snapshot"
        )
    return _wait(
        f"VolumeSnapshotContent {content.name!r} of {what} names no snapshot yet; waiting for it"
    )


def _wrong_volume(
    what: str, source: Claim, persistent_volume: PersistentVolume, driver: str
) -> Refuse | None:
    of = f"PersistentVolume {persistent_volume.name} of {what}"
    volume_id = persistent_volume.volume_id(driver)
    if not volume_id:
        csi = persistent_volume.spec.csi
        whose = f"of driver {csi.driver!r}" if csi is not None else "of no CSI driver"
        return _refuse(f"{of} is {whose}, but the class is of driver {driver}: it cannot be cloned")
    if not is_volume_id(volume_id):
        return _refuse(f"{of} names {volume_id!r}, which is not an EBS volume")
    holder, meta = persistent_volume.spec.claim_ref, source.metadata
    held_by = (holder.uid, holder.namespace, holder.name) if holder is not None else None
    if held_by != (meta.uid, meta.namespace, meta.name):
        return _refuse(f"{of} is bound to another claim")
    if persistent_volume.phase != _BOUND:
        phase = persistent_volume.phase or "without a phase"
        return _refuse(f"{of} is {phase}, not {_BOUND}")
    return None


def _too_small(claim: Claim, least: str, what: str) -> Refuse | None:
    asked = claim.requested_storage
    try:
        is_smaller = parse_bytes(asked) < parse_bytes(least or "0")
    except ValueError as error:
        return _refuse(f"cannot read the size of the claim or of {what}: {error}")
    if not is_smaller:
        return None
    return _refuse(
        f"the claim requests {asked}, but {what} needs at least {least}: a copy cannot be smaller "
        "than its source; recreate the claim with a larger request"
    )


def _other_mode_of_snapshot(claim: Claim, content: VolumeSnapshotContent) -> Refuse | None:
    """A raw device may hold what breaks the kernel that mounts it, so it takes an administrator.

    Source: KEP-3141 "Prevent unauthorised volume mode conversion during volume restore".
    """
    mode = content.spec.source_volume_mode
    is_allowed = content.annotations.get(ALLOW_VOLUME_MODE_CHANGE) == "true"
    if not mode or is_allowed or (mode == "Block") == claim.is_block:
        return None
    return _refuse(
        f"the claim requests volumeMode {_mode(claim)}, but VolumeSnapshot {_name_of(claim)!r} was "
        f"taken of a volume with {mode}; an administrator can allow this with the annotation "
        f'{ALLOW_VOLUME_MODE_CHANGE}: "true" on VolumeSnapshotContent {content.name!r}'
    )


def _other_mode_of_claim(claim: Claim, source: Claim, what: str) -> Refuse | None:
    if claim.is_block == source.is_block:
        return None
    return _refuse(
        f"the claim requests volumeMode {_mode(claim)}, but {what} has {_mode(source)}: a clone "
        "has the mode of its source; take a snapshot and have an administrator allow the change"
    )


def _mode(claim: Claim) -> str:
    return "Block" if claim.is_block else "Filesystem"


def _content_of(snapshot: VolumeSnapshot) -> str:
    return f"VolumeSnapshotContent {snapshot.content_name!r}"


def _gib(size: str) -> int:
    return -(-parse_bytes(size or "0") // GIB)


def _refuse(message: str, reason: Reason = Reason.INVALID_CLAIM) -> Refuse:
    return Refuse(reason, message, settled=True)


def _wait(message: str) -> Refuse:
    return Refuse(Reason.INVALID_CLAIM, message, settled=True, normal=True)


def is_needed(naming: Iterable[Claim]) -> bool:
    """Whether the claims that name a source still need it, so that its finalizer stays.

    The sidecars hold a source for as long as a pending claim names it. We take the finalizer off a
    cloned claim as soon as it is not needed, and not only when that claim is deleted, so that none
    is left behind.
    Source: external-provisioner 6.3 pkg/controller/clone_controller.go and
    snapshot_finalizer_controller.go.
    """
    return any(_is_pending(claim) for claim in naming)


def _is_pending(claim: Claim) -> bool:
    return (claim.status.phase if claim.status is not None else "") in _PENDING


def without(finalizers: Iterable[str], finalizer: str) -> list[str]:
    """The finalizers that are left."""
    return [each for each in finalizers if each != finalizer]
