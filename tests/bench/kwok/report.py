"""What a run came to: the goals that were missed, and the tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from provisioner.ec2.look_rules import looks_a_second
from tests.bench.kwok.components import Placed
from tests.bench.kwok.trouble_rules import RECOVERED_WITHIN_S

MOST_GROWTH = 0.05
_MOST_THROTTLED = 0.02
_OURS = ("RunInstances", "TerminateInstances")
_CHANGES = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")
_MOST_TOLD = 30


@dataclass(slots=True)
class Sample:
    """One look at the leader.

    Attributes:
        leader: its name and which start of it; "" if nobody leads.
        in_transition: what it looks at EC2 for again and again, of all kinds.
    """

    at_s: float
    leader: str
    rss_mib: float
    queue_depth: float
    waiting: int
    late: int
    in_transition: int = 0


@dataclass(frozen=True, slots=True)
class Looks:
    """How often EC2 was asked for volumes in a half minute, without inventories.

    Attributes:
        a_second: calls.
        in_transition: what the leader looked at again and again, of all kinds, at most.
    """

    a_second: float = 0.0
    in_transition: int = 0

    @property
    def above_limit(self) -> float:
        """Calls a second, negative below."""
        return self.a_second - looks_a_second(self.in_transition)


@dataclass(slots=True)
class Told:
    """How a trouble went.

    Attributes:
        what: it was.
        ended_s: on the clock of the samples.
        late: behind at its end; ``most_late``: at most afterwards.
        recovered_s: after its end, when the last of them was done, at most until the next trouble
            began; 0 without any.
    """

    what: str
    ended_s: float
    late: int = 0
    most_late: int = 0
    recovered_s: float = 0.0


@dataclass(slots=True)
class Found:
    """Everything."""

    volumes: int
    nodes: int
    minutes: float
    classes: int = 1
    loading_s: float = 0.0
    load: tuple[float, float] = (0.0, 0.0)
    samples: list[Sample] = field(default_factory=list)
    troubles: list[Told] = field(default_factory=list)
    took_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    throttled: dict[str, int] = field(default_factory=dict)
    looks: Looks = field(default_factory=Looks)  # those of the half minute most above the limit
    ended: int = 0
    replaced: int = 0
    restarted: int = 0
    starts: dict[str, int] = field(default_factory=dict)
    placed: Placed = field(default_factory=Placed)
    rested_s: float = 0.0
    queue_depth: float = 0.0
    late_in_calm: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)


def memory(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Resident MiB of whoever leads: medians of the first and last tenth, and the most."""
    led = [each.rss_mib for each in samples if each.leader and each.rss_mib]
    if not led:
        return 0.0, 0.0, 0.0
    some = max(1, len(led) // 10)
    return median(led[:some]), median(led[-some:]), max(led)


def missed(found: Found) -> list[str]:
    """Sentences about goals that were not reached."""
    told = [*found.wrong, *found.errors]
    first, last, _ = memory(found.samples)
    if last > first * (1 + MOST_GROWTH):
        told.append(f"the leader has {last:.0f} MiB at the end, {first:.0f} at the beginning")
    told += [
        f"{each.what}: some still waited {each.recovered_s:.0f} s after its end"
        for each in found.troubles
        if each.recovered_s > RECOVERED_WITHIN_S
    ]
    if found.late_in_calm:
        told.append(f"in calm, {found.late_in_calm} waited for more than a minute")
    if found.queue_depth:
        told.append(f"at rest, {found.queue_depth:g} keys are in queues")
    calls, throttled = _calls(found), sum(found.throttled.values())
    if throttled > calls * _MOST_THROTTLED:
        told.append(f"{throttled} of {calls} calls were throttled")
    if found.looks.above_limit > 0:
        told.append(
            f"{found.looks.a_second:.1f} DescribeVolumes a second, "
            f"with {found.looks.in_transition} things in transition"
        )
    return told


def markdown(found: Found) -> str:
    """Title and tables."""
    first, last, most = memory(found.samples)
    per = ", ".join(f"{name} {found.calls.get(name, 0):,}" for name in _CHANGES)
    throttled = sum(found.throttled.values())
    rows = [
        ("claims Bound, gone", f"{_count(found, 'bound')}, {found.ended:,}"),
        ("pods restarted; nodes replaced", f"{found.restarted:,}; {found.replaced:,}"),
        *((f"until {name}: median, p99", _spread(found, name)) for name in _PHASES),
        (
            "pods that the scheduler placed; its search for a node, each",
            f"{found.placed.pods:,}; {found.placed.each_ms:.0f} ms",
        ),
        ("lost, doubled, leaked, misplaced", f"{len(found.wrong)}"),
        ("waited > 60 s, in calm", f"{found.late_in_calm}"),
        ("until nothing was under way, after the run", f"{found.rested_s:.0f} s"),
        ("calls to EC2, throttled", f"{_calls(found):,}, {throttled:,} ({per})"),
        (
            "looks (DescribeVolumes) a second, busiest 30 s by their limit; in transition then",
            f"{found.looks.a_second:.1f}; {found.looks.in_transition:,}",
        ),
        ("memory of the leader: first, last, most", f"{first:.0f}, {last:.0f}, {most:.0f} MiB"),
        ("starts", ", ".join(f"{name} {n}" for name, n in found.starts.items())),
        ("CPU", ", ".join(f"{name} {s:.0f} s" for name, s in found.cpu_s.items())),
    ]
    title = (
        f"## {found.volumes:,} volumes, {found.nodes:,} nodes of KWOK, {found.minutes:g} minutes\n\n"
        f"{found.classes} StorageClasses with {found.volumes // found.classes:,} volumes each. "
        f"Loaded in {found.loading_s:.0f} s; load of the machine {found.load[0]:.1f} before, "
        f"{found.load[1]:.1f} after."
    )
    head = ("trouble", "waited > 60 s at its end, at most", "the last of them, s after its end")
    hard = [
        (each.what, f"{each.late}, {each.most_late}", f"{each.recovered_s:.0f}")
        for each in found.troubles
    ]
    told = missed(found)
    end = "All goals were reached." if not told else "Missed:\n" + "\n".join(told[:_MOST_TOLD])
    return "\n\n".join([title, _table(("what", "measured"), rows), _table(head, hard), end])


_PHASES = ("bound", "attached", "detached", "gone")


def _calls(found: Found) -> int:
    return sum(n for action, n in found.calls.items() if action not in _OURS)


def _count(found: Found, name: str) -> str:
    return f"{len(found.took_s.get(name, ())):,}"


def _spread(found: Found, name: str) -> str:
    ordered = sorted(found.took_s.get(name, ()))
    if not ordered:
        return ""
    most = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"{median(ordered):.1f}, {most:.1f} s of {len(ordered):,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
