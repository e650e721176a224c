"""Decide what a persistent volume needs at its end: finalizers, DeleteVolume, nothing.

``decide`` looks at caches and only ever *proposes* a deletion; ``confirm`` looks at what the API
server had after the call was granted, right before DeleteVolume, and has the last word.
Source: sig-storage-lib v13 ``shouldDelete``, external-provisioner 6.3 ``Delete``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from provisioner.model.attachment import Attachment
from provisioner.model.decision import SETTLED, Settled
from provisioner.model.errors import Reason
from provisioner.model.persistent_volume import (
    PROVISIONER_FINALIZER,
    PersistentVolume,
    finalizer_of_attacher,
)

DETACH_PATIENCE_S = 60.0  # a claim is often deleted together with its pod, and detaching takes time


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the object until its volume is deleted."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizers:
    """Let go of the object: these finalizers of ours hold nothing any more."""

    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the volume, then the object."""

    volume_id: str


@dataclass(frozen=True, slots=True)
class Defer:
    """It must not be deleted now; the user is told why.

    ``patience_s``: this long it is normal, and no event is recorded.
    """

    reason: Reason
    message: str
    patience_s: float = 0.0


Decision = Settled | AddFinalizer | RemoveFinalizers | Delete | Defer


def decide(
    persistent_volume: PersistentVolume,
    *,
    driver: str,
    attachments: Sequence[Attachment],
    namesakes: Collection[str],
) -> Decision:
    """Say what a persistent volume of any kind needs.

    ``attachments``: those that name it. ``namesakes``: other persistent volumes, in CSI or in-tree
    form, that name the same volume.
    """
    held = _held(persistent_volume, driver, attachments)
    if not persistent_volume.is_deleted_by(driver):
        return RemoveFinalizers(held) if held else SETTLED
    if _is_to_be_deleted(persistent_volume):
        return _refusal(persistent_volume, attachments, namesakes) or _deletion(
            persistent_volume, driver
        )
    return _finalizers(persistent_volume, held)


def confirm(
    proposed: PersistentVolume,
    live: PersistentVolume | None,
    *,
    driver: str,
    attachments: Sequence[Attachment],
    namesakes: Collection[str],
) -> Decision:
    """Say whether the proposed deletion still holds by what the API server says right now."""
    if live is None or live.uid != proposed.uid:
        return SETTLED
    return decide(live, driver=driver, attachments=attachments, namesakes=namesakes)


def _is_to_be_deleted(persistent_volume: PersistentVolume) -> bool:
    if persistent_volume.phase != "Released" or persistent_volume.reclaim_policy != "Delete":
        return False
    # Deleting without our finalizer: we are done with it already.
    return not (
        persistent_volume.deleting and PROVISIONER_FINALIZER not in persistent_volume.finalizers
    )


def _refusal(
    persistent_volume: PersistentVolume,
    attachments: Sequence[Attachment],
    namesakes: Collection[str],
) -> Defer | None:
    if attachments:
        return Defer(
            Reason.VOLUME_IN_USE,
            f"PersistentVolume {persistent_volume.name} is still attached to node "
            f"{attachments[0].spec.node_name}",
            patience_s=DETACH_PATIENCE_S,
        )
    if namesakes:
        return Defer(
            Reason.VOLUME_IN_USE,
            f"the volume of PersistentVolume {persistent_volume.name} is kept, because "
            f"PersistentVolume {min(namesakes)} names it too; delete {min(namesakes)}, or set the "
            f"reclaim policy of {persistent_volume.name} to Retain",
        )
    return None


def _deletion(persistent_volume: PersistentVolume, driver: str) -> Decision:
    volume_id = persistent_volume.volume_id(driver)
    if volume_id is None:
        return Defer(
            Reason.INVALID_REQUEST,
            f"PersistentVolume {persistent_volume.name} names no EBS volume",
        )
    return Delete(volume_id)


def _finalizers(persistent_volume: PersistentVolume, held: tuple[str, ...]) -> Decision:
    has = PROVISIONER_FINALIZER in persistent_volume.finalizers
    keeps_volume = persistent_volume.reclaim_policy in ("Retain", "Recycle")
    if has and keeps_volume:
        return RemoveFinalizers((PROVISIONER_FINALIZER, *held))
    if held:
        return RemoveFinalizers(held)
    if has and persistent_volume.deleting and persistent_volume.phase in ("Available", "Failed"):
        # Only what a claim has released is deleted, and this one never will be.
        return Defer(
            Reason.INVALID_REQUEST,
            f"PersistentVolume {persistent_volume.name} is {persistent_volume.phase}: the volume "
            "is kept, because no claim has released it; set the reclaim policy to Retain to "
            "release the object, and delete the volume in EC2 if it is not needed",
        )
    wanted = persistent_volume.reclaim_policy == "Delete" and persistent_volume.phase == "Bound"
    if wanted and not has and not persistent_volume.deleting:
        return AddFinalizer()
    return SETTLED


def _held(
    persistent_volume: PersistentVolume, driver: str, attachments: Sequence[Attachment]
) -> tuple[str, ...]:
    """The attacher's finalizer, once a deleted object is attached nowhere."""
    finalizer = finalizer_of_attacher(driver)
    if not persistent_volume.deleting or attachments:
        return ()
    return (finalizer,) if finalizer in persistent_volume.finalizers else ()
