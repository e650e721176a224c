"""A whole sandbox: control plane, strict EC2, nodes, controller and webhook by their accounts."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from provisioner.sandbox import binaries as programs
from provisioner.sandbox import control_plane, ec2_process, installation, nodes, own, workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.installed.release import Release
from provisioner.sandbox.programs import CHART, CONTROL_PLANE, REAL_NODE
from provisioner.sandbox.real_node import fleet
from provisioner.sandbox.real_node.disks import Disks
from provisioner.sandbox.real_node.fleet import Fleet
from provisioner.sandbox.real_node.node import RealNode
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances

REGION = "us-east-1"
CLUSTER_ID = "sandbox"
START_TIMEOUT_S = 60.0
INSTANCE_TYPE = "m5.large"
_GOOD_END_S = 20.0
_AWS_SERVICES = ("EC2", "STS", "KMS", "SERVICE_QUOTAS")


@dataclass(slots=True)
class Sandbox:
    """A running sandbox.

    Attributes:
        plane: the control plane, with the administrator's ``kubeconfig`` and ``api``.
        ec2_endpoint: URL of the strict EC2, and of its ``/_control``.
        region, zones, instances: what EC2 holds; each instance is a node of the same name.
        cluster_id: what the controller tags its volumes with.
        controller_kubeconfig: the controller's ServiceAccount; None if it was not installed.
        webhook_kubeconfig: the webhook's; None if it was not installed.
        fleet: the nodes that really run, whose instances come last, and their disks; or None.
        release: the product as pods of the chart; None if it runs as processes.
    """

    plane: ControlPlane
    ec2_endpoint: str
    region: str
    zones: Sequence[str]
    instances: Sequence[Instance]
    cluster_id: str = CLUSTER_ID
    controller_kubeconfig: Path | None = None
    webhook_kubeconfig: Path | None = None
    fleet: Fleet | None = None
    release: Release | None = None

    @property
    def crew(self) -> Crew:
        """The running parts; ``crew.check()`` raises if one died."""
        return self.plane.crew

    @property
    def real_nodes(self) -> Sequence[RealNode]:
        """The nodes that really run."""
        return self.fleet.nodes if self.fleet else ()

    @property
    def disks(self) -> Disks:
        """The disks of the real nodes; there are some."""
        assert self.fleet is not None, "this sandbox has no real nodes"
        return self.fleet.disks

    @property
    def aws_environment(self) -> dict[str, str]:
        """What boto3 needs so that it speaks to this EC2 and to nobody else."""
        return {
            **CREDENTIALS,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            **{f"AWS_ENDPOINT_URL_{name}": self.ec2_endpoint for name in _AWS_SERVICES},
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls,
        *,
        nodes: int = 6,
        zones: int = 3,
        latency: str = "real",
        throttle: str = "documented",
        controller: bool = True,
        webhook: bool = False,
        controller_options: Sequence[str] = (),
        folder: Path | None = None,
        binaries: Path | None = None,
        port: int = 0,
        attachable: int | None = None,
        snapshots: bool = True,
        real_nodes: int = 0,
        real_zones: int = 1,
        image: ImageArchive | None = None,
    ) -> AsyncIterator[Sandbox]:
        """Run a sandbox until the block is left; then nothing of it remains.

        Args:
            nodes: how many that only pretend, spread over ``zones`` zones in turn; 0 for none.
            zones: how many, from us-east-1a on; at most 6.
            latency: of EC2, ``real`` (calls 100-400 ms, create 1.5 s, attach 2 s, detach 3 s) or
                ``none``.
            throttle: of EC2, ``documented`` or ``none``, or another that the strict EC2 knows.
            controller: whether to run it too; its manifests are installed only if so.
            webhook: the same of the webhook.
            controller_options: more arguments of ``ebs-provisioner controller``.
            folder: where its files are; by default a temporary folder.
            binaries: the programs' folder; by default found or built (which takes minutes).
            port: of EC2; 0 takes a free one.
            attachable: volumes that each CSINode allows; by default as the stock plugin reports.
            snapshots: whether the cluster knows VolumeSnapshots; ``plane.start_snapshots`` is the
                way to them later.
            real_nodes: how many that really run, with the node plugin; see ``fleet``.
            real_zones: over how many of the zones these are spread in turn, from the first on.
            image: then the product runs from it, as pods of the chart on real nodes, and no part
                of it as a process; ``controller_options`` is not for that.

        Raises:
            SandboxError: a part cannot be started or died; its last log lines are in the text.
        """
        binaries = await _binaries(binaries, real_nodes, CHART if image else ())
        names = [f"{REGION}{letter}" for letter in "abcdef"[:zones]]
        with workdir.work_folder(folder) as home:
            async with Crew(home / workdir.LOGS) as crew, contextlib.AsyncExitStack() as stack:
                port = control_plane.demand_port(port)
                await ec2_process.start(crew, port, latency, throttle)
                begun = control_plane.control_plane(
                    *(home, binaries, crew),
                    with_snapshots=snapshots,
                    with_kubelets=real_nodes > 0,
                    ports=[port],
                )
                plane = await stack.enter_async_context(begun)
                endpoint = await ec2_process.ready(crew, START_TIMEOUT_S)
                sandbox = cls(plane, endpoint, REGION, names, ())
                await sandbox._populate(nodes, attachable)
                await sandbox._real(stack, real_nodes, names[:real_zones])
                options = controller_options if controller else None
                await sandbox._work(image, options, webhook=webhook)
                yield sandbox

    async def _populate(self, count: int, attachable: int | None) -> None:
        if not count:
            return
        made = asyncio.to_thread(
            make_instances, self.ec2_endpoint, count, self.zones, INSTANCE_TYPE
        )
        self.instances = await self.crew.unless_failed(made, START_TIMEOUT_S, "RunInstances")
        added = nodes.add(self.plane.api, self.instances, attachable or nodes.ATTACHABLE)
        await self.crew.unless_failed(added, START_TIMEOUT_S, "the creation of nodes")

    async def _real(
        self, stack: contextlib.AsyncExitStack, count: int, zones: Sequence[str]
    ) -> None:
        if not count:
            return
        instances = await asyncio.to_thread(
            make_instances, self.ec2_endpoint, count, zones, INSTANCE_TYPE
        )
        self.instances = [*self.instances, *instances]
        running = fleet.fleet(self.plane, self.ec2_endpoint, instances)
        self.fleet = await stack.enter_async_context(running)

    async def install(self, image: ImageArchive, *more: str, webhook: bool = True) -> str:
        """Install the chart with an image, as pods on the real nodes; the chart's notes.

        Args:
            image: which.
            more: arguments of ``helm install``.
            webhook: whether to install it too.

        Raises:
            SandboxError: it is refused, or does not get ready.
        """
        self.release = Release(
            self.plane, self.real_nodes, self.ec2_endpoint, self.cluster_id, webhook=webhook
        )
        return await self.release.install(image, *more)

    async def _work(
        self,
        image: ImageArchive | None,
        controller_options: Sequence[str] | None,
        *,
        webhook: bool,
    ) -> None:
        if image:
            await self.install(image, webhook=webhook)
            return
        if self.fleet is not None:
            await fleet.start_plugins(self.plane, self.fleet.nodes)
        if controller_options is not None:
            await self.install_controller()
            probes = await self.start_controller(*controller_options)
            await self.elected(probes)
        if webhook:
            await self.install_webhook()
            await self.start_webhook()

    async def install_controller(self) -> None:
        """Apply the manifests, and fetch a token of the controller's ServiceAccount."""
        self.controller_kubeconfig = await self._installed(
            installation.install(self.plane), "controller"
        )

    async def install_volume_moves(self) -> None:
        """Apply CRD and rights of VolumeMoves; programs with ``--volume-moves`` follow.

        Raises:
            SandboxError: they are refused.
        """
        work = installation.install_volume_moves(self.plane)
        await self.crew.unless_failed(work, START_TIMEOUT_S, "applying the manifests of moves")

    async def install_webhook(self) -> None:
        """The same for the webhook."""
        self.webhook_kubeconfig = await self._installed(
            installation.install_webhook(self.plane), "webhook"
        )

    async def _installed(self, work: Awaitable[installation.Account], name: str) -> Path:
        what = f"applying the manifests of the {name}"
        account = await self.crew.unless_failed(work, START_TIMEOUT_S, what)
        token = await self.plane.service_account_token(account.namespace, account.name)
        return self.plane.kubeconfig_for(
            token, self.plane.folder / workdir.STATE / f"{name}.kubeconfig"
        )

    async def start_controller(self, *options: str, name: str = "controller") -> str:
        """Run a controller and wait until it is ready; the address of its probes.

        Args:
            options: more arguments of ``ebs-provisioner controller``.
            name: of the part in ``crew``, for more than one replica.

        Raises:
            SandboxError: it died or did not get ready.
        """
        assert self.controller_kubeconfig is not None, "install_controller comes first"
        return await self._start(
            name,
            *("provisioner.cli", "controller"),
            *("--kubeconfig", str(self.controller_kubeconfig)),
            *("--cluster-id", self.cluster_id),
            *options,
        )

    async def elected(self, probes: str) -> None:
        """Wait until the controller with these probes leads.

        The first one ever searches EC2 for a minute for what another controller may have begun for
        claims that it finds: whoever makes a claim right after the start would wait for that.

        Raises:
            SandboxError: a part died, or it does not come to lead.
        """
        leads = control_plane.until(partial(own.leads, probes))
        await self.crew.unless_failed(leads, START_TIMEOUT_S, "the first election")

    async def start_webhook(
        self, *options: str, name: str = "webhook", holds_pods: bool = False
    ) -> None:
        """Run a webhook, have API servers sent to it, and wait until it is ready.

        Args:
            options: more arguments of ``ebs-webhook serve``.
            name: of the part in ``crew``; there is one registration, so the last one gets all.
            holds_pods: have it asked about new pods, too; takes the option ``--volume-moves``.

        Raises:
            SandboxError: it died or did not get ready.
        """
        assert self.webhook_kubeconfig is not None, "install_webhook comes first"
        address = f"127.0.0.1:{control_plane.free_port()}"
        url = f"https://{address}"
        await installation.register_webhook(self.plane, url, holds_pods=holds_pods)
        await self._start(
            name,
            *("webhook.cli", "serve"),
            *("--kubeconfig", str(self.webhook_kubeconfig)),
            *("--listen", address, "--tls-name", "127.0.0.1"),
            *("--namespace", installation.WEBHOOK_NAMESPACE),
            *options,
        )

    async def stop_processes(self) -> None:
        """End the controller, the webhook and the node plugins, so that pods can take over."""
        await self.unregister_webhook()
        await self.stop_webhook(grace_s=_GOOD_END_S)
        await self.stop_controller(grace_s=_GOOD_END_S)
        await asyncio.gather(*(node.stop_plugin() for node in self.real_nodes))

    async def stop_controller(self, grace_s: float = 0.0, name: str = "controller") -> None:
        """End a controller: SIGTERM and up to ``grace_s``, or SIGKILL at once if that is 0."""
        await self.crew.stop(name, grace_s)

    async def stop_webhook(self, grace_s: float = 0.0, name: str = "webhook") -> None:
        """End a webhook in the same way; it stays registered."""
        await self.crew.stop(name, grace_s)

    async def unregister_webhook(self) -> None:
        """Have the API server ask no webhook any more."""
        await installation.unregister_webhook(self.plane)

    async def _start(self, name: str, module: str, *arguments: str) -> str:
        """Run a program of ours with its probes, and wait until it is ready."""
        probes = f"127.0.0.1:{control_plane.free_port()}"
        argv = [sys.executable, "-m", module, *arguments, "--metrics-address", probes]
        await self.crew.start(name, argv, own.environment() | self.aws_environment)
        ready = control_plane.until(partial(own.is_ready, probes))
        await self.crew.unless_failed(ready, START_TIMEOUT_S, f"the start of the {name}")
        return probes


async def _binaries(given: Path | None, real_nodes: int, more: Sequence[str]) -> Path:
    if real_nodes:
        fleet.demand()
    if given is not None:
        return given
    wanted = (*CONTROL_PLANE, *(REAL_NODE if real_nodes else ()), *more)
    return await asyncio.to_thread(programs.ensure_binaries, programs=wanted)
