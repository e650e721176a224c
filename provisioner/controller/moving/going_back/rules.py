"""Decide about a move that goes back: its claim gets the old volume of another move again.

That is kept as a Released PersistentVolume with the policy Retain, by which nobody deletes it. As
long as it is held for this move, the other one does not give it its policy back, whenever its
``keepSource`` ends. The claim gets another PersistentVolume of the same volume; the one that kept
it is deleted, as an object only, once the claim has the other.
"""

from collections.abc import Collection
from dataclasses import dataclass

from provisioner.controller.moving.form_rules import driver_of
from provisioner.controller.moving.phase_rules import Await, Hold, Undo
from provisioner.model.document import Document
from provisioner.model.names import ATTACHED_BEFORE_MOVE, HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.sentences import listed
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_move import (
    ABORTABLE,
    MoveKept,
    MoveSource,
    MoveTarget,
    Phase,
    VolumeMove,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What there is to go back to; None for what does not exist.

    ``move``: the one that is named; ``persistent_volume`` and ``document``: what keeps its old
    volume, read twice; ``volume``: that, in EC2; ``namesakes``: other PersistentVolumes that name
    it.
    """

    move: VolumeMove | None
    persistent_volume: PersistentVolume | None = None
    document: Document | None = None
    volume: Volume | None = None
    namesakes: Collection[str] = ()

    @property
    def class_name(self) -> str:
        """The class that the claim will have."""
        spec = self.document.spec if self.document is not None else {}
        return str(spec.get("storageClassName") or "")


def refused(move: VolumeMove, newer: PersistentVolume, kept: Kept, driver: str) -> str | None:
    """Why a move cannot go back, in one sentence; ``newer``: what the claim has now."""
    other, found, volume = kept.move, kept.persistent_volume, kept.volume
    name = move.spec.to.source
    if move.spec.to != MoveTarget(source=name):
        return "source gives the claim its old volume as it is: leave the other fields of to out"
    if other is None:
        return f"VolumeMove {name} does not exist in namespace {move.metadata.namespace}"
    wrong = _wrong_move(move, other, newer)
    if wrong is not None:
        return wrong
    source = other.source
    if found is None or volume is None:
        gone = f"PersistentVolume {source.persistent_volume}" if found is None else "EC2's volume"
        return (
            f"the old volume {source.volume_id} of VolumeMove {name} is not there: {gone} is gone"
        )
    if driver_of(found) != driver or not is_kept(found, recorded(kept, newer, driver)):
        return (
            f"PersistentVolume {found.name} does not keep the old volume of VolumeMove {name} any "
            f"more: its phase is {found.phase}, its policy {found.reclaim_policy}"
        )
    if kept.namesakes:
        return (
            f"PersistentVolume {min(kept.namesakes)} names volume {volume.volume_id} as well; "
            "delete that PersistentVolume first"
        )
    busy = _busy(volume)
    return f"{busy}: end that first" if busy is not None else None


def _wrong_move(move: VolumeMove, other: VolumeMove, newer: PersistentVolume) -> str | None:
    name = other.name
    if other.spec.claim_name != move.spec.claim_name:
        return f"VolumeMove {name} has moved claim {other.claim_key}, not {move.claim_key}"
    if other.told.phase in ABORTABLE:
        return f"VolumeMove {name} is under way: abort it instead"
    if other.told.phase != Phase.DONE:
        return f"VolumeMove {name} is not done, so there is nothing to go back to"
    if other.keeps_volume:
        plan, had = other.told.plan, ""
        if plan is not None and plan.source.storage_class_name != plan.target.storage_class_name:
            had = f": move the claim to its class {plan.source.storage_class_name} instead"
        return f"VolumeMove {name} has kept the volume, so there is no other one to go back to{had}"
    if other.persistent_volume_name != newer.name:
        return (
            f"claim {move.claim_key} has PersistentVolume {newer.name}, which VolumeMove {name} "
            "has not given it: go back by the VolumeMove that has"
        )
    return None


def _busy(volume: Volume) -> str | None:
    if volume.attachments:
        on = listed([each.instance_id for each in volume.attachments], "and")
        return f"volume {volume.volume_id} is attached to {on}"
    if volume.state is not VolumeState.AVAILABLE:
        return f"volume {volume.volume_id} is {volume.state} in EC2"
    return None


def was_attached(found: PersistentVolume, driver: str) -> bool:
    """Whether a node may have had its volume: the object was marked before, and stays so.

    Source: external-attacher 4.12 csi_handler.go addPVFinalizer; ours does the same. A hold takes
    that mark away, and leaves another (see ``freshness_rules.held``).
    """
    is_noted = ATTACHED_BEFORE_MOVE in found.annotations
    return is_noted or finalizer_of_attacher(driver) in found.finalizers


def recorded(kept: Kept, newer: PersistentVolume, driver: str) -> MoveKept:
    """What is written down of the volume that is gone back to."""
    source = kept.move.source if kept.move is not None else MoveSource()
    return MoveKept(
        persistent_volume=source.persistent_volume,
        volume_id=source.volume_id,
        claim_uid=source.claim_uid,
        reclaim_policy=source.reclaim_policy,
        is_all=not was_attached(newer, driver),
    )


def is_kept(found: PersistentVolume, kept: MoveKept) -> bool:
    """Whether a PersistentVolume keeps the volume still: nobody has taken it, or let it go."""
    holder = found.spec.claim_ref
    return (
        found.phase == "Released"
        and found.reclaim_policy == "Retain"
        and not found.deleting
        and found.named_volume == kept.volume_id
        and holder is not None
        and holder.uid == kept.claim_uid
    )


def next_step(
    move: VolumeMove,
    found: PersistentVolume | None,
    volume: Volume | None,
    newer: PersistentVolume,
    driver: str,
) -> Hold | Await | Undo | None:
    """What the kept volume needs before the pods are stopped; None if it is ready.

    Args:
        move: in Held.
        found: the PersistentVolume that keeps the volume, as it is now.
        volume: that volume, in EC2.
        newer: the PersistentVolume of the claim.
        driver: ours.
    """
    kept = move.kept
    if found is None or volume is None or not is_kept(found, kept):
        return Undo(
            f"PersistentVolume {kept.persistent_volume} does not keep volume {kept.volume_id} any "
            "more, so the move is undone"
        )
    holder = found.annotations.get(HELD_FOR_MOVE)
    if holder is None:
        return Hold()
    if holder != move.key:
        return Undo(f"PersistentVolume {found.name} is held for VolumeMove {holder}")
    if kept.is_all and was_attached(newer, driver):
        return Undo(
            f"a node has had volume {move.source.volume_id} since the plan was made, and what was "
            "written would be lost: create another VolumeMove for a new plan"
        )
    busy = _busy(volume)
    return Await(f"{busy}: waiting for its end") if busy is not None else None


def notes(move: VolumeMove, kept: MoveKept, newer: PersistentVolume, volume_id: str) -> list[str]:
    """What is lost, as far as it can be known; ``volume_id``: of the newer volume."""
    keeps = f"PersistentVolume {newer.name} keeps volume {volume_id} for {move.spec.keep_source}"
    if kept.is_all:
        lost = f"no node has had volume {volume_id}: nothing was written to it, so nothing is lost"
        return [lost, keeps]
    at = newer.metadata.creation_timestamp
    since = at.isoformat(timespec="seconds") if at is not None else "the move"
    lost = f"what was written to volume {volume_id} since {since} is not in volume {kept.volume_id}"
    return [f"{lost}: the claim loses it, and {keeps}"]


def source_of(kept: MoveKept) -> MoveSource:
    """The kept volume as the source of a move that does not copy; see form_rules.may_remove."""
    return MoveSource(
        claim_uid=kept.claim_uid,
        persistent_volume=kept.persistent_volume,
        volume_id=kept.volume_id,
    )
