"""Decide whether the copy of a volume still has all that was written to it.

Our flow of attachments leaves a held volume alone. The stock driver's does not know of the hold,
and may lead in the middle of a move: it attaches the volume to a pod that comes. But before each
AttachVolume, external-attacher 4.12 sees to it that its finalizer is on the PersistentVolume, and
leaves it there (csi_handler.go: csiAttach, addPVFinalizer). So the hold takes it away, and one that
is there later tells that what was copied may be old.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.controller.moving.phase_rules import (
    Await,
    Recreate,
    Remove,
    SeenClaim,
    SwapStep,
    instead_of_copy,
    may_be_attached,
    volume_name,
)
from provisioner.model.attachment import Attachment
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.names import ATTACHED_BEFORE_MOVE, HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_move import FINALIZER, VolumeMove

Json = dict[str, Any]
_GONE = (VolumeState.DELETING, VolumeState.DELETED)
_UNCLAIM = '[{"op": "remove", "path": "/spec/claimRef"}]'
_NO_FINALIZERS = '{"metadata": {"finalizers": null}}'


@dataclass(frozen=True, slots=True)
class TurnBack:
    """Leave the claim its old volume, and undo the rest; the message says why."""

    message: str


def was_attached(old: PersistentVolume, driver: str) -> bool:
    """Whether another attacher has attached it, or was about to, since the hold."""
    return finalizer_of_attacher(driver) in old.finalizers


def held(old: PersistentVolume, move: VolumeMove, driver: str) -> Json:
    """The metadata of a PersistentVolume whose hold begins."""
    left = [each for each in old.finalizers if each != finalizer_of_attacher(driver)]
    if left == old.finalizers:
        return {"annotations": {HELD_FOR_MOVE: move.key}}
    notes = {HELD_FOR_MOVE: move.key, ATTACHED_BEFORE_MOVE: "true"}
    return {"annotations": notes, "finalizers": left}


def released(old: PersistentVolume, driver: str, notes: Iterable[str]) -> Json:
    """The metadata of a PersistentVolume whose hold ends; ``notes`` are removed as well."""
    gone = dict.fromkeys(notes)
    if ATTACHED_BEFORE_MOVE not in old.annotations:
        return {"annotations": gone}
    mark = finalizer_of_attacher(driver)
    marked = old.finalizers if mark in old.finalizers else [*old.finalizers, mark]
    return {"annotations": gone | {ATTACHED_BEFORE_MOVE: None}, "finalizers": [*marked]}


def is_in_the_way(move: VolumeMove, attachment: Attachment) -> bool:
    """Whether a move is to wait for an attachment of the old PersistentVolume.

    Another driver takes a volume over once none is left: so that is waited for in Held, while the
    claim is there and the move can be aborted.
    """
    return move.changes_driver or may_be_attached(attachment)


def outdated(move: VolumeMove, old: PersistentVolume | None, driver: str) -> str | None:
    """Why the copy may lack what was written since, as a sentence; None if it is complete."""
    if old is None:
        return gone(move)
    if old.annotations.get(HELD_FOR_MOVE) != move.key:
        return (
            f"PersistentVolume {old.name} was not held any more, so the snapshot may be too old: "
            "the move is undone; create another VolumeMove"
        )
    if was_attached(old, driver):
        return (
            f"another controller has attached PersistentVolume {old.name} since its snapshot was "
            "begun, and pods may have written to it: the move is undone; create another VolumeMove"
        )
    return None


def gone(move: VolumeMove) -> str:
    """Why a move is undone whose old PersistentVolume somebody has deleted."""
    return f"PersistentVolume {move.source.persistent_volume} is gone, so the move is undone"


def is_there(made: Volume | None) -> bool:
    """Whether EC2 has a volume, and is not deleting it."""
    return made is not None and made.state not in _GONE


def guarded(
    move: VolumeMove,
    step: SwapStep,
    claim: SeenClaim | None,
    old: PersistentVolume | None,
    *,
    made: Volume | None,
    driver: str,
    attached: Sequence[str] = (),
) -> SwapStep | TurnBack:
    """A step of the swap, or what is done instead, because it would lose data.

    Until the claim is deleted, the move can turn back; afterwards a human has to decide.

    Args:
        move: in Swapping.
        step: the next step, if nobody has interfered.
        claim: whatever has the claim's name.
        old: the old PersistentVolume.
        made: the volume that the claim is to have, as EC2 has it; asked for with ``may_lose``.
        driver: whose attacher may have interfered.
        attached: nodes that have the old PersistentVolume; asked for if another driver takes over.
    """
    if move.copies and _has_old_volume_again(move, claim):
        return TurnBack("somebody has given the claim its old volume again, so the move is undone")
    if not may_lose(step):
        return step
    if not move.copies:
        return _of_staying(move, step, made, attached)
    lacks = outdated(move, old, driver) if old is not None else None
    if isinstance(step, Remove):
        if lacks:
            return TurnBack(lacks)
        if not is_there(made):
            return TurnBack(f"the new volume {move.told.volume} was deleted in EC2")
    elif old is not None and lacks:
        return Await(_two_states(move, old, driver))
    elif not is_there(made):
        return Await(_copy_gone(move))
    return step


def _of_staying(
    move: VolumeMove, step: SwapStep, made: Volume | None, attached: Sequence[str]
) -> SwapStep:
    """A step of the swap of a volume that stays: nothing of it can be too old.

    Of two drivers, one would detach what the other has attached, so the first has to be done: that
    is waited for with the claim, and once more without it, as a pod may have come in between.
    """
    if made is None or not is_there(made):
        return Await(_nothing_left(move))
    nodes = [*attached, *(each.instance_id for each in made.attachments)]
    if move.changes_driver and nodes:
        return Await(f"waiting until volume {made.volume_id} is detached from {nodes[0]}")
    return step


def may_lose(step: SwapStep) -> bool:
    """Whether after this step the claim is one step further away from its old volume."""
    return isinstance(step, Remove | Recreate)


def _has_old_volume_again(move: VolumeMove, claim: SeenClaim | None) -> bool:
    return (
        claim is not None
        and claim.uid != move.source.claim_uid
        and volume_name(claim) == move.source.persistent_volume
        and BIND_COMPLETED in claim.annotations
        and not claim.deleting
    )


def _two_states(move: VolumeMove, old: PersistentVolume, driver: str) -> str:
    """What a human has to decide on: the claim is gone, and the copy may lack something."""
    source, new = move.source, move.persistent_volume_name
    attacher = finalizer_of_attacher(driver)
    if was_attached(old, driver):
        left = json.dumps([each for each in old.finalizers if each != attacher])
        patch = f'{{"metadata": {{"finalizers": {left}}}}}'
        forget = f"without {attacher}: kubectl patch pv {old.name} --type=merge -p '{patch}'"
    else:
        forget = f"kubectl annotate pv {old.name} --overwrite {HELD_FOR_MOVE}={move.key}"
    taken = f"snapshot {move.told.snapshot} was taken"
    after = "its files were copied" if move.copies_files else taken
    return (
        f"PersistentVolume {old.name} was attached, or not held, after {after}, so "
        f"PersistentVolume {new} may lack what was written since: either keep all that volume "
        f"{source.volume_id} has (create claim {move.claim_key} with spec.volumeName {old.name}, "
        f"then kubectl patch pv {old.name} --type=json -p '{_UNCLAIM}'), or use {new}, "
        f"and lose what was written since ({forget})"
    )


def _nothing_left(move: VolumeMove) -> str:
    """What can be done if somebody has deleted the volume that was to stay."""
    return (
        f"volume {move.told.volume} was deleted in EC2 by somebody else, so the claim has no data "
        "any more: restore a snapshot of it into another claim, then delete this VolumeMove and "
        f"remove its finalizer {FINALIZER}: kubectl -n {move.metadata.namespace} patch volumemove "
        f"{move.name} --type=merge -p '{_NO_FINALIZERS}'"
    )


def _copy_gone(move: VolumeMove) -> str:
    """What can be done if somebody has deleted the copy once the old claim is gone."""
    return f"the new volume {move.told.volume} was deleted in EC2: {instead_of_copy(move)}"
