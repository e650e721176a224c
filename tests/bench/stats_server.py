"""What kubelets say of their pods' volumes, for ``kubectl ebs df`` in a cluster without kubelets.

One port for each node, at an address of this machine that is not its loopback: the API server's
proxy refuses that.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.bench.world import World

GIB = 2**30
_NODES = "/api/v1/nodes"


@asynccontextmanager
async def stats_servers(made: World, claims: Mapping[str, Sequence[str]]) -> AsyncIterator[None]:
    """Answer as the kubelet of each of these nodes, and let the Nodes name the ports.

    Args:
        made: kubelets' statuses are no longer simulated in it.
        claims: mounted on each node, all of the namespace "default".
    """
    await made.plane.crew.stop("kwok")
    keys = made.plane.credentials
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(keys.certificate, keys.key)
    address = _address()
    runners: list[web.AppRunner] = []
    try:
        for node, mounted in claims.items():
            runner = web.AppRunner(_application(_summary(mounted)), access_log=None)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, address, 0, ssl_context=tls).start()
            status = {
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
            }
            await made.hands.send("PATCH", f"{_NODES}/{node}/status", {"status": status})
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


def _application(summary: Mapping[str, Any]) -> web.Application:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(summary)

    application = web.Application()
    application.router.add_get("/stats/summary", answer)
    return application


def _summary(claims: Iterable[str]) -> dict[str, Any]:
    """As much of a kubelet's summary as is read, one pod for each claim."""
    stats = {
        "time": "2026-11-23T00:00:00Z",
        "capacityBytes": GIB,
        "availableBytes": GIB // 2,
        "usedBytes": GIB // 2,
        "inodes": 65536,
        "inodesUsed": 11,
    }
    return {
        "pods": [
            {"volume": [{**stats, "pvcRef": {"name": each, "namespace": "default"}}]}
            for each in claims
        ]
    }


def _address() -> str:
    """This machine's own; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.connect(("192.0.2.1", 9))
        return str(found.getsockname()[0])
