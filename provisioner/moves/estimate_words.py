"""How long a move takes, and what it costs, as far as that can be told before.

EC2 promises no rate for snapshots. Of a first one all is copied that was ever written; of a later
one only what has changed since (EBS user guide "How Amazon EBS snapshots work", read 2026-11-23).
"""

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

from provisioner.model.node_affinity import region_of
from provisioner.model.volume import GIB, Volume, VolumeState
from provisioner.model.volume_move import Shape, VolumeMove
from provisioner.prices import price_rules
from provisioner.prices.price_rules import HOURS_A_MONTH, PriceFile, RegionPrices

# An assumption, not a promise: 500 MiB/s is the most that EC2 gives the copy of one snapshot (EBS
# user guide "Time-based copies", quotas, read 2026-11-24); the least is a guess.
_FASTEST_MIBPS, _SLOWEST_MIBPS = 500, 50
_MIB_A_GIB = 1024
# The new volume, the exchange, and what pods take to end and to start.
_REST_MINUTES = 1
_CENT = Decimal("0.01")


def minutes(size_gib: int) -> tuple[int, int]:
    """About how long the pods are stopped by a first snapshot of a full volume: least and most."""
    least, most = (
        math.ceil(size_gib * _MIB_A_GIB / rate / 60) for rate in (_FASTEST_MIBPS, _SLOWEST_MIBPS)
    )
    return least + _REST_MINUTES, most + _REST_MINUTES


def times(groups: Sequence[Sequence[VolumeMove]], at_once: int) -> list[str]:
    """How long groups of dry runs take, so many at once; nothing if no volume is copied."""
    largest = [
        max((e.told.plan.source.size_gib for e in group if _copies(e) and e.told.plan), default=0)
        for group in groups
    ]
    largest = [each for each in largest if each]
    if not largest:
        return []
    least, most = minutes(max(largest))
    first = f"a first snapshot of {max(largest)} GiB takes about {_range(least, most)}"
    why = "an estimate for a full volume, as EC2 promises no rate"
    told = [f"{first} ({why}); a later one copies only what has changed"]
    if len(groups) > 1:
        rounds = math.ceil(len(largest) / at_once)
        told.append(f"all {len(groups)} take about {_range(rounds * least, rounds * most)}")
    return told


def _copies(move: VolumeMove) -> bool:
    return not move.keeps_volume


def _range(least: int, most: int) -> str:
    unit = "minute" if most == 1 else "minutes"
    return f"{most} {unit}" if least >= most else f"{least} to {most} {unit}"


def costs(moves: Sequence[VolumeMove], prices: PriceFile) -> list[str]:
    """What the volumes cost a month, before and after, and while the old ones are kept.

    Args:
        moves: dry runs with their plans.
        prices: by Region; without one for a volume nothing is said.
    """
    plans = [each.told.plan for each in moves if _copies(each) and each.told.plan is not None]
    if not plans:
        return []
    region = region_of(plans[0].target.zone)
    rates = prices.regions.get(region)
    old = _sum([_month(plan.source, rates) for plan in plans])
    new = _sum([_month(plan.target, rates) for plan in plans])
    size = sum(plan.source.size_gib for plan in plans)
    snapshots = price_rules.snapshot_month(size * GIB, rates)
    if rates is None or old is None or new is None:
        return []
    is_one, unit = len(plans) == 1, prices.currency
    what = "the old volume costs" if is_one else "the old volumes cost"
    other = "the new one" if is_one else "the new ones"
    by = f"by list prices of {region} ({rates.oldest})"
    told = [f"{by}, {what} {unit} {_amount(old)} a month, {other} {unit} {_amount(new)}"]
    kept_hours = Decimal(moves[0].spec.keep_source.removesuffix("h") or 0)
    if all(_is_kept_for_ever(each) for each in moves):
        told.append("both are paid until somebody deletes the old data")
    elif kept_hours:
        more = old * kept_hours / HOURS_A_MONTH
        told.append(f"both are paid while the old data is kept: {unit} {_amount(more)} more")
    if snapshots is not None:
        told.append(
            f"while it is there, the snapshot costs at most {unit} {_amount(snapshots)} a month"
        )
    return ["; ".join(told)]


def _is_kept_for_ever(move: VolumeMove) -> bool:
    source = move.told.source
    return source is not None and source.reclaim_policy == "Retain"


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


def _sum(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [each for each in amounts if each is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None


def _amount(value: Decimal) -> str:
    return str(value.quantize(_CENT, ROUND_HALF_UP))
