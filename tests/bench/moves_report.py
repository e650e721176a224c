"""What the bench says of many moves at once."""

from collections import Counter
from statistics import median

from tests.bench.moves_measure import EVERY_S, OTHERS, Moved, limits
from tests.bench.moves_numbers import delay

MOST_RATIO, MOST_DELAY = 1.15, 0.1
_LISTED = 12


def markdown(moved: Moved) -> str:
    """The part of the report."""
    phase, limit = moved.phase, limits()
    count = phase.objects
    requests = moved.requests - moved.alone_requests
    calls = Counter(phase.calls) - moved.alone_calls
    throttled = sum(phase.throttled.values())
    cpu_ms = Counter({part: seconds / count * 1000 for part, seconds in phase.cpu_s.items()})
    cpu = ", ".join(f"{part} {each:.0f}" for part, each in cpu_ms.most_common())
    return (
        f"## {count} moves at once, at the documented quota\n\n"
        f"Done in **{phase.seconds:.1f} s**, {phase.seconds / moved.bound_s:.2f} x the bound of "
        f"{moved.bound_s:.1f} s (at most {MOST_RATIO} x): CreateSnapshot and CreateVolume "
        f"{limit.snapshots.burst:.0f} at once and {limit.snapshots.per_s:.0f} a second, "
        f"{limit.pending} snapshots pending, {limit.snapshot_s:.0f} s for a snapshot, "
        f"{limit.create_s} s for a volume, {limit.call_s} s for a call, and the {OTHERS} volumes of "
        f"others; machine used by others "
        f"{phase.foreign:.0%}.\n\n"
        f"A move: {requests.total() / count:.1f} requests to the API server ("
        f"{_each(requests, count)}), {calls.total() / count:.1f} calls to EC2 ({_each(calls, count)}), "
        f"{throttled} of all throttled, {sum(phase.refused.values())} refused; ms of "
        f"CPU: {cpu}.\n\n"
        f"{OTHERS} claims of others, one every {EVERY_S} s, until Bound: {_waits(moved.alone_s)} "
        f"without moves, {_waits(moved.beside_s)} beside them; "
        f"**{delay(moved.alone_s, moved.beside_s, median):+.0%}** in the median, "
        f"{delay(moved.alone_s, moved.beside_s, max):+.0%} at most (at most {MOST_DELAY:+.0%})."
    )


def _waits(waits_s: list[float]) -> str:
    return f"median {median(waits_s):.2f} s, at most {max(waits_s):.2f} s"


def _each(counts: Counter[str], count: int) -> str:
    most = counts.most_common(_LISTED)
    return ", ".join(f"{what} {number / count:.2f}" for what, number in most)
