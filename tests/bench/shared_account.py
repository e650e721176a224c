"""Three clusters with claims in one account, whose quota they do not know of each other."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.ec2.limiter import documented
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.bench import phases
from tests.bench.hands import Eye
from tests.bench.quota import CREATE_S
from tests.bench.world import OURS, ZONES, World, world_in

CLUSTERS = 3
EACH = 200
_PATIENCE_S = 600.0
_AT_FIRST_S = 3.0
"""Until then, each cluster has sent what it believes to be its own burst."""
_ACTION = "CreateVolume"


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of it.

    Attributes:
        each: claims in each cluster.
        seconds: until all claims of a cluster were Bound, by cluster.
        floor_s: when the account's last volume can be there.
        shares: of each cluster, of the claims that were Bound when the first cluster had all.
        calls: CreateVolume of all clusters.
        throttled: those of them that EC2 refused.
        at_first: calls of any action that EC2 refused in the first three seconds.
        all_calls: of any action.
        all_throttled: those of them that EC2 refused.
    """

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
) -> Shared:
    """Bind claims in all clusters at once, with the documented quota of one account."""
    rate, loop = documented(_ACTION), asyncio.get_running_loop()
    with StrictEc2(latency="real", throttle="documented") as ec2:
        async with AsyncExitStack() as stack:
            worlds = [
                await stack.enter_async_context(
                    world_in(ec2, parent, binaries, instances=len(ZONES))
                )
                for _ in range(clusters)
            ]
            for number, made in enumerate(worlds):
                name = f"bench-{number}"
                contestant = replace(OURS, arguments=_named(name))
                await made.start(contestant)
                await phases.make_class(made)
            eyes = [
                await stack.enter_async_context(Eye(each.hands, phases.CLAIMS, phases.is_bound))
                for each in worlds
            ]
            ec2.control(reset_counts=True)
            began_s = loop.time()
            at_first, _, ended_s = await asyncio.gather(
                _throttled_at_first(ec2),
                asyncio.gather(*(_send(made, each) for made in worlds)),
                asyncio.gather(*(eye.wait_for(each, _PATIENCE_S) for eye in eyes)),
            )
            report = ec2.report()
    calls, throttled = report["calls"], report["throttled"]
    count = clusters * each
    return Shared(
        each,
        [at - began_s for at in ended_s],
        max(0.0, count - rate.burst) / rate.per_s + CREATE_S,
        shares([list(eye.at_s.values()) for eye in eyes]),
        calls[_ACTION],
        throttled.get(_ACTION, 0),
        at_first,
        sum(calls.values()),
        sum(throttled.values()),
    )


async def _throttled_at_first(ec2: StrictEc2) -> int:
    await asyncio.sleep(_AT_FIRST_S)
    return sum(ec2.report()["throttled"].values())


def _named(cluster_id: str) -> tuple[str, ...]:
    command, option, _, *others = OURS.arguments
    return (command, option, cluster_id, *others)


async def _send(made: World, count: int) -> None:
    await made.hands.send_all(("POST", phases.CLAIMS, phases.claim(n)) for n in range(count))


def shares(at_s: Sequence[Sequence[float]]) -> list[float]:
    """Each one's part of what all have at the moment when the first has all of its own.

    Args:
        at_s: by cluster, when each of its claims was Bound.
    """
    first_s = min(max(each) for each in at_s)
    then = [sum(at <= first_s for at in each) for each in at_s]
    return [number / sum(then) for number in then]


def markdown(found: Shared) -> str:
    """The table's lines about it."""
    last_s = max(found.seconds)
    parts = ", ".join(f"{share * 100:.0f} %" for share in found.shares)
    return (
        f"## {len(found.seconds)} clusters in one account, {found.each} claims each\n\n"
        f"All Bound in **{last_s:.1f} s**, {last_s / found.floor_s:.3f} x the floor of "
        f"{found.floor_s:.0f} s; when the first cluster had all of its claims, the clusters had "
        f"{parts} of what was Bound (aim: a third each, ± 10 %); {found.throttled} of "
        f"{found.calls} CreateVolume throttled, {found.all_throttled} of {found.all_calls} calls: "
        f"{found.all_throttled / found.all_calls * 100:.2f} % (at most 2 %), {found.at_first} of "
        f"them in the first {_AT_FIRST_S:.0f} seconds."
    )
