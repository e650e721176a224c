"""Decide which size a claim's volume is to have: the requested one, or one that is in flight.

Source: external-resizer 2.0 pkg/controller ``expandAndRecover`` (Kubernetes 1.36
RecoverVolumeExpansionFailure, GA since 1.34). ``status.allocatedResources`` is the size that was
started. It is not given up for another one while a ModifyVolume for it may have been sent.
"""

from dataclasses import dataclass
from enum import StrEnum

from provisioner.model.claim import Claim
from provisioner.model.decision import SETTLED, Settled
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB

# On a claim, by the volume controller: this resizer is to grow its in-tree volume.
RESIZER = "volume.kubernetes.io/storage-resizer"
# On a persistent volume: what the claim had before, until its file system has grown too.
PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
FILE_SYSTEM_PENDING = "FileSystemResizePending"


class ResizeStatus(StrEnum):
    """``status.allocatedResourceStatuses.storage`` of a claim."""

    CONTROLLER_IN_PROGRESS = "ControllerResizeInProgress"
    CONTROLLER_INFEASIBLE = "ControllerResizeInfeasible"
    NODE_PENDING = "NodeResizePending"
    NODE_IN_PROGRESS = "NodeResizeInProgress"
    NODE_INFEASIBLE = "NodeResizeInfeasible"


_OF_KUBELET = (ResizeStatus.NODE_PENDING, ResizeStatus.NODE_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Grow:
    """``target`` is the size as the claim writes it, ``size_gib`` what EBS makes of it."""

    target: str
    size_gib: int


def is_ours(claim: Claim, persistent_volume: PersistentVolume, *, driver: str) -> bool:
    """Whether we grow and change the volume of a claim that is bound to this object.

    An in-tree one is, once the volume controller says so; or if the claim names a class, which such
    a volume cannot have: somebody has to say that.
    """
    if not is_held_by(persistent_volume, claim):
        return False
    csi = persistent_volume.spec.csi
    if csi is not None:
        return csi.driver == driver
    resizer = claim.annotations.get(RESIZER) or (driver if claim.attributes_class_name else "")
    return resizer == driver and bool(persistent_volume.volume_id(driver))


def is_held_by(persistent_volume: PersistentVolume, claim: Claim) -> bool:
    """Whether both name each other: this claim, and no other one of its name."""
    holder = persistent_volume.spec.claim_ref
    return (
        claim.spec.volume_name == persistent_volume.name
        and claim.status is not None
        and claim.status.phase == "Bound"
        and holder is not None
        and (holder.uid, holder.namespace) == (claim.uid, claim.metadata.namespace)
    )


def waits_for_move(claim: Claim, persistent_volume: PersistentVolume) -> bool:
    """Whether nothing is to be started, as a VolumeMove gives the claim another volume.

    That one gets what the claim requests. What has been started already is brought to its end.
    """
    has_begun = bool(claim.resize_status) or claim.modify_status is not None
    return HELD_FOR_MOVE in persistent_volume.annotations and not has_begun


def decide(claim: Claim, persistent_volume: PersistentVolume, *, is_free: bool) -> Settled | Grow:
    """Say which size the volume is to have.

    Settled: it has that, or kubelet has to grow the file system first.

    Args:
        claim: bound to it.
        persistent_volume: names the volume.
        is_free: nothing is in flight for the size that the status names.

    Raises:
        ValueError: a quantity that cannot be parsed; the API server admits none.
    """
    request, capacity = claim.requested_storage, claim.capacity
    if not request or not capacity or parse_bytes(request) <= parse_bytes(capacity):
        return SETTLED
    has = parse_bytes(persistent_volume.capacity or "0")
    begun, status = claim.allocated_storage or request, claim.resize_status
    is_begun = status == ResizeStatus.CONTROLLER_IN_PROGRESS and not is_free
    if has < parse_bytes(request):
        if status in _OF_KUBELET:
            return SETTLED if has >= parse_bytes(begun) else _to(begun)
        return _to(begun if is_begun or status == ResizeStatus.NODE_INFEASIBLE else request)
    # The volume is large enough: that is to be recorded, or the file system is next.
    if status in _OF_KUBELET:
        return SETTLED
    if is_begun or status == ResizeStatus.NODE_INFEASIBLE:
        return _to(begun)
    if not status and claim.condition(FILE_SYSTEM_PENDING) is not None:
        return SETTLED
    return _to(request)


def _to(target: str) -> Grow:
    return Grow(target, -(-parse_bytes(target) // GIB))
