"""The router of a sandbox's network: ``python -m …gateway FOLDER ADDRESS:PORT=PORT...``.

It makes a network namespace, which ends with the last process that is in it: when it is killed,
and the nodes with it, nothing is left on the machine, as nothing was ever made outside.

Each ``ADDRESS:PORT=PORT`` carries connections from an address of the namespace to a port of the
machine's loopback. In the other direction it serves HTTP's CONNECT on the socket ``SOCKET`` in
FOLDER, which is there once all is ready: by that the API server reaches kubelets and pods.

The standard library only.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.sandbox.network import addresses
from provisioner.sandbox.network.forwarding import Address, Forwarder, Space, serve_connect
from provisioner.sandbox.real_node import syscalls

SOCKET: Final = "to-nodes.sock"

_SETTINGS: Final = {
    "ip_forward": "1",
    # Nodes send everything to us, also what is for each other; they have no shorter way.
    "conf/all/send_redirects": "0",
    "conf/default/send_redirects": "0",
}


def parsed(forward: str) -> tuple[Address, int]:
    """Return the two sides of ``ADDRESS:PORT=PORT``."""
    here, _, port = forward.rpartition("=")
    address, _, own = here.rpartition(":")
    return (address, int(own)), int(port)


def make_network() -> None:
    """Leave the machine's network for a new one, whose router we are.

    Raises:
        OSError: the kernel refuses a namespace.
        subprocess.CalledProcessError: ``ip`` refuses an address.
    """
    syscalls.unshare(syscalls.CLONE_NEWNET)
    for name, value in _SETTINGS.items():
        # These files show the network namespace of who opens them.
        Path("/proc/sys/net/ipv4", name).write_text(value)
    lines = "\n".join(addresses.router()) + "\n"
    subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)


async def serve(forwards: Sequence[str], machine: Space) -> None:
    """Carry connections until we are killed.

    Args:
        forwards: each as ``ADDRESS:PORT=PORT``.
        machine: the network namespace of the machine.
    """
    servers = []
    for forward in forwards:
        here, port = parsed(forward)
        forwarder = Forwarder(machine, ("127.0.0.1", port))
        servers.append(await asyncio.start_server(forwarder.serve, sock=Space().listening(here)))
    # By another name first: once it has its own, it answers.
    unready = f".{SOCKET}"
    servers.append(await asyncio.start_unix_server(serve_connect, unready))
    _rename(unready, SOCKET)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _rename(old: str, new: str) -> None:
    Path(old).rename(new)


if __name__ == "__main__":
    os.chdir(sys.argv[1])  # by a short name, as that of a socket has at most 107 bytes
    machines = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    make_network()
    asyncio.run(serve(sys.argv[2:], Space(machines)))
