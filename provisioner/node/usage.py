"""NodeGetVolumeStats: how full a volume is.

It runs beside other operations of the volume: it changes nothing. A disk that died can make the
look hang: then one thread per path does, and nothing else of the volume waits for it.
"""

import os
from functools import partial

from provisioner.model.errors import NodeError, Reason
from provisioner.model.node_requests import Stats, Usage
from provisioner.node.growth import Growth
from provisioner.node.mounted import Mounted
from provisioner.node.patience import Patience


class Usages:
    """Measures volumes.

    Args:
        mounted: finds what is mounted where.
        growth: knows the size of devices.
        patience: asks file systems.
    """

    def __init__(self, *, mounted: Mounted, growth: Growth, patience: Patience) -> None:
        self._mounted = mounted
        self._growth = growth
        self._patience = patience

    async def of(self, request: Stats, /) -> Usage:
        """Bytes and inodes of a file system; the bytes of a raw device.

        Raises:
            NodeError: VOLUME_NOT_STAGED, DEVICE_NOT_FOUND or WRONG_DEVICE, it is not mounted there;
                MOUNT_FAILED, it cannot be measured; TIMED_OUT.
        """
        device, mount = await self._mounted.at(request.volume_id, request.volume_path)
        if mount is None:
            return Usage(await self._growth.device_bytes(device, device.path))
        try:
            return await self._patience.call(
                f"usage of {mount.path}",
                partial(measure, mount.path),
                what=f"measuring {mount.path}",
            )
        except OSError as error:
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"volume {request.volume_id} at {mount.path} cannot be measured: {error.strerror}; "
                "its file system has ended, or its disk is gone; delete its pods of this node",
            ) from error


def measure(path: str) -> Usage:
    """What the file system at a path says; it may hang where a disk does.

    Raises:
        OSError: it cannot be asked.
    """
    found = os.statvfs(path)
    return Usage(
        total_bytes=found.f_blocks * found.f_frsize,
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        total_inodes=found.f_files,
        used_inodes=found.f_files - found.f_ffree,
        free_inodes=found.f_ffree,
    )
