"""Where a volume is read to see whether it was ever written.

A new EBS volume reads as zeros. blkid recognizes signatures. Data without a known signature (a
database on the raw device, a disk whose beginning was wiped) are found by reading: the beginning,
the places where ext, xfs and others keep copies of their superblocks, the end, and samples spread
over the volume. A volume that is zero in all these places may still hold data elsewhere: only
reading all of it could rule that out.

Source: mke2fs(8) on ``sparse_super`` and cluster sizes; xfsprogs 6.1 ``calc_default_ag_geometry``;
the on-disk formats of btrfs, MD, GPT and ZFS for copies at the end and at fixed places.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
ALIGNMENT_BYTES = 4096  # of O_DIRECT, on any disk
HEAD_BYTES = 16 * MIB
TAIL_BYTES = MIB
WHOLE_BYTES = 64 * MIB  # a smaller volume is read whole
EVEN_SAMPLES = 64
RANDOM_SAMPLES = 64
_SAMPLE_BYTES = 64 * KIB
_GROUP_BYTES = 128 * KIB  # an xfs group's start is rounded to blocks
_EXT_BLOCKS_BYTES = tuple(KIB << power for power in range(7))  # 1 KiB to 64 KiB
_EXT_CLUSTERS_BYTES = tuple(KIB << power for power in range(3, 11))  # bigalloc, of 4 KiB blocks
_XFS_GROUPS = (2, 3, 4, 6, 8, 16, 32)
_BTRFS_COPIES = (64 * MIB, 256 * GIB)


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """Bytes of a volume, from ``offset_bytes`` on."""

    offset_bytes: int
    length_bytes: int

    @property
    def end_bytes(self) -> int:
        """The first byte behind it."""
        return self.offset_bytes + self.length_bytes


@dataclass(frozen=True, slots=True)
class Zeros:
    """Everything that was read is zero."""

    read_bytes: int


@dataclass(frozen=True, slots=True)
class Data:
    """The first byte read that is not zero, and some bytes from there on."""

    offset_bytes: int
    sample: bytes


def stretches(size_bytes: int, volume_id: str) -> tuple[Stretch, ...]:
    """What is read of a volume: in order, disjoint and aligned.

    Only the end of the volume may be unaligned. A volume is read at the same places each time; some
    of them differ from those of another volume of the same size.
    """
    if size_bytes <= WHOLE_BYTES:
        return _joined([Stretch(0, size_bytes)], size_bytes)
    wanted = [
        Stretch(0, HEAD_BYTES),
        Stretch(size_bytes - TAIL_BYTES, TAIL_BYTES),
        *(Stretch(offset, _SAMPLE_BYTES) for offset in _ext_copies(size_bytes)),
        *(Stretch(offset, _SAMPLE_BYTES) for offset in _BTRFS_COPIES),
        *(Stretch(offset, _GROUP_BYTES) for offset in _xfs_groups(size_bytes)),
        *(Stretch(offset, _SAMPLE_BYTES) for offset in _even_samples(size_bytes)),
        *(Stretch(offset, _SAMPLE_BYTES) for offset in _random_samples(size_bytes, volume_id)),
    ]
    return _joined(wanted, size_bytes)


def _ext_copies(size_bytes: int) -> Iterator[int]:
    """Where ext2, ext3 and ext4 keep copies of the superblock, for each size of blocks."""
    # A group has as many blocks (or clusters) as a block has bits.
    groups_bytes = {8 * block * block for block in _EXT_BLOCKS_BYTES}
    groups_bytes |= {8 * 4 * KIB * cluster for cluster in _EXT_CLUSTERS_BYTES}
    for group_bytes in sorted(groups_bytes):
        for group in _sparse_groups(size_bytes // group_bytes):
            yield group * group_bytes


def _sparse_groups(last: int) -> Iterator[int]:
    """0, 1 and the powers of 3, 5 and 7: the groups with a copy; and the last (sparse_super2)."""
    yield from (0, 1, last)
    for base in (3, 5, 7):
        group = base
        while group <= last:
            yield group
            group *= base


def _xfs_groups(size_bytes: int) -> Iterator[int]:
    """Where the allocation groups of an xfs begin, each with a superblock."""
    for count in _XFS_GROUPS:
        yield from (size_bytes * group // count for group in range(1, count))
    yield from range(TIB, size_bytes, TIB)  # no group is larger


def _even_samples(size_bytes: int) -> Iterator[int]:
    for place in range(EVEN_SAMPLES):
        yield (2 * place + 1) * size_bytes // (2 * EVEN_SAMPLES)


def _random_samples(size_bytes: int, volume_id: str) -> Iterator[int]:
    for place in range(RANDOM_SAMPLES):
        digest = hashlib.sha256(f"{volume_id} {place}".encode()).digest()
        yield int.from_bytes(digest[:16], "big") % size_bytes


def _joined(wanted: Iterable[Stretch], size_bytes: int) -> tuple[Stretch, ...]:
    joined: list[Stretch] = []
    for one in sorted(wanted):
        begin = one.offset_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        end = min(-(-one.end_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, size_bytes)
        if begin >= end:
            continue
        if joined and begin <= joined[-1].end_bytes:
            begin = joined[-1].offset_bytes
            end = max(end, joined.pop().end_bytes)
        joined.append(Stretch(begin, end - begin))
    return tuple(joined)
