"""Three clusters with a burst each in one account, whose quota they do not know of each other."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provisioner.ec2.limiter import documented
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.bench import phases
from tests.bench.hands import Eye, Reached
from tests.bench.phases import ATTACHMENTS, CLAIMS, NAMES, VOLUMES
from tests.bench.quota import CREATE_S
from tests.bench.world import OURS, PER_NODE, ZONES, World, world_in

CLUSTERS = 3
EACH = 200
_PATIENCE_S = 600.0
_LOOK_S = 0.1
_CALL_S = 0.1  # the shortest
_AT_FIRST_S = 3.0
"""Until then, each cluster has sent what it believes to be its own burst."""
_MOST_THROTTLED, _MOST_OFF = 0.02, 0.1

Request = tuple[str, str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A phase.

    Attributes:
        name: in the table.
        action: which EC2 is asked for, once for each object.
        takes_s: from that call's beginning until it has come about, at least.
        path: of the objects that are looked at.
        reached: the aim.
    """

    name: str
    action: str
    takes_s: float
    path: str
    reached: Reached


_KINDS = (
    Kind(NAMES[0], "CreateVolume", CREATE_S, CLAIMS, phases.is_bound),
    Kind(
        NAMES[1], "AttachVolume", _CALL_S + REAL_DELAYS["attach_s"], ATTACHMENTS, phases.is_attached
    ),
    Kind(NAMES[2], "DetachVolume", _CALL_S + REAL_DELAYS["detach_s"], ATTACHMENTS, phases.is_gone),
    Kind(NAMES[3], "DeleteVolume", _CALL_S, VOLUMES, phases.is_gone),
)


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of one phase.

    Attributes:
        name: of the phase.
        action: which EC2 is asked for.
        each: objects in each cluster.
        seconds: until all objects of a cluster were there, by cluster.
        floor_s: when the account's last object can be there.
        shares: of each cluster, of the objects that were there when the first cluster had all.
        calls: of that action, by all clusters.
        throttled: those of them that EC2 refused.
        at_first: calls of any action that EC2 refused in the first three seconds.
        all_calls: of any action.
        all_throttled: those of them that EC2 refused.
    """

    name: str
    action: str
    each: int
    seconds: Sequence[float]
    floor_s: float
    shares: Sequence[float]
    calls: int
    throttled: int
    at_first: int
    all_calls: int
    all_throttled: int


async def measure(
    parent: Path, binaries: Path, clusters: int = CLUSTERS, each: int = EACH
) -> list[Shared]:
    """The four phases in all clusters at once, with the documented quota of one account."""
    instances = -(-each // (len(ZONES) * PER_NODE)) * len(ZONES)
    with StrictEc2(latency="real", throttle="documented") as ec2:
        async with AsyncExitStack() as stack:
            worlds = [
                await stack.enter_async_context(
                    world_in(ec2, parent, binaries, instances=instances)
                )
                for _ in range(clusters)
            ]
            for number, made in enumerate(worlds):
                await made.start(replace(OURS, arguments=_named(f"bench-{number}")))
                await phases.make_class(made)
            return await _Account(ec2, worlds, each).burst()


class _Account:
    """What all clusters share."""

    def __init__(self, ec2: StrictEc2, worlds: Sequence[World], each: int) -> None:
        self._ec2, self._worlds, self._each = ec2, worlds, each
        self._volumes_at_first = worlds[0].volumes_in_ec2()

    async def burst(self) -> list[Shared]:
        """All phases in order."""
        names = [f"data-{n}" for n in range(self._each)]
        claims = [("POST", CLAIMS, phases.claim(n)) for n in range(self._each)]
        bound = await self._phase(_KINDS[0], [claims for _ in self._worlds])
        bodies = [await phases.attachments(made) for made in self._worlds]
        made: list[list[Request]] = [
            [("POST", ATTACHMENTS, body) for body in some] for some in bodies
        ]
        attached = await self._phase(_KINDS[1], made)
        ends: list[list[Request]] = [
            [("DELETE", f"{ATTACHMENTS}/{body['metadata']['name']}", None) for body in some]
            for some in bodies
        ]
        detached = await self._phase(_KINDS[2], ends)
        goes: list[Request] = [("DELETE", f"{CLAIMS}/{name}", None) for name in names]
        gone = await self._phase(_KINDS[3], [goes for _ in self._worlds], self._all_are_gone)
        return [bound, attached, detached, gone]

    async def _phase(
        self,
        kind: Kind,
        requests: Sequence[Sequence[Request]],
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> Shared:
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            eyes = [
                await stack.enter_async_context(Eye(made.hands, kind.path, kind.reached))
                for made in self._worlds
            ]
            self._ec2.control(reset_counts=True)
            began_s = loop.time()
            at_first, _, ended_s = await asyncio.gather(
                self._throttled_at_first(),
                asyncio.gather(
                    *(
                        made.hands.send_all(some)
                        for made, some in zip(self._worlds, requests, strict=True)
                    )
                ),
                asyncio.gather(*(eye.wait_for(self._each, _PATIENCE_S) for eye in eyes)),
            )
        if end is not None:
            await end()
        for made in self._worlds:
            await made.quiet()
        report, rate = self._ec2.report(), documented(kind.action)
        calls, throttled = report["calls"], report["throttled"]
        count = len(self._worlds) * self._each
        return Shared(
            kind.name,
            kind.action,
            self._each,
            [at - began_s for at in ended_s],
            max(0.0, count - rate.burst) / rate.per_s + kind.takes_s,
            shares([list(eye.at_s.values()) for eye in eyes]),
            calls[kind.action],
            throttled.get(kind.action, 0),
            at_first,
            sum(calls.values()),
            sum(throttled.values()),
        )

    async def _all_are_gone(self) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while self._worlds[0].volumes_in_ec2() > self._volumes_at_first:  # noqa: ASYNC110 -- EC2
                await asyncio.sleep(_LOOK_S)

    async def _throttled_at_first(self) -> int:
        await asyncio.sleep(_AT_FIRST_S)
        return sum(self._ec2.report()["throttled"].values())


def _named(cluster_id: str) -> tuple[str, ...]:
    command, option, _, *others = OURS.arguments
    return (command, option, cluster_id, *others)


def shares(at_s: Sequence[Sequence[float]]) -> list[float]:
    """Each one's part of what all have at the moment when the first has all of its own.

    Args:
        at_s: by cluster, when each of its objects was there.
    """
    first_s = min(max(each) for each in at_s)
    then = [sum(at <= first_s for at in each) for each in at_s]
    return [number / sum(then) for number in then]


def markdown(found: Sequence[Shared]) -> str:
    """A row for each phase."""
    clusters, each = len(found[0].seconds), found[0].each
    head = (
        *("phase", "last object, s", "floor, s", "times", "shares of the clusters, %"),
        *("its calls, throttled", "all calls, throttled", f"in the first {_AT_FIRST_S:.0f} s"),
    )
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *map(_row, found)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"## {clusters} clusters in one account, {each} claims each\n\n{table}\n\n"
        "Shares are of what was there when the first cluster had all of its own: at most "
        f"{_MOST_OFF:.0%} off an equal one. At most {_MOST_THROTTLED:.0%} of all calls may be "
        "throttled."
    )


def _row(found: Shared) -> list[str]:
    last_s, equal = max(found.seconds), 1 / len(found.seconds)
    is_unequal = max(abs(share - equal) for share in found.shares) > equal * _MOST_OFF
    is_crowded = found.all_throttled > found.all_calls * _MOST_THROTTLED
    return [
        found.name,
        f"{last_s:.1f}",
        f"{found.floor_s:.1f}",
        f"{last_s / found.floor_s:.2f}",
        ", ".join(f"{share * 100:.0f}" for share in found.shares) + ", **missed**" * is_unequal,
        f"{found.calls} {found.action}, {found.throttled}",
        f"{found.all_calls}, {found.all_throttled} "
        f"({found.all_throttled / found.all_calls * 100:.2f} %)" + ", **missed**" * is_crowded,
        f"{found.at_first}",
    ]
