"""An ssh server for each node, in its network: through it tests stop kubelets and look at mounts.

The suite asks for nothing but ``systemctl`` on the kubelet, and for a shell that shows mounts and
files (Kubernetes 1.36, test/e2e/storage/utils, pod.go and utils.go, read 2026-11-23).
"""

import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import asyncssh

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.network.forwarding import Space
from provisioner.sandbox.real_node.node import KUBELET, RealNode

_PORT = 22
_SYSTEMCTL = re.compile(r"systemctl (?P<verb>stop|start|restart|show) kubelet\b.*")
_NOT_FOUND = 127

Answer = tuple[int, str, str]
"""Exit status, output and errors of a command."""


class Machine(Protocol):
    """What the server needs of a node."""

    async def shell(self, command: str) -> Answer:
        """Run a command line there."""

    async def stop(self) -> None:
        """End the kubelet; what it has started goes on."""

    async def start(self) -> None:
        """Start the kubelet, if it does not run."""

    def runs(self) -> bool:
        """Whether the kubelet runs."""


class Node:
    """A real node as such a machine."""

    def __init__(self, node: RealNode) -> None:
        self._node = node

    async def shell(self, command: str) -> Answer:
        """Run a command line there."""
        return await self._node.host.run("sh", "-c", command)

    async def stop(self) -> None:
        """End the kubelet; what it has started goes on."""
        await self._node.kill(KUBELET)

    async def start(self) -> None:
        """Start the kubelet, if it does not run."""
        if not self.runs():
            await self._node.start(KUBELET)

    def runs(self) -> bool:
        """Whether the kubelet runs."""
        return self._node.host.runs(KUBELET)


async def answer(machine: Machine, command: str) -> Answer:
    """What a command line of the suite gives."""
    if command.startswith("sudo"):
        return _NOT_FOUND, "", "sh: sudo: command not found\n"  # then it does without
    match = _SYSTEMCTL.fullmatch(command)
    if match is None:
        return await machine.shell(command)
    try:
        if match["verb"] in ("stop", "restart"):
            await machine.stop()
        if match["verb"] in ("start", "restart"):
            await machine.start()
    except SandboxError as error:
        return 1, "", f"{error}\n"
    shown = "active\n" if machine.runs() else "inactive\n"
    return 0, shown if match["verb"] == "show" else "", ""


@contextlib.asynccontextmanager
async def serving(nodes: Sequence[RealNode], folder: Path) -> AsyncIterator[Path]:
    """Serve all nodes; the file of root's private key, in ``folder``."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path = folder / "ssh-key"
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    async with contextlib.AsyncExitStack() as served:
        for node in nodes:
            await served.enter_async_context(listening(_socket_of(node), Node(node), key))
        yield path


@contextlib.asynccontextmanager
async def listening(
    listener: socket.socket, machine: Machine, key: asyncssh.SSHKey
) -> AsyncIterator[None]:
    """Serve one machine to whoever has the key."""
    server = await asyncssh.listen(
        sock=listener,
        server_host_keys=[key],
        authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
        process_factory=partial(_serve, machine),
    )
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


async def _serve(machine: Machine, process: asyncssh.SSHServerProcess[str]) -> None:
    status, output, errors = await answer(machine, process.command or "")
    process.stdout.write(output)
    process.stderr.write(errors)
    process.exit(status)


def _socket_of(node: RealNode) -> socket.socket:
    """A listening socket in the network of a node."""
    network = os.open(f"/proc/{node.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Space(network).listening((node.seat.address, _PORT))
    finally:
        os.close(network)
