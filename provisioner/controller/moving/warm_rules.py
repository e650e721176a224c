"""Decide which snapshots are taken while pods run, so that the one that counts copies little.

EBS copies only the blocks that have changed since the last snapshot of the volume. Source: EBS user
guide "How Amazon EBS snapshots work". They cost a move nothing but time, in which pods run.

What EC2 refuses here it would refuse in Snapshotting as well, with the pods stopped: so nothing is
skipped, and pods run until it is corrected.
"""

from dataclasses import dataclass

from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.ebs_snapshot import EVERY_S, EbsSnapshot, SnapshotState
from provisioner.model.volume import Volume
from provisioner.model.volume_move import VolumeMove

MOST_WARM = 4
# What was copied within that is a small difference; the next one can hardly be smaller.
_SMALL_S = 60.0


@dataclass(frozen=True, slots=True)
class Take:
    """Take the next one; ``number``: from 1 on."""

    number: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete one that failed: it counts as one that is being taken until then."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Warmed:
    """Stop the pods now."""


WarmStep = Take | Discard | Await | Warmed | Undo


def is_worth_it(move: VolumeMove, volume: Volume) -> bool:
    """Whether snapshots are taken first: a node has the volume, and nobody wants it otherwise."""
    return move.spec.warm and bool(volume.attachments)


def next_warm_step(
    move: VolumeMove, volume: Volume | None, last: EbsSnapshot | None, passed_s: float
) -> WarmStep:
    """How the difference becomes small.

    Args:
        move: in Warming.
        volume: the old one, as EC2 shows it.
        last: the last snapshot that is written down, as EC2 shows it.
        passed_s: since that was asked for.
    """
    told = move.told
    if volume is None:
        return Undo(f"EC2 does not know volume {move.source.volume_id} any more")
    is_attached = bool(volume.attachments)
    if not told.warm:
        return Take(1) if is_attached else Warmed()
    if last is None and passed_s < CONSISTENCY_S:
        return Await(f"waiting until EC2 shows snapshot {told.warm[-1]}")
    if last is not None and last.state is SnapshotState.PENDING:
        return Await(told.message)
    if last is not None and last.state is not SnapshotState.COMPLETED:
        return Discard(last.snapshot_id)
    if not is_attached:
        return Warmed()
    is_small = last is not None and passed_s <= _SMALL_S
    if not is_small and len(told.warm) < MOST_WARM:
        return Take(len(told.warm) + 1)
    if passed_s < EVERY_S:  # else pods would be stopped, and wait for that
        return Await(f"pods go on: EBS takes one snapshot of a volume every {EVERY_S:.0f} s")
    return Warmed()


def said(number: int, snapshot_id: str, volume_id: str) -> str:
    """That one is being taken, as a sentence."""
    return (
        f"pods go on: snapshot {snapshot_id} of volume {volume_id} is being taken, number {number} "
        f"of at most {MOST_WARM} before the one that counts"
    )


NOTE = (
    "first, snapshots are taken while pods run, so that they stop for less long: whoever stops "
    "them by hand should wait for the phase Held"
)
