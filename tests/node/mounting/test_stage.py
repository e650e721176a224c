"""Staging on real loop devices: what is made, found, mounted twice, and left after a crash."""

import asyncio
import os
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.formatting.rules import MARK_BYTES, mark_block, mark_offsets
from provisioner.node.mounting.stage import Stager
from provisioner.node.requests import AccessMode, Unstage
from tests.node.machine import MIB, VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


def unstage(machine: Machine, volume_id: str = VOLUME) -> Unstage:
    return Unstage(volume_id, str(machine.staging(volume_id)))


def size_of(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


@pytest.mark.parametrize("file_system", ["", "ext4", "ext3", "xfs"])
async def test_a_new_volume_is_formatted_and_mounted(machine, file_system):
    disk = machine.attach()

    await machine.stager.stage(machine.stage(file_system=file_system))

    mount = machine.mounts.at(str(machine.staging()))
    assert (mount.number, mount.file_system) == (disk.number, file_system or "ext4")
    assert ("nouuid" in mount.super_options) == (file_system == "xfs")
    (machine.staging() / "file").write_text("written")


async def test_that_a_volume_is_staged_is_told(machine):
    """It may have been foreign until now."""
    told: list[str] = []
    machine.attach()

    await Stager(machine.tools, on_stage=told.append).stage(machine.stage())

    assert told == [VOLUME]


async def test_what_was_written_is_there_the_next_time(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    (machine.staging() / "file").write_text("written")
    await machine.stager.unstage(unstage(machine))
    machine.detach(disk)
    machine.attach(name="nvme7n1")

    await machine.stager.stage(machine.stage(origin="snap-1"))

    assert (machine.staging() / "file").read_text() == "written"


async def test_staging_twice_mounts_once(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.stager.stage(machine.stage())

    assert len(machine.mounts_below()) == 1


async def test_a_process_killed_after_the_mount_finds_it_done(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    (machine.staging() / "file").write_text("written")
    machine.restart()
    machine.fake("mount", "exit 1")
    machine.fake("e2fsck", "exit 1")

    await machine.stager.stage(machine.stage())

    assert (machine.staging() / "file").read_text() == "written"


async def test_a_process_killed_between_mkfs_and_mount_does_the_rest(machine):
    disk = machine.attach()
    machine.fake("mount", "echo this one crashes >&2; exit 1")
    with pytest.raises(NodeError, match="this one crashes"):
        await machine.stager.stage(machine.stage())
    made = run("blkid", "-p", "-s", "UUID", disk.node)
    (machine.bin / "mount").unlink()
    machine.restart()

    await machine.stager.stage(machine.stage())

    assert run("blkid", "-p", "-s", "UUID", disk.node) == made
    assert len(machine.mounts_below()) == 1


async def test_a_process_killed_before_growing_grows_on_the_next_try(machine):
    disk = machine.attach()
    request = machine.stage(file_system="xfs")
    await machine.stager.stage(request)
    disk.grow(1024)
    machine.restart()

    await machine.stager.stage(request)

    assert size_of(machine.staging()) > 900 * MIB


async def test_a_directory_without_a_mount_is_mounted_on(machine):
    machine.attach()
    machine.staging().mkdir(parents=True)

    await machine.stager.stage(machine.stage())

    assert machine.mounts.at(str(machine.staging())) is not None


@pytest.mark.parametrize("file_system", ["ext3", "ext4", "xfs"])
async def test_a_restored_volume_that_is_larger_than_its_file_system_grows(machine, file_system):
    disk = machine.attach()
    run(f"mkfs.{file_system}", "-q", disk.node)
    disk.grow(1024)

    await machine.stager.stage(machine.stage(origin="snap-1", file_system=file_system))

    assert size_of(machine.staging()) > 900 * MIB


@pytest.mark.parametrize(
    "asked", [{"mode": AccessMode.MULTI_NODE_READER_ONLY}, {"flags": ("ro", "noload")}]
)
async def test_a_volume_for_reading_is_neither_checked_nor_grown_nor_written(machine, asked):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    disk.grow(1024)
    machine.fake("e2fsck", "exit 4")
    machine.fake("resize2fs", "exit 4")

    await machine.stager.stage(machine.stage(origin="snap-1", **asked))

    assert machine.mounts.at(str(machine.staging())).is_read_only_everywhere
    assert size_of(machine.staging()) < 512 * MIB


async def test_mount_options_are_the_volumes(machine):
    machine.attach()

    await machine.stager.stage(machine.stage(flags=("noatime", "nodev,nosuid")))

    assert {"noatime", "nodev", "nosuid"} <= set(machine.mounts.at(str(machine.staging())).options)


async def test_a_raw_device_is_only_looked_for(machine):
    with_device = machine.attach()

    await machine.stager.stage(machine.stage(is_block=True))

    assert not machine.staging().exists()
    machine.detach(with_device)
    with pytest.raises(NodeError) as missing:
        await machine.stager.stage(machine.stage(is_block=True), time_left_s=0.1)
    assert missing.value.reason is Reason.DEVICE_NOT_FOUND


async def test_a_raw_device_loses_the_mark_of_a_format_that_died_there(machine):
    """Or else a file system asked for later would be made over the raw data."""
    disk = machine.attach()
    at = mark_offsets(disk.image.stat().st_size)[0]
    with disk.node.open("r+b") as device:
        device.seek(at)
        device.write(mark_block(VOLUME, 1))

    await machine.stager.stage(machine.stage(is_block=True))

    with disk.node.open("rb") as device:
        device.seek(at)
        assert not any(device.read(MARK_BYTES))


async def test_waits_for_the_device(machine):
    staging = asyncio.ensure_future(machine.stager.stage(machine.stage()))
    await asyncio.sleep(0)
    machine.attach()

    await staging

    assert machine.mounts.at(str(machine.staging())) is not None


async def test_a_second_staging_path_needs_neither_a_check_nor_a_format(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    machine.fake("e2fsck", "exit 8")
    elsewhere = machine.kubelet / "plugins" / "other" / "globalmount"
    elsewhere.mkdir(parents=True)
    run("mount", "--move", machine.staging(), elsewhere)

    await machine.stager.stage(machine.stage())

    assert {mount.path for mount in machine.mounts_below()} == {
        str(elsewhere),
        str(machine.staging()),
    }
