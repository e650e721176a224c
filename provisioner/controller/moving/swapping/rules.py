"""Decide if a claim may be deleted: whether there is room for the next, and no volume for it."""

import json

from provisioner.controller.moving.phase_rules import (
    Await,
    RemoveEmpty,
    SeenClaim,
    recreated,
    volume_name,
)
from provisioner.controller.moving.pods.interference_rules import Change, asked_by
from provisioner.model.document import Document
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume_move import VolumeMove

# The binder takes milliseconds, and a control plane whose leader has gone some seconds more.
_BINDS_WITHIN_S = 10.0


def may_go(
    step: RemoveEmpty, claim: SeenClaim, new: PersistentVolume | None, age_s: float
) -> RemoveEmpty | Await:
    """Whether a claim without a volume is deleted, or may just be getting the new one.

    The binder writes the claim's UID to the PersistentVolume first, and to the claim only then. A
    claim that is deleted in between has the new volume released, and deleted by its policy.
    Source: Kubernetes 1.37 pv_controller ``bind`` and ``syncVolume``. One that the binder would not
    give it goes at once, before an empty volume is made for it.

    Args:
        step: what is to be done.
        claim: that somebody else has created.
        new: the new PersistentVolume as it is now.
        age_s: of the claim.
    """
    holder = new.spec.claim_ref if new is not None else None
    if holder is not None and holder.uid == claim.uid:
        return Await("the claim is being bound")
    if age_s < _BINDS_WITHIN_S and new is not None and _could_have(claim, new):
        return Await(
            f"somebody else has created claim {claim.key}: it is deleted if it has no volume in "
            f"{_BINDS_WITHIN_S:.0f} seconds"
        )
    return step


def _could_have(claim: SeenClaim, new: PersistentVolume) -> bool:
    """Whether the binder gives a claim the PersistentVolume that is reserved for its name.

    Its StorageClass does not matter.
    Source: Kubernetes 1.37 component-helpers ``FindMatchingVolume``.
    """
    holder = new.spec.claim_ref
    if new.deleting or (holder is not None and holder.uid):
        return False
    if not isinstance(claim, Document):
        return True
    has_class = (claim.spec.get("volumeAttributesClassName") or "") == new.attributes_class_name
    is_file_system = claim.spec.get("volumeMode") != "Block"
    has_modes = {*(claim.spec.get("accessModes") or ())} <= {*(new.spec.access_modes or ())}
    requests = (claim.spec.get("resources") or {}).get("requests") or {}
    is_large_enough = parse_bytes(str(requests.get("storage", "0"))) <= parse_bytes(new.capacity)
    has_shape = has_class and is_file_system is new.spec.is_file_system
    return has_shape and has_modes and is_large_enough


def still_takes(move: VolumeMove, recorded: str, claim: SeenClaim | None) -> Change | None:
    """What the claim of a move takes of quotas now, and once it has its new volume.

    Args:
        move: which swaps, or is about to.
        recorded: its claim, see ``phase_rules.record``.
        claim: whatever has the claim's name.

    Returns:
        None if it takes that already.
    """
    if claim is not None and volume_name(claim) == move.persistent_volume_name:
        return None
    now = asked_by(json.loads(recorded)) if claim is not None else None
    return now, asked_by(recreated(move, recorded))
