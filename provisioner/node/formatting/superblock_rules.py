"""What an ext superblock says about growing the file system before it is mounted.

The kernel grows a mounted ext file system in journaled steps, but only for CAP_SYS_RESOURCE.
Without that, resize2fs can grow it while it is not mounted; it is not journaled, so it is used only
where it moves nothing: the descriptors of the new groups fit into the blocks that mke2fs reserved.

resize2fs marks the superblock as one with errors before its first change, and writes the new one
last. If it is killed in between, ``e2fsck -p`` refuses: "Resize inode not valid". That inode holds
nothing but the reserved blocks, so it can be cleared and made again.

Source: e2fsprogs 1.47.0 resize/main.c and resize/resize2fs.c ``resize_fs`` (read 2026-11-23); Linux
6.18 fs/ext4/ext4.h ``ext4_super_block``. Killed at each of 83 writes by hand (2026-11-23), and at
13 of them by ``tests/node/formatting/test_growth_kills.py``, it was repaired without a lost byte.
"""

import struct
from dataclasses import dataclass
from enum import Enum

_AT = 1024
_MAGIC = 0xEF53
_VALID, _ERRORS = 1, 2
_RESIZE_INODE, _SPARSE_SUPER2 = 0x10, 0x200  # compatible
_JOURNAL_NEEDS_RECOVERY, _JOURNAL_DEVICE, _META_BG, _64BIT = 0x4, 0x8, 0x10, 0x80  # incompatible
_BIGALLOC = 0x200  # read-only compatible
_MOST_LOG_BLOCK = 6
_OLD_DESCRIPTOR_BYTES = 32


class BeforeMount(Enum):
    """What is done to grow a file system that is not mounted."""

    NOTHING = "nothing"
    GROW = "grow"  # it has been checked since it was last mounted
    CHECK_AND_GROW = "check and grow"


@dataclass(frozen=True, slots=True)
class Superblock:
    """The fields of an ext superblock that matter here."""

    blocks: int
    block_bytes: int
    first_block: int
    blocks_per_group: int
    descriptor_bytes: int
    reserved_descriptor_blocks: int
    state: int
    errors: int
    mounted_at: int
    checked_at: int
    compatible: int
    incompatible: int
    read_only_compatible: int

    @property
    def _is_checked(self) -> bool:
        return self.checked_at >= self.mounted_at

    @property
    def is_half_grown(self) -> bool:
        """Whether a resize2fs that ended halfway may have left it so.

        Nothing mounted it since its last whole check, the kernel has found no error, and yet it is
        marked as one with errors.
        """
        has_inode = bool(self.compatible & _RESIZE_INODE)
        return bool(self.state & _ERRORS) and not self.errors and self._is_checked and has_inode

    def before_mount(self, device_bytes: int) -> BeforeMount:
        """What grows it to its device while it is not mounted.

        Growths by less than a block group, which resize2fs may refuse, and those that would move
        blocks are left to the kernel, once it is mounted.
        """
        blocks = device_bytes // self.block_bytes
        if blocks - self.blocks < self.blocks_per_group or not self._moves_nothing(blocks):
            return BeforeMount.NOTHING
        is_sound = self.state & (_VALID | _ERRORS) == _VALID
        return BeforeMount.GROW if is_sound and self._is_checked else BeforeMount.CHECK_AND_GROW

    def _moves_nothing(self, blocks: int) -> bool:
        unfit = (
            self.incompatible & (_JOURNAL_NEEDS_RECOVERY | _JOURNAL_DEVICE | _META_BG)
            or self.compatible & _SPARSE_SUPER2
            or self.read_only_compatible & _BIGALLOC
        )
        fits_number = bool(self.incompatible & _64BIT) or blocks <= 1 << 32
        has_inode = bool(self.compatible & _RESIZE_INODE)
        room = self.reserved_descriptor_blocks if has_inode else 0
        more = self._descriptor_blocks(blocks) - self._descriptor_blocks(self.blocks)
        return not unfit and fits_number and more <= room

    def _descriptor_blocks(self, blocks: int) -> int:
        groups = -(-(blocks - self.first_block) // self.blocks_per_group)
        return -(-groups * self.descriptor_bytes // self.block_bytes)


def superblock(head: bytes) -> Superblock | None:
    """The ext superblock in a device's first 4096 bytes; None if there is none.

    Args:
        head: of the device.
    """
    block = head[_AT:].ljust(1024, b"\0")
    (magic,) = struct.unpack_from("<H", block, 0x38)
    (log_block,) = struct.unpack_from("<I", block, 0x18)
    (blocks_per_group,) = struct.unpack_from("<I", block, 0x20)
    if magic != _MAGIC or log_block > _MOST_LOG_BLOCK or not blocks_per_group:
        return None
    compatible, incompatible, read_only_compatible = struct.unpack_from("<III", block, 0x5C)
    (blocks,) = struct.unpack_from("<I", block, 0x04)
    descriptor_bytes = _OLD_DESCRIPTOR_BYTES
    if incompatible & _64BIT:
        blocks |= struct.unpack_from("<I", block, 0x150)[0] << 32
        descriptor_bytes = max(descriptor_bytes, *struct.unpack_from("<H", block, 0xFE))
    return Superblock(
        blocks=blocks,
        block_bytes=1024 << log_block,
        first_block=struct.unpack_from("<I", block, 0x14)[0],
        blocks_per_group=blocks_per_group,
        descriptor_bytes=descriptor_bytes,
        reserved_descriptor_blocks=struct.unpack_from("<H", block, 0xCE)[0],
        state=struct.unpack_from("<H", block, 0x3A)[0],
        errors=struct.unpack_from("<I", block, 0x194)[0],
        mounted_at=struct.unpack_from("<I", block, 0x2C)[0],
        checked_at=struct.unpack_from("<I", block, 0x40)[0],
        compatible=compatible,
        incompatible=incompatible,
        read_only_compatible=read_only_compatible,
    )
