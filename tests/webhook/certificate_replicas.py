"""Replicas in the world of certificates: the product's rotation, with a life that may end anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.webhook.certificate_world import (
    NAME,
    NAMESPACE,
    SECRET,
    WAITS,
    Edge,
    Killed,
    World,
)
from tests.webhook.pairs import NAMES
from webhook.certificates import issuing
from webhook.certificates.flow import Rotation
from webhook.certificates.rotation_rules import Waits
from webhook.certificates.tls import Contexts
from webhook.certificates.tls_secret import TlsSecret
from webhook.certificates.webhook_configurations import Configurations
from webhook.metrics import WebhookMetrics


class Shown(Contexts):
    """The product's contexts; remembers what is shown to clients, and has the world look at it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.chain = b""
        self.loads = 0

    def load(self, chain_pem: bytes, key_pem: bytes) -> None:
        super().load(chain_pem, key_pem)
        self.chain = chain_pem
        self.loads += 1
        self._world.check()


class Replica:
    """One process with a rotation; ``kill`` it, or let a fate do that, and ``start`` another life.

    ``noted`` is set once it is
    ready; ``off_s``: how far its wall clock is off.
    """

    def __init__(
        self,
        world: World,
        name: str = "replica",
        *,
        off_s: float = 0.0,
        fates: Callable[[str], str] = lambda _: "",
        managed: bool = True,
        waits: Waits = WAITS,
    ) -> None:
        self.world, self.name = world, name
        self._off, self._fates = timedelta(seconds=off_s), fates
        self._managed, self._waits = managed, waits
        self.lives = 0
        self.ready_s: float | None = None
        self._task: asyncio.Task[None] | None = None
        world.replicas.append(self)

    def start(self) -> None:
        """Begin a life."""
        self.lives += 1
        self.edge = Edge(self.world, self._fates)
        self.contexts, self.metrics = Shown(self.world), WebhookMetrics()
        client = self.edge.client
        registration = Configurations(client, name=NAME)
        self.rotation = Rotation(
            TlsSecret(client, namespace=NAMESPACE, name=SECRET),
            self.contexts,
            self.metrics,
            names=NAMES,
            registration=registration if self._managed else None,
            waits=self._waits,
            now=lambda: self.world.now + self._off,
        )
        self.ready_s, self.noted = None, asyncio.Event()
        self._task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        noting = asyncio.create_task(self._note_ready())
        try:
            await self.rotation.run()
        except* Killed:
            pass  # as the test has it die; the next life begins elsewhere
        finally:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)

    async def _note_ready(self) -> None:
        await self.rotation.ready.wait()
        self.ready_s = self.world.clock()
        self.world.check()
        self.noted.set()

    @property
    def chain(self) -> bytes:
        """What it shows to clients; b"" for nothing."""
        return self.contexts.chain

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def kill(self) -> None:
        """End it, whatever it is doing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ended(self) -> None:
        """Wait until a fate has ended it; raises what has ended it besides."""
        assert self._task is not None
        await self._task

    def failed(self) -> None:
        """Raise what has ended it, if it was neither a fate nor ``kill``."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()


Story = Callable[[World], Awaitable[None]]


def told(story: Story) -> World:
    """The world after a story with the manifests applied; nobody was ever turned away in it."""

    async def tell(clock: Clock) -> World:
        world = World(clock)
        world.register()
        try:
            await story(world)
            for replica in world.replicas:
                assert isinstance(replica, Replica)
                replica.failed()
        finally:
            for replica in world.replicas:
                assert isinstance(replica, Replica)
                await replica.kill()
        assert world.outages == []
        return world

    return in_virtual_time(tell)


async def a_replica(world: World, *, ready: bool = True, **more: Any) -> Replica:
    """One that has begun to live, and is ready; ``more`` as ``Replica`` takes it."""
    replica = Replica(world, **more)
    replica.start()
    if ready:
        async with asyncio.timeout(10):
            await replica.noted.wait()
    return replica


def authorities(world: World) -> list[str]:
    """Fingerprints of those in the Secret's bundle."""
    return [each.fingerprint for each in issuing.authorities(world.secret["ca.crt"])]


def steps(replica: Replica) -> dict[str, float]:
    """How often each step was taken with success."""
    return {
        sample.labels["step"]: sample.value
        for family in replica.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "ebs_webhook_certificate_steps_total"
        if sample.labels["outcome"] == "ok"
    }


def warnings(logs: list[Any]) -> list[str]:
    """What the log warns of, in its own words."""
    return [
        str(line.get("found") or line.get("error") or line["event"])
        for line in logs
        if line["log_level"] == "warning"
    ]
