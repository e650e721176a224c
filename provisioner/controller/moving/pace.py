"""How often a move is looked at, and for how long it has been in its phase."""

from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner.model.volume_move import ABORTABLE, StopPolicy, VolumeMove

LOOK_AGAIN_S = 2.0


def phase_age_s(move: VolumeMove) -> float:
    """Seconds since the phase was written; infinite if the move does not say when."""
    return passed_s(move.told.phase_since)


def longest_s(moves: Iterable[VolumeMove], policy: StopPolicy) -> float:
    """``phase_age_s`` of the move that has been in its phase longest; 0 if there is none.

    One that waits for those that it is moved with does not count: what they wait for does.

    Args:
        moves: those in one phase.
        policy: how the pods of those that count stop.
    """
    ages = (
        phase_age_s(move)
        for move in moves
        if move.spec.consumers.policy is policy and not waits_for_others(move)
    )
    return max(0.0, *ages, 0.0)


def waits_for_others(move: VolumeMove) -> bool:
    """Whether a move could go on, and the others that it is moved with are not as far."""
    return move.told.ready and move.told.phase in ABORTABLE


def passed_s(since: str) -> float:
    """Seconds since a moment of RFC 3339; infinite if it is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):  # TypeError: it has no time zone
        return float("inf")


def now() -> str:
    """This moment as it is written to a move: RFC 3339, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
