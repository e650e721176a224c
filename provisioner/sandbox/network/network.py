"""The network of a sandbox's real nodes, as the sandbox itself uses it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from provisioner.sandbox import own
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.network import addresses, forwarding, gateway
from provisioner.sandbox.network.addresses import ROUTER, Seat
from provisioner.sandbox.network.forwarding import Address, Ends, Space

GATEWAY: Final = "gateway"
"""The part of the crew that routes, and carries connections in and out."""

_READY_WITHIN_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.02


class Network:
    """A running network; it ends with the crew's gateway and the nodes in it.

    Attributes:
        socket: path of the proxy by which the API server reaches nodes and pods.
        api_server: URL of the API server for nodes and pods.
    """

    def __init__(self, gateway_pid: int, descriptor: int, api_port: int) -> None:
        """Take over a network whose gateway is ready.

        Args:
            gateway_pid: the process.
            descriptor: of the network namespace; closed by ``close``.
            api_port: of the API server, on the machine's loopback.
        """
        # By the working directory of the gateway: the path of a socket has at most 107 bytes.
        self.socket = Path(f"/proc/{gateway_pid}/cwd/{gateway.SOCKET}")
        self.api_server = f"https://{ROUTER}:{api_port}"
        self._space = Space(descriptor)
        self._seats = 0

    @property
    def path(self) -> Path:
        """The network namespace, as ``nsenter --net=PATH`` takes it."""
        return Path(f"/proc/{os.getpid()}/fd/{self._space.descriptor}")

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs in this network, as the router does.

        Nodes and pods are reached there by their addresses, and the API server by its URL on
        127.0.0.1 too.
        """
        return ["nsenter", f"--net={self.path}", "--", *argv]

    def close(self) -> None:
        """Let go of the namespace."""
        os.close(self._space.descriptor)

    # -- nodes

    def seat(self, address: str) -> Seat:
        """Return a place for one more node, which has this address in EC2."""
        self._seats += 1
        return Seat(self._seats, address)

    async def plug_in(self, seat: Seat, pid: int) -> None:
        """Connect a node that has just been switched on.

        Args:
            seat: of the node.
            pid: of its process 1.

        Raises:
            SandboxError: the kernel refuses.
        """
        await self.pull_plug(seat)  # the kernel takes its time to remove that of an earlier life
        theirs = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]
        for prefix, lines in (
            (self.command(), addresses.links(seat, pid)),
            (theirs, addresses.interface(seat)),
        ):
            code, said = await _run([*prefix, "ip", "-batch", "-"], "\n".join(lines) + "\n")
            if code:
                raise SandboxError(f"a node cannot be connected to the network: {said}")

    async def pull_plug(self, seat: Seat) -> None:
        """Disconnect a node, if it is connected."""
        await _run(self.command("ip", "link", "delete", seat.link))

    # -- ways in and out

    @staticmethod
    def listener(pid: int, address: Address) -> socket.socket:
        """Return a socket that listens at an address of a node, for it and its pods.

        Args:
            pid: of the node's process 1.
            address: one that ``plug_in`` has given to the node.

        Raises:
            OSError: the kernel refuses.
        """
        descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return Space(descriptor).listening(address)
        finally:
            os.close(descriptor)

    async def connected(self, address: Address) -> Ends:
        """Connect to an address, as the router does.

        Raises:
            OSError: nobody answers there.
        """
        return await self._space.connected(address)

    def reachable(self, url: str) -> str:
        """Return the URL by which nodes and pods reach one of the machine's loopback.

        Its port is one of those that the network was started with.
        """
        return url.replace("127.0.0.1", ROUTER)

    @contextlib.asynccontextmanager
    async def reached(self, port: int, seat: Seat) -> AsyncIterator[None]:
        """Carry connections from a port of the machine's loopback to the same one of a node.

        Raises:
            OSError: the port is taken.
        """
        here = Space().listening(("127.0.0.1", port))
        async with forwarding.forwarded(here, self._space, (seat.address, port)):
            yield


async def start(crew: Crew, folder: Path, api_port: int, ports: Sequence[int] = ()) -> Network:
    """Make a network whose router is a part of the crew.

    Args:
        crew: that the router belongs to.
        folder: where its socket is.
        api_port: of the API server, on the machine's loopback.
        ports: more ports there that nodes and pods shall reach, at the router's address.

    Raises:
        SandboxError: the kernel refuses.
    """
    forwards = [f"{addresses.KUBERNETES}:443={api_port}"]
    # Any address: whoever is in the namespace finds these on 127.0.0.1 too, as on the machine.
    forwards += [f"0.0.0.0:{port}={port}" for port in (api_port, *ports)]
    argv = [sys.executable, "-S", "-m", gateway.__name__, str(folder), *forwards]
    part = await crew.start(GATEWAY, argv, own.environment())
    appears = _appears(folder / gateway.SOCKET)
    await crew.unless_failed(appears, _READY_WITHIN_S, "the start of the nodes' network")
    # Now, as it is in no other namespace before it carries its first connection.
    descriptor = os.open(f"/proc/{part.process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    return Network(part.process.pid, descriptor, api_port)


async def _appears(path: Path) -> None:
    while not await asyncio.to_thread(path.exists):  # noqa: ASYNC110 -- of another process
        await asyncio.sleep(_LOOK_EVERY_S)


async def _run(argv: Sequence[str], text: str = "") -> tuple[int, str]:
    """Run a program that ends by itself; its exit status and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(text.encode())
    return process.returncode or 0, " ".join(output.decode().split())
