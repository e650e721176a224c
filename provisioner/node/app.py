"""The node plugin's process: its parts, wired, started and stopped in order.

It keeps no state of volumes in memory, but reads from the kernel what is mounted. So a restart with
volumes mounted changes nothing.
"""

import asyncio
import ctypes
from contextlib import AsyncExitStack

import structlog

from provisioner import process
from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.endpoint import Endpoint
from provisioner.node.csi.registration import Identity, Registration
from provisioner.node.csi.server import service
from provisioner.node.csi.service import NodeService, Requests
from provisioner.node.formatting.format import Consents
from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.drain import drain
from provisioner.node.instance.info import ForeignVolumes, Info
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import ENDPOINT, Imds, Metadata
from provisioner.node.metrics import collector
from provisioner.node.metrics.collector import VolumeCollector, VolumeNames
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.node.mounting.expand import Expander, Usages
from provisioner.node.mounting.leaked_mounts import LeakedMounts
from provisioner.node.mounting.publish import Publisher
from provisioner.node.mounting.stage import Stager
from provisioner.node.mounting.tools import Tools
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import Programs, check_kernel
from provisioner.node.settings import NodeSettings
from provisioner.version import our_version

_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
_BYTES = 128 * 1024
log = structlog.get_logger(__name__)
_CALLS_S = 5.0


def keep_small() -> None:
    """Make glibc's malloc return free memory; must run before any thread is started.

    By default it has an arena for each thread, of which there are many here (each call that may
    hang has one), and keeps ever larger blocks after they were freed. With 25 volumes this is 4 of
    65 MiB. Source: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _BYTES)
    mallopt(_TRIM_THRESHOLD, _BYTES)


class Node:
    """One node plugin; ``volumes`` has their metrics."""

    def __init__(
        self, settings: NodeSettings, kube: NodeKube, imds: Imds | None, metrics: NodeMetrics
    ) -> None:
        self._settings = settings
        self._is_lost = False
        self._is_another = asyncio.Event()
        self._metadata = Metadata(imds, kube, settings.dirs, on_other=self._is_another.set)
        self._tools = tools = Tools.made(
            settings.dirs,
            settings.kubelet_dir,
            kube=kube,
            metadata=self._metadata,
            consents=Consents(kube),
            programs=Programs(),
            blocking=BlockingCalls(),
            is_legacy_xfs=settings.legacy_xfs,
        )
        self._leaked = LeakedMounts(kube, tools, settings.stages)
        short = BlockingCalls(collector.DISK_TIMEOUT_S)
        attachments = AttachmentLookups(kube)
        names = VolumeNames(kube, attachments)
        self.volumes = VolumeCollector(tools.devices, names, blocking=short)
        metrics.registry.register(self.volumes)
        metrics.programs.set_function(lambda: len(tools.programs.running()))
        metrics.growths_failed.set_function(lambda: tools.growth.failed)
        foreign = ForeignVolumes(kube, attachments, self._metadata, tools.devices.volumes)
        node = NodeService(
            Requests(str(settings.kubelet_dir)),
            stager=Stager(tools, on_stage=attachments.ask_again),
            publisher=Publisher(tools),
            expander=Expander(tools),
            usages=Usages(tools),
            info=Info(kube, self._metadata, foreign, settings.limits),
        )
        self._registration = Registration(settings.driver, settings.csi_socket, metrics)
        self._csi, self._registry = _endpoints(settings, node, self._registration, metrics)

    def not_ready(self) -> str:
        """Why the kubelet cannot use it; "" if it can."""
        if self._is_lost:
            running = [f"{each.name} {each.why}" for each in self._tools.programs.running()]
            what = ", ".join(running) or "the calls that still run"
            return f"a socket file was removed: the plugin ends, to be restarted, after {what}"
        return self._registration.not_ready()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, and then until everything that runs has ended.

        If a socket's file is removed, the kubelet cannot reach us any more. Then this ends, too,
        and the kubelet restarts the container. Before that it accepts no more calls and waits for
        the running programs, which would be killed with the container. Waiting for one that hangs
        with its disk costs nothing: in the kernel, it would keep the container from ending anyway.

        Raises:
            NodeError: it cannot listen on a socket, or a socket's file was removed.
        """
        log.info("starting", version=our_version(), node=self._settings.node_name)
        await self._csi.open()
        try:
            await self._registry.open()
            log.info("listening", csi=str(self._csi.path), registration=str(self._registry.path))
            await self._serve(stop)
            if not stop.is_set():
                raise NodeError(
                    Reason.UNREACHABLE,
                    "a socket file was removed or replaced: ending, to be restarted",
                )
        finally:
            await self._wind_down()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Return once ``stop`` is set, or a socket was lost and nothing runs any more."""
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(stop.wait(), name="stop")
            sockets = [tasks.create_task(each.lost()) for each in (self._csi, self._registry)]
            keeping = [
                tasks.create_task(self._leaked.keep(), name="leaked mounts"),
                tasks.create_task(self._metadata.keep(), name="metadata"),
                tasks.create_task(self._keep_registered(), name="registered"),
            ]
            await asyncio.wait({stopping, *sockets}, return_when=asyncio.FIRST_COMPLETED)
            for task in keeping:
                task.cancel()
            self._is_lost = not stop.is_set()
            running = [str(each) for each in self._tools.programs.running()]
            log.info("a socket was lost" if self._is_lost else "ending", programs=running)
            if self._is_lost:
                ended = tasks.create_task(self._ended(), name="ended")
                await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
            stopping.cancel()
            for task in sockets:
                task.cancel()

    async def _keep_registered(self) -> None:
        """Make the kubelet register us again, if it has recorded a wrong instance.

        Removing and creating the socket file does that: an instance id in CSINode cannot be changed
        otherwise. The process continues, because it has the right one from the metadata service,
        which a new process might not reach.
        """
        while True:
            await self._is_another.wait()
            self._is_another.clear()
            await self._registry.renew()

    async def _wind_down(self) -> None:
        """Wait for everything that runs, within ``drain_s``; programs continue after that.

        If the PID namespace ends with this process, as in a pod, they are killed then. The
        registration socket's file stays: without it the kubelet removes the driver from CSINode,
        and until we are back nothing would limit the volumes that are scheduled to this node.
        """
        await self._registry.close(0.0, leave_file=True)
        try:
            async with asyncio.timeout(self._settings.drain_s):
                await self._ended()
        except TimeoutError:
            for each in self._tools.programs.running():
                log.warning(
                    "a program is still running", program=each.name, why=each.why, pid=each.pid
                )

    async def _ended(self) -> None:
        """Accept no more calls; return once the running ones and their programs have ended.

        A call that takes longer than a few seconds is cancelled: it starts no further program, and
        the running one continues.
        """
        await self._csi.close(min(_CALLS_S, self._settings.drain_s / 2))
        await self._tools.operations.idle()
        await self._tools.programs.idle()


def _endpoints(
    settings: NodeSettings, node: NodeService, registration: Registration, metrics: NodeMetrics
) -> tuple[Endpoint, Endpoint]:
    """The sockets for CSI and for the registration."""
    csi = [
        service("csi.v1.Identity", Identity(settings.driver).rpcs(), metrics),
        service("csi.v1.Node", node.rpcs(), metrics),
    ]
    registry = [service("pluginregistration.Registration", registration.rpcs(), metrics)]
    return Endpoint(settings.csi_socket, csi), Endpoint(settings.registration_socket, registry)


async def run(settings: NodeSettings) -> None:
    """Run the node plugin until SIGTERM or SIGINT.

    Raises:
        StorageError: it cannot start.
    """
    check_kernel()
    keep_small()
    stop = process.stop_on_signals()
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(_kube(settings))
        imds = None
        if settings.asks_metadata:
            imds = await stack.enter_async_context(Imds(settings.metadata_endpoint or ENDPOINT))
        metrics = NodeMetrics()
        node = Node(settings, kube, imds, metrics)
        stack.push_async_callback(node.volumes.close)
        await process.show(
            stack,
            settings.metrics_address,
            registry=metrics.registry,
            ready=node.not_ready,
            measure=node.volumes.refresh,
        )
        await node.run(stop)


async def drained(settings: NodeSettings, *, timeout_s: float) -> None:
    """Wait until the kubelet of a node that goes away uses none of our volumes any more.

    Raises:
        StorageError: it still does after ``timeout_s``, or no API server is configured.
    """
    async with _kube(settings) as kube:
        await drain(kube, settings.dirs, settings.stages, timeout_s=timeout_s)


def _kube(settings: NodeSettings) -> NodeKube:
    return NodeKube(settings.server, settings.node_name, driver=settings.driver)
