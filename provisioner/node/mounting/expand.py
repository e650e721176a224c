"""What is mounted at the kubelet's paths, seen to be the volume that the kubelet means.

NodeGetVolumeStats and NodeExpand are about it. The first runs beside other operations of the
volume: it changes nothing. A disk that died can make the look hang: then one thread per path does,
and nothing else of the volume waits for it.

After most errors the kubelet takes nothing to be mounted (``server.code_of``): it does not ask for
an unmount any more, and the volume is detached under the mount. So the kernel's table is looked at
whenever a stage or publish fails, whatever for, and whoever mounted what is there.
"""

import asyncio
import os
from functools import partial
from pathlib import Path

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Device
from provisioner.node.mounting import rules
from provisioner.node.mounting.tools import Tools
from provisioner.node.requests import Expand, Stats, Usage
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount

# EC2 has grown the volume already; its guest hears of it within moments. No event tells of it
# that reaches into every container, so the size is read, ever less often.
_FIRST_POLL_S, _SLOWEST_POLL_S = 0.1, 2.0


class Mounted:
    """Finds a volume by the path where it is mounted."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def at(self, volume_id: str, *paths: str) -> tuple[Device, Mount | None]:
        """The volume's device, and its mount at the first path that has one.

        The mount is None if a raw device is shown there.

        Raises:
            NodeError: VOLUME_NOT_STAGED, nothing is mounted there; DEVICE_NOT_FOUND; WRONG_DEVICE,
                another volume is; INVALID_REQUEST; TIMED_OUT.
        """
        for path in paths:
            real = await self._tools.paths.real(path)
            mount = self._tools.mounts.at(real)
            if mount is None:
                continue
            number = await self._tools.paths.device_number(real)
            if number is not None:
                return await self._device(volume_id, self._node(mount), number), None
            return await self._device(volume_id, Path(mount.source), mount.number), mount
        raise NodeError(
            Reason.VOLUME_NOT_STAGED,
            f"volume {volume_id} is not mounted at {' nor at '.join(paths)}",
        )

    async def raw(self, volume_id: str, path: str) -> Device:
        """The device of a raw volume, also before it is shown at the path.

        Raises:
            NodeError: DEVICE_NOT_FOUND, WRONG_DEVICE, INVALID_REQUEST, TIMED_OUT.
        """
        real = await self._tools.paths.real(path)
        number = await self._tools.paths.device_number(real)
        mount = self._tools.mounts.at(real)
        if number is None or mount is None:
            return await self._tools.devices.find(volume_id, "", "", wait_s=0)
        return await self._device(volume_id, self._node(mount), number)

    async def _device(self, volume_id: str, path: Path, number: str) -> Device:
        device = await self._tools.devices.of_path(volume_id, path)
        if device.number != number:
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"device {number} is mounted where volume {volume_id} should be, which is "
                f"{device.path} ({device.number}) by now",
            )
        return device

    def _node(self, mount: Mount) -> Path:
        """The device node that a mount shows: one right in /dev, bound elsewhere."""
        return self._tools.dirs.dev / Path(mount.root.removesuffix(mount_table_rules.DELETED)).name


class Usages:
    """Measures volumes."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._mounted = Mounted(tools)

    async def of(self, request: Stats, /) -> Usage:
        """Bytes and inodes of a file system; the bytes of a raw device.

        Raises:
            NodeError: VOLUME_NOT_STAGED, DEVICE_NOT_FOUND or WRONG_DEVICE, it is not mounted there;
                MOUNT_FAILED, it cannot be measured; TIMED_OUT.
        """
        device, mount = await self._mounted.at(request.volume_id, request.volume_path)
        if mount is None:
            return Usage(await self._tools.growth.device_bytes(device, device.path))
        try:
            return await self._tools.blocking.call(
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


class Expander:
    """Grows volumes."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._mounted = Mounted(tools)

    async def expand(self, request: Expand, /, time_left_s: float | None = None) -> int:
        """Grow the file system to its device; a raw device has grown by itself.

        The most that the request allows is not looked at: a volume that is larger already cannot
        be made smaller.

        Args:
            request: what is asked for.
            time_left_s: what is left of the kubelet's deadline, in seconds; None if it has none.

        Returns:
            The size of the volume's disk, in bytes.

        Raises:
            NodeError: GROW_FAILED, VOLUME_NOT_STAGED, DEVICE_NOT_FOUND, WRONG_DEVICE; TIMED_OUT,
                the device still has its old size; OPERATION_RUNNING.
        """
        return await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._expand, request, time_left_s),
            what=f"The growing of volume {request.volume_id}",
        )

    async def _expand(self, request: Expand, time_left_s: float | None) -> int:
        device, mount = await self._where(request)
        await self._tools.attached_here.check(device, {})  # CSI hands on none here
        size_bytes = await self._grown(device, request.required_bytes, rules.wait_s(time_left_s))
        if mount is None:
            return size_bytes
        if mount.is_read_only_everywhere:
            raise NodeError(
                Reason.GROW_FAILED,
                f"the file system of volume {request.volume_id} is read-only at {mount.path}, so "
                "it cannot grow now; it grows when it is staged for writing next time",
            )
        await self._tools.growth.grow(device, mount)
        return size_bytes

    async def _where(self, request: Expand) -> tuple[Device, Mount | None]:
        is_block = request.capability is not None and request.capability.is_block
        if is_block:
            return await self._mounted.raw(request.volume_id, request.volume_path), None
        paths = (request.volume_path, request.staging_path)
        return await self._mounted.at(request.volume_id, *filter(None, paths))

    async def _grown(self, device: Device, required_bytes: int, wait_s: float) -> int:
        """Wait for the size. Of a partition, the disk counts: nobody here grows partitions."""
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + wait_s, _FIRST_POLL_S
        while True:
            size_bytes = await self._tools.growth.device_bytes(device, device.disk)
            if size_bytes >= required_bytes:
                return size_bytes
            if loop.time() + pause_s > until_s:
                raise NodeError(
                    Reason.TIMED_OUT,
                    f"volume {device.volume_id} is to have {required_bytes} bytes, and "
                    f"{device.disk} still shows {size_bytes} after {wait_s:.0f} s; it is tried "
                    "again; if it stays so, see in EC2 whether the volume has been grown, and "
                    "rescan the disk on the node (`nvme ns-rescan`)",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(_SLOWEST_POLL_S, 2 * pause_s)
