"""One controller process of the day: the real one above its two edges, started and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from provisioner.controller.app import Controller
from provisioner.controller.shared.settings import Settings
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.limiter import Limiter
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from tests.day.account import REGION, Account
from tests.day.api_server import ApiServer
from tests.day.clocks import NOW
from tests.day.transport import Transport

SETTINGS = Settings(cluster_id="day", region=REGION)


class Replica:
    """A process. ``on_lost``: called when it would exit, because it lost its leases."""

    def __init__(self, api: ApiServer, account: Account, on_lost: Callable[[], None]) -> None:
        self.metrics = Metrics()
        self.began_s = NOW.s
        self._transports = [Transport(api) for _ in range(2)]
        client, lease_client = (KubeClient(each) for each in self._transports)  # type: ignore[arg-type]
        limiter = Limiter(metrics=self.metrics, clock=NOW)
        boto3 = account.client(lambda: self.is_dead)
        self.calls = Ec2Calls(boto3, limiter=limiter, metrics=self.metrics, clock=NOW)
        boto3.meta.events.register_first("before-send.ec2", self.calls._at_the_door)
        self.controller = Controller(SETTINGS, client, lease_client, self.calls, self.metrics)
        self.controller.leases._on_lost = on_lost
        self._running: asyncio.Task[None] | None = None

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self._transports[0].is_cut

    @property
    def is_leading(self) -> bool:
        """Whether it works."""
        return not self.is_dead and self.controller.leading.is_set()

    @property
    def depth(self) -> int:
        """Keys in its queues."""
        return sum(flow.queue.depth for flow in self.controller.flows)

    def start(self) -> None:
        """Start the process."""
        self._running = asyncio.create_task(self.controller.run(asyncio.Event()), name="replica")

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._running is not None and self._running.done() and not self.is_dead:
            self._running.result()
            raise AssertionError("the controller has ended by itself")

    async def kill(self) -> None:
        """End it at once: nothing that it would still say is heard, and it hears nothing more."""
        for each in self._transports:
            each.is_cut = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.calls.close()
