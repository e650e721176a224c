"""The table, in markdown; only what this run has measured is in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from provisioner.ec2.look_rules import THINGS_A_CALL, looks_a_second
from tests.bench import (
    day,
    inspect_measure,
    modify_report,
    moves_report,
    node_report,
    pod_chain,
    scale_report,
    shared_account,
    wait_measure,
    webhook_flood,
    webhook_report,
    writes,
)
from tests.bench.inspect_measure import Inspected
from tests.bench.kwok import report as kwok_report
from tests.bench.kwok.report import Found as KwokFound
from tests.bench.looks import WINDOW_S
from tests.bench.memory import Memory
from tests.bench.modify import Modified
from tests.bench.moves_measure import Moved
from tests.bench.node_numbers import Node
from tests.bench.phases import NAMES, Phase
from tests.bench.pod_chain import Chain
from tests.bench.quota import Quota
from tests.bench.scale_stage import Scaled
from tests.bench.shared_account import Shared
from tests.bench.wait_measure import Waits
from tests.bench.webhook_flood import Flooded
from tests.bench.webhook_measure import Webhook
from tests.bench.world import BARE, NULL, OURS, TOLD
from tests.bench.writes import Writes
from tests.day.report import Found

Runs = dict[str, list[list[Phase]]]  # by contestant, one list of phases a repetition

ELSEWHERE = (
    "The stock driver and sidecars, measured elsewhere on 2026-11-21 (same kind of machine, a "
    "simulated EC2 in Go that costs less than ours, so not comparable line by line; chart's "
    "defaults / API limits lifted): Bound 51.6 / 23.7 s, attached 147.9 / 39.6 s, detached "
    "98.5 / 56.1 s, gone 105.8 / 20.0 s; 300 claims at the documented quota 53.1 s."
)
_ACTIONS = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")
_MOST_RATIO = 1.3


@dataclass(slots=True)
class Results:
    """Everything that a run has measured; what was left out is empty."""

    machine: str
    count: int
    runs: Runs = field(default_factory=dict)
    growth: dict[int, dict[str, list[Phase]]] = field(default_factory=dict)
    idle_calls: dict[str, int] | None = None
    idle_s: float = 0.0
    waits: list[Waits] | None = None
    chain: Chain | None = None
    quota: Quota | None = None
    modified: Modified | None = None
    moved: Moved | None = None
    memory: Memory | None = None
    webhook: Webhook | None = None
    flood: list[Flooded] | None = None
    node: Node | None = None
    inspected: Inspected | None = None
    scaled: Scaled | None = None
    writes: Writes | None = None
    shared: list[Shared] | None = None
    day: Found | None = None
    kwok: KwokFound | None = None


def markdown(results: Results) -> str:
    """The whole report."""
    parts = ["# Bench", results.machine]
    if results.runs:
        parts += [_speed(results), _cpu(results), _calls(results)]
    if results.waits is not None:
        parts.append(wait_measure.markdown(results.waits))
    if results.chain is not None:
        parts.append(pod_chain.markdown(results.chain))
    parts += _at_quota(results)
    if results.memory is not None:
        parts.append(_memory(results.memory))
    if results.webhook is not None:
        parts.append(webhook_report.markdown(results.webhook))
    if results.flood is not None:
        parts.append(webhook_flood.markdown(results.flood))
    if results.node is not None:
        parts.append(node_report.markdown(results.node))
    if results.inspected is not None:
        parts.append(inspect_measure.markdown(results.inspected))
    parts += _large(results)
    return "\n\n".join([*parts, ELSEWHERE]) + "\n"


def _large(results: Results) -> list[str]:
    parts = []
    if results.scaled is not None:
        parts.append(scale_report.markdown(results.scaled))
    if results.writes is not None:
        parts.append(writes.markdown(results.writes))
    if results.shared is not None:
        parts.append(shared_account.markdown(results.shared))
    if results.day is not None:
        parts.append(day.markdown(results.day))
    if results.kwok is not None:
        parts.append(kwok_report.markdown(results.kwok))
    if results.growth:
        parts.append(_growth(results.growth))
    return parts


def _at_quota(results: Results) -> list[str]:
    parts = []
    if results.quota is not None:
        parts.append(_quota(results.quota))
    if results.modified is not None:
        parts.append(modify_report.markdown(results.modified))
    if results.moved is not None:
        parts.append(moves_report.markdown(results.moved))
    return parts


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _seconds(results: Results, name: str, number: int) -> float | None:
    runs = results.runs.get(name)
    return median(run[number].seconds for run in runs) if runs else None


def _half(results: Results, name: str, number: int) -> str:
    """Until half of the objects were there."""
    runs = results.runs.get(name)
    return _s(median(run[number].median_s for run in runs) if runs else None)


def _speed(results: Results) -> str:
    rows = []
    for number, phase in enumerate(NAMES):
        ours, null, told, bare = (
            _seconds(results, who.name, number) for who in (OURS, NULL, TOLD, BARE)
        )
        others = f"{_foreign(results, OURS.name, number)} / {_foreign(results, NULL.name, number)}"
        halves = (_half(results, who.name, number) for who in (OURS, NULL))
        rows.append(
            [phase, _s(ours), _s(null), _ratio(ours, null), *halves, others, _s(told), _s(bare)]
        )
    head = [
        *("phase", "ours", "floor", f"ours / floor (≤ {_MOST_RATIO})"),
        *("ours, median object", "floor, median object"),
        *("machine used by others", TOLD.name, "bare floor"),
    ]
    return (
        f"## {results.count} objects, EC2 quota x20, latency real\n\n{_table(head, rows)}\n\n"
        "Floor: the null controller, which makes the same EC2 calls to an equal EC2 and the same "
        "API writes in a world of its own; the bare one leaves out the patch that pins a claim's "
        "zone, and the events."
    )


def _foreign(results: Results, name: str, number: int) -> str:
    """How far a figure can be trusted: on a shared machine it is too high."""
    runs = results.runs.get(name)
    return f"{median(run[number].foreign for run in runs):.0%}" if runs else ""


def _cpu(results: Results) -> str:
    rows = []
    for number, phase in enumerate(NAMES):
        cells = [phase]
        for who in (OURS, NULL):
            runs = results.runs.get(who.name)
            for part in ("contestant", "kube-apiserver", "EC2"):
                found = [run[number].cpu_s.get(part, 0.0) for run in runs or ()]
                per = median(found) / results.count * 1000 if found else None
                cells.append("" if per is None else f"{per:.2f}")
        rows.append(cells)
    head = ["CPU ms per object", "ours", "API server", "EC2", "floor", "API server", "EC2"]
    after = [run[-1].memory_mib for run in results.runs.get(OURS.name, ())]
    memory = f"\n\nResident after all of it: {max(after):.0f} MiB." if after else ""
    return f"## CPU, user and system, per object\n\n{_table(head, rows)}{memory}"


def _calls(results: Results) -> str:
    rows = []
    for who in (OURS, NULL):
        for run in results.runs.get(who.name, [])[:1]:
            total: dict[str, int] = {}
            for phase in run:
                for action, number in phase.calls.items():
                    total[action] = total.get(action, 0) + number
            each = [f"{total.get(action, 0) / results.count:.3f}" for action in _ACTIONS]
            others = {a: n for a, n in sorted(total.items()) if a not in _ACTIONS}
            rest = ", ".join(f"{a} {n}" for a, n in others.items()) or "none"
            rows.append([who.name, *each, rest, _looks(run, has_limit=who is OURS)])
    head = [
        "calls per volume",
        *_ACTIONS,
        "all others, in all",
        f"looks in the busiest {WINDOW_S:.0f} s by their limit; most things in transition then",
    ]
    idle = ""
    if results.idle_calls is not None:
        calls = sum(results.idle_calls.values())
        idle = f"\n\nIdle for {results.idle_s:.0f} s with all volumes attached: {calls} EC2 calls."
    return (
        f"## EC2 calls\n\n{_table(head, rows)}\n\n"
        f"Looks are all Describe calls but DescribeInstances. Limit: {looks_a_second(1)} a second "
        f"while at most {THINGS_A_CALL} things are in transition, then one for each started "
        f"{THINGS_A_CALL} of them.{idle}"
    )


def _looks(run: Sequence[Phase], *, has_limit: bool) -> str:
    found = [phase.looks for phase in run if phase.looks is not None]
    if not found:
        return ""
    most = max(found, key=lambda each: each.above)
    limit = f" (limit {most.allowed:.0f})" if has_limit else ""
    missed = ", **missed**" if has_limit and most.above > 0 else ""
    return f"{most.looks}{limit}; {most.in_transition:,}{missed}"


def _quota(quota: Quota) -> str:
    share = quota.throttled / quota.calls * 100
    return (
        f"## {quota.count} claims at the documented quota\n\n"
        f"Bound in **{quota.seconds:.1f} s**, {quota.seconds / quota.floor_s:.3f} x the floor of "
        f"{quota.floor_s:.0f} s (at most 1.08 x); {quota.throttled} of {quota.calls} calls "
        f"throttled: {share:.2f} % (at most 2 %)."
    )


def _memory(memory: Memory) -> str:
    rows = [
        ["imported, nothing done", f"{memory.imported_mib:.1f}", "", ""],
        ["empty cluster", f"{memory.empty_mib:.1f}", "", f"{memory.empty_ready_s:.2f}"],
        [
            f"{memory.objects:,} PVs and {memory.objects:,} claims",
            f"{memory.full_mib:.1f}",
            f"{memory.peak_mib:.1f}",
            f"{memory.ready_s:.2f}",
        ],
    ]
    above = memory.full_mib - memory.imported_mib
    table = _table(["controller", "resident MiB", "peak MiB", "start to ready s"], rows)
    return (
        f"## Memory and start\n\n{table}\n\n{above:.1f} MiB above the import floor (at most 45), "
        f"{memory.full_mib:.0f} MiB in all, {memory.peak_mib:.0f} MiB at the peak (at most 140); "
        f"ready in {memory.ready_s:.1f} s (at most 5)."
    )


def _growth(growth: Mapping[int, Mapping[str, list[Phase]]]) -> str:
    rows = []
    for count, by_name in sorted(growth.items()):
        for name, run in by_name.items():
            seconds = [f"{phase.seconds:.1f}, {phase.median_s:.1f}" for phase in run]
            cpu_ms = sum(p.cpu_s["contestant"] for p in run) / count * 1000
            foreign = f"{sum(phase.foreign for phase in run) / len(run):.0%}"
            costs = (f"{cpu_ms:.1f}", f"{max(phase.memory_mib for phase in run):.0f}", foreign)
            rows.append([f"{count:,}", name, *seconds, *costs])
    head = [
        *("N", "who", *(f"{name}: last, median object, s" for name in NAMES)),
        *("CPU ms per object, all phases", "resident MiB, at most", "machine used by others"),
    ]
    return f"## Cost against N\n\n{_table(head, rows)}"


def _s(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"


def _ratio(ours: float | None, floor: float | None) -> str:
    return "" if ours is None or not floor else f"{ours / floor:.2f}"
