"""How often a move is looked at, and for how long it has been in its phase."""

from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner.model.volume_move import ABORTABLE, ENDS, VolumeMove

LOOK_AGAIN_S = 2.0
SLOWEST_S = 60.0  # the longest pause after a failure: pods may wait (see ``patience_rules``)


def phase_age_s(move: VolumeMove) -> float:
    """Seconds since the phase was written; infinite if the move does not say when."""
    return passed_s(move.told.phase_since)


def longest_s(moves: Iterable[VolumeMove]) -> float:
    """``phase_age_s`` of the move that has been in its phase longest; 0 if there is none."""
    return max(0.0, max(map(phase_age_s, moves), default=0.0))


def waits_for_others(move: VolumeMove, others: Iterable[VolumeMove]) -> bool:
    """Whether a move could go on, and one of those that it is moved with is not as far."""
    is_ready = move.told.ready and move.told.phase in ABORTABLE
    return is_ready and any(not each.told.ready and each.told.phase not in ENDS for each in others)


def passed_s(since: str) -> float:
    """Seconds since a moment of RFC 3339; infinite if it is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):  # TypeError: it has no time zone
        return float("inf")


def now() -> str:
    """This moment as it is written to a move: RFC 3339, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
