"""A file system that another mount namespace keeps alive is mounted, not claimed.

As an agent's container does that has kubelet's folder without propagation, and a file of it open.
"""

import os
import subprocess
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import Unstage
from tests.node.machine import VOLUME, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

AGENT = ("unshare", "--mount", "--propagation", "private", "sh", "-c")


def held_open(path):
    """A process in a mount namespace of its own that has a file open."""
    held = subprocess.Popen(
        [*AGENT, f"exec 3<{path}; echo; exec sleep 100"], stdout=subprocess.PIPE
    )
    assert held.stdout is not None
    held.stdout.readline()
    return held


def unstage(machine):
    return Unstage(VOLUME, str(machine.staging()))


async def unmounted(machine):
    """It is unmounted here, but the kubelet is refused: it must not say that nobody uses it."""
    with pytest.raises(NodeError, match="another mount namespace") as refused:
        await machine.stager.unstage(unstage(machine))
    assert refused.value.reason is Reason.TARGET_BUSY
    assert machine.mounts_below() == []


@pytest.mark.parametrize("file_system", ["ext4", "ext3", "xfs"])
async def test_it_is_mounted_again_unchecked(machine, file_system):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage(file_system=file_system))
    (machine.staging() / "file").write_text("written")
    agent = held_open(machine.staging() / "file")
    try:
        await unmounted(machine)
        assert machine.mounts_below() == []
        machine.fake("e2fsck", "exit 8")  # as it ends on a device in use

        await machine.stager.stage(machine.stage(file_system=file_system))

        assert (machine.staging() / "file").read_text() == "written"
    finally:
        agent.kill()
        agent.communicate()


async def test_another_file_system_than_is_asked_for_is_refused(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage(file_system="xfs"))
    (machine.staging() / "file").write_text("written")
    agent = held_open(machine.staging() / "file")
    try:
        await unmounted(machine)

        with pytest.raises(NodeError, match="another mount namespace") as refused:
            await machine.stager.stage(machine.stage(file_system="ext4"))
    finally:
        agent.kill()
        agent.communicate()

    assert refused.value.reason is Reason.DEVICE_BUSY
    assert machine.mounts_below() == []


async def test_for_reading_only_it_is_not_mounted_beside_a_writer(machine):
    """The kernel refuses: it is one superblock."""
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage())
    (machine.staging() / "file").write_text("written")
    agent = held_open(machine.staging() / "file")
    try:
        await unmounted(machine)

        with pytest.raises(NodeError) as refused:
            await machine.stager.stage(machine.stage(flags=("ro",)))
    finally:
        agent.kill()
        agent.communicate()

    assert refused.value.reason is Reason.DEVICE_BUSY


async def test_one_whose_file_system_has_ended_is_told(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage(file_system="xfs"))
    (machine.staging() / "file").write_text("written")
    agent = held_open(machine.staging() / "file")
    try:
        run("xfs_io", "-x", "-c", "shutdown", machine.staging())
        await unmounted(machine)

        with pytest.raises(NodeError, match="another mount namespace") as refused:
            await machine.stager.stage(machine.stage(file_system="xfs"))
    finally:
        agent.kill()
        agent.communicate()

    assert refused.value.reason is Reason.MOUNT_FAILED
    assert machine.mounts_below() == []


async def test_one_that_became_read_only_is_told_with_what_keeps_it(machine):
    """Linux 6.15 and later mounts it once more, and lets nobody write."""
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage(flags=("errors=remount-ro",)))
    (machine.staging() / "file").write_text("written")
    agent = held_open(machine.staging() / "file")
    try:
        errors = f"/sys/fs/ext4/{disk.loop.rpartition('/')[2]}/trigger_fs_error"
        Path(errors).write_text("by a test")
        await machine.stager.unstage(unstage(machine))

        with pytest.raises(NodeError, match="another mount namespace") as refused:
            await machine.stager.stage(machine.stage(flags=("errors=remount-ro",)))
    finally:
        agent.kill()
        agent.communicate()

    assert refused.value.reason is Reason.DEVICE_BUSY
    assert machine.mounts_below() == []
    await machine.stager.stage(machine.stage())
    (machine.staging() / "file").write_text("written")


async def test_what_was_written_is_on_the_disk_once_it_is_unstaged(machine, tmp_path):
    """An unmount flushes nothing while another mount namespace has the file system."""
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    (machine.staging() / "file").write_text("written")
    agent = held_open(machine.staging() / "file")
    try:
        await unmounted(machine)

        copy, seen = tmp_path / "copy", tmp_path / "seen"
        run("cp", "--sparse=always", disk.image, copy)
        seen.mkdir()
        run("mount", "-o", "loop", copy, seen)
        try:
            assert (seen / "file").read_text() == "written"
        finally:
            run("umount", seen)
    finally:
        agent.kill()
        agent.communicate()


async def test_what_holds_a_device_otherwise_is_not_touched(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    run("mkfs.ext4", "-q", disk.node)
    held = os.open(disk.node, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(NodeError) as refused:
            await machine.stager.stage(machine.stage(origin="snap-1"))
    finally:
        os.close(held)

    assert refused.value.reason is Reason.DEVICE_BUSY
