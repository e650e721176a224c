"""The mark "a format of ours was begun here", on the volume itself.

It is written before mkfs and cleared after it, always before the first mount. So a mark that is
there says: nothing but a mkfs has written to this volume since it was found blank. It survives a
crash of the process, of the node, and a move of the volume; a copy of the volume under another id
is not meant by it. It is written to two places, and one of them is enough. One follows the size:
5/8 of the volume is behind the xfs log and the ext4 journal, 37 MiB more are behind a flex group's
tables. The other is where the smallest volume has its mark: it is found there also after a growth.
By their defaults neither mkfs.ext4 nor mkfs.xfs writes to them (killed at each of their
writes on 512 MiB, and at their end up to 1 TiB, 2026-11-22); where mkfs does, the mark is gone and
the volume needs a human, which is safe. After a growth the one that followed the old size stays as
4 KiB of free space: no size comes back, so nobody looks there again.

Only we clear it. Where a format of ours died and another driver then took the volume, made it a
file system or a raw device and lost its signature again before we ever saw it, the mark would still
count; each stage of ours clears it, also of a raw device.
"""

import struct
import zlib

from provisioner.decide.blank import MIB

MARK_BYTES = 4096
_LEAST_BYTES = 256 * MIB
_BEHIND_TABLES_BYTES = 37 * MIB
_MAGIC = b"ebs-provisioner formatting\n"
_VERSION = 1
_ID_BYTES = 32
_HEAD = struct.Struct(f"<{len(_MAGIC)}sB{_ID_BYTES}sQ")
_CHECKSUM = struct.Struct("<I")


def mark_offsets(size_bytes: int) -> tuple[int, ...]:
    """Where a volume of this size has the mark; nowhere if it is too small to have one.

    The first place is that of all volumes, whatever their size.
    """
    if size_bytes < _LEAST_BYTES:
        return ()
    return tuple(dict.fromkeys((_of_size(_LEAST_BYTES), _of_size(size_bytes))))


def _of_size(size_bytes: int) -> int:
    return size_bytes * 5 // 8 // MIB * MIB + _BEHIND_TABLES_BYTES


def mark_block(volume_id: str, begun_at_s: int) -> bytes:
    """The block that is written: magic, version, volume, time (Unix), checksum at the end."""
    head = _HEAD.pack(_MAGIC, _VERSION, volume_id.encode("ascii"), begun_at_s)
    body = head.ljust(MARK_BYTES - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(zlib.crc32(body))


def is_mark_of(block: bytes, volume_id: str) -> bool:
    """Whether a block is a whole mark of this very volume."""
    if len(block) != MARK_BYTES:
        return False
    _, _, _, begun_at_s = _HEAD.unpack_from(block)
    return block == mark_block(volume_id, begun_at_s)
