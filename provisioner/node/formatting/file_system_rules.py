"""How file systems are made, checked and grown: command lines, and what exit codes mean.

Sizes are in bytes; device paths are those of the node.

Source: mke2fs(8), e2fsck(8), resize2fs(8) of e2fsprogs 1.47; mkfs.xfs(8), xfs_growfs(8) of xfsprogs
6.1; the on-disk formats in Linux 6.18 fs/ext4/ext4.h and fs/xfs/libxfs/xfs_format.h. Which file
systems there are, and -m0 for ext: aws-ebs-csi-driver v1.64 and Kubernetes' mount-utils.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from provisioner.classes import storage_class_rules
from provisioner.classes.storage_class_rules import Formatting, formatting_fault
from provisioner.model.errors import Reason
from provisioner.model.file_systems import DEFAULT_FILE_SYSTEM, FILE_SYSTEMS, WINDOWS_FILE_SYSTEM

_EXT = ("ext4", "ext3")

# Named, because defaults change with the programs' versions, and an older kernel does not mount
# what a newer mkfs makes (aws-ebs-csi-driver issues 2110 and 2690). These are the defaults of
# e2fsprogs 1.47.0 and xfsprogs 6.1 on Debian 12. xfs has them since Linux 5.10; the older ones are
# those of aws-ebs-csi-driver's --legacy-xfs, for Linux 5.4 and before.
_EXT_LATER = "^metadata_csum_seed,^orphan_file"
_EXT_FEATURES = {
    "ext4": (
        "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize,"
        f"{_EXT_LATER}"
    ),
    "ext3": f"has_journal,{_EXT_LATER}",
}
_XFS_FEATURES = "crc=1,finobt=1,rmapbt=0,reflink=1,bigtime=1,inobtcount=1"
_XFS_OLDER_FEATURES = "crc=1,finobt=1,rmapbt=0,reflink=0,bigtime=0,inobtcount=0"

# What has to be read of a device for ``measured`` and ``has_newer_xfs_features``.
HEAD_BYTES = 4096
_EXT_SUPERBLOCK = 1024
_EXT_MAGIC = 0xEF53
_EXT_64BIT = 0x80
_MOST_LOG_BLOCK = 6  # 64 KiB, the largest block of ext
_SIZE = re.compile(r"([0-9]{1,9})([kKmM]?)", re.ASCII)
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})", re.ASCII)
_XFS_SINCE = (5, 10)
_XFS_FEATURES_AT = 212  # sb_features_ro_compat; sb_features_incompat follows
_XFS_INOBTCOUNT, _XFS_BIGTIME = 1 << 3, 1 << 3
_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}

# e2fsck's exit code is a sum of bits.
_CORRECTED = 0b11  # 2 requests a reboot, which matters for a root file system only
_UNCORRECTED = 4
# EBUSY (ext4) and EAGAIN (xfs) during another growth; ENOMEM; EINTR. Source: Linux 6.18
# fs/ext4/resize.c ``ext4_resize_begin``, fs/xfs/xfs_fsops.c ``xfs_growfs_data``.
_TRANSIENT = (
    "Device or resource busy",
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "Interrupted system call",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The size of a file system and of its blocks, in bytes."""

    size_bytes: int
    block_bytes: int


class Checked(Enum):
    """What a check of a file system found."""

    SOUND = "sound"
    REPAIRED = "repaired"
    DAMAGED = "damaged"  # not repaired
    NOT_CHECKED = "not checked"  # the check itself failed


def chosen(asked: str) -> str:
    """The requested file system; "" is the default.

    Raises:
        ValueError: one sentence, it is not supported.
    """
    name = asked.lower() or DEFAULT_FILE_SYSTEM
    if name == WINDOWS_FILE_SYSTEM:
        raise ValueError(
            "file system ntfs needs a Windows node, and this node runs Linux; set fsType to one of "
            f"{', '.join(FILE_SYSTEMS)}, or keep the pod on Windows nodes with aws-ebs-csi-driver"
        )
    if name not in FILE_SYSTEMS:
        raise ValueError(
            f"file system {asked[:40]!r} is not supported; use one of {', '.join(FILE_SYSTEMS)}"
        )
    return name


def mkfs_command(
    file_system: str,
    attributes: Mapping[str, str],
    device_path: Path,
    *,
    is_legacy_xfs: bool = False,
) -> tuple[str, ...]:
    """The command line that makes a file system.

    Blocks are not discarded: that takes long on large volumes and would wipe our mark
    (``node/formatting/exclusive.py``).

    Args:
        file_system: one of ``FILE_SYSTEMS``.
        attributes: the PersistentVolume's ``volumeAttributes``.
        device_path: the device.
        is_legacy_xfs: whether Linux before 5.10 has to mount the xfs.

    Raises:
        ValueError: one sentence, an attribute is invalid or does not apply to this file system.
    """
    formatting = formatting_of(attributes)
    fault = formatting_fault(formatting, file_system)
    if fault:
        raise ValueError(fault)
    if file_system in _EXT:
        options = _ext_options(formatting, _EXT_FEATURES[file_system])
    else:
        options = _xfs_options(formatting, _XFS_OLDER_FEATURES if is_legacy_xfs else _XFS_FEATURES)
    return (f"mkfs.{file_system}", *options, str(device_path))


def check_block_size(file_system: str, attributes: Mapping[str, str], *, page_bytes: int) -> None:
    """Refuse what the node's kernel could not mount: once made, it would stay.

    The kernel's ext4 has no blocks above its page size; xfs has since Linux 6.12.

    Args:
        file_system: one of ``FILE_SYSTEMS``.
        attributes: as of ``mkfs_command``.
        page_bytes: the kernel's page size on this node.

    Raises:
        ValueError: one sentence.
    """
    asked = formatting_of(attributes).block_size or ""
    read = _SIZE.fullmatch(asked)
    if file_system not in _EXT or read is None:
        return
    if int(read[1]) * _UNITS[read[2].lower()] > page_bytes:
        raise ValueError(
            f"volume attribute blocksize: {asked!r} is larger than this node's memory pages "
            f"({page_bytes} bytes), and its kernel could not mount such an {file_system}; use "
            f"{page_bytes} at most, or nodes with larger pages"
        )


def too_old(kernel: str) -> str:
    """Why a kernel may not mount an xfs with today's features; "" if it does.

    xfs has bigtime and inobtcount since Linux 5.10, and an older kernel refuses to mount it (Linux
    fs/xfs/libxfs/xfs_format.h of v5.9 and v5.10, read 2026-11-23). SUSE has brought them to kernels
    that call themselves older (its knowledge base, 000020881, as cited on vielmetti.typepad.com,
    read 2026-11-23), and nothing in the kernel's release tells; hence "may".

    Args:
        kernel: its release, as of uname(2): "5.4.0-216-generic".
    """
    read = _RELEASE.match(kernel)
    if read is None or (int(read[1]), int(read[2])) >= _XFS_SINCE:
        return ""
    return (
        f"this node's kernel, Linux {kernel[:80]}, is older than 5.10 and may not know bigtime and "
        "inobtcount, which today's xfs have"
    )


def has_newer_xfs_features(head: bytes) -> bool:
    """Whether a file system is an xfs with bigtime or inobtcount.

    Args:
        head: the device's first ``HEAD_BYTES``.
    """
    block = head.ljust(_XFS_FEATURES_AT + 8, b"\0")
    compatible_to_read, incompatible = struct.unpack_from(">II", block, _XFS_FEATURES_AT)
    return block.startswith(b"XFSB") and bool(
        compatible_to_read & _XFS_INOBTCOUNT or incompatible & _XFS_BIGTIME
    )


def check_kernel(file_system: str, kernel: str, *, is_legacy_xfs: bool) -> None:
    """Refuse to make what the node's kernel could not mount: once made, it would stay.

    Args:
        file_system: one of ``FILE_SYSTEMS``.
        kernel: its release, as of ``too_old``.
        is_legacy_xfs: whether an xfs is made without these features.

    Raises:
        ValueError: one sentence.
    """
    why = too_old(kernel) if file_system == "xfs" and not is_legacy_xfs else ""
    if why:
        raise ValueError(
            f"{why}; start the node plugin with --legacy-xfs, use ext4, or move the pod to a node "
            "with a newer kernel"
        )


def formatting_of(attributes: Mapping[str, str]) -> Formatting:
    """Read the attributes for mkfs, as ``Formatting.attributes`` writes them.

    Raises:
        ValueError: one sentence that names the attribute.
    """
    return Formatting(
        block_size=_word(attributes, "blocksize"),
        inode_size=_word(attributes, "inodesize"),
        bytes_per_inode=_word(attributes, "bytesperinode"),
        number_of_inodes=_word(attributes, "numberofinodes"),
        ext4_big_alloc=_flag(attributes, "ext4bigalloc"),
        ext4_cluster_size=_word(attributes, "ext4clustersize"),
        ext4_encryption_support=_flag(attributes, "ext4encryptionsupport"),
    )


def check_command(file_system: str, device_path: Path) -> tuple[str, ...] | None:
    """The command line that checks a file system before it is mounted; None where there is none.

    Only safe repairs are made (-p, which fsck calls -a). The kernel recovers xfs when it mounts it.
    """
    return ("e2fsck", "-p", str(device_path)) if file_system in _EXT else None


def check_verdict(exit_code: int) -> Checked:
    """What the exit code of ``check_command`` says."""
    if exit_code == 0:
        return Checked.SOUND
    if exit_code > 0 and exit_code & _UNCORRECTED:
        return Checked.DAMAGED
    if 0 < exit_code <= _CORRECTED:
        return Checked.REPAIRED
    return Checked.NOT_CHECKED


def unchecked_reason(said: str) -> Reason:
    """Why a check failed, from e2fsck's output."""
    is_used = "is mounted" in said or "is in use" in said
    return Reason.DEVICE_BUSY if is_used else Reason.FILE_SYSTEM_DAMAGED


def grow_command(file_system: str, device_path: Path, mount_path: Path) -> tuple[str, ...]:
    """The command line that grows a mounted file system, ext or xfs, to its device."""
    if file_system == "xfs":
        return ("xfs_growfs", "-d", str(mount_path))
    return ("resize2fs", str(device_path))


def may_try_again(exit_code: int, said: str) -> bool:
    """Whether a failed growth is tried once more at once.

    Args:
        exit_code: of ``grow_command``; negative for the signal that ended it.
        said: what it said, with the kernel's errors in English.
    """
    return exit_code < 0 or (exit_code > 0 and is_transient(said))


def is_transient(said: str) -> bool:
    """Whether a growth failed for a reason that passes by itself, from its output."""
    return any(each in said for each in _TRANSIENT)


def measured(head: bytes) -> Measured | None:
    """The size in a file system's superblock; None if it is neither ext nor xfs.

    Args:
        head: the device's first ``HEAD_BYTES``.
    """
    return _measured_xfs(head) or _measured_ext(head)


def can_grow(has: Measured, device_bytes: int) -> bool:
    """Whether the device has room for at least one more block."""
    return device_bytes - has.size_bytes >= has.block_bytes


def _measured_xfs(head: bytes) -> Measured | None:
    magic, block_bytes, blocks = struct.unpack_from(">4sIQ", head.ljust(16, b"\0"))
    if magic != b"XFSB" or not block_bytes:
        return None
    return Measured(block_bytes * blocks, block_bytes)


def _measured_ext(head: bytes) -> Measured | None:
    block = head[_EXT_SUPERBLOCK:].ljust(0x160, b"\0")
    (magic,) = struct.unpack_from("<H", block, 0x38)
    (log_block,) = struct.unpack_from("<I", block, 0x18)
    if magic != _EXT_MAGIC or log_block > _MOST_LOG_BLOCK:
        return None
    (blocks,) = struct.unpack_from("<I", block, 0x04)
    (incompatible,) = struct.unpack_from("<I", block, 0x60)
    if incompatible & _EXT_64BIT:
        (high,) = struct.unpack_from("<I", block, 0x150)
        blocks |= high << 32
    block_bytes = 1024 << log_block
    return Measured(blocks * block_bytes, block_bytes)


def _ext_options(formatting: Formatting, features: str) -> list[str]:
    # -F: a whole disk, without a partition table. -m0: none reserved for root, as the stock driver.
    options = ["-F", "-m0", "-E", "nodiscard"]
    for option, value in (
        ("-b", formatting.block_size),
        ("-I", formatting.inode_size),
        ("-i", formatting.bytes_per_inode),
        ("-N", formatting.number_of_inodes),
        ("-C", formatting.ext4_cluster_size),
    ):
        options += [option, value] if value else []
    # mke2fs uses the last -O only, so all features have to be in one.
    more = {"bigalloc": formatting.ext4_big_alloc, "encrypt": formatting.ext4_encryption_support}
    wanted = [name for name, is_wanted in more.items() if is_wanted]
    return [*options, "-O", ",".join([features, *wanted])]


def _xfs_options(formatting: Formatting, features: str) -> list[str]:
    options = ["-f", "-K", "-m", features, "-i", "sparse=1,nrext64=0"]
    options += ["-b", f"size={formatting.block_size}"] if formatting.block_size else []
    options += ["-i", f"size={formatting.inode_size}"] if formatting.inode_size else []
    return options


def _word(attributes: Mapping[str, str], name: str) -> str | None:
    text = attributes.get(name, "")
    try:
        return storage_class_rules.word(text)
    except ValueError as error:
        raise ValueError(f"volume attribute {name}: {text[:100]!r} {error}") from error


def _flag(attributes: Mapping[str, str], name: str) -> bool:
    text = attributes.get(name, "")
    try:
        return storage_class_rules.boolean(text) or False
    except ValueError as error:
        raise ValueError(f"volume attribute {name}: {text[:100]!r} {error}") from error
