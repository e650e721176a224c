"""Pods created at a steady rate while somebody keeps the webhook from its work.

Strangers share the machine's two cores with the API server, etcd and the webhook, so each is shown
beside a control: the same crowd at a server that is not asked (``webhook_null``), or the same
objects where the API server asks nobody. What a control costs is the machine's, not the webhook's.
"""

import asyncio
import gc
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import webhook_stranger, webhook_world
from tests.bench.hands import BenchError
from tests.bench.null_bodies import DRIVER
from tests.bench.webhook_load import HOST
from tests.bench.webhook_numbers import Spread, blocks
from tests.bench.webhook_pods import start_null
from tests.bench.webhook_reviews import Reviews, claim_name, pod
from tests.bench.webhook_stranger import HALF, HANDSHAKES, LARGE, REQUESTS, SILENT, VOLUMES
from tests.bench.webhook_world import PODS, Meter, full_cluster, serving
from tests.bench.world import World
from tests.webhook import pairs
from webhook.certificates.issuing import Names

OBJECTS = 3_000
COUNT = 1_000
PER_S = 40.0
# Of each round in turn, so that a machine that gets slower gets slower for all.
_BLOCK = 250
_CONFLICTING_EVERY = 10
_WARM_UP_S = 1.0
_NOTICED_S = 30.0
_STRANGER = "webhook_stranger"
_ROOT = Path(__file__).parents[2]
_HANGS_S = [25.0, 25.0]
_LARGE_ELSEWHERE = "/api/v1/namespaces/kube-system/pods"


@dataclass(frozen=True, slots=True)
class Beside:
    """What goes on beside the pods.

    Attributes:
        name: for the table.
        kind: of stranger, "" for none.
        connections: that it has.
        is_control: whether the webhook has nothing to do with it.
        hangs: whether EC2 does.
    """

    name: str
    kind: str = ""
    connections: int = 300
    is_control: bool = False
    hangs: bool = False


ALONE = Beside("nothing")
WAYS = (
    ALONE,
    Beside("300 connections that send nothing", SILENT),
    Beside("300 half handshakes", HALF),
    Beside("300 x handshakes, again and again", HANDSHAKES),
    Beside("control: these at another server", HANDSHAKES, is_control=True),
    Beside("300 x requests, one after the other", REQUESTS),
    Beside("control: these at another server", REQUESTS, is_control=True),
    Beside("a tenant's 700 KB pods, 2 a second", LARGE, 2),
    Beside("control: these where nobody is asked", LARGE, 2, is_control=True),
    Beside("EC2 hangs, 20 persistent volumes a second", VOLUMES, 10, hangs=True),
    Beside("control: these where nobody is asked", VOLUMES, 10, is_control=True),
)


@dataclass(slots=True)
class Flooded:
    """What became of the pods beside something.

    Attributes:
        each_ms: of each valid pod, from when its creation was due.
        late_ms: of each, how late it was begun: this machine's own hiccups.
        refused: conflicting pods that were.
        conflicting: all of them.
        wronged: valid pods that were refused, by why.
        done: what the stranger did.
        cpu_s: by part.
    """

    beside: Beside
    each_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    refused: int = 0
    conflicting: int = 0
    wronged: Counter[str] = field(default_factory=Counter)
    done: int = 0
    seconds: float = 0.0
    cpu_s: Counter[str] = field(default_factory=Counter)

    @property
    def spread(self) -> Spread:
        """Of valid pods' creations, in milliseconds."""
        return Spread.of(self.each_ms)


async def measure(parent: Path, binaries: Path, *, count: int = COUNT) -> list[Flooded]:
    """So many valid pods beside each."""
    async with full_cluster(parent, binaries, OBJECTS) as made:
        reviews = await webhook_world.reviews(made, OBJECTS)
        issued = pairs.issue(Names(ips=(HOST,)), datetime.now(UTC))
        null_url = f"https://{HOST}:{await start_null(made, issued)}"
        async with serving(made, "--strict") as served:
            flood = Flood(made, reviews, served.url, null_url)
            await flood.until_asked()
            gc.disable()
            try:
                return await flood.measure(count)
            finally:
                gc.enable()


class Flood:
    """Creates pods beside strangers.

    Args:
        made: the cluster; its API server asks the webhook.
        reviews: tell which claims go together.
        url: of the webhook.
        null_url: of the server that is not asked.
    """

    def __init__(self, made: World, reviews: Reviews, url: str, null_url: str) -> None:
        self._made, self._reviews, self._url, self._null_url = made, reviews, url, null_url
        self._number = 0

    async def until_asked(self) -> None:
        """Return once the API server asks the webhook."""
        probe = Flooded(ALONE)
        async with asyncio.timeout(_NOTICED_S):
            while not probe.refused:
                await self._create_conflicting(probe)

    async def measure(self, count: int) -> list[Flooded]:
        """All ways in turn."""
        found = {id(each): Flooded(each) for each in WAYS}
        for way, number in blocks(count, _BLOCK, WAYS):
            flooded = found[id(way)]
            if way.hangs:
                self._made.ec2.control(latency=_HANGS_S)
            async with self._stranger(flooded):
                await asyncio.sleep(_WARM_UP_S)
                await self._create(number, flooded)
            if way.hangs:
                self._made.ec2.control(latency="real")
            await self._made.quiet()
        return list(found.values())

    @asynccontextmanager
    async def _stranger(self, flooded: Flooded) -> AsyncIterator[None]:
        way, crew = flooded.beside, self._made.plane.crew
        if way.kind:
            argv = [sys.executable, "-m", "tests.bench.webhook_stranger", way.kind]
            argv += [self._target(way), str(way.connections)]
            token = self._made.plane.credentials.tokens["admin"]
            more = {"PYTHONPATH": str(_ROOT), webhook_stranger.TOKEN: token}
            part = await crew.start(_STRANGER, argv, os.environ | more)
        yield
        if way.kind:
            await crew.stop(_STRANGER, grace_s=5.0)
            flooded.done += int(part.log.read_text().split()[-1])
            part.log.unlink()

    def _target(self, way: Beside) -> str:
        server = self._made.plane.server
        if way.kind == VOLUMES:
            return (
                f"{server}/api/v1/persistentvolumes?dryRun=All#{'' if way.is_control else DRIVER}"
            )
        if way.kind == LARGE:
            return f"{server}{_LARGE_ELSEWHERE if way.is_control else PODS}?dryRun=All"
        return self._null_url if way.is_control else self._url

    async def _create(self, count: int, flooded: Flooded) -> None:
        """Pods at their time, whatever became of those before."""
        loop, meter = asyncio.get_running_loop(), Meter(self._made)
        began_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                await asyncio.sleep(max(0.0, began_s + number / PER_S - loop.time()))
                due_s = began_s + number / PER_S
                tasks.create_task(self._create_valid(flooded, due_s))
                if number % _CONFLICTING_EVERY == 0:
                    tasks.create_task(self._create_conflicting(flooded))
        flooded.seconds += loop.time() - began_s
        flooded.cpu_s.update(meter.used_s())

    async def _create_valid(self, flooded: Flooded, due_s: float) -> None:
        loop = asyncio.get_running_loop()
        flooded.late_ms.append((loop.time() - due_s) * 1000)
        self._number += 1
        body = pod(f"flood-{self._number:06}", self._reviews.claims_of(self._number))
        if error := await self._sent(body):
            flooded.wronged[error] += 1
        flooded.each_ms.append((loop.time() - due_s) * 1000)

    async def _create_conflicting(self, flooded: Flooded) -> None:
        """A pod with claims in two zones; if it is made, nobody looked."""
        self._number += 1
        body = pod(f"apart-{self._number:06}", (claim_name(0), claim_name(1)))
        error = await self._sent(body)
        flooded.conflicting += 1
        flooded.refused += " 403 " in error

    async def _sent(self, body: webhook_stranger.Json) -> str:
        try:
            await self._made.hands.send("POST", PODS, body)
        except BenchError as error:
            return str(error)
        return ""


def markdown(found: list[Flooded]) -> str:
    """The table, and who used the machine."""
    (alone,) = (each.spread for each in found if each.beside is ALONE)
    head = (
        "beside",
        "p50",
        "p99",
        "p99, more",
        "slowest",
        "begun late, p99",
        "conflicting pods refused",
        "valid pods refused",
    )
    rows = [head, ("---", *["--:"] * 7), *(_row(each, alone) for each in found)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    shares = "; ".join(f"{each.beside.name}: {_shares(each)}" for each in found)
    note = (
        f"{alone.count:,} valid pods each, {PER_S:g} a second, real, with two claims, the webhook"
        " `--strict`; times count from when a creation was due. Strangers have an address and a"
        " process of their own, at the lowest priority (nice 19). Of a core took, in percent, "
        f"{shares}."
    )
    return f"## Pods created beside floods, in milliseconds\n\n{table}\n\n{note}"


def _row(each: Flooded, alone: Spread) -> tuple[str, ...]:
    spread = each.spread
    more = spread.p99 - alone.p99
    missed = "" if more < 20.0 or each.beside.is_control else " **missed**"
    wronged = sum(each.wronged.values())
    return (
        each.beside.name,
        f"{spread.p50:.1f}",
        f"{spread.p99:.1f}",
        f"{more:+.1f}{missed}" if each.beside is not ALONE else "",
        f"{spread.worst:.1f}",
        f"{Spread.of(each.late_ms).p99:.1f}",
        f"{each.refused} of {each.conflicting}",
        f"{wronged}" + (f" ({next(iter(each.wronged))[:80]})" if wronged else ""),
    )


def _shares(each: Flooded) -> str:
    used: Mapping[str, float] = each.cpu_s
    told = (
        f"{name} {cpu_s / each.seconds:.0%}".rstrip("%")
        for name, cpu_s in used.items()
        if cpu_s / each.seconds >= 0.01
    )
    did = f" ({each.done / each.seconds:.0f} a second by the stranger)" if each.beside.kind else ""
    return ", ".join(told) + did
