"""The webhook process: everything that it consists of, wired once, started and ended in order.

::

    caches filled ─> a certificate is loaded ─> listening ─> ready
    SIGTERM: not ready, still listening ─> no new connections ─> reviews answered ─> the end

Only the lease of the repairs makes one replica different from the others, and losing it ends the
repairs, not the process.
"""

import asyncio
import gc
import os
import uuid
from contextlib import AsyncExitStack

import structlog

from provisioner import process
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.rate_option import parse_rates
from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder
from provisioner.kube.lease import Leases, LeaseSettings
from provisioner.region import Start
from provisioner.version import our_version
from webhook.certificates.flow import Rotation
from webhook.certificates.issuing import Names
from webhook.certificates.tls import Contexts
from webhook.certificates.tls_secret import TlsSecret
from webhook.certificates.webhook_configurations import Configurations
from webhook.metrics import WebhookMetrics
from webhook.repairs.flow import Repairs
from webhook.reviews.caches import Caches
from webhook.reviews.handlers import Handlers
from webhook.reviews.zone_lookup import ZoneLookup
from webhook.serving.dispatch import Dispatcher
from webhook.serving.server import Front, Limits, Rounds
from webhook.settings import LEASE, NAME, Settings

# One batch of look-ups is under way at a time; the second thread is for one that hangs.
_EC2_AT_ONCE = 2
# No review can wait for longer, and the next question is another try.
_EC2_READ_S = 10.0
_FLUSH_S = 3.0

log = structlog.get_logger(__name__)


class Webhook:
    """One replica."""

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        calls: Ec2Calls,
        metrics: WebhookMetrics,
        rounds: Rounds | None = None,
    ) -> None:
        host, unique = os.environ.get("POD_NAME") or os.uname().nodename, uuid.uuid4()
        self._settings = settings
        self._caches = Caches(client, metrics, settings.driver, follows_moves=settings.volume_moves)
        self._lookup = ZoneLookup(Volumes(calls), metrics)
        contexts = Contexts(settings.callers.authority)
        self._rotation = Rotation(
            TlsSecret(client, namespace=settings.namespace, name=settings.tls_secret),
            contexts,
            metrics,
            names=Names.of_service(settings.service, settings.namespace, settings.tls_names),
            registration=Configurations(client, name=NAME) if settings.tls_manage else None,
        )
        handlers = Handlers(
            client,
            self._caches,
            self._lookup,
            metrics=metrics,
            driver=settings.driver,
            strict=settings.strict,
        )
        self._front = Front(
            Dispatcher(handlers.by_path(), strict=settings.strict, metrics=metrics),
            contexts.front,
            listen=settings.listen,
            metrics=metrics,
            callers=settings.callers,
            limits=Limits(notice_s=settings.notice_s, drain_s=settings.drain_s),
            rounds=rounds,
        )
        self._events = EventRecorder(client, f"{NAME}_{host}_{unique}", metrics)
        self._leases = Leases(
            client,
            LeaseSettings(namespace=settings.namespace, names=[LEASE], identity=f"{host}_{unique}"),
            on_lost=lambda: None,  # another replica repairs then, and this one waits for the lease
            metrics=metrics,
        )
        self._repairs = Repairs(
            client=client,
            volumes=self._caches.volumes,
            nodes=self._caches.node_views,
            lookup=self._lookup,
            leases=self._leases,
            events=self._events,
            metrics=metrics,
            driver=settings.driver,
        )

    def not_ready(self) -> str:
        """Why no API server should send reviews here; "" when ready."""
        if not self._caches.is_synced:
            return "the caches are not filled yet"
        return self._rotation.problem() or self._front.problem()

    async def run(self, stop: asyncio.Event) -> None:
        """Answer reviews until ``stop`` is set, and those that are under way then.

        Raises:
            StorageError: it cannot listen; one clear line.
        """
        working = asyncio.create_task(self._work(stop), name="work")
        serving = asyncio.create_task(self._front.serve(stop), name="front")
        try:
            await asyncio.wait({working, serving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (serving, working):
                if task.done():
                    task.result()  # neither ends by itself, except by a bug
        finally:
            for task in (serving, working):
                task.cancel()
            await asyncio.gather(serving, working, return_exceptions=True)
            await self._lookup.close()

    async def _work(self, stop: asyncio.Event) -> None:
        """All that goes on beside the answers."""
        async with asyncio.TaskGroup() as tasks:
            for run in (self._caches.run, self._events.run):
                tasks.create_task(run(), name=run.__qualname__)
            await self._caches.synced()
            # What the caches hold now lives as long as we do, and a garbage collection that looks
            # through it blocks every review.
            gc.freeze()
            driver, strict = self._settings.driver, self._settings.strict
            log.info("started", version=our_version(), driver=driver, strict=strict)
            # Only now: callers that know this address from an earlier life fail until a certificate
            # is loaded, and get no answers from empty caches.
            tasks.create_task(self._rotation.run(), name="certificates")
            repairing = tasks.create_task(self._repairs.run(), name="repairs")
            await stop.wait()
            repairing.cancel()
            await asyncio.wait({repairing})
            await self._leases.release()  # at once: the next replica need not wait for its expiry
            await self._events.flush(_FLUSH_S)


def run(settings: Settings) -> None:
    """Run a replica until SIGTERM or SIGINT.

    Raises:
        StorageError: it cannot start; one clear line.
    """
    rounds = Rounds()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(rounds)) as runner:
        runner.run(_run(settings, rounds))


async def _run(settings: Settings, rounds: Rounds) -> None:
    stop = process.stop_on_signals()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            await KubeClient.connect(kubeconfig=settings.kubeconfig)
        )
        metrics, start = WebhookMetrics(), Start(settings.region)
        await process.show(
            stack, settings.metrics_address, registry=metrics.registry, ready=start.not_ready
        )
        if not await process.first(start.find_region(client), stop):
            return
        calls = Ec2Calls.connect(
            region=start.region,
            metrics=metrics,
            rates=parse_rates(settings.ec2_rates),
            at_once=_EC2_AT_ONCE,
            read_timeout_s=_EC2_READ_S,
        )
        stack.push_async_callback(calls.close)
        webhook = Webhook(settings, client, calls, metrics, rounds)
        start.working = webhook.not_ready
        await webhook.run(stop)
