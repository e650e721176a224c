"""A device opened exclusively: read past the cache, closed only when no thread works on it."""

import asyncio
import os
import threading

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.formatting.blank_rules import ALIGNMENT_BYTES, Data, Zeros
from provisioner.node.formatting.exclusive import CHUNK_BYTES, ExclusiveDevice, read_content
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]


@pytest.fixture
def disk(host):
    return host.a_disk("xvdba")


@pytest.fixture
def opened(disk):
    device = ExclusiveDevice.open(disk.node)
    yield device
    device.close()


def is_free(disk):
    try:
        os.close(os.open(disk.node, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return False
    return True


def test_a_claimed_device_is_nobody_elses_until_it_is_let_go(disk, opened):
    assert not is_free(disk)
    with pytest.raises(NodeError, match="is in use") as busy:
        ExclusiveDevice.open(disk.node)

    opened.close()
    opened.close()

    assert busy.value.reason is Reason.DEVICE_BUSY
    assert is_free(disk)


def test_a_device_that_is_not_there_is_told(host):
    with pytest.raises(NodeError, match="cannot be used: No such file") as missing:
        ExclusiveDevice.open(host.dirs.dev / "xvdzz")

    assert missing.value.reason is Reason.DEVICE_NOT_FOUND


def test_what_is_no_block_device_is_told(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))

    with pytest.raises(NodeError, match="cannot be used") as refused:
        ExclusiveDevice.open(file)

    assert refused.value.reason is Reason.DEVICE_NOT_FOUND


def test_it_reads_what_is_on_the_device_not_what_is_in_the_cache(disk, opened):
    disk.write(0, b"first")
    assert opened.read(0, 4096)[:5] == b"first"
    with disk.content.open("r+b") as behind:  # as another node writes to a shared volume
        behind.write(b"other")
        os.fsync(behind.fileno())

    assert opened.read(0, 4096)[:5] == b"other"


def test_what_it_writes_is_there(disk, opened):
    opened.write(8 * MIB, b"x" * 4096)

    assert disk.read(8 * MIB - 1, 4098) == b"\0" + b"x" * 4096 + b"\0"


def test_it_reads_nothing_behind_the_end(opened):
    with pytest.raises(OSError, match="0 of 4096 bytes read"):
        opened.read(SIZE_BYTES, 4096)


def test_it_writes_to_no_other_device_that_has_its_name_by_now(host, disk, opened):
    other = host.a_disk("xvdbb")
    disk.node.unlink()
    other.node.rename(disk.node)

    with pytest.raises(OSError, match="belongs to another device now"):
        opened.write(0, b"x" * 4096)

    assert not any(other.read(0, 4096))


def test_a_device_that_was_let_go_is_not_read_any_more(opened):
    opened.close()

    with pytest.raises(OSError, match="has been closed"):
        opened.read(0, 4096)
    with pytest.raises(OSError, match="has been closed"):
        opened.write(0, bytes(4096))


def test_the_kernel_says_who_may_write(disk, opened):
    assert not opened.is_read_only

    disk.set_read_only()

    assert opened.is_read_only
    assert opened.number == disk.number


async def test_a_device_in_a_threads_hands_is_closed_when_the_thread_has_ended(disk):
    begun, may_end, sizes = threading.Event(), threading.Event(), []

    class Slow(ExclusiveDevice):
        def work(self):
            with self._working() as fd:
                begun.set()
                assert may_end.wait(10)
                sizes.append(os.lseek(fd, 0, os.SEEK_END))

    device = Slow.open(disk.node)
    work = asyncio.create_task(asyncio.to_thread(device.work))
    assert await asyncio.to_thread(begun.wait, 10)

    device.close()
    was_free = is_free(disk)
    may_end.set()
    await work

    assert not was_free
    assert sizes == [SIZE_BYTES]  # its file was open to the end
    assert is_free(disk)


def test_a_volume_that_was_never_written_reads_as_zeros(opened):
    found = read_content(opened, SIZE_BYTES, VOLUME, threading.Event())

    assert isinstance(found, Zeros)
    assert found.read_bytes > 20 * MIB


@pytest.mark.parametrize(
    "offset", [0, 1, 4095, 4096, 16 * MIB - 1, SIZE_BYTES - MIB, SIZE_BYTES - 1, 128 * MIB]
)
def test_the_first_byte_that_is_not_zero_is_found_to_the_byte(disk, opened, offset):
    disk.write(offset, b"\x01")

    found = read_content(opened, SIZE_BYTES, VOLUME, threading.Event())

    assert isinstance(found, Data)
    assert found.offset_bytes == offset
    assert found.sample[:1] == b"\x01"
    assert found.sample.count(0) == len(found.sample) - 1


def test_reading_leaves_no_trace(disk, opened):
    before = disk.content.stat().st_blocks

    read_content(opened, SIZE_BYTES, VOLUME, threading.Event())

    assert disk.content.stat().st_blocks == before


async def test_reading_that_nobody_waits_for_ends_at_the_next_chunk(disk):
    begun, may_go_on, reads = threading.Event(), threading.Event(), []

    class Gated(ExclusiveDevice):
        def read(self, offset_bytes: int, length_bytes: int) -> bytes:
            reads.append(offset_bytes)
            begun.set()
            assert may_go_on.wait(10)
            return super().read(offset_bytes, length_bytes)

    device = Gated.open(disk.node)
    unwanted = threading.Event()
    reading = asyncio.create_task(
        asyncio.to_thread(read_content, device, SIZE_BYTES, VOLUME, unwanted)
    )
    assert await asyncio.to_thread(begun.wait, 10)

    unwanted.set()
    may_go_on.set()
    with pytest.raises(InterruptedError):
        await reading
    device.close()

    assert reads == [0]
    assert is_free(disk)


def test_a_device_that_fails_while_it_is_read_is_told(disk, opened):
    disk.resize(64 * MIB)  # what lies behind fails

    with pytest.raises(OSError, match=r"bytes read|Input/output"):
        read_content(opened, SIZE_BYTES, VOLUME, threading.Event())


def test_chunks_are_aligned():
    assert CHUNK_BYTES % ALIGNMENT_BYTES == 0
