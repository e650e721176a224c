"""A block device opened exclusively and used past the page cache; the zero scan; our mark.

Opening with O_EXCL fails while the device is mounted or held by LVM, MD or device mapper, and while
an mkfs runs: mkfs.ext4 and mkfs.xfs hold it exclusively as long as they write (seen with e2fsprogs
1.47 and xfsprogs 6.1). All calls block, so they belong in threads. Writes are durable on return.
"""

import errno
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Device
from provisioner.node.formatting.blank_rules import Data, Stretch, Zeros, stretches
from provisioner.node.formatting.rules import MARK_BYTES, is_mark_of, mark_block, mark_offsets

CHUNK_BYTES = 1024 * 1024
# linux/fs.h
_BLKROGET, _BLKFLSBUF = 0x125E, 0x1261
log = structlog.get_logger(__name__)
_NOTHING = bytes(CHUNK_BYTES)
_SAMPLE_BYTES = 64
Read = Callable[[int, int], bytes]
_BLANK = bytes(MARK_BYTES)


class ExclusiveDevice:
    """A device that nothing else can mount, format or partition while it is open.

    It may be closed while a thread still works on it. The file descriptor is then closed when that
    work ends, because the number of a closed one is reused; later work fails.

    Raises (all methods):
        OSError: the device failed; ``unreadable`` words it.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        # A page-aligned buffer, as O_DIRECT needs it.
        self._chunk = mmap.mmap(-1, CHUNK_BYTES)
        self._guard = threading.Lock()
        self._at_work = 0
        self._is_over = False

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a device, and drop what the page cache has of it, so that blkid reads the disk.

        Raises:
            NodeError: DEVICE_BUSY, DEVICE_NOT_FOUND.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise NodeError(
                    Reason.DEVICE_BUSY,
                    f"device {path} is in use: it is mounted in another mount namespace (by a "
                    "container that has a file on it open), or held by LVM, MD or device mapper, "
                    "or an mkfs is still running on it; this is retried",
                ) from error
            raise unreadable(path, error) from error
        try:
            fcntl.ioctl(fd, _BLKFLSBUF, 0)
        except OSError as error:
            os.close(fd)
            raise unreadable(path, error) from error
        return cls(path, fd)

    def close(self) -> None:
        """Close it; a second time nothing happens."""
        with self._guard:
            self._is_over = True
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._is_over and not self._at_work and not self._chunk.closed:
            os.close(self._fd)
            self._chunk.close()

    @contextmanager
    def _working(self) -> Iterator[int]:
        with self._guard:
            if self._is_over:
                raise OSError(errno.EBADF, "it has been closed")
            self._at_work += 1
        try:
            yield self._fd
        finally:
            with self._guard:
                self._at_work -= 1
                self._close_if_idle()

    def keep_name(self) -> int:
        """Open it again, not exclusively: until that is closed, no other device gets its name.

        Returns:
            The file descriptor.
        """
        with self._working() as fd:
            held = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            if os.fstat(held).st_rdev != os.fstat(fd).st_rdev:
                os.close(held)
                raise OSError(errno.ENODEV, "the name belongs to another device now")
            return held

    @property
    def number(self) -> str:
        """The kernel's number of the device, "major:minor"."""
        with self._working() as fd:
            at = os.fstat(fd).st_rdev
        return f"{os.major(at)}:{os.minor(at)}"

    @property
    def is_read_only(self) -> bool:
        """Whether the kernel refuses writes to it."""
        with self._working() as fd:
            return any(fcntl.ioctl(fd, _BLKROGET, bytes(4)))

    def read(self, offset_bytes: int, length_bytes: int) -> bytes:
        """Read from the device itself, ``CHUNK_BYTES`` at most; offset and length aligned."""
        with self._working() as fd:
            with memoryview(self._chunk) as whole, whole[:length_bytes] as place:
                count = os.preadv(fd, [place], offset_bytes)
            if count != length_bytes:
                raise OSError(errno.EIO, f"{count} of {length_bytes} bytes read at {offset_bytes}")
            return self._chunk[:length_bytes]

    def write(self, offset_bytes: int, block: bytes) -> None:
        """Write to the device itself, ``CHUNK_BYTES`` at most, aligned; durable on return."""
        with self._working() as fd:
            # A second descriptor: the first one is read-only, because udev probes a device again
            # whenever one that was opened for writing is closed.
            writing = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
            try:
                if os.fstat(writing).st_rdev != os.fstat(fd).st_rdev:
                    raise OSError(errno.ENODEV, "the name belongs to another device now")
                self._chunk[: len(block)] = block
                with memoryview(self._chunk) as whole, whole[: len(block)] as place:
                    count = os.pwritev(writing, [place], offset_bytes)
                if count != len(block):
                    raise OSError(errno.EIO, f"{count} of {len(block)} bytes written")
                os.fsync(writing)
            finally:
                os.close(writing)


def peek(path: Path, offset_bytes: int, length_bytes: int) -> bytes:
    """Read from a device that may be in use, without flushing or disturbing anything.

    Raises:
        OSError: the device failed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    try:
        with mmap.mmap(-1, length_bytes) as place:
            count = os.preadv(fd, [place], offset_bytes)
            if count != length_bytes:
                raise OSError(errno.EIO, f"{count} of {length_bytes} bytes read at {offset_bytes}")
            return place[:]
    finally:
        os.close(fd)


def unreadable(path: Path, error: OSError) -> NodeError:
    """The failure of a device that cannot be opened, read or written."""
    return NodeError(
        Reason.DEVICE_NOT_FOUND,
        f"device {path} cannot be used: {error.strerror}; this is retried; if it persists, check "
        "the node's kernel log, and in EC2 whether the volume is attached and healthy",
    )


def read_content(
    device: ExclusiveDevice, size_bytes: int, volume_id: str, unwanted: threading.Event
) -> Zeros | Data:
    """Scan a volume's samples for the first byte that is not zero.

    Args:
        device: the volume's.
        size_bytes: of the device.
        volume_id: the volume.
        unwanted: set once nothing waits for the result: the scan ends at the next chunk.

    Raises:
        OSError: it cannot be read, or the result is not needed any more.
    """
    began_s = time.monotonic()
    places = stretches(size_bytes, volume_id)
    found = _read(device, places, unwanted)
    log.info(
        "scanned a volume for data",
        volume=volume_id,
        device=str(device.path),
        read_bytes=sum(place.length_bytes for place in places),
        first_data_at=found.offset_bytes if isinstance(found, Data) else None,
        seconds=round(time.monotonic() - began_s, 3),
    )
    return found


def _read(
    device: ExclusiveDevice, places: tuple[Stretch, ...], unwanted: threading.Event
) -> Zeros | Data:
    read_bytes = 0
    for place in _chunks(places):
        if unwanted.is_set():
            raise InterruptedError
        data = device.read(place.offset_bytes, place.length_bytes)
        read_bytes += len(data)
        if data != _NOTHING[: len(data)]:
            return _first_of(data, place.offset_bytes)
    return Zeros(read_bytes)


def _chunks(places: tuple[Stretch, ...]) -> Iterator[Stretch]:
    for place in places:
        for offset in range(place.offset_bytes, place.end_bytes, CHUNK_BYTES):
            yield Stretch(offset, min(CHUNK_BYTES, place.end_bytes - offset))


def _first_of(data: bytes, offset_bytes: int) -> Data:
    blank = len(data) - len(data.lstrip(b"\0"))
    return Data(offset_bytes + blank, data[blank : blank + _SAMPLE_BYTES])


def is_marked(read: Read, device: Device) -> bool:
    """Whether it has our mark for exactly this volume.

    Args:
        read: reads from the device; takes an offset and a length, in bytes.
        device: the volume's device.
    """
    return bool(_places(read, device))


def write_mark(opened: ExclusiveDevice, device: Device, now_s: float) -> None:
    """Write the mark and read it back; a volume that is too small for one gets none.

    Raises:
        NodeError: FORMAT_FAILED, it cannot be read back.
    """
    offsets = mark_offsets(device.size_bytes)
    for offset in offsets:
        opened.write(offset, mark_block(device.volume_id, int(now_s)))
    _verify(device, is_right=_places(opened.read, device) == offsets)


def clear_mark(opened: ExclusiveDevice, device: Device) -> None:
    """Zero the mark where there is an intact one of this volume; keep anything else.

    Raises:
        NodeError: FORMAT_FAILED, it is still there when read back.
    """
    places = _places(opened.read, device)
    for offset in places:
        opened.write(offset, _BLANK)
    if places:
        _verify(device, is_right=not is_marked(opened.read, device))


def _places(read: Read, device: Device) -> tuple[int, ...]:
    return tuple(
        offset
        for offset in mark_offsets(device.size_bytes)
        if is_mark_of(read(offset, MARK_BYTES), device.volume_id)
    )


def _verify(device: Device, *, is_right: bool) -> None:
    if not is_right:
        raise NodeError(
            Reason.FORMAT_FAILED,
            f"device {device.path} of volume {device.volume_id} does not return what was written "
            "to it; nothing is formatted or mounted; check the node's kernel log",
        )
