"""What blkid and a superblock say about a device.

Source: blkid(8) of util-linux 2.38: exit codes 0, 2 (nothing found) and 8 (several signatures);
ext4's superblock (``s_mtime`` 0x2C, ``s_mnt_count`` 0x34, ``s_state`` 0x3A, at byte 1024); xfs's
``sb_inprogress`` at byte 126, which mkfs.xfs clears last and with which no kernel mounts it.
Killed at each of its writes (2026-11-22, e2fsprogs 1.47, xfsprogs 6.1), mkfs.ext4 leaves nothing
that blkid knows until it is done; mkfs.xfs leaves an xfs in progress from its fourth write on.
"""

import struct
from dataclasses import dataclass

# -p: read the device itself, not blkid's cache. Filesystems, RAID members, encrypted volumes, swap
# and others; partition tables are looked for as well.
BLKID = ("blkid", "-p", "-u", "filesystem,raid,crypto,other", "-o", "export")
HEAD_BYTES = 4096  # so much of a device's beginning tells how far a mkfs came
EXT = frozenset({"ext2", "ext3", "ext4"})
_FOUND, _NOTHING, _SEVERAL = 0, 2, 8
_EXT_AT = 1024
_EXT_MAGIC = 0xEF53
_EXT_VALID = 1
_XFS_MAGIC = b"XFSB"
_XFS_IN_PROGRESS_AT = 126


@dataclass(frozen=True, slots=True)
class Signature:
    """What blkid recognizes; "" is nothing of that kind.

    Attributes:
        type: a file system, or "LVM2_member", "crypto_LUKS", "swap" and so on.
        usage: "filesystem", "raid", "crypto" or "other".
        partition_table: "dos", "gpt" and so on.
        uuid: of the file system or its like.
        is_ambivalent: several signatures are there.
    """

    type: str = ""
    usage: str = ""
    partition_table: str = ""
    uuid: str = ""
    is_ambivalent: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether nothing at all was recognized."""
        return not (self.type or self.usage or self.partition_table or self.is_ambivalent)

    def __str__(self) -> str:
        if self.is_ambivalent:
            return "several signatures at once"
        kinds = [self.type or self.usage] if self.type or self.usage else []
        if self.partition_table:
            kinds.append(f"a partition table ({self.partition_table})")
        return " and ".join(kinds) or "nothing that it knows"


def read_signature(exit_code: int, output: str) -> Signature:
    """Read what ``blkid -o export`` has written.

    Raises:
        ValueError: one sentence, it failed.
    """
    if exit_code == _SEVERAL:
        return Signature(is_ambivalent=True)
    if exit_code not in (_FOUND, _NOTHING):
        raise ValueError("blkid could not look")
    said = dict(line.partition("=")[::2] for line in output.splitlines())
    return Signature(
        type=said.get("TYPE", ""),
        usage=said.get("USAGE", ""),
        partition_table=said.get("PTTYPE", ""),
        uuid=said.get("UUID", "") or said.get("PTUUID", ""),
    )


def is_unfinished(file_system: str, head: bytes) -> bool:
    """Whether a mkfs did not come to its end, and nobody can have mounted what it made.

    An ext file system that is not valid and was never mounted; an xfs in progress.

    Args:
        file_system: what blkid recognizes.
        head: the first ``HEAD_BYTES`` of the device.
    """
    if file_system in EXT:
        mounted_at, mounts, magic, state = struct.unpack_from("<I4xH2xHH", head, _EXT_AT + 0x2C)
        is_new = magic == _EXT_MAGIC and not mounted_at and not mounts
        return is_new and not state & _EXT_VALID
    if file_system == "xfs":
        return head[:4] == _XFS_MAGIC and head[_XFS_IN_PROGRESS_AT] != 0
    return False
