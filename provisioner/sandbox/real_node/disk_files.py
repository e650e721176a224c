"""The bytes of volumes and snapshots: one sparse file each, and none for what nobody ever had."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GIB: Final = 2**30
_FICLONE: Final = 0x40049409  # linux/fs.h
_CHUNK_BYTES: Final = 64 * 2**20
_PATIENCE_S: Final = 5.0  # EC2 waits for 20 s until a copy is made
_TICK_NS: Final = 20_000_000  # at least one tick of the clock of files' times, 4 to 10 ms


@dataclass(frozen=True, slots=True)
class DiskFiles:
    """A folder of files, named by the ids of volumes and snapshots."""

    folder: Path

    def path(self, thing_id: str) -> Path:
        """Return where the bytes of a volume or snapshot are, if it has any."""
        return self.folder / thing_id

    def sized(self, volume_id: str, size_gib: int) -> Path:
        """Return the file of a volume, made (of zeros) and grown as needed; it never shrinks."""
        path = self.path(volume_id)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < size_gib * GIB:
                os.truncate(descriptor, size_gib * GIB)
        finally:
            os.close(descriptor)
        return path

    def copy(self, source_id: str, target_id: str) -> None:
        """Give one what the other holds at one moment; nothing if that never had any bytes."""
        source = self.path(source_id)
        if source.exists() and not copy_moment(source, self.path(target_id)):
            print(
                f"{source_id} was written to all the time that it was copied to {target_id}: the "
                "copy may be torn, as none of EC2's is",
                file=sys.stderr,
                flush=True,
            )

    def renew(self, volume_id: str) -> None:
        """Give a volume another file of the same bytes: who still has the old one open keeps it."""
        path = self.path(volume_id)
        fresh = path.with_suffix(".fresh")
        copy_sparse(path, fresh)
        fresh.replace(path)

    def delete(self, thing_id: str) -> None:
        """Remove the bytes of a volume or snapshot."""
        self.path(thing_id).unlink(missing_ok=True)


def copy_moment(source: Path, target: Path, patience_s: float = _PATIENCE_S) -> bool:
    """Copy what a file holds at one moment: again, until nobody has written to it meanwhile.

    A file system that is unmounted while it is copied would lose what was in its log only: its
    beginning was copied before, and its log after that.

    Returns:
        False if it was written to for all of ``patience_s``: what is copied is of many moments.
    """
    until_s = time.monotonic() + patience_s
    while True:
        begun_ns, written_ns = time.time_ns(), source.stat().st_mtime_ns
        if copy_sparse(source, target):
            return True
        # A write in the clock's last tick would show no other time than the one before it.
        if source.stat().st_mtime_ns == written_ns < begun_ns - _TICK_NS:
            return True
        if time.monotonic() > until_s:
            return False


def copy_sparse(source: Path, target: Path) -> bool:
    """Copy a file; holes stay holes. True if it was done in one step, by reflinks."""
    with source.open("rb") as read, target.open("wb") as write:
        with suppress(OSError):
            fcntl.ioctl(write.fileno(), _FICLONE, read.fileno())
            return True
        size_bytes = os.fstat(read.fileno()).st_size
        os.truncate(write.fileno(), size_bytes)
        end = 0
        while (start := _next_data(read.fileno(), end)) is not None:
            end = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            _copy_range(read.fileno(), write.fileno(), start, min(end, size_bytes))
    return False


def _next_data(descriptor: int, offset: int) -> int | None:
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole is left
            return None
        raise


def _copy_range(read: int, write: int, start: int, end: int) -> None:
    while start < end:
        many = min(end - start, _CHUNK_BYTES)
        done = os.copy_file_range(read, write, many, start, start)
        if done == 0:
            return  # it was cut short meanwhile
        start += done
