"""A real control plane on loopback: etcd, API server, controllers, scheduler, KWOK.

Flags are those that the stock driver was measured with (design.md, choice 7): clients of the API
server are not held back, so that what is measured is the controller under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from provisioner.sandbox import api_server, credentials, kwok, snapshots, workdir
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.network import network
from provisioner.sandbox.network.network import Network
from provisioner.sandbox.programs import SNAPSHOT_CONTROLLER

READY_TIMEOUT_S = 60.0
"""Measured 3 s on two idle cores; a busy machine gets twenty times that."""

LEAST_PAUSE_S = 0.05
MOST_PAUSE_S = 0.5

LIFE_S = int(credentials.LIFE.total_seconds())
"""Of all credentials of a sandbox."""

_PORTS = range(20000, 32000)
"""Below Linux' ephemeral ports: no outgoing connection can take one between choice and use."""


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    for port in random.sample(_PORTS, 200):
        if not _why_not(port):
            return port
    raise SandboxError("no free port between 20000 and 32000 on 127.0.0.1")


def demand_port(port: int) -> int:
    """Return ``port``, or a free one for 0.

    Raises:
        SandboxError: nobody can listen there now.
    """
    if why := _why_not(port):
        raise SandboxError(f"port {port} of 127.0.0.1 cannot be used: {why}")
    return port or free_port()


def _why_not(port: int) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as problem:
            return problem.strerror or str(problem)
    return ""


@dataclass(slots=True)
class ControlPlane:
    """A running control plane.

    Attributes:
        folder: its work folder.
        binaries: the folder of its programs.
        server: the API server's URL.
        kubeconfig: the administrator's.
        api: a client with the administrator's rights.
        crew: the running parts; ``crew.check()`` raises if one died.
        network: of real nodes, whose kubelets may then do what kubelets may, no more; or None.
    """

    folder: Path
    binaries: Path
    crew: Crew
    credentials: credentials.Credentials
    api_port: int
    etcd_port: int
    api: Api
    network: Network | None = None
    kubeconfig: Path = field(init=False)

    def __post_init__(self) -> None:
        self.kubeconfig = self._kubeconfig("admin", self.folder / workdir.KUBECONFIG)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.api.server

    @property
    def audit_log(self) -> Path:
        """One JSON line for each request (level Metadata)."""
        return self.crew.logs / "audit.log"

    def _kubeconfig(self, user: str, path: Path) -> Path:
        return self.kubeconfig_for(self.credentials.tokens[user], path)

    def kubeconfig_of_kubelet(self, node: str) -> Path:
        """Write the kubeconfig of a node's kubelet, who is known by a certificate."""
        assert self.network is not None, "this control plane has no real nodes"
        pair = self.credentials.client(f"system:node:{node}", "system:nodes")
        return credentials.write_kubeconfig(
            self.folder / workdir.STATE / f"kubelet-{node}.kubeconfig",
            server=self.network.api_server,
            authority=self.credentials.authority,
            pair=pair,
        )

    def kubeconfig_of_proxies(self) -> Path:
        """Write the kubeconfig of the nodes' service proxies, who have Kubernetes' own role."""
        path = self.folder / workdir.STATE / "kube-proxy.kubeconfig"
        if not path.exists():
            assert self.network is not None, "this control plane has no real nodes"
            credentials.write_kubeconfig(
                path,
                server=self.network.api_server,
                authority=self.credentials.authority,
                pair=self.credentials.client("system:kube-proxy", "system:node-proxiers"),
            )
        return path

    def kubeconfig_of_dns(self) -> Path:
        """Write the kubeconfig of the DNS server, which is in the nodes' network."""
        assert self.network is not None, "this control plane has no real nodes"
        return credentials.write_kubeconfig(
            self.folder / workdir.STATE / "coredns.kubeconfig",
            server=self.network.api_server,
            authority=self.credentials.authority,
            token=self.credentials.tokens["coredns"],
        )

    def kubeconfig_for(self, token: str, path: Path | None = None) -> Path:
        """Write a kubeconfig for the bearer of ``token`` and return where."""
        if path is None:
            count = len(list((self.folder / workdir.STATE).glob("token-*.kubeconfig")))
            path = self.folder / workdir.STATE / f"token-{count}.kubeconfig"
        return credentials.write_kubeconfig(
            path, server=self.server, authority=self.credentials.authority, token=token
        )

    async def service_account_token(
        self, namespace: str, name: str, expires_after_s: int = LIFE_S
    ) -> str:
        """Ask the TokenRequest API for a token of a service account, as the kubelet does.

        Nobody renews it, so by default it lives as long as the certificates do.
        """
        answer = await self.api.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": expires_after_s},
            },
        )
        token: str = answer["status"]["token"]
        return token

    async def stop_api_server(self) -> None:
        """Kill the API server; all else goes on and meets refused connections."""
        await self.crew.stop("kube-apiserver")

    async def start_api_server(self) -> None:
        """Start it again on the same port with the same data, and wait until it answers."""
        await self._start_api_server()
        await self.crew.unless_failed(
            until(self._api_ready), READY_TIMEOUT_S, "the start of the API server"
        )

    async def start_snapshots(self) -> None:
        """Make the kinds of VolumeSnapshots, and run the snapshot-controller.

        Raises:
            SandboxError: it cannot be started.
            ApiError: the kinds are refused.
        """
        await snapshots.define(self.api, self.binaries)
        state = self.folder / workdir.STATE
        name = SNAPSHOT_CONTROLLER
        config = self._kubeconfig(name, state / f"{name}.kubeconfig")
        await self.crew.start(name, snapshots.arguments(self.binaries, config))

    async def _start(self, *, with_snapshots: bool) -> None:
        state = self.folder / workdir.STATE
        await self._start_etcd(state / "etcd")
        # Before the others: the controller manager waits ten seconds for it, and ends (1.36.3).
        await self.start_api_server()
        await self._start_clients(state)
        await self.crew.unless_failed(
            self._all_ready(with_snapshots=with_snapshots),
            READY_TIMEOUT_S,
            "the start of the control plane",
        )

    async def _all_ready(self, *, with_snapshots: bool) -> None:
        if with_snapshots:
            await self.start_snapshots()
        await until(self._controllers_ready)

    async def _start_etcd(self, data: Path) -> None:
        url = f"http://127.0.0.1:{self.etcd_port}"
        await self._run(
            "etcd",
            f"--data-dir={data}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",
            # Nothing here outlives the processes, so nothing needs to reach the disk.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    async def _start_api_server(self) -> None:
        keys = self.credentials
        await self._run(
            "kube-apiserver",
            *api_server.arguments(
                keys,
                port=self.api_port,
                etcd_port=self.etcd_port,
                audit_policy=self.folder / workdir.STATE / "audit-policy.yaml",
                audit_log=self.audit_log,
            ),
            *self._about_kubelets(),
        )

    def _about_kubelets(self) -> list[str]:
        if self.network is None:
            return api_server.without_kubelets()
        egress = self.folder / workdir.STATE / "egress.json"
        egress.write_text(api_server.egress(self.network.socket))
        return api_server.with_kubelets(self.credentials, egress)

    async def _start_clients(self, state: Path) -> None:
        names = ("kube-controller-manager", "kube-scheduler", "kwok")
        configs = {name: self._kubeconfig(name, state / f"{name}.kubeconfig") for name in names}
        fast = ("--leader-elect=false", "--kube-api-qps=2000", "--kube-api-burst=4000")
        await self._run(
            "kube-controller-manager",
            f"--kubeconfig={configs['kube-controller-manager']}",
            *fast,
            "--secure-port=0",
            f"--service-account-private-key-file={self.credentials.service_account_key}",
            f"--root-ca-file={self.credentials.authority}",
        )
        await self._run(
            "kube-scheduler",
            f"--kubeconfig={configs['kube-scheduler']}",
            *fast,
            "--secure-port=0",
        )
        await self._run(
            "kwok",
            f"--kubeconfig={configs['kwok']}",
            f"--config={kwok.write_stages(state / 'kwok.yaml')}",
            f"--manage-nodes-with-annotation-selector={'='.join(kwok.FAKE_NODE)}",
            f"--node-lease-duration-seconds={kwok.LEASE_S}",
        )

    async def _run(self, name: str, *arguments: str) -> None:
        await self.crew.start(name, [str(self.binaries / name), *arguments])

    async def _api_ready(self) -> bool:
        return bool(await self.api.get("/readyz") == "ok")

    async def _controllers_ready(self) -> bool:
        # Pods are refused until the controller manager has made this account.
        await self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        return True


def pause_s(waited_s: float, least_s: float = LEAST_PAUSE_S) -> float:
    """Return how long to wait before the next look: a tenth of the time so far, within limits.

    What comes soon is seen soon, and what takes long is not asked for hundreds of times.
    """
    return min(max(least_s, waited_s / 10), MOST_PAUSE_S)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until the answer is yes; a refused or failed question is a no."""
    began_s = time.monotonic()
    while True:
        with contextlib.suppress(aiohttp.ClientError, ApiError, TimeoutError):
            if await is_so():
                return
        await asyncio.sleep(pause_s(time.monotonic() - began_s))


@contextlib.asynccontextmanager
async def control_plane(
    folder: Path,
    binaries: Path,
    crew: Crew,
    *,
    with_snapshots: bool = True,
    with_kubelets: bool = False,
    ports: Sequence[int] = (),
) -> AsyncIterator[ControlPlane]:
    """Run a control plane in ``folder`` as part of ``crew``, which stops it.

    Args:
        folder: of its files.
        binaries: of its programs.
        crew: that its parts belong to.
        with_snapshots: without, it is a cluster whose administrator has not installed their kinds
            (yet, see ``start_snapshots``).
        with_kubelets: whether real nodes come: then there is a network for them and their pods.
        ports: of the machine's loopback that they reach too, at ``addresses.ROUTER``.

    Raises:
        SandboxError: a part died or did not get ready; the text has the end of its log.
    """
    state = folder / workdir.STATE
    state.mkdir(parents=True, exist_ok=True)
    (state / "audit-policy.yaml").write_text(api_server.AUDIT_POLICY)
    keys = credentials.create(state / "credentials")
    api_port, etcd_port = free_port(), free_port()
    server = f"https://127.0.0.1:{api_port}"
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(server, keys.authority, keys.tokens["admin"]))
        found = None
        if with_kubelets:
            found = await network.start(crew, state, api_port, ports)
            stack.callback(found.close)
        plane = ControlPlane(folder, binaries, crew, keys, api_port, etcd_port, api, found)
        await plane._start(with_snapshots=with_snapshots)  # noqa: SLF001 - same module
        yield plane
