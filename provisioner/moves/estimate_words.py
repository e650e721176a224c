"""How long moves take, and what they cost, in sentences: the sums of their plans' estimates."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

from provisioner.model.node_affinity import region_of
from provisioner.model.volume_move import MoveEstimate, MovePlan, VolumeMove


def times(groups: Sequence[Sequence[VolumeMove]], at_once: int) -> list[str]:
    """How long groups of dry runs take, so many at once; nothing if no volume is copied."""
    longest = [max(found, key=_most) for group in groups if (found := _estimated(group))]
    if not longest:
        return []
    plan, estimate = max(longest, key=_most)
    least, most = estimate.least_minutes, estimate.most_minutes
    are_warm = all(plan.warms for group in groups for plan, _ in _estimated(group))
    told = [_why(plan, _range(least, most), are_warm=are_warm)]
    if len(groups) > 1:
        rounds = math.ceil(len(longest) / at_once)
        told.append(f"all {len(groups)} take about {_range(rounds * least, rounds * most)}")
    return told


def costs(moves: Sequence[VolumeMove]) -> list[str]:
    """What the volumes cost a month, before and after, and while the old ones are kept.

    Nothing is said if the price of one is not known.
    """
    found = _estimated(moves)
    estimates = [each for _, each in found]
    if not all(each.currency for each in estimates) or not estimates:
        return []
    first, region = estimates[0], region_of(found[0][0].target.zone)
    is_one, unit = len(found) == 1, first.currency
    what = "the old volume costs" if is_one else "the old volumes cost"
    other = "the new one" if is_one else "the new ones"
    old = _sum(each.source_month for each in estimates)
    new = _sum(each.target_month for each in estimates)
    by = f"by list prices of {region} ({first.prices_of})"
    told = [f"{by}, {what} {unit} {old} a month, {other} {unit} {new}"]
    keeping = [each.keeping_source for each in estimates if each.keeping_source]
    if all(_is_kept_for_ever(each) for each in moves):
        told.append("both are paid until somebody deletes the old data")
    elif keeping:
        told.append(f"both are paid while the old data is kept: {unit} {_sum(keeping)} more")
    if all(each.snapshot_month for each in estimates):
        most = _sum(each.snapshot_month for each in estimates)
        told.append(f"while it is there, the snapshot costs at most {unit} {most} a month")
    return ["; ".join(told)]


def _why(plan: MovePlan, time: str, *, are_warm: bool) -> str:
    """What of a move takes so long, and for whom."""
    if plan.copies_files:
        size_gib = min(plan.source.size_gib, plan.target.size_gib)
        return (
            f"the copy of up to {size_gib} GiB of files takes about {time} (an estimate: many "
            "small files take longest); pods stop for it"
        )
    last = "pods stop for it; a later one copies only what has changed"
    if are_warm:
        last = "pods go on meanwhile, and stop for what has changed since"
    return (
        f"a first snapshot of {plan.source.size_gib} GiB takes about {time} (an estimate for a "
        f"full volume, as EC2 promises no rate); {last}"
    )


def _most(each: tuple[MovePlan, MoveEstimate]) -> int:
    return each[1].most_minutes


def _estimated(moves: Iterable[VolumeMove]) -> list[tuple[MovePlan, MoveEstimate]]:
    """Of those whose volume is copied."""
    plans = [each.told.plan for each in moves if each.told.plan is not None]
    return [(each, each.estimate) for each in plans if each.estimate is not None]


def _range(least: int, most: int) -> str:
    unit = "minute" if most == 1 else "minutes"
    return f"{most} {unit}" if least >= most else f"{least} to {most} {unit}"


def _is_kept_for_ever(move: VolumeMove) -> bool:
    source = move.told.source
    return source is not None and source.reclaim_policy == "Retain"


def _sum(amounts: Iterable[str]) -> Decimal:
    return sum((Decimal(each) for each in amounts), Decimal(0))
