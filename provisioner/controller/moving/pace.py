"""How often a move is looked at, and for how long it has been in its phase."""

from datetime import UTC, datetime

from provisioner.model.volume_move import VolumeMove

LOOK_AGAIN_S = 2.0


def phase_age_s(move: VolumeMove) -> float:
    """Seconds since the phase was written; infinite if the move does not say when."""
    return passed_s(move.told.phase_since)


def passed_s(since: str) -> float:
    """Seconds since a moment of RFC 3339; infinite if it is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except ValueError:
        return float("inf")


def now() -> str:
    """This moment as it is written to a move: RFC 3339, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
