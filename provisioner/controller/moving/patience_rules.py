"""Decide when a move is undone because it does not get on, and has stopped pods, which wait."""

from dataclasses import dataclass, replace

from provisioner.controller.moving.phase_rules import Undo
from provisioner.model.errors import NO_ANSWER, Outcome, StorageError
from provisioner.model.volume_move import ABORTABLE, Phase, VolumeMove

GIVE_UP_AFTER_S = 900.0
# Retries come once a minute at least: after a longer pause the next refusal is another matter.
_PAUSE_S = 300.0
_STOPPED = ABORTABLE - {Phase.PLANNED, Phase.WARMING}


@dataclass(frozen=True, slots=True)
class _Row:
    """Refusals in one phase without a longer pause."""

    phase: Phase
    first_s: float
    last_s: float


class Patience:
    """Since when moves do not get on, as one process has seen it: a new leader begins anew."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def is_out(self, move: VolumeMove, now_s: float) -> bool:
        """Note that a move does not get on; whether that has lasted too long for its pods.

        With Wait, whoever has stopped the pods decides.
        """
        row = self._rows.get(move.uid)
        if row is None or row.phase is not move.phase or now_s - row.last_s > _PAUSE_S:
            row = _Row(move.phase, now_s, now_s)
        self._rows[move.uid] = replace(row, last_s=now_s)
        is_stopped = move.stops_pods and move.phase in _STOPPED
        return is_stopped and now_s - row.first_s >= GIVE_UP_AFTER_S

    def forget(self, uid: str) -> None:
        """A move gets on, or has ended."""
        self._rows.pop(uid, None)


def is_refused(error: StorageError) -> bool:
    """Whether something was answered, and it was no."""
    return error.outcome is Outcome.NOTHING and error.reason not in NO_ANSWER


def undone(message: str) -> Undo:
    """Undo a move; ``message``: what is in its way."""
    minutes = GIVE_UP_AFTER_S / 60
    return Undo(f"given up, as it did not get on for {minutes:.0f} minutes: {message}")
