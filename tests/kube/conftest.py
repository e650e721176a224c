import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from tests.kube.apiserver import ApiServer


def kubeconfig_for(url: str, user: dict[str, Any]) -> str:
    return json.dumps(
        {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": user}],
        }
    )


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    fake = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    yield fake
    await runner.cleanup()


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> Path:
    """A kubeconfig whose token lies in the file ``token`` beside it."""
    (tmp_path / "token").write_text("first\n")
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_for(server.url, {"tokenFile": str(tmp_path / "token")}))
    return path


@pytest.fixture
def point_at(kubeconfig: Path) -> Callable[[str], None]:
    """Write another server, or another way to log in, into the kubeconfig."""

    def write(url: str, user: dict[str, Any] | None = None) -> None:
        kubeconfig.write_text(kubeconfig_for(url, user or {"token": "first"}))

    return write


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as connected:
        yield connected


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Any]:
    """Wait until something holds; fail after 30 s."""

    async def wait(holds: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 -- the thing watched has no event
                await asyncio.sleep(0.002)

    return wait
