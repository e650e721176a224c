"""Formatting as it goes well, and as it fails; real programs on loop devices."""

import asyncio
import mmap
import os
import shutil
import sys
from pathlib import Path

import pytest

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.node.devices.lookup import Devices
from provisioner.node.formatting.format import FileSystemRequest, Formatter, Found
from provisioner.node.formatting.rules import MARK_BYTES, mark_block, mark_offsets
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.operations import Operations
from provisioner.node.runtime.programs import PATH, Programs
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME, run

pytest_plugins = ("tests.node.loop_fixtures",)
AT = mark_offsets(SIZE_BYTES)[0]
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]


def a_formatter(workshop):
    return Formatter(
        workshop.programs,
        Devices(workshop.machine.dirs, BlockingCalls()),
        workshop.consents,
        BlockingCalls(),
    )


def a_program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def gate(tmp_path):
    """A fifo that a program waits at; to open it is to know that it is there."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("file_system", ["ext4", "ext3", "xfs"])
@pytest.mark.parametrize("origin", ["blank", ""])
async def test_a_blank_volume_is_formatted_once(workshop, file_system, origin):
    made = await workshop.ensure(file_system, origin=origin)
    before = workshop.disk.checksum()
    again = await workshop.ensure(file_system, origin=origin)

    assert made == Found(file_system, is_new=True)
    assert again == Found(file_system, is_new=False)
    assert workshop.disk.checksum() == before
    assert not workshop.is_marked
    assert not workshop.consents.asked


async def test_it_is_formatted_as_its_class_asks(workshop):
    await workshop.ensure("ext4", blocksize="1024", numberofinodes="4096")

    said = run("dumpe2fs", "-h", workshop.disk.loop)
    assert "Block size:               1024" in said
    assert "Inode count:              4096" in said
    assert "Reserved block count:     0" in said


async def test_a_restored_volume_is_mounted_as_it_is(workshop):
    run("mkfs.ext4", "-F", "-q", workshop.disk.loop)
    before = workshop.disk.checksum()

    found = await workshop.ensure(origin="snap-0123456789abcdef0")

    assert found == Found("ext4", is_new=False)
    assert workshop.disk.checksum() == before


@pytest.mark.parametrize("size_mib", [8, 64, 255])
async def test_a_tiny_volume_is_formatted_without_a_mark(workshop, size_mib):
    workshop.disk.resize(size_mib * MIB)

    assert (await workshop.ensure()).is_new
    assert not (await workshop.ensure()).is_new


async def test_options_that_mkfs_cannot_have_are_refused_before_anything_is_written(workshop):
    before = workshop.disk.checksum()

    with pytest.raises(NodeError, match="blocksize") as refused:
        await workshop.ensure("ext4", blocksize="-b 4096")

    assert refused.value.reason is Reason.INVALID_REQUEST
    assert workshop.disk.checksum() == before


async def test_blocks_that_the_kernel_would_not_mount_are_refused_before_anything_is_written(
    workshop,
):
    """Once it is an ext4, nothing makes it anew."""
    before = workshop.disk.checksum()

    with pytest.raises(NodeError, match="memory pages") as refused:
        await workshop.ensure("ext4", blocksize=str(2 * mmap.PAGESIZE))

    assert refused.value.reason is Reason.INVALID_REQUEST
    assert workshop.disk.checksum() == before


def on_linux(monkeypatch, release):
    here = os.uname()
    older = os.uname_result((here.sysname, here.nodename, release, here.version, here.machine))
    monkeypatch.setattr(os, "uname", lambda: older)


async def test_an_xfs_that_an_old_kernel_would_not_mount_is_refused_before_anything_is_written(
    workshop, monkeypatch
):
    on_linux(monkeypatch, "5.4.0-216-generic")
    before = workshop.disk.checksum()

    with pytest.raises(
        NodeError, match=r"not formatted: this node's kernel, Linux 5\.4"
    ) as refused:
        await workshop.ensure("xfs")

    assert refused.value.reason is Reason.INVALID_REQUEST
    assert workshop.disk.checksum() == before
    assert (await workshop.ensure("ext4")).is_new


async def test_a_mkfs_that_fails_is_told_in_its_own_words_and_tried_again(workshop):
    with pytest.raises(NodeError, match=r"exit code 1: .*invalid inode size") as failed:
        await workshop.ensure("ext4", inodesize="7")

    assert failed.value.reason is Reason.FORMAT_FAILED
    assert workshop.is_marked
    assert (await workshop.ensure()).is_new


async def test_a_mkfs_that_says_it_did_and_did_not_is_not_believed(workshop, tmp_path):
    a_program(tmp_path, "mkfs.ext4", "exit 0")
    workshop.programs = Programs(f"{tmp_path}:{PATH}")

    with pytest.raises(NodeError, match="blkid finds nothing that it recognizes") as failed:
        await workshop.ensure()

    assert failed.value.reason is Reason.FORMAT_FAILED


async def test_the_device_is_open_until_mkfs_has_ended(workshop, tmp_path):
    """Else another disk could get its name right before mkfs opens that."""
    own, said, real = f"/proc/{os.getpid()}/fd", tmp_path / "said", shutil.which("mkfs.ext4")
    a_program(tmp_path, "mkfs.ext4", f'ls -l {own} > {said} && exec {real} "$@"')
    workshop.programs = Programs(f"{tmp_path}:{PATH}")

    await workshop.ensure()

    node = str(workshop.disk.node)
    assert said.read_text().count(f" -> {node}\n") == 1
    assert node not in [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]


@pytest.mark.parametrize("ending", ["exit 1", "exit 4", "kill -9 $$"])
async def test_when_blkid_cannot_look_nothing_is_formatted(workshop, tmp_path, ending):
    a_program(tmp_path, "blkid", ending)
    workshop.programs = Programs(f"{tmp_path}:{PATH}")

    refused = await workshop.refusal()

    assert refused.reason is Reason.FORMAT_FAILED
    assert "neither formatted nor mounted" in refused.message


async def test_a_device_that_is_in_use_is_left_to_its_user(workshop):
    holder = os.open(workshop.disk.node, os.O_RDONLY | os.O_EXCL)
    try:
        refused = await workshop.refusal()
    finally:
        os.close(holder)

    assert refused.reason is Reason.DEVICE_BUSY
    assert (await workshop.ensure()).is_new


async def test_a_mounted_device_is_left_to_its_user(workshop, tmp_path):
    await workshop.ensure()
    (tmp_path / "mounted").mkdir()
    run("mount", workshop.disk.loop, tmp_path / "mounted")
    try:
        refused = await workshop.refusal("xfs")
    finally:
        run("umount", tmp_path / "mounted")

    assert refused.reason is Reason.DEVICE_BUSY


async def test_a_mkfs_that_outlived_its_process_is_waited_for(workshop, gate):
    # As the real ones do, it holds the device while it works.
    script = "import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL); open(sys.argv[2]).read()"
    outliving = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, workshop.disk.node, gate
    )
    goes_on = await asyncio.to_thread(gate.open, "w")  # it is at the gate

    refused = await workshop.refusal()
    goes_on.close()
    await outliving.wait()

    assert refused.reason is Reason.DEVICE_BUSY
    assert (await workshop.ensure()).is_new


async def test_a_device_that_is_another_one_by_now_is_not_touched(workshop):
    device = await workshop.device()
    other = workshop.machine.a_disk("nvme2n1")
    workshop.disk.node.unlink()
    other.node.rename(workshop.disk.node)
    formatter = a_formatter(workshop)

    with pytest.raises(NodeError) as refused:
        await formatter.ensure(device, FileSystemRequest("ext4", {}, read_only=False), "blank")

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert other.checksum() == workshop.disk.checksum()  # both are blank


async def test_a_device_whose_serial_changes_before_mkfs_is_not_touched(workshop):
    device = await workshop.device()
    workshop.machine.give_serial(workshop.disk, "vol0fedcba9876543210")
    formatter = a_formatter(workshop)
    before = workshop.disk.checksum()

    with pytest.raises(NodeError) as refused:
        await formatter.ensure(device, FileSystemRequest("ext4", {}, read_only=False), "blank")

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert workshop.disk.checksum() == before


async def test_an_api_server_that_does_not_answer_is_no_consent(workshop):
    class Silent:
        async def of(self, _):
            raise KubeError(Reason.UNREACHABLE, "the API server does not answer")

    workshop.disk.write(0, b"data")
    workshop.consents = Silent()

    assert "the API server does not answer" in (await workshop.refusal()).message


async def test_whoever_leaves_while_it_formats_finds_it_done(workshop, tmp_path, gate):
    """The kubelet's deadline ends its wait; mkfs and the clearing of the mark go on."""
    real = shutil.which("mkfs.ext4", path=PATH)
    a_program(tmp_path, "mkfs.ext4", f'read go < {gate}; exec {real} "$@"')
    workshop.programs = Programs(f"{tmp_path}:{PATH}")
    operations = Operations()
    waiting = asyncio.create_task(
        operations.run(VOLUME, "stage", workshop.ensure, what="Staging at /there")
    )
    goes_on = await asyncio.to_thread(gate.open, "w")  # mkfs is at the gate
    was_marked = workshop.is_marked

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    goes_on.close()
    found = await operations.run(VOLUME, "stage", workshop.ensure, what="Staging at /there")

    assert was_marked
    assert found.is_new  # the second one joined the first
    assert not workshop.is_marked


async def test_a_mark_is_forgotten_before_a_volume_is_used_as_a_raw_device(workshop):
    workshop.disk.write(AT, mark_block(VOLUME, 1))
    workshop.disk.write(AT + MARK_BYTES, b"behind")

    await a_formatter(workshop).forget_mark(await workshop.device())

    assert workshop.disk.read(AT, MARK_BYTES + 6) == bytes(MARK_BYTES) + b"behind"


async def test_a_raw_device_that_is_in_use_or_read_only_is_left_as_it_is(workshop):
    before = workshop.disk.checksum()
    holder = os.open(workshop.disk.node, os.O_RDONLY | os.O_EXCL)
    try:
        await a_formatter(workshop).forget_mark(await workshop.device())
    finally:
        os.close(holder)
    workshop.disk.set_read_only()
    await a_formatter(workshop).forget_mark(await workshop.device())

    assert workshop.disk.checksum() == before


async def test_a_raw_device_that_is_gone_is_told(workshop):
    device = await workshop.device()
    workshop.disk.node.unlink()

    with pytest.raises(NodeError) as missing:
        await a_formatter(workshop).forget_mark(device)

    assert missing.value.reason is Reason.DEVICE_NOT_FOUND


async def test_a_device_that_shrinks_under_us_is_told(workshop):
    device = await workshop.device()
    workshop.disk.resize(64 * MIB)  # the place of the mark is behind its end now

    with pytest.raises(NodeError, match="cannot be used") as failed:
        await a_formatter(workshop).ensure(
            device, FileSystemRequest("ext4", {}, read_only=False), "blank"
        )

    assert failed.value.reason is Reason.DEVICE_NOT_FOUND
