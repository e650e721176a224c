"""Partitions of volumes. Two loop devices pose as a disk and a partition, by what /sys says."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Devices
from provisioner.node.formatting.format import FileSystemRequest, Formatter
from provisioner.node.runtime import sysfs
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import Programs
from provisioner.node.runtime.sysfs import SystemDirs
from tests.node.foreign_data import dos_partitions
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME, Consents, Disk, run

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]


def place(host, disk, *path, partition=False):
    """Give a device its place in /sys, as the kernel does: a link by number to a folder."""
    here = host.dirs.sys.joinpath("devices", *path)
    here.mkdir(parents=True)
    if partition:
        (here / "partition").write_text("1\n")
    (host.dirs.sys / "dev" / "block" / disk.number).symlink_to(
        os.path.join("..", "..", "devices", *path)  # noqa: PTH118 -- a relative link
    )


@pytest.fixture
def disk(host):
    whole = host.a_disk("nvme1n1")
    place(host, whole, "nvme1n1")
    host.give_serial(whole, VOLUME.replace("-", ""))
    host.link(VOLUME, "nvme1n1")
    return whole


@pytest.fixture
def part(host, disk):
    first = host.a_disk("nvme1n1p1", size_bytes=300 * MIB)
    place(host, first, "nvme1n1", "nvme1n1p1", partition=True)
    return first


async def found(host, number="1", device_path=""):
    return await Devices(host.dirs, BlockingCalls()).find(VOLUME, device_path, number, wait_s=0)


async def test_a_partition_is_found_beside_its_disk(host, disk, part):
    device = await found(host)

    assert (device.path, device.disk) == (part.node, disk.node)
    assert device.number == part.number
    assert device.size_bytes == 300 * MIB


async def test_a_partition_has_the_serial_of_its_disk(host, disk, part):
    assert sysfs.serial(host.dirs, part.number) == VOLUME.replace("-", "")

    device = await Devices(host.dirs, BlockingCalls()).of_path(VOLUME, part.node)

    assert (device.path, device.disk) == (part.node, disk.node)


async def test_without_a_partition_the_disk_is_meant(host, disk, part):
    assert (await found(host, "0")).path == disk.node


async def test_a_partition_that_is_not_there_is_told_by_name(host, disk):
    with pytest.raises(NodeError, match=r"no partition 2: .*nvme1n1 exists") as refused:
        await found(host, "2")

    assert refused.value.reason is Reason.DEVICE_NOT_FOUND


async def test_a_device_that_only_has_the_name_of_a_partition_is_refused(host, disk):
    impostor = host.a_disk("nvme1n1p1")
    place(host, impostor, "nvme9n1", "nvme1n1p1", partition=True)

    with pytest.raises(NodeError, match="is not a partition of") as refused:
        await found(host)

    assert refused.value.reason is Reason.WRONG_DEVICE


async def test_a_partition_of_a_xen_disk_has_its_number_right_after_the_name(host):
    whole, first = host.a_disk("xvdba"), host.a_disk("xvdba1")
    place(host, whole, "xvdba")
    place(host, first, "xvdba", "xvdba1", partition=True)

    device = await found(host, device_path="/dev/xvdba")

    assert (device.path, device.disk) == (first.node, whole.node)


async def test_the_volumes_of_a_machine_count_a_partition_with_its_disk(host, disk, part):
    (host.links / f"nvme-Amazon_Elastic_Block_Store_{VOLUME.replace('-', '')}-part1").symlink_to(
        "../../nvme1n1p1"
    )

    assert await Devices(host.dirs, BlockingCalls()).volumes() == {VOLUME}


@pytest.fixture
def kernels_disk(tmp_path):
    """A loop device with a partition that the kernel knows, both with names as Xen's disks have."""
    content = tmp_path / "disk"
    with content.open("xb") as file:
        file.truncate(SIZE_BYTES)
    dos_partitions(Disk(content, content, content))
    loop = Path(run("losetup", "--partscan", "-f", "--show", content).strip())
    disk = Disk(content, loop, tmp_path / "xvdba")
    try:
        # A kernel that reads tables of this kind has done so already.
        subprocess.run(["partx", "--add", loop], capture_output=True, check=False, timeout=60)
        for device, name in ((loop, "xvdba"), (Path(f"{loop}p1"), "xvdba1")):
            os.mknod(tmp_path / name, 0o600 | stat.S_IFBLK, device.stat().st_rdev)
        yield disk
        run("partx", "--delete", loop)
    finally:
        run("losetup", "-d", loop)


async def test_a_blank_partition_is_formatted_and_the_table_stays(kernels_disk, tmp_path):
    table = kernels_disk.read(0, MIB)
    devices, programs = Devices(SystemDirs(dev=tmp_path), BlockingCalls()), Programs()
    formatter = Formatter(programs, devices, Consents(), BlockingCalls())
    wanted = FileSystemRequest("ext4", {}, read_only=False)

    device = await devices.find(VOLUME, "/dev/xvdba", "1", wait_s=10)
    made = await formatter.ensure(device, wanted, "blank")
    whole = await devices.find(VOLUME, "/dev/xvdba", "", wait_s=0)
    with pytest.raises(NodeError, match=r"a partition table \(dos\)") as refused:
        await formatter.ensure(whole, wanted, "blank")

    assert device.path == tmp_path / "xvdba1"
    assert device.disk == kernels_disk.node
    assert device.size_bytes == SIZE_BYTES - MIB
    assert made.is_new
    assert refused.value.reason is Reason.NOT_BLANK
    assert kernels_disk.read(0, MIB) == table
    await programs.idle()
