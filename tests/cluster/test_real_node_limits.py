"""How many volumes a real kubelet writes that a node takes, and what is measured of them there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from tests.cluster import real_pods
from tests.cluster.background import Background
from tests.cluster.cluster import CSI_NODES, Cluster
from tests.cluster.place import Place
from tests.cluster.real_pods import WRITE
from tests.cluster.together import Stories, Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

CSI_DRIVER = "/apis/storage.k8s.io/v1/csidrivers/ebs.csi.aws.com"
EMPTY = 26  # m5.large: 27 with the root volume
PERIOD_S = 10  # the shortest that the API server takes


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    yield from real_pods.background()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(real: Background) -> AsyncIterator[Cluster]:
    async with real_pods.watched(real) as running:
        period = {"spec": {"nodeAllocatableUpdatePeriodSeconds": PERIOD_S}}
        await running.api.patch(CSI_DRIVER, period)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Stories]:
    async with together.started(cluster, request) as running:
        yield running


async def fits(place: Place, node: RealNode, count: int) -> None:
    """Wait until the kubelet has written this count."""

    async def seen() -> bool:
        found = await place.api.get(f"{CSI_NODES}/{node.name}")
        drivers = found["spec"]["drivers"] or ()  # none while the plugin registers anew
        counts = [each["allocatable"]["count"] for each in drivers]
        return bool(counts == [count])

    await place.cluster.until(f"{count} volumes fit on {node.name}", seen, 6 * PERIOD_S)


class Foreign:
    """A volume that somebody attaches to a node past Kubernetes."""

    def __init__(self, place: Place, node: RealNode, device: str) -> None:
        self._ec2 = place.cluster.ec2
        self._node = node.instance
        self._device = device
        self._id = ""

    async def attach(self) -> None:
        made = await asyncio.to_thread(
            self._ec2.create_volume, AvailabilityZone=self._node.zone, Size=1
        )
        self._id = made["VolumeId"]
        await asyncio.to_thread(
            self._ec2.attach_volume,
            VolumeId=self._id,
            InstanceId=self._node.instance_id,
            Device=self._device,
        )

    async def detach(self) -> None:
        await asyncio.to_thread(self._ec2.detach_volume, VolumeId=self._id)
        await asyncio.to_thread(self._ec2.delete_volume, VolumeId=self._id)


@contextlib.asynccontextmanager
async def a_root(place: Place, node: RealNode) -> AsyncIterator[None]:
    """A disk in the place of the root, which real nodes of the sandbox do not show."""
    root = Foreign(place, node, "/dev/sdy")
    await root.attach()
    yield
    await root.detach()


@together.test
async def test_the_count_follows_interfaces_and_foreign_volumes(place: Place):
    node = real_pods.fleet_of(place.cluster.sandbox).nodes[1]
    foreign = Foreign(place, node, "/dev/sdz")
    async with a_root(place, node):
        node.metadata.macs.append("02:00:00:00:00:02")
        await fits(place, node, EMPTY - 1)

        await foreign.attach()
        await fits(place, node, EMPTY - 2)

        node.metadata.macs.pop()
        await foreign.detach()
        await fits(place, node, EMPTY)


@together.test
async def test_volumes_of_ours_are_measured_and_take_no_place_after_a_restart(place: Place):
    node = real_pods.fleet_of(place.cluster.sandbox).nodes[0]
    await real_pods.a_claim(place)
    await real_pods.start(place, "user", f"{WRITE}; sync; sleep 1000", node=node.name)
    await real_pods.is_running(place, "user")

    async def measured() -> dict[str, float] | None:
        found = await series(node, place)
        return found if found.get("used_bytes", 0.0) >= 20 * 2**20 else None

    found = await place.cluster.until("the volume is measured", measured)
    assert found["device_bytes"] == 2**30
    assert 0.8 * 2**30 < found["capacity_bytes"] < 2**30
    assert found["available_bytes"] + found["used_bytes"] <= found["capacity_bytes"]
    assert found["inodes_used"] >= 12
    assert found["unreadable"] == 0

    await place.cluster.background.call(node.restart(PLUGIN))
    foreign = Foreign(place, node, "/dev/sdz")
    async with a_root(place, node):
        await foreign.attach()
        await fits(place, node, EMPTY - 1)

        await foreign.detach()
        await fits(place, node, EMPTY)
    await real_pods.gone(place, "user")


async def series(node: RealNode, place: Place) -> dict[str, float]:
    """What the node plugin shows of the claim "data", by the names without their beginning."""
    url = f"http://{node.probes}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    beginning = "ebs_provisioner_node_volume_"
    return {
        each.name.removeprefix(beginning): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name.startswith(beginning)
        and (each.labels["namespace"], each.labels["claim"]) == (place.name, "data")
    }
