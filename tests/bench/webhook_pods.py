"""Pods created through the API server: without a webhook, with the least one, with ours, in turn."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from provisioner.sandbox.control_plane import free_port
from provisioner.sandbox.installation import configurations_by_url
from tests.bench.hands import BenchError
from tests.bench.webhook_load import HOST
from tests.bench.webhook_null import APART
from tests.bench.webhook_numbers import Spread, blocks
from tests.bench.webhook_reviews import Reviews, claim_name, pod
from tests.bench.webhook_world import CONFIGURATIONS, PODS, SECRETS, Meter, serving, unconfigure
from tests.bench.world import World
from tests.webhook import pairs
from tests.webhook.pairs import Issued
from webhook.certificates import tls_secret
from webhook.certificates.issuing import Names

WITHOUT, NULL, OURS = "without", "null", "ours"
SECRET = "bench-tls"
# So that both configurations are ours to make and remove.
_UNMANAGED = ("--tls-secret", SECRET, "--tls-manage=false")
# A garbage collection of the API server lasts for some hundred pods: it has to hit every way.
_BLOCK = 25
_WARM_UP = 5
_NOTICED_S = 30.0
_ROOT = Path(__file__).parents[2]

Hooks = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pace:
    """How pods are created.

    Attributes:
        name: for the table.
        at_once: so many at a time, the next as soon as one is done.
        times: so many times as many pods: of 1,000 the p99 rests on ten.
    """

    name: str
    at_once: int
    times: int = 1


ONE = Pace("one at a time", 1, times=3)
CROWDED = Pace("eight at a time", 8)


@dataclass(slots=True)
class Cost:
    """What creations took: each, in milliseconds; all together, in seconds."""

    each_ms: list[float] = field(default_factory=list)
    all_s: float = 0.0

    @property
    def spread(self) -> Spread:
        """Of a single one."""
        return Spread.of(self.each_ms)

    @property
    def per_s(self) -> float:
        """How many there were in a second."""
        return len(self.each_ms) / self.all_s


@dataclass(frozen=True, slots=True)
class Created:
    """What creations took, by way; and the share of the machine that others used meanwhile."""

    pace: Pace
    costs: Mapping[str, Cost]
    foreign: float


@asynccontextmanager
async def creating(made: World, reviews: Reviews) -> AsyncIterator["Creations"]:
    """Both webhooks running, none of them configured."""
    now = datetime.now(UTC)
    issued = pairs.issue(Names(ips=(HOST,)), now)
    pair: tls_secret.Changes = {
        tls_secret.CERTIFICATE: issued.certificate,
        tls_secret.KEY: issued.key,
    }
    await made.hands.send("POST", SECRETS, tls_secret.created(SECRET, pair, "bench", now))
    null_port = await start_null(made, issued)
    async with serving(made, *_UNMANAGED, by_url=False) as served:
        ports = {NULL: null_port, OURS: served.port}
        asked = {way: _hooks(port, issued.authority) for way, port in ports.items()}
        yield Creations(made, reviews, asked)
    await made.plane.crew.stop("webhook_null")


class Creations:
    """Creates pods, and has the API server ask this webhook, that one, or none.

    Args:
        made: the cluster.
        reviews: tell which claims go together.
        asked: webhook configurations by way, each by kind; a way without any asks nobody.
    """

    def __init__(self, made: World, reviews: Reviews, asked: Mapping[str, Hooks]) -> None:
        self._made, self._reviews, self._asked = made, reviews, asked
        self._way = WITHOUT
        self._number = 0

    async def measure(self, count: int, pace: Pace) -> Created:
        """So many pods each way; no configuration is there before or afterwards."""
        costs, meter = {way: Cost() for way in (WITHOUT, NULL, OURS)}, Meter(self._made)
        for way, number in blocks(count * pace.times, _BLOCK, tuple(costs)):
            await self._turn_to(way)
            await self._create(_WARM_UP, 1, Cost())
            await self._create(number, pace.at_once, costs[way])
        await self._turn_to(WITHOUT)
        return Created(pace, costs, meter.foreign())

    async def _create(self, count: int, at_once: int, cost: Cost) -> None:
        loop = asyncio.get_running_loop()
        numbers = iter(range(self._number, self._number + count))
        self._number += count

        async def one_after_the_other() -> None:
            for number in numbers:
                body = pod(f"bench-{number:06}", self._reviews.claims_of(number))
                began_s = loop.time()
                await self._made.hands.send("POST", PODS, body)
                cost.each_ms.append((loop.time() - began_s) * 1000)

        began_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(one_after_the_other())
        cost.all_s += loop.time() - began_s

    async def _turn_to(self, way: str) -> None:
        """Ask another webhook from now on; returns once the API server does."""
        if self._way == way:
            return
        if self._way in self._asked:
            await unconfigure(self._made)
            await self._until(is_refused=False)
        for kind, body in self._asked.get(way, {}).items():
            await self._made.hands.send("POST", CONFIGURATIONS[kind], body)
        await self._until(is_refused=way in self._asked)
        self._way = way

    async def _until(self, *, is_refused: bool) -> None:
        async with asyncio.timeout(_NOTICED_S):
            while await self._is_refused() is not is_refused:
                pass  # each question is a request

    async def _is_refused(self) -> bool:
        """Whether a pod is that both webhooks refuse: its claims are in different zones."""
        body = pod(APART, (claim_name(0), claim_name(1)))
        try:
            await self._made.hands.send("POST", f"{PODS}?dryRun=All", body)
        except BenchError as error:
            if "403" not in str(error):
                raise
            return True
        return False


def _hooks(port: int, authority: bytes) -> Hooks:
    """Both configurations for a webhook at this port."""
    found = configurations_by_url(f"https://{HOST}:{port}")
    for hook in (each for configuration in found for each in configuration["webhooks"]):
        hook["clientConfig"]["caBundle"] = base64.b64encode(authority).decode()
    return {configuration["kind"]: configuration for configuration in found}


async def start_null(made: World, issued: Issued) -> int:
    """The least webhook; its port."""
    port, file = free_port(), made.plane.folder / "webhook_null.pem"
    file.write_bytes(issued.key + issued.certificate)
    argv = [sys.executable, "-m", "tests.bench.webhook_null", str(port), str(file)]
    await made.plane.crew.start("webhook_null", argv, os.environ | {"PYTHONPATH": str(_ROOT)})
    return port
