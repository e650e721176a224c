"""A plugin that was registered as the machine before: once it knows better, kubelet asks anew."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.model.errors import NodeError
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


class Plugin:
    """The plugin on a machine that has the Node of another one; first, nobody else tells."""

    def __init__(
        self, settings: NodeSettings, service: InstanceMetadata, make: Callable[[], app.Node]
    ) -> None:
        self.csi = settings.csi_socket
        self.registry = settings.registration_socket
        self.service = service
        self._make = make

    async def start(self) -> None:
        """As the kubelet does with its container, also once it has ended."""
        self.node, self.stop = self._make(), asyncio.Event()
        self.running = asyncio.create_task(self.node.run(self.stop))
        await there(self.registry)

    async def ends_by_itself(self) -> None:
        with pytest.raises(NodeError, match="to be started anew"):
            await asyncio.wait_for(self.running, MOST_S)
        await self.node.volumes.close()

    async def told(self) -> object:
        """What kubelet would write into CSINode."""
        async with calling(self.csi) as kubelet:
            return (await kubelet("NodeGetInfo")).node_id


@pytest.fixture
async def plugin(kube: KubeServer) -> AsyncIterator[Plugin]:
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
        plugin = Plugin(settings, service, lambda: app.Node(settings, client, imds, NodeMetrics()))
        await plugin.start()
        yield plugin
        plugin.stop.set()
        await asyncio.wait_for(plugin.running, MOST_S)
        await plugin.node.volumes.close()


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the questions, and when the service was asked last."""
    now_s = [1000.0]
    monkeypatch.setattr(metadata, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s


async def test_who_was_taken_for_another_instance_is_registered_anew(
    now_s: list[float], plugin: Plugin
):
    assert await plugin.told() == INSTANCE

    plugin.service.is_on = True
    now_s[0] += 61.0
    assert await plugin.told() == plugin.service.instance_id
    assert not plugin.registry.exists()  # which is what kubelet watches

    await plugin.ends_by_itself()
    await plugin.start()
    async with calling(plugin.registry) as kubelet:
        assert (await kubelet("GetInfo")).endpoint == str(plugin.csi)
    assert await plugin.told() == plugin.service.instance_id


@pytest.fixture
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the service all the time, in place of once a minute."""
    impatient = partial(metadata.Metadata, ask_again_s=0.0, look_s=0.01)
    monkeypatch.setattr(app, "Metadata", impatient)


@pytest.mark.usefixtures("is_impatient")
async def test_it_is_registered_anew_though_kubelet_never_asks_again(plugin: Plugin):
    assert await plugin.told() == INSTANCE

    plugin.service.is_on = True
    await plugin.ends_by_itself()
    await plugin.start()

    assert await plugin.told() == plugin.service.instance_id


async def there(path: Path) -> None:
    """Wait until it is."""
    async with asyncio.timeout(MOST_S):
        while not path.is_socket():  # noqa: ASYNC110 -- nothing in this process knows when
            await asyncio.sleep(0.01)
