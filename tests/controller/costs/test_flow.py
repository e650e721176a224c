"""What volumes cost as a metric: by what EC2 says of them, and nothing that was not read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from structlog.testing import capture_logs

from provisioner.controller.costs.flow import VolumeCosts
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.settings import Settings
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.model.errors import StorageError
from provisioner.prices import price_file
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.builders import DRIVER, ZONE, a_persistent_volume
from tests.controller.services import Kube
from tests.sandbox.lab import client

RATES = price_file.shipped().regions["us-east-1"]


class World:
    """A controller whose volumes are in a strict EC2."""

    def __init__(self, ec2: StrictEc2, calls: Ec2Calls, metrics: Metrics) -> None:
        self.ec2, self.hand, self.metrics = ec2, client(ec2.endpoint), metrics
        self.caches = Caches(cast("Any", Kube()), self.metrics, DRIVER)
        self.calls = calls

    def costs(self, region: str = "us-east-1", *, asked_for: bool = True) -> VolumeCosts:
        services: Any = SimpleNamespace(
            settings=Settings(volume_costs=asked_for),
            caches=self.caches,
            volumes=Volumes(self.calls),
            metrics=self.metrics,
        )
        return VolumeCosts(services, region)

    def add(self, name: str, **shape: Any) -> str:
        """A volume of this shape, and its persistent volume."""
        made = self.hand.create_volume(AvailabilityZone=ZONE, **shape)
        volume_id = str(made["VolumeId"])
        self.name(name, volume_id)
        return volume_id

    def name(self, name: str, volume_id: str) -> None:
        self.caches.persistent_volumes._store.apply(a_persistent_volume(name, handle=volume_id))

    def shown(self) -> dict[str, float]:
        """The series by the name of the persistent volume."""
        return {each.labels["persistentvolume"]: each.value for each in self.samples()}

    def samples(self) -> list[Sample]:
        text = self.metrics.volume_usd_per_month.text.decode()
        return [each for family in text_string_to_metric_families(text) for each in family.samples]


@pytest_asyncio.fixture
async def world(strict_ec2: StrictEc2, aws_environment: None) -> AsyncIterator[World]:
    metrics = Metrics()
    calls = Ec2Calls.connect(
        region="us-east-1", metrics=metrics, endpoint=strict_ec2.endpoint, read_timeout_s=5.0
    )
    yield World(strict_ec2, calls, metrics)
    await calls.close()


async def test_each_volume_has_its_list_price_and_its_claim(world: World):
    world.add("plain", Size=100, VolumeType="gp3")
    world.add("fast", Size=100, VolumeType="gp3", Iops=6_000, Throughput=250)

    await world.costs().round(RATES)

    assert world.shown() == {"plain": 8.0, "fast": 28.0}
    ref = a_persistent_volume("plain", handle="vol-1").spec.claim_ref
    labels = world.samples()[0].labels
    assert ref is not None
    assert (labels["namespace"], labels["claim"]) == (ref.namespace, ref.name)


async def test_what_was_modified_by_hand_or_is_gone_is_seen_by_the_next_round(world: World):
    grown = world.add("grown", Size=100, VolumeType="gp3")
    world.add("gone", Size=10, VolumeType="gp3")
    world.name("lost", "vol-0123456789abcdef0")
    costs = world.costs()
    await costs.round(RATES)
    before = world.shown()
    world.hand.modify_volume(VolumeId=grown, Size=200)
    world.caches.persistent_volumes._store.remove("gone", "9")

    await costs.round(RATES)

    assert before == {"grown": 8.0, "gone": 0.8}
    assert world.shown() == {"grown": 16.0}


async def test_what_is_shown_stays_while_ec2_does_not_answer(world: World):
    world.add("plain", Size=100, VolumeType="gp3")
    costs = world.costs()
    await costs.round(RATES)
    denied = {"do": "error", "code": "UnauthorizedOperation", "http_status": 403, "n": 9}
    world.ec2.control(faults=[{"action": "DescribeVolumes", **denied}])

    with pytest.raises(StorageError):
        await costs.round(RATES)

    assert world.shown() == {"plain": 8.0}


async def test_without_the_option_or_without_prices_ec2_is_not_asked(world: World):
    world.add("plain", Size=100, VolumeType="gp3")

    await world.costs(asked_for=False).run()
    with capture_logs() as logs:
        await world.costs("xx-moon-1").run()

    assert world.shown() == {}
    assert [each["region"] for each in logs] == ["xx-moon-1"]
    assert "DescribeVolumes" not in world.ec2.counts()
