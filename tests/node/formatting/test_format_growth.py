"""The mark "a format of ours was begun here" is found again on a volume that grew meanwhile."""

import pytest

from provisioner.model.errors import NodeError
from provisioner.node.formatting.rules import MARK_BYTES, is_mark_of, mark_block, mark_offsets
from provisioner.node.runtime.programs import PATH, Programs
from tests.node.foreign_data import noise
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
GIB = 1024 * MIB


@pytest.fixture
def dies_at_its_end(workshop, tmp_path):
    """A mkfs that does all its work, and is killed before blkid would find what it made."""

    def make(file_system):
        program = tmp_path / f"mkfs.{file_system}"
        program.write_text(
            f'#!/bin/sh\nPATH={PATH}\nmkfs.{file_system} "$@" && '
            f'dd if=/dev/zero of="{workshop.disk.node}" bs=4096 count=1 conv=notrunc,fsync\n'
            "kill -9 $$\n"
        )
        program.chmod(0o755)
        workshop.programs = Programs(f"{tmp_path}:{PATH}")

    return make


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_format_that_died_is_begun_again_after_the_volume_grew(
    workshop, dies_at_its_end, file_system
):
    dies_at_its_end(file_system)
    with pytest.raises(NodeError, match="ended by SIGKILL"):
        await workshop.ensure(file_system)
    workshop.disk.resize(SIZE_BYTES + 128 * MIB)
    workshop.programs = Programs()

    made = await workshop.ensure(file_system)

    assert made.is_new
    assert not (await workshop.ensure(file_system)).is_new
    shared = mark_offsets(SIZE_BYTES)[0]
    assert not is_mark_of(workshop.disk.read(shared, MARK_BYTES), VOLUME)


@pytest.mark.parametrize(
    ("file_system", "options", "size_bytes"),
    [
        *[("ext4", {}, size) for size in (GIB, 4 * GIB, 100 * GIB, 1024 * GIB)],
        *[("xfs", {}, size) for size in (GIB, 4 * GIB, 100 * GIB, 1024 * GIB)],
        # These write more.
        *[("ext3", {}, size) for size in (GIB, 4 * GIB)],
        *[("ext4", {"blocksize": "1024"}, size) for size in (GIB, 4 * GIB)],
        *[("ext4", {"bytesperinode": "4096"}, size) for size in (GIB, 4 * GIB)],
    ],
)
async def test_no_mkfs_writes_where_the_mark_is(
    workshop, dies_at_its_end, size_bytes, file_system, options
):
    workshop.disk.resize(size_bytes)
    dies_at_its_end(file_system)

    with pytest.raises(NodeError, match="ended by SIGKILL"):
        await workshop.ensure(file_system, **options)

    for offset in mark_offsets(size_bytes):
        assert is_mark_of(workshop.disk.read(offset, MARK_BYTES), VOLUME)


@pytest.mark.parametrize("place", range(len(mark_offsets(SIZE_BYTES))))
async def test_one_place_is_enough_and_no_place_is_left(workshop, place):
    workshop.disk.write(100 * MIB, noise(MIB))
    workshop.disk.write(8 * MIB, noise(MIB))
    workshop.disk.write(mark_offsets(SIZE_BYTES)[place], mark_block(VOLUME, 1))

    assert (await workshop.ensure()).is_new
    assert workshop.marks == [False, False]
