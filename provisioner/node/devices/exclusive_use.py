"""Whether the kernel has a file system on a disk, in whichever mount namespace."""

import errno
import os
from pathlib import Path

from provisioner.node.devices.lookup import Device
from provisioner.node.runtime.sysfs import SystemDirs


def has_file_system(dirs: SystemDirs, device: Device) -> bool:
    """Whether a file system on a disk, or on a partition of it, is mounted anywhere on the node.

    The kernel lets a mounted file system alone claim the disk, from the first mount until its last
    write, so opening the disk exclusively fails. That writes and reads nothing, and takes 20 µs. A
    program that has opened it exclusively is not told apart from a file system.

    False if LVM, MD or device mapper hold it or a partition of it, or if it has gone.

    Source: Linux 6.18 block/bdev.c ``bd_may_claim``, block/holder.c ``bd_link_disk_holder``.
    """
    try:
        fd = os.open(device.disk, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return error.errno == errno.EBUSY and not _holders(dirs, device)
    os.close(fd)
    return False


def _holders(dirs: SystemDirs, device: Device) -> list[Path]:
    here = Path(os.path.realpath(dirs.sys / "dev" / "block" / device.number))
    disk = here if device.path == device.disk else here.parent
    return [*disk.glob("holders/*"), *disk.glob(f"{disk.name}*/holders/*")]
