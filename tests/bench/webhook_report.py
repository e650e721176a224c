"""The webhook's part of the table: what was aimed at beside what was measured."""

from collections.abc import Iterable, Mapping

from tests.bench.webhook_measure import Answered, Memory, Rotated, Webhook
from tests.bench.webhook_pods import CROWDED, NULL, OURS, WITHOUT, Created
from tests.bench.webhook_rotation import HASTY

_MOST_P50_MS, _MOST_P99_MS = 1.5, 8.0
_MOST_ABOVE_MIB, _MOST_MIB = 35.0, 120.0
_MOST_ADDED_MS = 5.0
HEAD = ("what", "target", "measured", "")


def answered(found: Iterable[Answered]) -> str:
    """A table of loads alone."""
    return _table([row for each in found for row in _answered(each)])


def markdown(found: Webhook) -> str:
    """Title, table, and how it was measured."""
    rows = [
        *(row for each in found.answered for row in _answered(each)),
        *_memory(found.memory),
        *(_created(each) for each in found.created),
        _rotated(found.rotated),
    ]
    title = f"## Webhook, {found.objects:,} PVs and {found.objects:,} claims"
    return "\n\n".join([title, _table(rows), *_notes(found)])


def _table(rows: Iterable[tuple[str, str, str, str]]) -> str:
    lines = [HEAD, ("---", "--:", "--:", "---"), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _answered(each: Answered) -> list[tuple[str, str, str, str]]:
    what = f"pod review, {each.arrivals}"
    return [
        _row(f"{what}, p50", _MOST_P50_MS, each.took.p50, "ms"),
        _row(f"{what}, p99", _MOST_P99_MS, each.took.p99, "ms"),
        (f"{what}, slowest", "", f"{each.took.worst:.2f} ms", ""),
        (f"{what}, failed", "0", *_failed(each.failures)),
    ]


def _memory(memory: Memory) -> list[tuple[str, str, str, str]]:
    most = max(memory.cached_mib, memory.loaded_mib)
    return [
        ("memory, all imported (floor)", "", f"{memory.floor_mib:.1f} MiB", ""),
        ("memory, cached", "", f"{memory.cached_mib:.1f} MiB", ""),
        ("memory, after the load", "", f"{memory.loaded_mib:.1f} MiB", ""),
        _row("memory above the floor", _MOST_ABOVE_MIB, most - memory.floor_mib, "MiB"),
        _row("memory in all", _MOST_MIB, most, "MiB"),
    ]


def _created(each: Created) -> tuple[str, str, str, str]:
    if each.pace is CROWDED:
        rates = [f"{each.costs[way].per_s:.0f}" for way in (WITHOUT, OURS)]
        what = f"pods created, {each.pace.name}"
        return (what, "", f"{' → '.join(rates)} a second", "as fast as this machine can")
    spreads = {way: cost.spread for way, cost in each.costs.items()}
    what = f"pod created, {each.pace.name}, more by the webhook, p99"
    more = {way: spreads[way].p99 - spreads[WITHOUT].p99 for way in (NULL, OURS)}
    *row, missed = _row(what, _MOST_ADDED_MS, more[OURS], "ms")
    floor = f"{missed} (null webhook: {more[NULL]:.2f} ms)".strip()
    return (row[0], row[1], row[2], floor)


def _rotated(rotated: Rotated) -> tuple[str, str, str, str]:
    return (f"failed of {rotated.reviews:,} in a rotation", "0", *_failed(rotated.failures))


def _row(what: str, most: float, measured: float, unit: str) -> tuple[str, str, str, str]:
    missed = "" if measured <= most else "**missed**"
    return (what, f"≤ {most:g} {unit}", f"{measured:.2f} {unit}", missed)


def _failed(failures: Mapping[str, int]) -> tuple[str, str]:
    told = "; ".join(f"{number} x {why}" for why, number in failures.items())
    return str(sum(failures.values())), f"**missed**: {told}" if failures else ""


def _notes(found: Webhook) -> list[str]:
    loads = "; ".join(
        f"{each.arrivals}: {each.took.count:,} reviews, {each.cpu_ms:.2f} ms CPU each, sent late by"
        f" {each.late.p50:.2f} ms (p50) and {each.late.p99:.2f} ms (p99) within these times,"
        f" {each.foreign:.0%} of the machine used by others"
        for each in found.answered
    )
    created = ". ".join(_creations(each) for each in found.created)
    rotated = found.rotated
    reviews = (
        f"Reviews: {found.review_bytes:,} bytes each, of pods with two bound claims, over HTTPS"
        f" with keep-alive, {found.per_s:g} a second, the webhook on one core and the load on"
        " the other; times count from when a review was due, so that none is left out because"
        f" those before it were slow. {loads}."
    )
    memory = f"Memory: peak {found.memory.peak_mib:.1f} MiB; ready {found.ready_s:.1f} s after its start."
    rotation = (
        f"Rotation: {rotated.connections:,} connections, each trusting only the caBundle of its"
        f" moment; a new authority, its wait shortened to {HASTY.settle_s:g} s; p99 {rotated.took.p99:.2f} ms."
    )
    creation = (
        "Creation, in turn without a webhook configured, with one that lets everything through"
        f" unread (null), and with ours: {created}."
    )
    return [reviews, memory, creation, rotation]


def _creations(each: Created) -> str:
    told = (
        f"{way} p50 {spread.p50:.2f}, p99 {spread.p99:.2f}, slowest {spread.worst:.0f} ms"
        for way, spread in ((way, cost.spread) for way, cost in each.costs.items())
    )
    count = len(each.costs[OURS].each_ms)
    others = f"{each.foreign:.0%} of the machine used by others"
    return f"{each.pace.name}, {count:,} each way, {others}: {'; '.join(told)}"
