"""A plugin that was registered as the machine before: once it knows better, kubelet asks anew."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.node import app, metadata
from provisioner.node.imds import Imds
from provisioner.node.metrics import NodeMetrics
from provisioner.node.roots import Roots
from provisioner.node.settings import NodeSettings
from provisioner.sandbox.real_node.imds import InstanceMetadata
from provisioner.sandbox.real_node.imds import serving as serving_metadata
from tests.node.caller import calling
from tests.node.kube_server import KubeServer, serving
from tests.node.sanity_world import INSTANCE, has_this_node

MOST_S = 20.0


@pytest.fixture
async def kube() -> AsyncIterator[KubeServer]:
    with tempfile.TemporaryDirectory(prefix="node-") as name:  # short: it holds sockets
        async with serving(Path(name)) as server:
            has_this_node(server)
            yield server


async def test_who_was_taken_for_another_instance_is_registered_anew(
    kube: KubeServer, monkeypatch: pytest.MonkeyPatch
):
    now_s = [1000.0]
    monkeypatch.setattr(metadata, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    folder = kube.token_file.parent
    settings = NodeSettings(
        node_name="node-1",
        server=kube.server,
        kubelet_dir=folder / "kubelet",
        roots=Roots(sys=folder / "sys"),
    )
    service = InstanceMetadata("i-0fedcba9876543210", "m5.large", "eu-west-1a", is_on=False)
    async with (
        serving_metadata(service) as url,
        Imds(url, pauses_s=()) as imds,
        kube.client() as client,
    ):
        node, stop = app.Node(settings, client, imds, NodeMetrics()), asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        registry = settings.registration_socket
        await there(registry)
        first = registry.lstat().st_ino
        async with calling(settings.csi_socket) as kubelet:
            assert (await kubelet("NodeGetInfo")).node_id == INSTANCE
            assert registry.lstat().st_ino == first

            service.is_on = True
            now_s[0] += 61.0
            assert (await kubelet("NodeGetInfo")).node_id == service.instance_id
        assert not registry.exists()  # which is what kubelet watches
        await there(registry)
        async with calling(registry) as kubelet:
            assert (await kubelet("GetInfo")).endpoint == str(settings.csi_socket)
        async with calling(settings.csi_socket) as kubelet:
            assert (await kubelet("NodeGetInfo")).node_id == service.instance_id
        stop.set()
        await asyncio.wait_for(running, MOST_S)
        await node.volumes.close()


async def there(path: Path) -> None:
    """Wait until it is."""
    async with asyncio.timeout(MOST_S):
        while not path.is_socket():  # noqa: ASYNC110 -- nothing in this process knows when
            await asyncio.sleep(0.01)
