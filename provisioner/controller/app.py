"""The controller process: its parts, wired once, started and stopped in order.

A standby keeps its caches current, so that taking over costs no list. Work starts once all leases
are held. If one is lost, the process exits, because a thread inside a 20 s EC2 call would outlive
the lease.
"""

import asyncio
import gc
import os
import random
import sys
import time
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Protocol

import structlog

from provisioner import process
from provisioner.controller.attaching.flow import Attacher
from provisioner.controller.costs.flow import VolumeCosts
from provisioner.controller.deleting.flow import Deleter
from provisioner.controller.deleting.orphans import OrphanSweep
from provisioner.controller.modifying.flow import Modifier
from provisioner.controller.moving.flow import Mover
from provisioner.controller.moving.pods.gates import Gates
from provisioner.controller.nodes.dead_node import DeadNodes
from provisioner.controller.nodes.flow import AgentTaint, AttachmentLimits
from provisioner.controller.nodes.initialize import NodeInitializer
from provisioner.controller.ownership.aws_access import AwsAccess
from provisioner.controller.provisioning.flow import Provisioner
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.snapshotting.flow import Snapshotter
from provisioner.controller.tagging.flow import ExtraTags
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.rate_option import parse_rates
from provisioner.kube.client import KubeClient
from provisioner.kube.lease import Leases, LeaseSettings
from provisioner.kube.queue import KeyedQueue
from provisioner.metrics import Metrics
from provisioner.model.errors import StorageError
from provisioner.model.leadership import lease_names, left_nothing
from provisioner.region import Start
from provisioner.version import our_version

_LOST_LEASE = 3  # exit code
_FLUSH_S = 3.0
_UNTAG_S = 5.0
_CATCH_UP_AGAIN_S = 1.0
# Of moves' requests, so many are under way at once: enough to keep an API server busy, and few
# enough that a claim's request does not wait behind those of 200 moves (of 64, it did).
_MOVES_AT_ONCE = 8

log = structlog.get_logger(__name__)


class Flow(Protocol):
    """Objects of one kind, each worked on by its key."""

    queue: KeyedQueue

    def subscribe(self) -> None:
        """Have objects worked on from now on."""


class Lasting(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Work forever."""


def _narrowed(services: Services) -> Services:
    """For moves, which have time: others come first."""
    return replace(services, client=services.client.narrowed(_MOVES_AT_ONCE))


class Controller:
    """One controller. ``leading`` is set while it holds all leases and works."""

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        lease_client: KubeClient,
        calls: Ec2Calls,
        metrics: Metrics,
    ) -> None:
        driver, replica = settings.driver, _replica()
        self.settings = settings
        self.metrics = metrics
        self.leading = asyncio.Event()
        self._unusable: StorageError | None = None
        self._calls = calls
        leases = LeaseSettings(
            settings.lease_namespace, lease_names(driver), identity=f"ebs-provisioner_{replica}"
        )
        self.leases = Leases(lease_client, leases, on_lost=_leave_at_once, metrics=metrics)
        self.services = services = Services.connect(
            settings, client, calls, metrics, component=f"{driver}_{replica}"
        )
        self.caches = services.caches
        self.events = services.events
        self.unclaimed = services.unclaimed
        self.aws_access = AwsAccess(services, calls)
        self.provisioner = Provisioner(services, identity=_provisioner_identity(driver))
        self.deleter = Deleter(services)
        self.attacher = Attacher(services)
        self.modifier = Modifier(services)
        self.snapshotter = Snapshotter(services)
        self.agent_taint = AgentTaint(services)
        self.attachment_limits = AttachmentLimits(services)
        self.node_initializer = NodeInitializer(services)
        self.dead_nodes = DeadNodes(services)
        self.extra_tags = ExtraTags(services)
        self.orphans = OrphanSweep(services, self.provisioner.creations)
        self.volume_costs = VolumeCosts(services, calls.region)
        self.mover = Mover(_narrowed(services)) if settings.volume_moves else None
        self.gates = Gates(services) if settings.volume_moves else None
        calls.may_change, calls.confirm_gone = self.still_leading, self.aws_access.confirm_gone

    @property
    def flows(self) -> list[Flow]:
        """What works on objects, with one queue each; the first one stops last."""
        return [
            *(self.provisioner, self.deleter, self.attacher, self.modifier, self.snapshotter),
            *(self.provisioner.sources.finalizers, self.agent_taint),
            *(self.attachment_limits, self.node_initializer),
            *(each for each in (self.mover, self.gates) if each is not None),
        ]

    @property
    def lasting(self) -> list[Lasting]:
        """What runs beside the flows while this replica leads."""
        sources = self.provisioner.sources
        return [
            *(self.services.watchers, self.unclaimed, self.events, self.orphans, self.extra_tags),
            *(self.dead_nodes, sources.finalizers, sources.cross_zone_clones, self.volume_costs),
        ]

    def still_leading(self) -> bool:
        """Whether a call that cannot be undone may be sent now."""
        return self.leading.is_set() and (not self.settings.leader_elect or self.leases.held())

    def not_ready(self) -> str:
        """Why it is not ready, "" if it is; a standby is ready too."""
        return self.aws_access.why_not if self.caches.is_synced else "the caches are not filled yet"

    async def run(self, stop: asyncio.Event) -> None:
        """Wait to be elected, take over, work; returns once ``stop`` is set and all work is safe.

        Raises:
            StorageError: it led and can no longer do so, for instance without credentials.
        """
        driver, cluster_id = self.settings.driver, self.settings.cluster_id or None
        log.info("starting", version=our_version(), driver=driver, cluster_id=cluster_id)
        async with asyncio.TaskGroup() as tasks:
            lasting = [tasks.create_task(self.caches.run(), name="caches")]
            try:
                if not await process.first(self._elected(), stop):
                    return
                if self.settings.leader_elect:  # renewed from now on: taking over may take long
                    lasting.append(tasks.create_task(self.leases.hold(), name="leases"))
                if not await process.first(self._take_over(), stop):
                    return
                working = tasks.create_task(self._work(), name="work")
                await process.first(self._while_usable(working), stop)
                await self._wind_down(working)
            finally:
                for task in lasting:
                    task.cancel()
                await asyncio.gather(*lasting, return_exceptions=True)
                for each in (self.services, self.provisioner, self.mover):
                    if each is not None:
                        await each.close()
                if self.settings.leader_elect:
                    await self.leases.release()
        if self._unusable is not None:
            raise self._unusable

    async def _elected(self) -> None:
        await self.caches.synced()
        # The contents of the caches live as long as the process. A garbage collection that scans
        # them blocks the loop for 0.1 s with 100,000 volumes (tests/bench/large.py).
        gc.freeze()
        if self.settings.leader_elect:
            await self.leases.acquire(self.aws_access.granted)
        else:
            await self.aws_access.granted()
            await self.leases.read()

    async def _while_usable(self, working: asyncio.Task[None]) -> None:
        """Return when the work has ended, or once another replica should lead."""
        unusable = asyncio.ensure_future(self.aws_access.lost())
        try:
            await asyncio.wait({working, unusable}, return_when=asyncio.FIRST_COMPLETED)
            if unusable.done() and not working.done():
                self._unusable = unusable.result()
        finally:
            unusable.cancel()
            await asyncio.gather(unusable, return_exceptions=True)

    async def _take_over(self) -> None:
        """Learn what the leader before has left.

        The steps look at all claims: in one go they held up the loop for 151 ms at 100,000.
        """
        await self._catch_up()
        epoch, claims = self.leases.epoch, list(self.caches.claims.values())
        self.unclaimed.leadership.take_over(epoch, claims)
        await asyncio.sleep(0)
        volumes, attached = self.caches.persistent_volumes, self.caches.attachments
        is_first = self.leases.are_new and left_nothing(
            volumes.values(), attached.values(), claims, self.settings.driver
        )
        await asyncio.sleep(0)
        self.provisioner.takeover.take_over(claims, epoch, is_first=is_first)
        await asyncio.sleep(0)
        self.attacher.detacher.take_over()
        self.snapshotter.take_over(epoch)
        self.leading.set()
        self.metrics.leader.set(1)
        since = epoch.began_at.isoformat() if epoch is not None else "now"
        log.info("leading", cluster_id=self.settings.cluster_id or None, only_ours_since=since)

    async def _prove(self) -> None:
        """Record a new epoch in the leases, so that the next leader may trust what is younger."""
        epoch = await self.unclaimed.leadership.new_epoch()
        if epoch is not None:
            await self.leases.prove(epoch, elected=self.settings.leader_elect)

    async def _catch_up(self) -> None:
        """Wait until the caches have what the previous leader wrote last."""
        while True:
            try:
                await self.caches.refresh()
            except StorageError as error:
                log.warning("cannot take over yet", error=error.message)
                await asyncio.sleep(error.retry_after_s or _CATCH_UP_AGAIN_S)
            else:
                return

    async def _work(self) -> None:
        await self.caches.introduce(self._subscribe)
        async with asyncio.TaskGroup() as tasks:
            for each in self.lasting:
                tasks.create_task(each.run(), name=type(each).__qualname__)
            tasks.create_task(self._prove(), name="prove")
            for flow in self.flows:
                tasks.create_task(flow.queue.run(), name=flow.queue.name)

    def _subscribe(self) -> None:
        for flow in self.flows:
            flow.subscribe()

    async def _wind_down(self, working: asyncio.Task[None]) -> None:
        """Take no more work, let calls in flight end, write what is known, then stop.

        Calls that wait for the limiter are refused: their turn may be minutes away, and the process
        has seconds.
        """
        queues = [flow.queue for flow in self.flows]
        log.info("stopping", unfinished=sum(queue.depth for queue in queues))
        self._calls.stop_changing()
        drain_s = self.settings.drain_s
        others = asyncio.gather(*(queue.drain(drain_s) for queue in queues[1:]))
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self.provisioner.finish()
        await self.provisioner.queue.drain(0.0)
        await others
        await self.unclaimed.flush(_UNTAG_S)
        await self.events.flush(_FLUSH_S)
        self.leading.clear()
        self.metrics.leader.set(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def run(settings: Settings) -> None:
    """Run the controller until SIGTERM or SIGINT.

    Raises:
        StorageError: it cannot start.
    """
    stop = process.stop_on_signals()
    gc.freeze()  # what was imported; scanning it blocks the loop for 0.07 s while caches are filled
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            await KubeClient.connect(kubeconfig=settings.kubeconfig)
        )
        lease_client = await stack.enter_async_context(
            await KubeClient.connect(kubeconfig=settings.kubeconfig)
        )
        metrics, start = Metrics(), Start(settings.region)
        await process.show(
            stack,
            settings.metrics_address,
            registry=metrics.registry,
            ready=start.not_ready,
            written=lambda: metrics.volume_usd_per_month.text,
        )
        if not await process.first(start.find_region(client), stop):
            return
        calls = Ec2Calls.connect(
            region=start.region, metrics=metrics, rates=parse_rates(settings.ec2_rates)
        )
        stack.push_async_callback(calls.close)
        controller = Controller(settings, client, lease_client, calls, metrics)
        start.working = controller.not_ready
        await controller.run(stop)


def _provisioner_identity(driver: str) -> str:
    """As external-provisioner builds it: time, random number, driver."""
    return f"{time.time_ns() // 1_000_000}-{random.randrange(10_000)}-{driver}"  # noqa: S311 -- no secret


def _replica() -> str:
    """A name for this process: of its pod or host, and unique."""
    return f"{os.environ.get('POD_NAME') or os.uname().nodename}_{uuid.uuid4()}"


def _leave_at_once() -> None:
    """Exit: a call in a thread cannot be stopped, and another replica will lead soon."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_LOST_LEASE)
