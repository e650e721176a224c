"""Claims at AWS's documented quota: how near to what the bucket itself allows."""

from dataclasses import dataclass
from pathlib import Path

from provisioner.ec2.limiter import documented
from tests.bench import phases
from tests.bench.world import OURS, ZONES, world

CREATE_S = 2.0  # one call and EC2's own delay: the last volume's way to Bound


@dataclass(frozen=True, slots=True)
class Quota:
    """What came of it. ``floor_s``: when the last volume can be there."""

    count: int
    seconds: float
    floor_s: float
    calls: int
    throttled: int


async def measure(parent: Path, binaries: Path, count: int) -> Quota:
    """Bind ``count`` claims at once with the documented quota."""
    rate = documented("CreateVolume")
    floor_s = max(0.0, count - rate.burst) / rate.per_s + CREATE_S
    async with world(parent, binaries, instances=len(ZONES), throttle="documented") as made:
        await made.start(OURS)
        await phases.make_class(made)
        bound = await phases.bind(made, count)
    calls, throttled = sum(bound.calls.values()), sum(bound.throttled.values())
    return Quota(count, bound.seconds, floor_s, calls, throttled)
