"""TCP connections that are carried from one network namespace to another.

A socket stays in the network namespace in which it was made, whatever its process does later
(Linux manual, network_namespaces(7)); so one process can listen in one and connect in another.
The standard library only: the gateway is to be small.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from provisioner.sandbox.real_node import syscalls

Address = tuple[str, int]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_CHUNK_BYTES: Final = 65536
_CONNECT_TIMEOUT_S: Final = 10.0
_HEADER_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Space:
    """A network namespace.

    Attributes:
        descriptor: of the namespace; -1 for the one that we are in. (Not the id of a process: one
            that carries connections is in the other namespace every now and then.)
    """

    descriptor: int = -1

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread make its sockets there. Nothing may be awaited meanwhile.

        Raises:
            OSError: we are not root.
        """
        if self.descriptor < 0:
            yield
            return
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.enter_namespace(self.descriptor, syscalls.CLONE_NEWNET)
            try:
                yield
            finally:
                syscalls.enter_namespace(home, syscalls.CLONE_NEWNET)
        finally:
            os.close(home)

    def listening(self, address: Address) -> socket.socket:
        """Return a socket that listens at an address there.

        Raises:
            OSError: the address is taken, or is none of that namespace.
        """
        with self.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)  # noqa: FBT003 -- its only argument
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(socket.SOMAXCONN)
        except BaseException:
            made.close()
            raise
        return made

    async def connected(self, address: Address) -> Ends:
        """Connect to an address there.

        Raises:
            OSError: nobody answers there (TimeoutError after ten seconds).
        """
        with self.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)  # noqa: FBT003 -- its only argument
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(made, address)
            return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise


async def join(one: Ends, other: Ends) -> None:
    """Carry bytes both ways until both directions have ended, or one is broken."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_carry(one[0], other[1]))
            group.create_task(_carry(other[0], one[1]))
    except* OSError:
        pass  # one end is broken: both are closed
    finally:
        for _, writer in (one, other):
            writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


class Forwarder:
    """Carries each connection to one address of a namespace."""

    def __init__(self, space: Space, target: Address) -> None:
        self._space = space
        self._target = target
        self._carrying: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection; it is closed at once if nobody answers."""
        task = asyncio.current_task()
        assert task is not None, "a server gives each connection a task"
        self._carrying.add(task)
        try:
            try:
                there = await self._space.connected(self._target)
            except OSError:
                return
            await join((reader, writer), there)
        finally:
            self._carrying.discard(task)
            writer.close()

    async def stop(self) -> None:
        """Break all connections."""
        tasks = list(self._carrying)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # a transport closes in the loop's next round


@asynccontextmanager
async def forwarded(listener: socket.socket, space: Space, target: Address) -> AsyncIterator[None]:
    """Carry what connects to a socket to an address of a namespace, until the block is left."""
    forwarder = Forwarder(space, target)
    server = await asyncio.start_server(forwarder.serve, sock=listener)
    try:
        yield
    finally:
        server.close()
        await forwarder.stop()


async def serve_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one client of an HTTP proxy that knows CONNECT only; targets are in our namespace.

    Source: RFC 9110, section 9.3.6; what the API server sends is in k8s.io/apiserver 1.36
    pkg/server/egressselector/egress_selector.go, tunnelHTTPConnect.
    """
    try:
        try:
            async with asyncio.timeout(_HEADER_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            target = target_of(head)
            there = await Space().connected(target)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as problem:
            writer.write(_answer(400, f"no request to connect: {problem}"))
            return
        except OSError as problem:
            writer.write(_answer(502, f"cannot connect: {str(problem) or 'timed out'}"))
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await join((reader, writer), there)
    finally:
        writer.close()


def target_of(head: bytes) -> Address:
    """Return the address that a CONNECT request names.

    Raises:
        ValueError: it is another request, or names no port.
    """
    words = head.split(b"\r\n", 1)[0].decode("ascii").split()
    if len(words) != 3 or words[0] != "CONNECT":  # noqa: PLR2004 -- method, target, version
        raise ValueError("only CONNECT is served")
    host, _, port = words[1].rpartition(":")
    return host, int(port)


def _answer(status: int, reason: str) -> bytes:
    line = " ".join(reason.split())[:200]
    return f"HTTP/1.1 {status} {line}\r\nContent-Length: 0\r\n\r\n".encode()
