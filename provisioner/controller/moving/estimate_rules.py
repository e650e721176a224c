"""How long a move takes, and what it costs, as far as that can be told before.

EC2 promises no rate for snapshots. Of a first one all is copied that was ever written; of a later
one only what has changed since (EBS user guide "How Amazon EBS snapshots work", read 2026-11-23).
"""

import math
from decimal import ROUND_HALF_UP, Decimal

from provisioner.model.node_affinity import region_of
from provisioner.model.volume import GIB, Volume, VolumeState
from provisioner.model.volume_move import MoveEstimate, MovePlan, Shape, VolumeMove
from provisioner.prices import price_rules
from provisioner.prices.price_rules import HOURS_A_MONTH, PriceFile, RegionPrices

# An assumption, not a promise: 500 MiB/s is the most that EC2 gives the copy of one snapshot (EBS
# user guide "Time-based copies", quotas, read 2026-11-24); the least is a guess.
_FASTEST_MIBPS, _SLOWEST_MIBPS = 500, 50
# Of a pod that copies files, where a volume's type tells no throughput (gp2 has 250 MiB/s at most),
# and a guess for many small files.
_FASTEST_COPY_MIBPS, _SLOWEST_COPY_MIBPS = 250, 20
_COPY_PASSES = 2  # all is read once more, to be compared
_MIB_A_GIB = 1024
# The new volume, the exchange, and what pods take to end and to start.
_REST_MINUTES = 1
_CHECK_MINUTES = 1  # at most: a volume is attached and detached once more, and a pod is started
_CENT = Decimal("0.01")


def estimate(
    move: VolumeMove, plan: MovePlan, reclaim_policy: str, prices: PriceFile
) -> MoveEstimate:
    """Of a move to a new volume.

    Args:
        move: for how long it keeps the old volume.
        plan: what both volumes are.
        reclaim_policy: the old volume's; with Retain, the controller never deletes it.
        prices: by Region; without those of both volumes, no amount is told.
    """
    least, most = copy_minutes(plan) if plan.copies_files else minutes(plan.source.size_gib)
    most += _CHECK_MINUTES if plan.checks else 0
    rates = prices.regions.get(region_of(plan.target.zone))
    old, new = _month(plan.source, rates), _month(plan.target, rates)
    if rates is None or old is None or new is None:
        return MoveEstimate(least_minutes=least, most_minutes=most)
    kept_hours = 0 if reclaim_policy == "Retain" else Decimal(move.spec.keep_source_s) / 3600
    stored = 0 if plan.copies_files else plan.source.size_gib * GIB
    snapshot = price_rules.snapshot_month(stored, rates) if stored else None
    return MoveEstimate(
        least_minutes=least,
        most_minutes=most,
        currency=prices.currency,
        prices_of=rates.oldest.isoformat(),
        source_month=_amount(old),
        target_month=_amount(new),
        keeping_source=_amount(old * kept_hours / HOURS_A_MONTH) if kept_hours else "",
        snapshot_month=_amount(snapshot) if snapshot is not None else "",
    )


def minutes(size_gib: int) -> tuple[int, int]:
    """About how long a move with a first snapshot of a full volume takes: least and most."""
    return _minutes(size_gib, _FASTEST_MIBPS), _minutes(size_gib, _SLOWEST_MIBPS)


def copy_minutes(plan: MovePlan) -> tuple[int, int]:
    """About how long a move takes whose files, as many as fit, are copied: least and most."""
    size_gib = min(plan.source.size_gib, plan.target.size_gib) * _COPY_PASSES
    told = [each.throughput_mibps for each in (plan.source, plan.target)]
    fastest = min(each or _FASTEST_COPY_MIBPS for each in told)
    return _minutes(size_gib, fastest), _minutes(size_gib, _SLOWEST_COPY_MIBPS)


def _minutes(size_gib: int, mibps: int) -> int:
    return math.ceil(size_gib * _MIB_A_GIB / mibps / 60) + _REST_MINUTES


def _month(shape: Shape, rates: RegionPrices | None) -> Decimal | None:
    volume = Volume(
        volume_id="",
        state=VolumeState.AVAILABLE,
        zone=shape.zone,
        size_gib=shape.size_gib,
        volume_type=shape.volume_type,
        iops=shape.iops,
        throughput_mibps=shape.throughput_mibps,
    )
    return price_rules.volume_month(volume, rates)


def _amount(value: Decimal) -> str:
    return str(value.quantize(_CENT, ROUND_HALF_UP))
