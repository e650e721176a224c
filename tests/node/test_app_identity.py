"""A plugin that was registered as the machine before: once it knows better, kubelet asks anew."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.node import app
from provisioner.node.instance import metadata
from provisioner.node.instance.metadata import Imds
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.node.runtime.sysfs import SystemDirs
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
        self.seen: int | None = None

    async def start(self) -> None:
        """As the kubelet does with its container."""
        self.node, self.stop = self._make(), asyncio.Event()
        self.running = asyncio.create_task(self.node.run(self.stop))
        await self.offers_itself()

    async def offers_itself(self) -> None:
        """The kubelet sees a file come that it has not seen before, and asks."""
        async with asyncio.timeout(MOST_S):
            while (found := file_at(self.registry)) in {None, self.seen}:
                assert not self.running.done(), self.running
                await asyncio.sleep(0.01)
        self.seen = found
        async with calling(self.registry) as kubelet:
            assert (await kubelet("GetInfo")).endpoint == str(self.csi)

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
        dirs=SystemDirs(sys=folder / "sys"),
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
        await asyncio.wait({plugin.running}, timeout=MOST_S)
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

    await plugin.offers_itself()
    assert await plugin.told() == plugin.service.instance_id


async def test_what_the_service_has_told_holds_though_it_is_away_when_kubelet_asks(
    now_s: list[float], plugin: Plugin
):
    """Else the Node object would be believed once more."""
    await plugin.told()
    plugin.service.is_on = True
    now_s[0] += 61.0
    await plugin.told()
    plugin.service.is_on = False

    await plugin.offers_itself()

    assert await plugin.told() == plugin.service.instance_id


async def test_a_registration_that_cannot_be_made_anew_ends_it(now_s: list[float], plugin: Plugin):
    await plugin.told()
    plugin.registry.unlink()
    plugin.registry.mkdir()  # it cannot be made anew

    plugin.service.is_on = True
    now_s[0] += 61.0
    await plugin.told()

    await asyncio.wait({plugin.running}, timeout=MOST_S)
    assert "to be restarted" in str(plugin.running.exception())


@pytest.fixture
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the service all the time, in place of once a minute."""
    impatient = partial(metadata.Metadata, ask_again_s=0.0, poll_s=0.01)
    monkeypatch.setattr(app, "Metadata", impatient)


@pytest.mark.usefixtures("is_impatient")
async def test_it_is_registered_anew_though_kubelet_never_asks_again(plugin: Plugin):
    assert await plugin.told() == INSTANCE

    plugin.service.is_on = True
    await plugin.offers_itself()

    assert await plugin.told() == plugin.service.instance_id


def file_at(path: Path) -> int | None:
    """When it was made: the number of a file that is gone is soon another one's."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
