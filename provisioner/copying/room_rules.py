"""Decide whether files fit into another file system, before one of them is copied."""

from collections.abc import Sequence
from dataclasses import dataclass

_SPARE = 1.05
_MIB = 1024 * 1024
_GIB = 1024 * _MIB
# What a folder, a long link or larger attributes take of a file system that has no room for them in
# the inode. xfs has, and says that they take no block.
BLOCK_BYTES = 4096
_LONGEST_INLINE_LINK = 59  # ext4: the 60 bytes of ``i_block``
_INLINE_ATTRIBUTES_BYTES = 64
_SECTOR_BYTES = 512  # of st_blocks, whatever the file system's block is


@dataclass(frozen=True, slots=True)
class Used:
    """What files take: bytes on disk, and inodes. Hard links count once."""

    bytes: int = 0
    inodes: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One inode.

    Attributes:
        sectors: ``st_blocks``: what it takes on disk, holes left out, in 512 bytes.
        size_bytes: ``st_size``.
        is_folder: it is a directory.
        is_link: it is a symbolic link.
        attributes_bytes: names and values of its extended attributes.
    """

    sectors: int
    size_bytes: int
    is_folder: bool = False
    is_link: bool = False
    attributes_bytes: int = 0


def taken_bytes(found: Found) -> int:
    """What an inode takes at most on another file system with blocks of 4 KiB."""
    blocks = -(-found.sectors * _SECTOR_BYTES // BLOCK_BYTES)
    # What lies in its inode here may need a block there.
    longest_inline = _LONGEST_INLINE_LINK if found.is_link else 0
    if found.is_folder or found.size_bytes > longest_inline:
        blocks = max(blocks, 1)
    if found.attributes_bytes > _INLINE_ATTRIBUTES_BYTES:
        blocks += 1
    return blocks * BLOCK_BYTES


def no_room(needed: Used, room: Used) -> str | None:
    """Why files do not fit, in one sentence; None if they do, with 5 % to spare.

    Args:
        needed: what they take.
        room: what the new file system has for them, a copy that was begun before included.
    """
    wanted = Used(int(needed.bytes * _SPARE), int(needed.inodes * _SPARE))
    if wanted.bytes > room.bytes:
        return (
            f"the files take {_size(needed.bytes)}, and the new file system has room for "
            f"{_size(room.bytes)}, of which 5 % stay free: ask for a larger size"
        )
    if wanted.inodes > room.inodes:
        return (
            f"there are {needed.inodes} files and folders, and the new file system has room for "
            f"{room.inodes}, of which 5 % stay free: ask for a larger size, or a class with a "
            "smaller bytesPerInode"
        )
    return None


def not_alone(super_options: Sequence[str]) -> str | None:
    """Why the source may change while it is copied; None if nobody can write to it."""
    if "ro" in super_options:
        return None
    return (
        "the old volume is mounted writable on this node, so another pod may write to it while it "
        "is copied: find the pod that uses its claim there, and end it"
    )


def _size(size_bytes: int) -> str:
    if size_bytes < _GIB:
        return f"{size_bytes / _MIB:.1f} MiB"
    return f"{size_bytes / _GIB:.2f} GiB"
