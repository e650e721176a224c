"""Devices found by link, serial and name; loop devices, with a /dev and a /sys of the test."""

import asyncio
import threading

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Devices
from provisioner.node.runtime import sysfs
from provisioner.node.runtime.blocking import BlockingCalls
from tests.node.loop_disks import NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
OTHER = "vol-0fedcba9876543210"
LONG_S = 600.0


class Looking(Devices):
    """Tells when it has looked."""

    def __init__(self, dirs):
        super().__init__(dirs, BlockingCalls(), poll_every_s=0.01)
        self.has_looked = threading.Event()

    def _look(self, *wanted):
        try:
            return super()._look(*wanted)
        finally:
            self.has_looked.set()


def devices(host):
    return Looking(host.dirs)


async def found(host, device_path="", partition="", wait_s=0.0):
    return await devices(host).find(VOLUME, device_path, partition, wait_s=wait_s)


async def refusal(host, device_path="", partition="", wait_s=0.0):
    with pytest.raises(NodeError) as refused:
        await found(host, device_path, partition, wait_s)
    return refused.value


async def searching(host, device_path=""):
    """A search that has looked in vain."""
    looking = devices(host)
    search = asyncio.create_task(looking.find(VOLUME, device_path, "", wait_s=30))
    assert await asyncio.to_thread(looking.has_looked.wait, 10)
    return search


async def test_an_nvme_disk_is_found_by_its_link(host):
    disk = host.an_nvme_disk()

    device = await found(host, "/dev/xvdba")

    assert device.path == device.disk == disk.node
    assert device.number == disk.number
    assert device.size_bytes == SIZE_BYTES
    assert device.is_nvme
    assert device.volume_id == VOLUME


async def test_an_nvme_disk_is_found_by_its_serial_where_there_are_no_links(host):
    host.an_nvme_disk(OTHER, name="nvme1n1")
    disk = host.a_disk("nvme2n1")
    host.give_serial(disk, VOLUME.replace("-", ""))

    assert (await found(host)).path == disk.node


async def test_one_of_many_disks_that_has_its_link_costs_no_look_at_the_others(host, monkeypatch):
    """Each scrape finds the devices of all volumes: it cost the square of their number."""
    others = [host.an_nvme_disk(f"vol-{n:017x}", name=f"nvme{n}n1") for n in (2, 3)]
    disk = host.an_nvme_disk()
    read, serial = [], sysfs.serial

    def counted(dirs, number):
        read.append(number)
        return serial(dirs, number)

    monkeypatch.setattr(sysfs, "serial", counted)

    assert (await found(host)).path == disk.node
    assert set(read) == {disk.number}

    (host.links / f"nvme-Amazon_Elastic_Block_Store_{VOLUME.replace('-', '')}").unlink()
    assert (await found(host)).path == disk.node
    assert {each.number for each in others} <= set(read)


async def test_a_stale_link_is_not_followed_when_the_serial_is_found_elsewhere(host):
    host.an_nvme_disk(OTHER, name="nvme1n1")
    host.link(VOLUME, "nvme1n1")
    disk = host.a_disk("nvme2n1")
    host.give_serial(disk, VOLUME.replace("-", ""))

    assert (await found(host)).path == disk.node


async def test_a_stale_link_is_refused_with_what_was_found(host):
    host.an_nvme_disk(OTHER, name="nvme1n1")
    host.link(VOLUME, "nvme1n1")

    refused = await refusal(host, wait_s=0.05)

    assert refused.reason is Reason.WRONG_DEVICE
    assert "has the serial 'vol0fedcba9876543210'" in refused.message


async def test_a_stale_link_is_waited_out(host):
    host.an_nvme_disk(OTHER, name="nvme1n1")
    stale = host.link(VOLUME, "nvme1n1")
    search = await searching(host)

    stale.unlink()
    disk = host.an_nvme_disk(VOLUME, name="nvme2n1")
    # udev makes the link after the serial is there.

    assert (await search).path == disk.node


async def test_an_nvme_disk_without_a_readable_serial_is_refused(host):
    host.a_disk("nvme1n1")  # the identify ioctl is refused too: a loop device has none
    host.link(VOLUME, "nvme1n1")

    refused = await refusal(host)

    assert refused.reason is Reason.WRONG_DEVICE
    assert "its serial cannot be read" in refused.message


async def test_a_xen_disk_is_found_by_the_attachments_name(host):
    disk = host.a_disk("xvdba")

    device = await found(host, "/dev/xvdba")

    assert (device.path, device.is_nvme) == (disk.node, False)


async def test_a_xen_kernel_says_xvd_for_sd(host):
    disk = host.a_disk("xvdf")

    assert (await found(host, "/dev/sdf")).path == disk.node


async def test_a_name_of_the_attachment_that_is_a_link_to_nvme_is_held_to_the_serial(host):
    disk = host.a_disk("nvme1n1")
    (host.dirs.dev / "xvdba").symlink_to("nvme1n1")

    host.give_serial(disk, OTHER.replace("-", ""))
    refused = await refusal(host, "/dev/xvdba")
    host.give_serial(disk, VOLUME.replace("-", ""))
    device = await found(host, "/dev/xvdba")

    assert refused.reason is Reason.WRONG_DEVICE
    assert device.path == disk.node


async def test_what_is_no_block_device_is_none(host):
    (host.dirs.dev / "xvdba").write_text("a file")
    host.link(VOLUME, "xvdba")

    assert (await refusal(host, "/dev/xvdba")).reason is Reason.DEVICE_NOT_FOUND


async def test_a_disk_without_a_size_is_not_there_yet(host):
    disk = host.a_disk("xvdba")
    disk.resize(0)

    refused = await refusal(host, "/dev/xvdba")

    assert refused.reason is Reason.DEVICE_NOT_FOUND


async def test_a_device_that_does_not_come_is_told_at_the_deadline(host):
    refused = await refusal(host, "/dev/xvdba", wait_s=0.05)

    assert refused.reason is Reason.DEVICE_NOT_FOUND
    assert "no /dev/xvdba" in refused.message


@pytest.mark.parametrize(
    ("device_path", "partition"), [("/dev/../etc/passwd", ""), ("", "../1"), ("xvdba", "")]
)
async def test_what_is_no_name_is_refused_at_once(host, device_path, partition):
    refused = await refusal(host, device_path, partition, wait_s=LONG_S)

    assert refused.reason is Reason.INVALID_REQUEST


async def test_a_link_that_comes_is_noticed_though_there_was_no_folder_for_it(host):
    disk = host.a_disk("nvme1n1")
    search = await searching(host)

    host.give_serial(disk, VOLUME.replace("-", ""))
    host.link(VOLUME, "nvme1n1")

    assert (await search).path == disk.node


async def test_a_device_that_comes_is_noticed(host):
    search = await searching(host, "/dev/xvdba")

    disk = host.a_disk("xvdba")

    assert (await search).path == disk.node


async def test_a_serial_that_comes_without_an_event_is_noticed_a_little_later(host):
    disk = host.a_disk("nvme1n1")
    host.link(VOLUME, "nvme1n1")
    search = await searching(host)

    host.give_serial(disk, VOLUME.replace("-", ""))

    assert (await search).path == disk.node


async def test_a_search_that_is_left_ends(host):
    search = await searching(host)

    search.cancel()

    with pytest.raises(asyncio.CancelledError):
        await search


async def test_a_path_is_checked_as_a_found_device_is(host):
    disk = host.an_nvme_disk()
    other = host.an_nvme_disk(OTHER, name="nvme2n1")

    device = await devices(host).of_path(VOLUME, disk.node)
    with pytest.raises(NodeError, match="vol0fedcba9876543210") as wrong:
        await devices(host).of_path(VOLUME, other.node)
    with pytest.raises(NodeError, match="not a block device") as missing:
        await devices(host).of_path(VOLUME, host.dirs.dev / "nvme3n1")

    assert device.path == disk.node
    assert wrong.value.reason is Reason.WRONG_DEVICE
    assert missing.value.reason is Reason.DEVICE_NOT_FOUND


async def test_a_device_whose_name_went_to_another_volume_is_no_longer_it(host):
    disk = host.an_nvme_disk()
    device = await found(host)
    await devices(host).verify(device)

    other = host.an_nvme_disk(OTHER, name="nvme2n1")
    disk.node.unlink()
    other.node.rename(disk.node)

    with pytest.raises(NodeError) as refused:
        await devices(host).verify(device)
    assert refused.value.reason is Reason.WRONG_DEVICE


async def test_a_device_that_grew_meanwhile_is_looked_at_anew(host):
    disk = host.an_nvme_disk()
    device = await found(host)

    disk.resize(2 * SIZE_BYTES)

    with pytest.raises(NodeError, match="is retried"):
        await devices(host).verify(device)


async def test_the_volumes_of_a_machine_are_those_of_links_and_serials(host):
    host.an_nvme_disk()
    disk = host.a_disk("nvme2n1")
    host.give_serial(disk, OTHER.replace("-", ""))
    local = host.a_disk("nvme3n1")
    host.give_serial(local, "AWS0123456789ABCDEF0")
    host.link("vol-0aaaaaaaaaaaaaaaa", "nvme2n1")  # stale: it is the other one
    host.link("vol-0bbbbbbbbbbbbbbbb", "nvme9n1")  # stale: there is none
    host.a_disk("nvme4n1")
    host.link("vol-0cccccccccccccccc", "nvme4n1")  # no serial to be read

    found = await devices(host).volumes()

    assert found == {VOLUME, OTHER, "vol-0cccccccccccccccc"}
