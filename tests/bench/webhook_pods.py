"""Pods created through the API server, with the webhook configured and without, turn by turn."""

import asyncio
import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from provisioner.model.driver import EBS_DRIVER
from tests.bench.hands import BenchError
from tests.bench.webhook_load import HOST
from tests.bench.webhook_numbers import Spread, blocks
from tests.bench.webhook_reviews import Reviews, claim_name, pod
from tests.bench.webhook_world import CONFIGURATIONS, PODS, SECRETS, Served, unconfigure
from tests.bench.world import World
from webhook import issuing, tls_secret
from webhook.certificates import Names
from webhook.model import hooks
from webhook.settings import NAME

SECRET = "bench-tls"
UNMANAGED = ("--namespace", "default", "--tls-secret", SECRET, "--tls-manage=false")
_BLOCK = 50
_WARM_UP = 10
_APART = (claim_name(0), claim_name(1))  # in different zones
_NOTICED_S = 30.0


@dataclass(frozen=True, slots=True)
class Created:
    """Milliseconds of one creation, by how many went on at once."""

    at_once: int
    without: Spread
    having: Spread


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

    async def measure(self, count: int, at_once: int) -> Created:
        """So many pods each way; no configuration is there before or afterwards."""
        took: dict[bool, list[float]] = {True: [], False: []}
        is_on = False
        for on, numbers in blocks(count, _BLOCK):
            if on != is_on:
                is_on = on
                await self._turn(on=on)
            await self._block(_WARM_UP, at_once)
            took[on] += await self._block(len(numbers), at_once)
        if is_on:
            await self._turn(on=False)
        return Created(at_once, Spread.of(took[False]), Spread.of(took[True]))

    async def _block(self, count: int, at_once: int) -> list[float]:
        took: list[float] = []
        numbers = iter(range(self._made, self._made + count))
        self._made += count

        async def one_after_the_other() -> None:
            loop = asyncio.get_running_loop()
            for number in numbers:
                body = pod(f"bench-{number:06}", self._reviews.claims_of(number))
                began_s = loop.time()
                await self._hands.send("POST", PODS, body)
                took.append((loop.time() - began_s) * 1000)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(one_after_the_other())
        return took

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
