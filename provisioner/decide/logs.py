"""Whether a file system's log waits to be brought up to date, which a mount does even read-only.

Source: ext4's superblock at byte 1024 (``s_feature_incompat`` 0x60, Linux 6.18 fs/ext4/ext4.h:
EXT4_FEATURE_INCOMPAT_RECOVER); xfs_logprint(8) of xfsprogs 6.1, whose -t tells the log's state; the
mount options noload of ext4(5) and norecovery of xfs(5).
"""

import struct
from pathlib import Path

# By file system, the mount option that has the kernel leave the log as it is.
WITHOUT_REPLAY = {"ext2": "noload", "ext3": "noload", "ext4": "noload", "xfs": "norecovery"}
_LEAVE_LOG = frozenset({"noload", "norecovery"})
_EXT_INCOMPATIBLE_AT = 1024 + 0x60
_EXT_RECOVER = 0x4


def leaves_log(options: tuple[str, ...]) -> bool:
    """Whether mount options have the kernel leave a log as it is."""
    return not _LEAVE_LOG.isdisjoint(options)


def is_ext_log_dirty(head: bytes) -> bool:
    """Whether an ext file system was not unmounted.

    Args:
        head: the device's first 4 KiB.
    """
    (incompatible,) = struct.unpack_from("<I", head, _EXT_INCOMPATIBLE_AT)
    return bool(incompatible & _EXT_RECOVER)


def log_command(file_system: str, device_path: Path) -> tuple[str, ...] | None:
    """The command line that tells the state of an xfs's log; None for all others."""
    return ("xfs_logprint", "-t", str(device_path)) if file_system == "xfs" else None


def is_xfs_log_dirty(exit_code: int, output: str) -> bool:
    """What ``log_command`` has said; a log that could not be looked at is taken for dirty."""
    return exit_code != 0 or "state: <CLEAN>" not in output
