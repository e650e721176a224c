"""What one pod waits for beside EC2's own time: a single claim, and many at once, phase by phase.

No quota; EC2 as slow as AWS. The world stays the same for all rounds, as a leader's does: what it
learns in one, it knows in the next.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.bench import phases
from tests.bench.hands import BenchError, Eye, Hands
from tests.bench.phases import ATTACHMENTS, CLAIMS, VOLUMES
from tests.bench.wait_numbers import Call, Wait, wait_of
from tests.bench.webhook_numbers import percentile
from tests.bench.world import NULL, OURS, ZONES, World, world

# Claims at once, in how many rounds, by whom: what the null controller takes over EC2's time is the
# API server's and this machine's.
ROUNDS = ((1, 20, OURS), (60, 5, OURS), (60, 5, NULL))
NODES_A_ZONE = 2
MEDIAN_S, P99_S = 0.4, 0.8
_PATIENCE_S = 60.0


@dataclass(slots=True)
class Waits:
    """So many claims at once, in some rounds: the waits of each phase, in their order.

    Attributes:
        looks_a_second: the most describes of volumes that began within one second.
    """

    count: int
    rounds: int
    who: str = OURS.name
    by_phase: dict[str, list[Wait]] = field(default_factory=dict)
    looks_a_second: int = 0


class _Meta(msgspec.Struct):
    name: str


class _Csi(msgspec.Struct, rename="camel"):
    volume_handle: str


class _Spec(msgspec.Struct, rename="camel"):
    claim_ref: _Meta
    csi: _Csi


class _Volume(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Volumes(msgspec.Struct):
    items: list[_Volume]


async def measure(parent: Path, binaries: Path) -> list[Waits]:
    """All rounds, each in a world of its own by the number of claims."""
    done = []
    for count, rounds, who in ROUNDS:
        async with world(
            parent, binaries, instances=NODES_A_ZONE * len(ZONES), throttle="none"
        ) as made:
            await made.start(who)
            made.ec2.control(log=True)
            await phases.make_class(made)
            waits = Waits(count, rounds, who.name)
            for _ in range(rounds):
                await _round(made, waits)
            done.append(waits)
    return done


async def _round(world: World, waits: Waits) -> None:
    names = [f"data-{number}" for number in range(waits.count)]
    creates = [("POST", CLAIMS, phases.claim(number), name) for number, name in enumerate(names)]
    bound = await _phase(world, creates, Eye(world.hands, CLAIMS, phases.is_bound))
    made = msgspec.json.decode(await world.hands.send("GET", VOLUMES), type=_Volumes).items
    by_claim = {each.spec.claim_ref.name: each for each in made}
    _note(
        waits,
        phases.NAMES[0],
        bound,
        {name: {by_claim[name].metadata.name, _id(by_claim[name])} for name in names},
        action="CreateVolume",
        takes_s=REAL_DELAYS["create_s"],
    )
    bodies = await phases.attachments(world)
    volumes = {each.metadata.name: {_id(each)} for each in made}
    held = {
        body["metadata"]["name"]: volumes[body["spec"]["source"]["persistentVolumeName"]]
        for body in bodies
    }
    sends = [("POST", ATTACHMENTS, body, body["metadata"]["name"]) for body in bodies]
    attached = await _phase(world, sends, Eye(world.hands, ATTACHMENTS, phases.is_attached))
    _note(
        waits,
        phases.NAMES[1],
        attached,
        held,
        action="AttachVolume",
        takes_s=REAL_DELAYS["attach_s"],
        first="DescribeInstances",
    )
    ends = [("DELETE", f"{ATTACHMENTS}/{name}", None, name) for name in held]
    detached = await _phase(world, ends, Eye(world.hands, ATTACHMENTS, phases.is_gone))
    _note(
        waits,
        phases.NAMES[2],
        detached,
        held,
        action="DetachVolume",
        takes_s=REAL_DELAYS["detach_s"],
    )
    ends = [("DELETE", f"{CLAIMS}/{name}", None, by_claim[name].metadata.name) for name in names]
    gone = await _phase(world, ends, Eye(world.hands, VOLUMES, phases.is_gone))
    _note(waits, phases.NAMES[3], gone, volumes, action="DeleteVolume", takes_s=0.0)
    if left := world.volumes_in_ec2() - world.volumes_at_first:
        raise BenchError(f"EC2 still has {left} volumes")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One phase: when each object's request was sent, when it was told, and EC2's calls."""

    sent_s: dict[str, float]
    told_s: dict[str, float]
    calls: list[Call]


async def _phase(world: World, requests: Sequence[tuple[str, str, Any, str]], eye: Eye) -> _Seen:
    loop = asyncio.get_running_loop()
    world.ec2.control(reset_counts=True)
    sent_s: dict[str, float] = {}

    async def send(hands: Hands, method: str, path: str, body: Any, name: str) -> None:
        sent_s[name] = loop.time()
        await hands.send(method, path, body)

    async with eye:
        async with asyncio.TaskGroup() as tasks:
            for request in requests:
                tasks.create_task(send(world.hands, *request))
        await eye.wait_for(len(requests), _PATIENCE_S)
    await world.quiet()
    if throttled := world.ec2.throttled():
        raise BenchError(f"EC2 has throttled: {throttled}")
    done = [entry for entry in world.ec2.log() if entry["outcome"] == "ok"]
    return _Seen(sent_s, eye.at_s, [Call.of(entry) for entry in done])


def _note(
    waits: Waits,
    phase: str,
    seen: _Seen,
    ids: dict[str, set[str]],
    *,
    action: str,
    takes_s: float,
    first: str = "",
) -> None:
    waits.by_phase.setdefault(phase, []).extend(
        wait_of(
            some,
            action=action,
            takes_s=takes_s,
            first=first,
            sent_s=seen.sent_s[name],
            told_s=seen.told_s[name],
            calls=seen.calls,
        )
        for name, some in ids.items()
    )
    looks = [call.at_s for call in seen.calls if call.action == "DescribeVolumes"]
    waits.looks_a_second = max(waits.looks_a_second, most_in_a_second(looks))


def most_in_a_second(times_s: Collection[float]) -> int:
    """How many of these moments lie in one second, at most."""
    return max((sum(at <= each < at + 1 for each in times_s) for at in times_s), default=0)


def _id(volume: _Volume) -> str:
    return volume.spec.csi.volume_handle


def markdown(found: Iterable[Waits]) -> str:
    """The table."""
    head = ["claims at once", "phase", "EC2's own", "over it: median", "p99", "most"]
    head += ["until asked, unseen, until told (medians)"]
    rows = list(chain.from_iterable(map(_rows, found)))
    lines = [head, ["---"] * 2 + ["--:"] * (len(head) - 2), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"## One pod's wait\n\n{table}\n\n"
        f"Over EC2's own time at most {MEDIAN_S} s in the median, {P99_S} s at p99. EC2's own: the "
        "call that asks for it, DescribeInstances before an attachment, and until it has come "
        "about; no look. "
        + " ".join(
            f"{each.count} at once, {each.who}, {each.rounds} rounds: {each.looks_a_second} looks at volumes "
            "in the busiest second."
            for each in found
        )
    )


def _rows(waits: Waits) -> Iterable[list[str]]:
    for phase, some in waits.by_phase.items():
        over = [each.over for each in some]
        parts = (
            _median([getattr(each, part) for each in some])
            for part in ("before", "unseen", "after")
        )
        yield [
            f"{waits.count}, {waits.who}",
            phase,
            f"{_median([each.own for each in some])} s",
            *(f"{each:.2f}" for each in (percentile(over, 0.5), percentile(over, 0.99), max(over))),
            ", ".join(parts),
        ]


def _median(values: Collection[float]) -> str:
    return f"{percentile(values, 0.5):.2f}"
