"""Disks that only have the name of an attachment: on machines where no name says whose a disk is."""

from dataclasses import replace

import pytest

from provisioner.model.errors import NodeError, Reason
from tests.node.devices.test_lookup import devices, found, refusal, searching
from tests.node.machine import OTHER, VOLUME

pytest_plugins = ("tests.node.loop_fixtures", "tests.node.machine_fixtures")
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


async def test_a_disk_of_another_kind_that_has_the_attachments_name_is_none(host):
    """A LUN of iSCSI or Fibre Channel, say."""
    lun = host.a_disk("sdf")

    refused = await refusal(host, "/dev/sdf", wait_s=0.05)
    with pytest.raises(NodeError, match="is neither an NVMe disk nor a Xen disk") as at_its_path:
        await devices(host).of_path(VOLUME, lun.node)

    assert "is neither an NVMe disk nor a Xen disk" in refused.message
    assert refused.reason is at_its_path.value.reason is Reason.WRONG_DEVICE


@pytest.mark.parametrize("name", ["sdf", "xvdf"])
async def test_where_volumes_are_nvme_disks_a_name_is_waited_out(host, name):
    host.an_nvme_disk(OTHER, name="nvme1n1")
    named = host.a_disk(name)
    search = await searching(host, "/dev/sdf")
    with pytest.raises(NodeError) as refused:
        await devices(host).of_path(VOLUME, named.node)

    disk = host.an_nvme_disk(VOLUME, name="nvme2n1")

    assert (await search).path == disk.node
    assert refused.value.reason is Reason.WRONG_DEVICE


async def test_nvme_disks_of_a_xen_instance_itself_are_no_volumes(host):
    """Of I3, for one."""
    host.give_serial(host.a_disk("nvme0n1"), "AWS0123456789ABCDEF0")
    disk = host.a_disk("xvdba")

    assert (await found(host, "/dev/xvdba")).path == disk.node


@pytest.mark.parametrize("is_block", [False, True])
async def test_a_lun_with_the_attachments_name_is_neither_formatted_nor_shown(machine, is_block):
    machine.attach(OTHER)
    lun = machine.attach(name="sdf")
    machine.link(VOLUME).unlink()
    (machine.dirs.sys / "dev/block" / lun.number / "device/serial").unlink()
    named = {"devicePath": "/dev/sdf"}
    stage, publish = machine.stage(is_block=is_block), machine.publish(is_block=is_block)

    with pytest.raises(NodeError) as staged:
        await machine.stager.stage(replace(stage, publish_context=named), time_left_s=0.2)
    with pytest.raises(NodeError) as published:
        await machine.publisher.publish(replace(publish, publish_context=named), time_left_s=0.2)

    assert staged.value.reason is Reason.WRONG_DEVICE
    assert published.value.reason in {Reason.WRONG_DEVICE, Reason.VOLUME_NOT_STAGED}
    assert lun.image.stat().st_blocks == 0
    assert machine.mounts_below() == []
