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
_MIB_A_GIB = 1024
# The new volume, the exchange, and what pods take to end and to start.
_REST_MINUTES = 1
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
    least, most = minutes(plan.source.size_gib)
    rates = prices.regions.get(region_of(plan.target.zone))
    old, new = _month(plan.source, rates), _month(plan.target, rates)
    if rates is None or old is None or new is None:
        return MoveEstimate(least_minutes=least, most_minutes=most)
    kept_hours = 0 if reclaim_policy == "Retain" else Decimal(move.spec.keep_source_s) / 3600
    snapshot = price_rules.snapshot_month(plan.source.size_gib * GIB, rates)
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
    least, most = (
        math.ceil(size_gib * _MIB_A_GIB / rate / 60) for rate in (_FASTEST_MIBPS, _SLOWEST_MIBPS)
    )
    return least + _REST_MINUTES, most + _REST_MINUTES


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
