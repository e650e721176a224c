"""Where /dev, /sys and /proc are, and what sysfs says about block devices."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SystemDirs:
    """The mount points of devtmpfs, sysfs and procfs; tests have directories of their own."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")


def serial(dirs: SystemDirs, number: str) -> str | None:
    """The serial of a disk, or of a partition's disk; None if it has none.

    An NVMe disk has it at its controller, or at its subsystem with native multipath. Xen's disks
    have none.

    Args:
        dirs: where sysfs is.
        number: the device's number, "major:minor".
    """
    here = dirs.sys / "dev" / "block" / number
    whole = Path(os.path.realpath(here)).parent if is_partition(dirs, number) else here
    try:
        return (whole / "device" / "serial").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def is_live(dirs: SystemDirs, number: str) -> bool:
    """Whether a device's file system is mounted in any mount namespace.

    The directory exists from the first mount until nothing uses the file system. Source: Linux 6.18
    fs/ext4/sysfs.c ``ext4_register_sysfs``, fs/xfs/xfs_super.c ``xfs_fs_fill_super``.
    """
    name = _kernels_name(dirs, number)
    return any((dirs.sys / "fs" / each / name).exists() for each in ("ext4", "xfs"))


def errors(dirs: SystemDirs, number: str) -> int:
    """The error count in the superblock of a mounted ext file system; 0 for others.

    It stays until e2fsck has repaired it. Source: Linux 6.18 fs/ext4/sysfs.c ``errors_count``.
    """
    name = _kernels_name(dirs, number)
    try:
        return int((dirs.sys / "fs" / "ext4" / name / "errors_count").read_text())
    except (OSError, ValueError):
        return 0


def _kernels_name(dirs: SystemDirs, number: str) -> str:
    return os.path.basename(os.path.realpath(dirs.sys / "dev" / "block" / number))  # noqa: PTH119


def is_partition(dirs: SystemDirs, number: str) -> bool:
    """Whether a device is a partition."""
    return (dirs.sys / "dev" / "block" / number / "partition").exists()


def is_partition_of(dirs: SystemDirs, number: str, disk_number: str) -> bool:
    """Whether a device is a partition of exactly that disk."""
    blocks = dirs.sys / "dev" / "block"
    here, disk = (os.path.realpath(blocks / one) for one in (number, disk_number))
    return is_partition(dirs, number) and os.path.dirname(here) == disk  # noqa: PTH120 -- text
