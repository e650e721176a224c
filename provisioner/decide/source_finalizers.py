"""Decide whether a claim or a snapshot is still held as the source of another claim.

Source: external-provisioner 6.3 pkg/controller/clone_controller.go and
snapshot_finalizer_controller.go. Both hold a source for as long as a pending claim names it. We
take the finalizer off a cloned claim once nobody needs it, and not only when that claim is deleted,
so that none is left behind where nobody would take it off.
"""

from collections.abc import Collection, Iterable

from provisioner.model.claim import Claim

_PENDING = frozenset({"", "Pending"})


def is_needed(key: str, naming: Iterable[Claim], in_flight: Collection[str]) -> bool:
    """Whether the source of this key is still needed.

    Args:
        key: as ``Claim.source_key``.
        naming: the claims that name it.
        in_flight: the keys of the sources of volumes that are being made, whose claims may be gone.
    """
    return key in in_flight or any(_is_pending(claim) for claim in naming)


def _is_pending(claim: Claim) -> bool:
    return (claim.status.phase if claim.status is not None else "") in _PENDING


def without(finalizers: Iterable[str], finalizer: str) -> list[str]:
    """The finalizers that are left."""
    return [each for each in finalizers if each != finalizer]
