"""The mark "a format of ours was begun here": when it counts, when not, and when it goes."""

import os
import threading
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.formatting import exclusive as marks
from provisioner.node.formatting.exclusive import ExclusiveDevice
from provisioner.node.formatting.format import Formatter
from provisioner.node.formatting.rules import MARK_BYTES, mark_block, mark_offsets
from provisioner.node.runtime.programs import PATH, Programs
from tests.node.foreign_data import lvm, noise
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME, run

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
PLACES = mark_offsets(SIZE_BYTES)
AT = PLACES[0]
MARK = mark_block(VOLUME, 1_790_000_000)
OTHER_MARK = mark_block("vol-0fedcba9876543210", 1_790_000_000)


def begun(disk, mark=MARK):
    """What a mkfs leaves that was killed early: not blank, no file system."""
    disk.write(AT, mark)
    disk.write(100 * MIB, noise(MIB))
    disk.write(8 * MIB, noise(MIB))


async def test_a_format_that_did_not_end_is_begun_again(workshop):
    begun(workshop.disk)

    made = await workshop.ensure()

    assert made.is_new
    assert not workshop.is_marked


async def test_a_mkfs_that_went_well_is_told_so_where_no_thread_starts_right_then(
    workshop, monkeypatch
):
    """A limit of processes that is reached for a moment: the disk is let go all the same."""
    mkfs, start = Formatter._mkfs, threading.Thread.start
    refused: list[threading.Thread] = []

    def refuse_once(thread):
        if not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    async def mkfs_then_full(*arguments):
        await mkfs(*arguments)
        monkeypatch.setattr(threading.Thread, "start", refuse_once)

    monkeypatch.setattr(Formatter, "_mkfs", mkfs_then_full)

    made = await workshop.ensure()

    assert made.is_new
    assert refused
    assert not workshop.is_marked
    own = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    assert not own & {str(each) for each in workshop.machine.dirs.dev.rglob("*")}


@pytest.mark.parametrize("origin", ["snap-0123456789abcdef0", "vol-0fedcba9876543210", ""])
async def test_not_if_it_was_not_made_blank(workshop, origin):
    begun(workshop.disk)

    assert (await workshop.refusal(origin=origin)).reason is Reason.NOT_BLANK


@pytest.mark.parametrize("origin", ["blank", "snap-0123456789abcdef0", ""])
async def test_not_on_a_copy_of_a_marked_volume(workshop, origin):
    begun(workshop.disk, OTHER_MARK)

    assert (await workshop.refusal(origin=origin)).reason is Reason.NOT_BLANK


async def test_not_if_a_byte_of_the_mark_is_wrong(workshop):
    begun(workshop.disk, MARK[:100] + b"x" + MARK[101:])

    assert (await workshop.refusal()).reason is Reason.NOT_BLANK


async def test_not_if_something_else_is_recognized(workshop):
    begun(workshop.disk)
    lvm(workshop.disk)

    assert "blkid finds LVM2_member" in (await workshop.refusal()).message


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_one_that_is_left_after_a_mkfs_that_ended_is_cleared_and_nothing_else(
    workshop, file_system
):
    await workshop.ensure(file_system)
    without = workshop.disk.checksum()
    workshop.disk.write(AT, MARK)

    found = await workshop.ensure(file_system)

    assert not found.is_new
    assert workshop.disk.checksum() == without


async def test_one_of_another_volume_is_data_and_stays(workshop):
    await workshop.ensure()
    workshop.disk.write(AT, OTHER_MARK)

    await workshop.ensure()

    assert workshop.disk.read(AT, MARK_BYTES) == OTHER_MARK


async def test_a_request_for_reading_leaves_it(workshop):
    await workshop.ensure()
    workshop.disk.write(AT, MARK)

    await workshop.ensure(read_only=True)

    assert workshop.is_marked


async def test_an_xfs_in_progress_is_made_again_if_marked_and_refused_if_not(workshop):
    run("mkfs.xfs", "-f", "-q", workshop.disk.loop)
    workshop.disk.write(126, b"\x01")  # sb_inprogress

    refused = await workshop.refusal("xfs")
    workshop.disk.write(AT, MARK)
    made = await workshop.ensure("xfs")

    assert "an mkfs.xfs on it was interrupted" in refused.message
    assert made.is_new
    assert workshop.disk.read(126, 1) == b"\0"


async def test_it_is_on_the_device_before_mkfs_begins(workshop, tmp_path):
    workshop.programs = Programs(f"{tmp_path}:{PATH}")
    seen = tmp_path / "seen"
    program = tmp_path / "mkfs.ext4"
    # Past the page cache, what is on the device now.
    program.write_text(
        f"#!/bin/sh\ndd if={workshop.disk.node} of={seen} iflag=direct bs=4096 count=1 "
        f"skip={AT // 4096}\nexit 1\n"
    )
    program.chmod(0o755)

    with pytest.raises(NodeError, match="could not be formatted"):
        await workshop.ensure()

    assert workshop.is_marked
    assert seen.read_bytes() == workshop.disk.read(AT, MARK_BYTES)


async def test_a_device_that_does_not_keep_what_is_written_is_not_formatted(workshop):
    class Lying(ExclusiveDevice):
        def __init__(self) -> None:
            pass

        def read(self, offset_bytes: int, length_bytes: int) -> bytes:
            return bytes(length_bytes)

        def write(self, offset_bytes: int, block: bytes) -> None:
            pass

    device = await workshop.device()

    with pytest.raises(NodeError, match="does not return") as refused:
        marks.write_mark(Lying(), device, 0)

    assert refused.value.reason is Reason.FORMAT_FAILED
