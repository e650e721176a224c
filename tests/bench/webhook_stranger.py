"""Whoever wants to keep the webhook from its work: one process, of the lowest priority.

It stands for other machines, so it takes only what is left of this one, and it comes from another
address than the API server. Run as ``python -m tests.bench.webhook_stranger KIND URL CONNECTIONS``,
with the API server's token in ``STRANGER_TOKEN``; when it is told to end, it prints how often it
did what it does.
"""

import asyncio
import os
import random
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from tests.bench.null_bodies import DRIVER
from tests.bench.webhook_reviews import claim_name, pod

# With the webhook itself ...
SILENT, HALF, HANDSHAKES, REQUESTS = "silent", "half", "handshakes", "requests"
# ... and through the API server.
LARGE, VOLUMES = "large", "volumes"
ADDRESS = "127.0.0.2"
TOKEN = "STRANGER_TOKEN"
PER_S = {LARGE: 2.0, VOLUMES: 20.0}
_PAUSE_S = 0.05
_TERMS = 2_500  # of three expressions each: some 700 KB
_PART = 1 << 16

Json = dict[str, Any]


def large_pod() -> Json:
    """A valid pod with one claim and a node affinity of 7,500 expressions."""
    expressions = [
        {"key": f"example.com/{key}", "operator": "In", "values": [f"value-{key}-of-a-term"]}
        for key in ("one", "two", "three")
    ]
    terms = [{"matchExpressions": expressions} for _ in range(_TERMS)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body = pod("large", (claim_name(0),), affinity={"nodeAffinity": required})
    del body["metadata"]["namespace"]
    return body


def volume(driver: str = DRIVER) -> Json:
    """A persistent volume of a volume that nobody has asked EC2 about yet."""
    name = f"{random.getrandbits(60):015x}"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": driver, "volumeHandle": f"vol-{name}"},
    }
    body = {"metadata": {"name": f"flood-{name}"}, "spec": spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume"} | body


def _review(host: str) -> bytes:
    resource = {"group": "", "version": "v1", "resource": "persistentvolumes"}
    request = {"uid": "u", "operation": "CREATE", "resource": resource, "object": volume()}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = msgspec.json.encode(review)
    head = (
        f"POST /validate/persistentvolumes?timeout=30s HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Stranger:
    """Does one thing again and again.

    Args:
        url: of the webhook; or of what is made through the API server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        parts = urlsplit(url)
        self._driver = parts.fragment or "another"
        self._host, self._port = str(parts.hostname), int(parts.port or 0)
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self.done = 0

    async def work(self, kind: str, connections: int) -> None:
        """For ever."""
        if kind in {LARGE, VOLUMES}:
            await self._create(kind, connections)
            return
        one: Callable[[], Awaitable[None]] = {
            SILENT: self._silent,
            HALF: self._half,
            HANDSHAKES: self._handshake,
            REQUESTS: self._requests,
        }[kind]

        async def again_and_again() -> None:
            while True:
                with suppress(OSError, EOFError):
                    await one()
                await asyncio.sleep(_PAUSE_S)

        await asyncio.gather(*(again_and_again() for _ in range(connections)))

    async def _silent(self) -> None:
        await self._hold(b"")

    async def _half(self) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            self._context.wrap_bio(incoming, outgoing).do_handshake()
        await self._hold(outgoing.read())

    async def _hold(self, first: bytes) -> None:
        """Connect, send this, and stay as long as one is let."""
        reader, writer = await asyncio.open_connection(
            self._host, self._port, local_addr=(ADDRESS, 0)
        )
        self.done += 1
        try:
            writer.write(first)
            while await reader.read(_PART):
                pass
        finally:
            writer.close()

    async def _handshake(self) -> None:
        _, writer = await self._open()
        self.done += 1
        writer.transport.abort()

    async def _requests(self) -> None:
        reader, writer = await self._open()
        try:
            while True:
                writer.write(_review(self._host))
                head = await reader.readuntil(b"\r\n\r\n")
                size = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
                await reader.readexactly(int(size))
                self.done += 1
        finally:
            writer.transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self._host, self._port, ssl=self._context, local_addr=(ADDRESS, 0)
        )

    async def _create(self, kind: str, connections: int) -> None:
        headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        large = msgspec.json.encode(large_pod())
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def again_and_again() -> None:
                while True:
                    again = asyncio.create_task(asyncio.sleep(connections / PER_S[kind]))
                    body = large if kind == LARGE else msgspec.json.encode(volume(self._driver))
                    with suppress(aiohttp.ClientError):
                        json = {"Content-Type": "application/json"}
                        async with session.post(self._url, data=body, headers=json) as reply:
                            await reply.read()
                        self.done += 1
                    await again

            await asyncio.gather(*(again_and_again() for _ in range(connections)))


def _step_back() -> None:
    """Take only what is left of the machine.

    Among processes of several sessions the kernel heeds the session's own niceness (sched(7),
    "The autogroup feature"), and the crew starts each program in a session of its own.
    """
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


async def _main(kind: str, url: str, connections: str) -> None:
    _step_back()
    stranger, told = Stranger(url), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    working = asyncio.create_task(stranger.work(kind, int(connections)))
    await asyncio.wait(
        {working, asyncio.create_task(told.wait())}, return_when=asyncio.FIRST_COMPLETED
    )
    if working.done():
        working.result()
    sys.stdout.write(f"{stranger.done}\n")
    sys.stdout.flush()
    os._exit(0)  # what is under way would only complain


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
