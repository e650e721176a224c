"""Readers of a Multi-Attach volume: their device takes no writes, not the kernel's either.

Two loop devices on one file are two nodes that have one volume.
"""

import asyncio
import os
from hashlib import sha256

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.model.node_requests import AccessMode, Unpublish, Unstage
from tests.node.machine import MIB, OTHER, VOLUME, run
from tests.node.test_readers import checksum, reader

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
CHECKS = {
    "ext4": ("e2fsck", "-f", "-n"),
    "ext3": ("e2fsck", "-f", "-n"),
    "xfs": ("xfs_repair", "-n"),
}
READS = AccessMode.MULTI_NODE_READER_ONLY
AS_IT_IS = {"ext4": "noload", "ext3": "noload", "xfs": "norecovery"}


def is_read_only(disk):
    return run("blockdev", "--getro", disk.node).strip() == "1"


def on_disk(disk):
    return sha256(disk.image.read_bytes()).hexdigest()


@pytest.fixture
def shared(machine):
    """A file system at work on one node, a deleted file still open there; and its other disk."""
    opened = []

    async def share(file_system):
        disk = machine.attach()
        await machine.stager.stage(machine.stage(file_system=file_system))
        temporary = machine.staging() / "temporary"
        temporary.write_bytes(os.urandom(20 * MIB))
        run("sync", "-f", machine.staging())
        opened.append(temporary.open("r+b", buffering=0))
        temporary.unlink()
        run("sync", "-f", machine.staging())
        (machine.folder / OTHER).symlink_to(disk.image)
        return disk, machine.attach(OTHER), opened[-1]

    yield share
    for each in opened:
        each.close()


@pytest.fixture
async def unmounted(machine):
    """A file system that was unmounted."""
    disk = machine.attach(OTHER)
    run("mkfs.ext4", "-q", disk.node)
    return disk


async def unstage(machine):
    await machine.stager.unstage(Unstage(OTHER, str(machine.staging(OTHER))))


@pytest.mark.parametrize("file_system", ["ext4", "ext3", "xfs"])
async def test_a_reader_writes_nothing_beside_a_writer(machine, shared, file_system):
    """Where it did, it freed the blocks of a file that the writer had deleted and still used."""
    disk, other, temporary = await shared(file_system)
    before = on_disk(disk)

    flags = (AS_IT_IS[file_system],)
    await machine.stager.stage(reader(machine, file_system, is_shared=True, flags=flags))
    was_read_only = is_read_only(other)
    await unstage(machine)

    assert was_read_only
    assert not is_read_only(other)
    assert on_disk(disk) == before
    run("blockdev", "--flushbufs", disk.loop)  # the writer reads again what is on the disk
    temporary.write(b"x" * MIB)
    os.fsync(temporary.fileno())
    (machine.staging() / "more").write_bytes(os.urandom(MIB))
    temporary.close()
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))
    run(*CHECKS[file_system], disk.node)  # fails if it finds anything


@pytest.mark.parametrize("file_system", ["ext4", "ext3"])
async def test_deleted_files_that_were_open_are_as_good_as_a_log(machine, shared, file_system):
    """A frozen file system has no log to bring up to date, and the kernel writes all the same."""
    disk, _, _ = await shared(file_system)
    (machine.folder / OTHER).unlink()
    run("fsfreeze", "-f", machine.staging())
    try:
        run("cp", "--sparse=always", disk.image, machine.folder / OTHER)
    finally:
        run("fsfreeze", "-u", machine.staging())
    machine.link(OTHER).unlink()
    copy = machine.attach(OTHER)
    before = checksum(copy)

    with pytest.raises(NodeError, match="frees the files") as refused:
        await machine.stager.stage(reader(machine, file_system, is_shared=True))

    assert refused.value.reason is Reason.NOT_UNMOUNTED
    assert checksum(copy) == before
    assert not is_read_only(copy)


async def test_it_takes_writes_again_after_its_last_mount_only(machine, unmounted):
    await machine.stager.stage(reader(machine, "ext4", is_shared=True))
    await machine.publisher.publish(machine.publish(OTHER, mode=READS))
    machine.restart()

    await machine.publisher.unpublish(Unpublish(OTHER, str(machine.target())))
    assert is_read_only(unmounted)
    await unstage(machine)
    assert not is_read_only(unmounted)

    await machine.stager.stage(machine.stage(OTHER, origin="snap-1"))
    (machine.staging(OTHER) / "file").write_text("written")


@pytest.mark.parametrize("is_protected", [True, False])
@pytest.mark.parametrize("umount", ["", "#!/bin/sh\nexit 32", "#!/no/such/program"])
async def test_an_unmount_that_fails_changes_nothing(machine, unmounted, umount, is_protected):
    request = reader(machine, "ext4", is_shared=is_protected, flags=("noload",))
    await machine.stager.stage(request)
    held = os.open(machine.staging(OTHER), os.O_RDONLY)
    if umount:
        machine.fake("umount", "")
        (machine.bin / "umount").write_text(umount)

    try:
        with pytest.raises(NodeError):
            await unstage(machine)
    finally:
        os.close(held)

    assert is_read_only(unmounted) == is_protected
    (machine.bin / "umount").unlink(missing_ok=True)
    await unstage(machine)
    assert not is_read_only(unmounted)


async def test_what_a_crash_before_the_unmount_leaves_is_protected_by_the_next_stage(
    machine, unmounted
):
    await machine.stager.stage(reader(machine, "ext4", is_shared=True))
    run("blockdev", "--setrw", unmounted.node)
    machine.restart()

    await machine.stager.stage(reader(machine, "ext4", is_shared=True))

    assert is_read_only(unmounted)


async def test_what_is_mounted_for_writing_is_not_protected_by_a_reader_of_the_same_path(
    machine, unmounted
):
    await machine.stager.stage(machine.stage(OTHER, origin="snap-1"))

    await machine.stager.stage(reader(machine, "ext4", is_shared=True))

    assert not is_read_only(unmounted)


async def test_it_stays_protected_where_the_mount_goes_on_without_us(machine, unmounted):
    """The process ends while mount(8) hangs: what it mounts later frees what was deleted."""
    gate = machine.folder / "gate"
    os.mkfifo(gate)
    machine.fake("mount", f"echo > {gate}; exec sleep 0.1")
    stage = machine.mounts.mount_protected(
        unmounted.node, "/", number=unmounted.number, file_system="ext4", options=("ro", "noload")
    )
    ending = asyncio.create_task(stage)
    await asyncio.to_thread(gate.read_text)

    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending

    assert is_read_only(unmounted)
    await machine.programs.idle()


async def test_a_failure_that_leaves_it_mounted_leaves_it_protected(machine, unmounted):
    machine.fake("mount", f'{machine.real("mount")} "$@"; exit 1')
    machine.fake("umount", "exit 32")

    with pytest.raises(NodeError, match="still mounted"):
        await machine.stager.stage(reader(machine, "ext4", is_shared=True))

    assert is_read_only(unmounted)


async def test_a_mount_that_fails_leaves_it_as_it_was(machine, unmounted):
    machine.fake("mount", f'[ "$(blockdev --getro {unmounted.node})" = 1 ] && exit 32; exit 1')

    with pytest.raises(NodeError, match="exit code 32"):
        await machine.stager.stage(reader(machine, "ext4", is_shared=True))

    assert not is_read_only(unmounted)


async def test_what_a_crash_before_the_mount_leaves_is_told_to_writers_and_heals_by_readers(
    machine, unmounted
):
    run("blockdev", "--setro", unmounted.node)

    with pytest.raises(NodeError, match=f"`blockdev --setrw {unmounted.node}`") as refused:
        await machine.stager.stage(machine.stage(OTHER, origin="snap-1"))
    assert refused.value.reason is Reason.DEVICE_READ_ONLY

    await machine.stager.stage(reader(machine, "ext4", is_shared=True))
    await unstage(machine)
    assert not is_read_only(unmounted)


async def test_what_somebody_else_made_read_only_stays_so(machine, unmounted):
    run("blockdev", "--setro", unmounted.node)

    await machine.stager.stage(reader(machine, "ext4", is_shared=False))
    await unstage(machine)

    assert is_read_only(unmounted)


async def test_a_path_that_is_another_device_by_now_is_left_alone(machine, unmounted):
    """The disk went under its mount, and another one has its name."""
    await machine.stager.stage(reader(machine, "ext4", is_shared=True))
    machine.detach(unmounted, frees_number=False)
    another = machine.attach(VOLUME, name=unmounted.node.name)
    run("blockdev", "--setro", another.node)

    await unstage(machine)

    assert is_read_only(another)


async def test_one_that_cannot_be_made_so_is_not_mounted(machine, unmounted, monkeypatch):
    monkeypatch.setattr("provisioner.node.claimed._BLKROSET", 0)  # no such command: ENOTTY

    with pytest.raises(NodeError) as refused:
        await machine.stager.stage(reader(machine, "ext4", is_shared=True))

    assert refused.value.reason is Reason.DEVICE_NOT_FOUND
    assert machine.mounts_below() == []
