"""A client certificate that the API server refuses from now on, and the one that follows it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.sandbox import credentials as keys

AT_ONCE = 8


class Server:
    """Answers whoever has a certificate; a 401 is for those whose certificate counts no more."""

    def __init__(self, folder: Path) -> None:
        self.made = keys.create(folder / "keys")
        self.kubeconfig = folder / "kubeconfig"
        self.refusals = 0
        self._everybody = asyncio.Barrier(AT_ONCE)  # each needs a connection of its own
        self._seen: set[str] = set()
        self._refused: set[str] = set()

    def rotate(self) -> None:
        """Write another certificate, and refuse those before it from now on."""
        self.made.client("us", "everybody")
        self._refused |= self._seen

    async def handle(self, request: web.Request) -> web.Response:
        transport = request.transport
        assert transport is not None
        serial = transport.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        await self._everybody.wait()
        self._seen.add(serial)
        if serial in self._refused:
            self.refusals += 1
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        return web.json_response({})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    fake = Server(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=fake.made.authority)
    context.load_cert_chain(fake.made.certificate, fake.made.key)
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    keys.write_kubeconfig(
        fake.kubeconfig,
        server=f"https://127.0.0.1:{runner.addresses[0][1]}",
        authority=fake.made.authority,
        pair=fake.made.client("us", "everybody"),
    )
    yield fake
    await runner.cleanup()


async def ask(client: KubeClient) -> None:
    async with asyncio.timeout(10):
        await asyncio.gather(*(client.get(PERSISTENT_VOLUMES, "pv-1") for _ in range(AT_ONCE)))


async def test_no_connection_that_has_the_old_one_is_used_once_there_is_a_new_one(
    server: Server,
) -> None:
    async with await KubeClient.connect(kubeconfig=str(server.kubeconfig)) as client:
        await ask(client)
        server.rotate()

        await ask(client)  # each is refused, and sent again

        assert server.refusals <= AT_ONCE
        refusals = server.refusals
        for _ in range(3):
            await ask(client)
        assert server.refusals == refusals
