"""Replicas in the world of certificates: the product's keeper, with a life that may end anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

from tests.webhook.certificate_world import NAME, NAMESPACE, SECRET, Edge, Killed, World
from tests.webhook.pairs import NAMES
from webhook.configurations import Configurations
from webhook.keeper import Keeper
from webhook.metrics import WebhookMetrics
from webhook.model.review import Json
from webhook.tls import Contexts


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
    """One process with a keeper; ``kill`` it, or let a fate do that, and ``start`` another life.

    ``off_s``: how far its wall clock is off.
    """

    def __init__(
        self,
        world: World,
        name: str = "replica",
        *,
        off_s: float = 0.0,
        fates: Callable[[str], str] = lambda _: "",
        whole: Mapping[str, Json] | None = None,
        managed: bool = True,
    ) -> None:
        self.world, self.name = world, name
        self._off, self._fates, self._whole = timedelta(seconds=off_s), fates, whole
        self._managed = managed
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
        registration = Configurations(client, name=NAME, whole=self._whole)
        self.keeper = Keeper(
            client,
            self.contexts,
            self.metrics,
            namespace=NAMESPACE,
            secret=SECRET,
            names=NAMES,
            registration=registration if self._managed else None,
            now=lambda: self.world.now + self._off,
        )
        self.ready_s = None
        self._task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        noting = asyncio.create_task(self._note_ready())
        try:
            await self.keeper.run()
        except* Killed:
            pass
        finally:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)

    async def _note_ready(self) -> None:
        await self.keeper.ready.wait()
        self.ready_s = self.world.clock()
        self.world.check()

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
