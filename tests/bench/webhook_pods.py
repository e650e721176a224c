"""Pods created through the API server, with the webhook configured and without, turn by turn."""

import asyncio
import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from provisioner.model.driver import EBS_DRIVER
from tests.bench.hands import BenchError
from tests.bench.webhook_load import HOST
from tests.bench.webhook_numbers import Spread, at_random, blocks
from tests.bench.webhook_reviews import Reviews, claim_name, pod
from tests.bench.webhook_world import CONFIGURATIONS, PODS, SECRETS, Served, unconfigure
from tests.bench.world import World
from webhook import issuing, tls_secret
from webhook.certificates import Names
from webhook.model import hooks
from webhook.settings import NAME

SECRET = "bench-tls"
UNMANAGED = ("--namespace", "default", "--tls-secret", SECRET, "--tls-manage=false")
_BLOCK = 100
_WARM_UP = 10
_APART = (claim_name(0), claim_name(1))  # in different zones
_NOTICED_S = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How pods are created: some at a time, or so many a second whatever became of those before.

    Attributes:
        name: for the table.
        at_once: at most so many at a time; with a rate, hands enough that none is waited for.
        per_s: the rate; 0 for as soon as one before is done.
        times: so many times as many pods: of 1,000 the p99 rests on ten, and whether a garbage
            collection of the API server hits those is luck.
    """

    name: str
    at_once: int = 1
    per_s: float = 0.0
    times: int = 1

    def due_s(self, count: int, seed: int) -> list[float]:
        """When each is due, in seconds from the start."""
        return at_random(count, self.per_s, seed) if self.per_s else [0.0] * count


ONE = Pace("one at a time", times=3)
STEADY = Pace("50 a second", at_once=64, per_s=50.0)
CROWDED = Pace("eight at a time", at_once=8)


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
    """Creations without the webhook configured, and having it."""

    pace: Pace
    without: Cost
    having: Cost


async def make_secret(made: World) -> bytes:
    """A certificate that nobody manages, so that the configurations are ours; its authority."""
    now = datetime.now(UTC)
    issued = issuing.issue(Names(ips=(HOST,)), now)
    changes: tls_secret.Changes = {
        tls_secret.CERTIFICATE: issued.certificate,
        tls_secret.KEY: issued.key,
    }
    await made.hands.send("POST", SECRETS, tls_secret.created(SECRET, changes, "bench", now))
    return issued.authority


class Creations:
    """Creates pods, and turns the webhook on and off."""

    def __init__(self, served: Served, reviews: Reviews, authority: bytes) -> None:
        self._served, self._hands, self._reviews = served, served.made.hands, reviews
        wanted = hooks.configurations(NAME, hooks.by_url(served.url), driver=EBS_DRIVER)
        trusted = base64.b64encode(authority).decode()
        for configuration in wanted.values():
            for hook in configuration["webhooks"]:
                hook["clientConfig"]["caBundle"] = trusted
        self._wanted = wanted
        self._made = 0

    async def measure(self, count: int, pace: Pace) -> Created:
        """So many pods each way; no configuration is there before or afterwards."""
        found = Created(pace, Cost(), Cost())
        is_on = False
        for on, numbers in blocks(count * pace.times, _BLOCK):
            if on != is_on:
                is_on = on
                await self._turn(on=on)
            await self._block(_WARM_UP, ONE, Cost())
            await self._block(len(numbers), pace, found.having if on else found.without)
        if is_on:
            await self._turn(on=False)
        return found

    async def _block(self, count: int, pace: Pace, cost: Cost) -> None:
        loop = asyncio.get_running_loop()
        first = self._made
        self._made += count
        numbers = iter(enumerate(pace.due_s(count, seed=first)))
        began_s = loop.time()

        async def create_some() -> None:
            for number, due_s in numbers:
                which = first + number
                body = pod(f"bench-{which:06}", self._reviews.claims_of(which))
                if pace.per_s:
                    await asyncio.sleep(began_s + due_s - loop.time())
                from_s = began_s + due_s if pace.per_s else loop.time()
                await self._hands.send("POST", PODS, body)
                cost.each_ms.append((loop.time() - from_s) * 1000)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(pace.at_once):
                tasks.create_task(create_some())
        cost.all_s += loop.time() - began_s

    async def _turn(self, *, on: bool) -> None:
        """Configure the webhook or not; returns once the API server acts accordingly."""
        if on:
            for kind, path in CONFIGURATIONS.items():
                await self._hands.send("POST", path, self._wanted[kind])
        else:
            await unconfigure(self._served.made)
        async with asyncio.timeout(_NOTICED_S):
            while await self._is_refused() is not on:
                pass  # each question is a request

    async def _is_refused(self) -> bool:
        """Whether a pod that belongs into two zones at once is."""
        body: dict[str, Any] = pod("apart", _APART)
        try:
            await self._hands.send("POST", f"{PODS}?dryRun=All", body)
        except BenchError as error:
            if "403" not in str(error):
                raise
            return True
        return False
