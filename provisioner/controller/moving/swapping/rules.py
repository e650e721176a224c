"""Decide about what others have put where the claim was, before it is deleted."""

from provisioner.controller.moving.phase_rules import Await, RemoveEmpty, SeenClaim
from provisioner.model.persistent_volume import PersistentVolume

# The binder takes milliseconds, and a control plane whose leader has gone some seconds more.
_BINDS_WITHIN_S = 10.0


def may_go(
    step: RemoveEmpty, claim: SeenClaim, new: PersistentVolume | None, age_s: float
) -> RemoveEmpty | Await:
    """Whether a claim without a volume is deleted, or may just be getting the new one.

    The binder writes the claim's UID to the PersistentVolume first, and to the claim only then. A
    claim that is deleted in between has the new volume released, and deleted by its policy.
    Source: Kubernetes 1.37 pv_controller ``bind`` and ``syncVolume``.

    Args:
        step: what is to be done.
        claim: that somebody else has created.
        new: the new PersistentVolume as it is now.
        age_s: of the claim.
    """
    holder = new.spec.claim_ref if new is not None else None
    if holder is not None and holder.uid == claim.uid:
        return Await("the claim is being bound")
    if age_s < _BINDS_WITHIN_S:
        return Await(
            f"somebody else has created claim {claim.key}: it is deleted if it has no volume in "
            f"{_BINDS_WITHIN_S:.0f} seconds"
        )
    return step
