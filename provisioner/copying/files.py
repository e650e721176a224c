"""What is in a file system: how much its files take, and out of the page cache with them."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from provisioner.copying import room_rules
from provisioner.copying.room_rules import Found, Used


def measured(root: str, skipped: str = "") -> Used:
    """What the files below a folder take, the folder left out; other file systems are not entered.

    Args:
        root: the folder.
        skipped: the name of a folder in it that does not count.

    Raises:
        OSError: something cannot be read.
    """
    bytes_, inodes = 0, 0
    several: set[int] = set()
    for entry in _entries(root, skipped):
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            if status.st_ino in several:
                continue
            several.add(status.st_ino)
        inodes += 1
        bytes_ += room_rules.taken_bytes(_found(entry, status))
    return Used(bytes_, inodes)


def room(root: str, begun: Used) -> Used:
    """What a file system has for files, those of a copy that was begun before included.

    Blocks that are kept for root do not count: not each kernel gives them to a container's root.

    Raises:
        OSError: it cannot be asked.
    """
    has = os.statvfs(root)
    return Used(has.f_bavail * has.f_frsize + begun.bytes, has.f_favail + begun.inodes)


def forget(root: str) -> None:
    """Drop the pages of all files, so that a comparison reads what is on the disk.

    Raises:
        OSError: something cannot be read.
    """
    for entry in _entries(root, ""):
        if not entry.is_file(follow_symlinks=False):
            continue
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def names_in(folder: Path) -> list[str] | None:
    """What is in a folder; None if it is none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [each.name for each in folder.iterdir()]
    return None


def _entries(root: str, skipped: str) -> Iterator[os.DirEntry[str]]:
    """All below a folder, in no order; file names that are no UTF-8 too."""
    device = os.lstat(root).st_dev
    folders = [root]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as found:
            for entry in found:
                if folder == root and entry.name == skipped:
                    continue
                yield entry
                if entry.is_dir(follow_symlinks=False) and _is_on(entry, device):
                    folders.append(entry.path)


def _is_on(entry: os.DirEntry[str], device: int) -> bool:
    return entry.stat(follow_symlinks=False).st_dev == device


def _found(entry: os.DirEntry[str], status: os.stat_result) -> Found:
    return Found(
        sectors=status.st_blocks,
        size_bytes=status.st_size,
        is_folder=stat.S_ISDIR(status.st_mode),
        is_link=stat.S_ISLNK(status.st_mode),
        attributes_bytes=_attributes_bytes(entry.path),
    )


def _attributes_bytes(path: str) -> int:
    with contextlib.suppress(OSError):  # a file system without them
        names = os.listxattr(path, follow_symlinks=False)
        return sum(
            len(name) + len(os.getxattr(path, name, follow_symlinks=False)) for name in names
        )
    return 0
