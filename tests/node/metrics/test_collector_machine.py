"""Measuring on real devices and mounts: what the kernel says is what is shown."""

import pytest

from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.info import ForeignVolumes
from provisioner.node.instance.metadata import Metadata
from provisioner.node.metrics.collector import PREFIX, VolumeCollector, VolumeNames
from provisioner.node.runtime.blocking import BlockingCalls
from tests.node.machine import MIB, OTHER, VOLUME

pytest_plugins = ("tests.node.machine_fixtures", "tests.node.kube_fixtures")
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


@pytest.fixture
async def measured(machine, kube):
    """Refreshes, and gives the values of a volume by name."""
    collector = VolumeCollector(
        machine.devices,
        VolumeNames(kube, AttachmentLookups(kube)),
        blocking=BlockingCalls(2.0),
    )

    async def measured(volume_id=VOLUME):
        await collector.refresh()
        return {
            each.name.removeprefix(PREFIX): each.value
            for family in collector.collect()
            for each in family.samples
            if each.labels["volume_id"] == volume_id
        }

    yield measured
    await collector.close()


async def test_a_loop_device_has_no_statistics_of_ebs(machine, kube_server, measured):
    kube_server.has_volume(VOLUME, "pv-1")
    machine.attach()

    assert set(await measured()) == {"device_bytes", "unreadable"}


async def test_growth_is_seen(machine, kube_server, measured):
    kube_server.has_volume(VOLUME, "pv-1")
    disk = machine.attach()
    await machine.publisher.publish(machine.publish(is_block=True))
    before = await measured()

    disk.grow(600)

    assert before["device_bytes"] == 512 * MIB
    assert (await measured())["device_bytes"] == 600 * MIB


async def test_a_volume_that_is_detached_is_gone_and_the_other_stays(
    machine, kube_server, measured
):
    kube_server.has_volume(VOLUME, "pv-1")
    kube_server.has_volume(OTHER, "pv-2")
    disk = machine.attach()
    machine.attach(OTHER)
    assert await measured()

    machine.detach(disk)

    assert await measured() == {}
    assert (await measured(OTHER))["device_bytes"] == 512 * MIB


async def test_foreign_volumes_are_counted_by_what_the_machine_sees(machine, kube, kube_server):
    metadata, attachments = Metadata(None, kube, machine.dirs), AttachmentLookups(kube)
    foreign = ForeignVolumes(kube, attachments, metadata, machine.devices.volumes)
    kube_server.has_node()
    kube_server.has_volume(VOLUME, "pv-1")
    machine.attach()
    other = machine.attach(OTHER)
    assert await foreign.count() == 1

    machine.detach(other)

    assert await foreign.count() == 0
