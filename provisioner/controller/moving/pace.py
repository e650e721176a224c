"""How often a move is looked at, and for how long it has been in its phase."""

from datetime import UTC, datetime

from provisioner.model.volume_move import VolumeMove

LOOK_AGAIN_S = 2.0


def phase_age_s(move: VolumeMove) -> float:
    """Seconds since the phase was written; infinite if the move does not say when."""
    try:
        since = datetime.fromisoformat(move.told.phase_since)
    except ValueError:
        return float("inf")
    return (datetime.now(UTC) - since).total_seconds()
