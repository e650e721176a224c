"""The moves there are, as a table or as JSON."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from provisioner.inspect.terminal.table_rules import NOTHING, table
from provisioner.model.names import MOVED_SET
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.moves import wish_rules

_HEADINGS = ("NAMESPACE", "NAME", "CLAIM", "TO", "PHASE", "AGE", "MESSAGE")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def in_order(moves: Iterable[VolumeMove]) -> list[VolumeMove]:
    """Those under way first, then those that have ended; each by name."""
    return sorted(moves, key=lambda each: (wish_rules.has_ended(each), each.key))


def lines(moves: Sequence[VolumeMove], now: datetime, *, width: int | None) -> list[str]:
    """A table; one sentence if there are none."""
    if not moves:
        return ["No VolumeMoves found."]
    return table(_HEADINGS, [_cells(each, now) for each in moves], width=width)


def _cells(move: VolumeMove, now: datetime) -> tuple[str, ...]:
    return (
        move.metadata.namespace,
        move.name,
        move.spec.claim_name,
        wish_rules.described(move.spec.to) or NOTHING,
        _phase(move),
        _age(move, now),
        move.told.message or NOTHING,
    )


def _phase(move: VolumeMove) -> str:
    told = move.told
    if move.spec.dry_run:
        return f"{told.phase or 'New'} (dry run)"
    if told.phase in (Phase.WARMING, Phase.SNAPSHOTTING):
        return f"{told.phase} {told.progress_percent} %"
    return told.phase or "New"


def _age(move: VolumeMove, now: datetime) -> str:
    created_at = move.metadata.creation_timestamp
    if created_at is None:
        return NOTHING
    age_s = max(0, int((now - created_at).total_seconds()))
    return next((f"{age_s // one}{unit}" for one, unit in _UNITS if age_s >= one), f"{age_s}s")


def as_json(moves: Iterable[VolumeMove]) -> list[dict[str, Any]]:
    """The same for scripts."""
    return [
        {
            "namespace": each.metadata.namespace,
            "name": each.name,
            "claim": each.spec.claim_name,
            "statefulSet": each.labels.get(MOVED_SET, ""),
            "to": wish_rules.to_json(each.spec.to),
            "dryRun": each.spec.dry_run,
            "phase": each.told.phase,
            "progressPercent": each.told.progress_percent,
            "progressBytes": each.told.progress_bytes,
            "totalBytes": each.told.total_bytes,
            "message": each.told.message,
        }
        for each in moves
    ]
