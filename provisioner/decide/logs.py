"""Whether a file system was not unmounted: then a mount writes, also a read-only one.

It brings the log up to date, and ext frees the files that were deleted while open, without a log
too.

Source: ext4's superblock at byte 1024 (``s_feature_incompat`` 0x60, ``s_feature_ro_compat`` 0x64,
``s_last_orphan`` 0xE8; Linux 6.18 fs/ext4/ext4.h: EXT4_FEATURE_INCOMPAT_RECOVER,
EXT4_FEATURE_RO_COMPAT_ORPHAN_PRESENT; fs/ext4/orphan.c ``ext4_orphan_cleanup``); xfs_logprint(8) of
xfsprogs 6.1, whose -t tells the log's state; the mount options noload of ext4(5) and norecovery of
xfs(5).
"""

import struct
from pathlib import Path

# By file system, the mount option that has the kernel leave the log as it is.
WITHOUT_REPLAY = {"ext2": "noload", "ext3": "noload", "ext4": "noload", "xfs": "norecovery"}
_LEAVE_LOG = frozenset({"noload", "norecovery"})
_EXT_AT = 1024
_EXT_FEATURES_AT, _EXT_LAST_ORPHAN_AT = _EXT_AT + 0x60, _EXT_AT + 0xE8
_EXT_RECOVER = 0x4
_EXT_ORPHAN_PRESENT = 0x10000


def leaves_log(options: tuple[str, ...]) -> bool:
    """Whether mount options have the kernel leave a log as it is."""
    return not _LEAVE_LOG.isdisjoint(options)


def is_ext_log_dirty(head: bytes) -> bool:
    """Whether an ext file system was not unmounted: for its log, or for files deleted while open.

    Args:
        head: the device's first 4 KiB.
    """
    incompatible, for_reading = struct.unpack_from("<II", head, _EXT_FEATURES_AT)
    (orphan,) = struct.unpack_from("<I", head, _EXT_LAST_ORPHAN_AT)
    return bool(incompatible & _EXT_RECOVER or for_reading & _EXT_ORPHAN_PRESENT or orphan)


def log_command(file_system: str, device_path: Path) -> tuple[str, ...] | None:
    """The command line that tells the state of an xfs's log; None for all others."""
    return ("xfs_logprint", "-t", str(device_path)) if file_system == "xfs" else None


def is_xfs_log_dirty(exit_code: int, output: str) -> bool:
    """What ``log_command`` has said; a log that could not be looked at is taken for dirty."""
    return exit_code != 0 or "state: <CLEAN>" not in output
