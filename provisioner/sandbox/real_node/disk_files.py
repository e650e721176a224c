"""The bytes of volumes and snapshots: one sparse file each, and none for what nobody ever had."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GIB: Final = 2**30
_FICLONE: Final = 0x40049409  # linux/fs.h
_CHUNK_BYTES: Final = 64 * 2**20


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
        """Give one what the other holds now; nothing if that never had any bytes.

        In one step where the file system can do that (reflinks); elsewhere, what is written to the
        source meanwhile may be in the copy or not.
        """
        source = self.path(source_id)
        if source.exists():
            copy_sparse(source, self.path(target_id))

    def renew(self, volume_id: str) -> None:
        """Give a volume another file of the same bytes: who still has the old one open keeps it."""
        path = self.path(volume_id)
        fresh = path.with_suffix(".fresh")
        copy_sparse(path, fresh)
        fresh.replace(path)

    def delete(self, thing_id: str) -> None:
        """Remove the bytes of a volume or snapshot."""
        self.path(thing_id).unlink(missing_ok=True)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file; holes stay holes."""
    with source.open("rb") as read, target.open("wb") as write:
        with suppress(OSError):
            fcntl.ioctl(write.fileno(), _FICLONE, read.fileno())
            return
        size_bytes = os.fstat(read.fileno()).st_size
        os.truncate(write.fileno(), size_bytes)
        end = 0
        while (start := _next_data(read.fileno(), end)) is not None:
            end = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            _copy_range(read.fileno(), write.fileno(), start, min(end, size_bytes))


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
