"""A node that runs: a real kubelet, containerd and kube-proxy in namespaces of their own.

Pods have to use the image ``image.POD_IMAGE``, the only one there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import math
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox import control_plane, own, workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.network.addresses import KUBERNETES, METADATA
from provisioner.sandbox.programs import KUBE_PROXY
from provisioner.sandbox.real_node import cloud, configs, container, image, imds, layers
from provisioner.sandbox.real_node.disks import Disks
from provisioner.sandbox.real_node.host import Host
from provisioner.sandbox.real_node.imds import InstanceMetadata
from provisioner.sandbox.real_node.plugs import Machine
from provisioner.sandbox.real_node.requirements import PATH, cni_plugins
from provisioner.sandbox.strict_ec2.instances import Instance

CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"
PROXY: Final = KUBE_PROXY
PLUGIN: Final = "node-plugin"

_WITHOUT_CONTAINERD_S: Final = 10.0
_QUICK_END_S: Final = 3.0
_MOST_QUICK_ENDS: Final = 3
READY_TIMEOUT_S: Final = 60.0
_IMPORT_TIMEOUT_S: Final = 300.0
"""Of hundreds of megabytes, on all nodes at once, on a busy machine."""

LABEL: Final = "ebs-provisioner.io/sandbox-node"
"""With the value "real": what a pod selects that shall really run."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the node plugin reaches the API server: the token of its ServiceAccount in a file."""

    server: str
    token_file: Path
    authority: Path


class RealNode:
    """One node; the parts are ``CONTAINERD``, ``KUBELET``, ``PROXY`` and ``PLUGIN``.

    Attributes:
        instance: what it is to EC2, and the name of its Node object.
        host: its namespaces; ``host.root``, ``host.mounts()`` and ``host.run(…)`` look into them.
        seat: its place in the nodes' network.
        probes: the address of the node plugin's probes and metrics, on the machine's loopback.
        metadata: what its instance metadata service tells the node and its pods.
    """

    def __init__(
        self, plane: ControlPlane, instance: Instance, disks: Disks, *, initialized: bool = True
    ) -> None:
        """Prepare a node that is off.

        Args:
            plane: what its kubelet serves.
            instance: what it is to EC2.
            disks: where its disks come from.
            initialized: whether its Node object is made what a cloud controller makes of it.
        """
        self.instance = instance
        assert plane.network is not None, "the control plane was started without kubelets"
        self.network = plane.network
        self.seat = self.network.seat(instance.private_ip_address)
        self._probes_port = control_plane.free_port()
        self.probes = f"127.0.0.1:{self._probes_port}"
        self._open = contextlib.AsyncExitStack()
        self.metadata = InstanceMetadata(
            instance.instance_id, instance.instance_type, instance.zone
        )
        self._plane = plane
        self._disks = disks
        self._initialized = initialized
        self._access: Access | None = None
        self._snapshotter = layers.COPIES
        self._kubelet_since = dt.datetime.now(dt.UTC)
        folder = plane.folder / workdir.STATE / f"node-{self.name}"
        needed = (plane.folder, plane.binaries, Path(sys.prefix), Path(sys.base_prefix))
        here = Path(__file__).parents[3]
        self.host = Host(folder, (*needed, here), self._lost)
        self.host.revive = self._revive
        self._turn = asyncio.Lock()
        self._containerd_killed_s = self._plugin_started_s = -math.inf
        self._is_plugin_known = False
        self._quick_ends = 0  # of the plugin, in a row
        self._reviving: set[asyncio.Task[None]] = set()
        for part in (CONTAINERD, KUBELET, PROXY, PLUGIN):
            self.host.log_of(part, self.log(part))

    @property
    def name(self) -> str:
        """Of its Node object."""
        return self.instance.private_dns_name

    @property
    def pid(self) -> int:
        """Of process 1 of its namespaces; 0 while it is off."""
        return self.host.pid

    @property
    def root(self) -> Path:
        """Its root folder, as seen from outside."""
        return self.host.root

    def mounts(self) -> list[str]:
        """The lines of its mountinfo."""
        return self.host.mounts()

    def log(self, part: str) -> Path:
        """What a part has printed."""
        return self._plane.crew.logs / f"{part}-{self.name}.log"

    def _lost(self, message: str) -> None:
        self._plane.crew.fail(f"{self.name}: {message}")

    # -- the whole node

    async def boot(self) -> None:
        """Switch it on; returns when its Node is ready, and its plugin registered if it has one.

        Raises:
            SandboxError: something cannot be started or does not get ready.
        """
        await self.host.on()
        await self.network.plug_in(self.seat, self.pid)
        await self._open.enter_async_context(self.network.reached(self._probes_port, self.seat))
        listener = self.network.listener(self.pid, (METADATA, 80))
        await self._open.enter_async_context(imds.serving(self.metadata, listener=listener))
        await self._disks.plug_in(
            Machine(self.instance.instance_id, self.root / "dev", self.host.sys_dev_block)
        )
        self._snapshotter = await asyncio.to_thread(layers.snapshotter, self.host.folder)
        configs.write_cni(self.root / "var/lib", self.seat.pods)
        await self.start(CONTAINERD)
        await self._import_own_images()
        await self.start(KUBELET)
        if self._access is not None:
            await self.start(PLUGIN)
        await self.ready()
        # Not earlier: it waits for the addresses of its Node, and looks for them once a second.
        await self.start(PROXY)

    async def power_off(self) -> None:
        """End it at once, as when its instance fails; its disk and its Node object stay."""
        for task in self._reviving:
            task.cancel()
        try:
            await self.host.off()
        finally:
            await self._open.aclose()
            await self.network.pull_plug(self.seat)
            await self._disks.pull_plug(self.instance.instance_id)

    # -- its parts

    async def start(self, part: str) -> None:
        """Start one part; wait until containerd answers, or kube-proxy has the first Services.

        Raises:
            SandboxError: it cannot be started.
        """
        environment = {"PATH": PATH, "HOME": "/root"}
        if part == PLUGIN:
            # The rights of a pod of the DaemonSet: root's, its account's, and container.py's view.
            environment = own.environment() | environment | {"PYTHONDONTWRITEBYTECODE": "1"}
            self._plugin_started_s = time.monotonic()
        if part == KUBELET:
            self._kubelet_since = dt.datetime.now(dt.UTC)
        # Killed, it takes the mkfs or fsck that it runs with it, as its container would.
        contained = part == PLUGIN
        await self.host.start(part, self._command(part), environment, contained=contained)
        if part == CONTAINERD:
            answers = control_plane.until(self._containerd_answers)
            await self._unless_failed(answers, "the start of containerd")
        if part == PROXY:
            serves = control_plane.until(self._serves_services)
            await self._unless_failed(serves, "the start of kube-proxy")

    async def kill(self, part: str) -> None:
        """End one part by SIGKILL; containers outlive their containerd, only mounts the plugin."""
        if part == CONTAINERD:
            self._containerd_killed_s = time.monotonic()
        await self.host.kill(part)

    async def restart(self, part: str) -> None:
        """Kill one part and start it again."""
        async with self._turn:
            await self.kill(part)
            await self.start(part)

    def _revive(self, part: str, status: int) -> bool:
        """Start a part again that has ended by itself.

        A kubelet that found no containerd when it began, as systemd does; a plugin that has been
        registered once, as the kubelet does with its container, unless it ends again and again.
        """
        now_s = time.monotonic()
        is_late = now_s - self._containerd_killed_s <= _WITHOUT_CONTAINERD_S
        if part == PLUGIN:
            is_quick = now_s - self._plugin_started_s < _QUICK_END_S
            self._quick_ends = self._quick_ends + 1 if is_quick else 0
        is_known = self._is_plugin_known and self._quick_ends <= _MOST_QUICK_ENDS
        if status != 1 or not (is_late if part == KUBELET else part == PLUGIN and is_known):
            return False
        task = asyncio.create_task(self._start_again(part), name=f"{part} of {self.name}")
        self._reviving.add(task)
        task.add_done_callback(self._revived)
        return True

    async def _start_again(self, part: str) -> None:
        async with self._turn:  # until then a containerd that is being restarted answers
            if not self.host.runs(part):
                await self.start(part)

    def _revived(self, task: asyncio.Task[None]) -> None:
        self._reviving.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._lost(str(error))

    async def start_plugin(self, access: Access) -> None:
        """Run the node plugin from now on, and wait until the kubelet knows it.

        Raises:
            SandboxError: it cannot be started, or is not registered within a minute.
        """
        self._access = access
        await self.start(PLUGIN)
        await self.ready()
        self._is_plugin_known = True

    async def stop_plugin(self) -> None:
        """End the node plugin for good: a pod is to run in its place.

        Raises:
            SandboxError: it does not end.
        """
        self._access, self._is_plugin_known = None, False
        await self.kill(PLUGIN)

    async def ready(self) -> None:
        """Wait until its Node is ready, and its plugin registered if it has one.

        Raises:
            SandboxError: it is not within a minute, or a part ended.
        """
        is_ready = control_plane.until(
            partial(cloud.is_ready, self._plane.api, self.name, self._kubelet_since)
        )
        await self._unless_failed(is_ready, "becoming ready")
        if self._initialized:
            await cloud.initialize(self._plane.api, self.instance)
        if self._access is not None:
            registered = control_plane.until(self._is_registered)
            await self._unless_failed(registered, "the registration of the node plugin")

    async def _is_registered(self) -> bool:
        return await own.is_ready(self.probes) and await cloud.has_driver(
            self._plane.api, self.name, self.instance.instance_id
        )

    async def _unless_failed(self, work: Any, what: str) -> None:
        text = f"{what} of {self.name}"
        await self._plane.crew.unless_failed(work, READY_TIMEOUT_S, text)

    def _command(self, part: str) -> list[str]:
        folder = self.host.folder
        if part == CONTAINERD:
            config = configs.write_containerd(
                folder / "containerd.toml", cni_plugins(), self._snapshotter
            )
            return ["containerd", "--config", str(config)]
        if part == KUBELET:
            return self._kubelet(folder / "kubelet.json")
        if part == PROXY:
            config = folder / "kube-proxy.json"
            document = configs.kube_proxy(self.name, self._plane.kubeconfig_of_proxies())
            config.write_text(json.dumps(document, indent=1))
            return [str(self._plane.binaries / PROXY), f"--config={config}", "--v=2"]
        assert self._access is not None, "start_plugin comes first"
        return [
            *(sys.executable, "-S", "-m", container.__name__),
            *(sys.executable, "-m", "provisioner.cli", "node"),
            *("--node-name", self.name),
            *("--kube-server", self._access.server),
            *("--token-file", str(self._access.token_file)),
            *("--ca-file", str(self._access.authority)),
            *("--metrics-address", f"{self.seat.address}:{self._probes_port}"),
            *("--log-format", "json"),
        ]

    def _kubelet(self, config: Path) -> list[str]:
        keys = self._plane.credentials
        pair = keys.server(f"system:node:{self.name}", [self.name, self.seat.address])
        document = configs.kubelet(
            cgroup=self.host.cgroup,
            authority=keys.authority,
            certificate=pair.certificate,
            key=pair.key,
        )
        config.write_text(json.dumps(document, indent=1))
        return [
            str(self._plane.binaries / "kubelet"),
            f"--config={config}",
            f"--kubeconfig={self._plane.kubeconfig_of_kubelet(self.name)}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.seat.address}",
            # Its Node says nothing of the instance until a cloud controller has filled it in.
            "--cloud-provider=external",
            "--cert-dir=/var/lib/kubelet/pki",
            f"--node-labels={LABEL}=real",
            "--v=2",
        ]

    async def _containerd_answers(self) -> bool:
        code, _, _ = await self.host.run("ctr", f"--address={configs.SOCKET}", "version")
        return code == 0

    async def _serves_services(self) -> bool:
        rules = ("nft", "list", "map", "ip", "kube-proxy", "service-ips")
        _, output, _ = await self.host.run(*rules)
        return KUBERNETES in output

    async def _import_own_images(self) -> None:
        tar = self.host.folder / "images.tar"
        if tar.exists():
            return  # its disk has them from an earlier life
        await asyncio.to_thread(image.write_from_here, tar)
        await self.import_images(tar)

    async def import_images(self, tar: Path) -> None:
        """Give the node images for its pods, see ``image.write``; its disk keeps them.

        Raises:
            SandboxError: containerd refuses them, or took more than five minutes.
        """
        code, _, errors = await self.host.run(
            *("ctr", f"--address={configs.SOCKET}", "--namespace=k8s.io"),
            *("images", "import", f"--snapshotter={self._snapshotter}", str(tar)),
            timeout_s=_IMPORT_TIMEOUT_S,
        )
        if code:
            raise SandboxError(f"the images of {self.name} cannot be had: {errors.strip()}")
