"""What one volume's life costs the API server: each write of ours, phase by phase."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import phases
from tests.bench.api_traffic import counted
from tests.bench.world import OURS, RAISED, ZONES, World, own_account, world

_READS = ("get", "list", "watch")
_LEASES = "leases"
_AUDIT_S = 2.0  # the API server writes what it has once a second
_SETTLES_S = 2.0  # events are sent a moment after what they tell


@dataclass(slots=True)
class Writes:
    """Requests that change something, by phase, verb and resource, for ``count`` volumes."""

    count: int
    by_phase: dict[str, Counter[str]] = field(default_factory=dict)


async def measure(parent: Path, binaries: Path, count: int) -> Writes:
    """Run the four phases, and count what our controller writes in each."""
    found = Writes(count)
    async with world(parent, binaries, instances=len(ZONES), throttle=RAISED) as made:
        await made.start(OURS, kubeconfig=await own_account(made.plane))
        await phases.make_class(made)
        async with _counted(made, found, phases.NAMES[0]):
            await phases.bind(made, count)
        bodies = await phases.attachments(made)
        async with _counted(made, found, phases.NAMES[1]):
            await phases.attach(made, bodies)
        async with _counted(made, found, phases.NAMES[2]):
            await phases.detach(made, bodies)
        async with _counted(made, found, phases.NAMES[3]):
            await phases.delete(made, count)
    return found


@asynccontextmanager
async def _counted(made: World, found: Writes, phase: str) -> AsyncIterator[None]:
    began_s = time.time()
    yield
    await asyncio.sleep(_SETTLES_S)
    until_s = time.time()
    await asyncio.sleep(_AUDIT_S)
    log = await asyncio.to_thread(made.plane.audit_log.read_bytes)
    found.by_phase[phase] = changes(counted(log, began_s, until_s))


def changes(requests: Counter[str]) -> Counter[str]:
    """Those of a volume that change something: neither reads nor renewals of leases."""
    kept = {
        what: number
        for what, number in requests.items()
        if not what.startswith(_READS) and not what.endswith(_LEASES)
    }
    return Counter(kept)


def markdown(found: Writes) -> str:
    """A table: requests for each volume, and the sum of its life."""
    lines = [
        f"| {phase} | {what} | {number / found.count:.2f} |"
        for phase, some in found.by_phase.items()
        for what, number in sorted(some.items())
    ]
    total = sum(sum(some.values()) for some in found.by_phase.values())
    head = "| phase | write | for each volume |\n| --- | --- | --: |"
    lines.append(f"| all | | {total / found.count:.2f} |")
    return "\n".join([f"## Writes of {found.count} volumes' lives\n", head, *lines])
