"""How often a move is looked at, and for how long it has been in its phase."""

from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner.model.volume_move import Phase, StopPolicy, VolumeMove

LOOK_AGAIN_S = 2.0


def phase_age_s(move: VolumeMove) -> float:
    """Seconds since the phase was written; infinite if the move does not say when."""
    return passed_s(move.told.phase_since)


def longest_s(moves: Iterable[VolumeMove], phase: Phase, policy: StopPolicy) -> float:
    """``phase_age_s`` of the move that is in a phase longest; 0 if none is.

    Args:
        moves: of any phase.
        phase: the one.
        policy: how the pods of those that count stop.
    """
    there = (
        phase_age_s(move)
        for move in moves
        if move.phase is phase and move.spec.consumers.policy is policy
    )
    return max(there, default=0.0)


def passed_s(since: str) -> float:
    """Seconds since a moment of RFC 3339; infinite if it is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except ValueError:
        return float("inf")


def now() -> str:
    """This moment as it is written to a move: RFC 3339, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
