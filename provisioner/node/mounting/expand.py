"""NodeExpandVolume and NodeGetVolumeStats: calls about a volume that is mounted at a path.

Both check that what is mounted there is the volume. NodeGetVolumeStats changes nothing and runs
beside other operations of the volume. If a disk that died makes it hang, it hangs in a thread of
its own, one for each path, and nothing else of the volume waits for it.
"""

import asyncio
import os
from functools import partial
from pathlib import Path

from provisioner import clock
from provisioner.model.backoff import Backoff
from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Device
from provisioner.node.mounting import rules
from provisioner.node.mounting.tools import Tools
from provisioner.node.requests import Expand, Stats, Usage
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount

# EC2 has grown the volume already, and the guest sees that within moments. No event about it
# reaches every container, so the size is polled, with growing pauses.
_POLL = Backoff(0.1, 2.0)


class Mounted:
    """Finds a volume by the path where it is mounted."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def at(self, volume_id: str, *paths: str) -> tuple[Device, Mount | None]:
        """The volume's device, and its mount at the first path that has one.

        The mount is None for a raw device.

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
        """The device of a raw volume, also before it is published at the path.

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
                f"device {number} is mounted where volume {volume_id} should be, which is now "
                f"{device.path} ({device.number})",
            )
        return device

    def _node(self, mount: Mount) -> Path:
        """The device node behind a bind mount; it is directly in /dev."""
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
                "its file system was shut down, or its disk is gone; delete its pods on this node",
            ) from error


def measure(path: str) -> Usage:
    """Read the usage of the file system at a path; hangs if its disk does.

    Raises:
        OSError: it cannot be read.
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

        The request's upper limit is ignored: a volume that is larger already cannot shrink.

        Args:
            request: of the kubelet.
            time_left_s: until the kubelet's deadline, in seconds; None if it has none.

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
            what=f"Expanding volume {request.volume_id}",
        )

    async def _expand(self, request: Expand, time_left_s: float | None) -> int:
        device, mount = await self._where(request)
        await self._tools.attached_here.check(device, {})  # CSI passes no publish context here
        size_bytes = await self._grown(device, request.required_bytes, rules.wait_s(time_left_s))
        if mount is None:
            return size_bytes
        if mount.is_read_only_everywhere:
            raise NodeError(
                Reason.GROW_FAILED,
                f"the file system of volume {request.volume_id} is mounted read-only at "
                f"{mount.path}, so it cannot grow now; it grows the next time it is staged for "
                "writing",
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
        """Wait for the new size. For a partition the disk counts: partitions are not grown here."""
        until_s = clock.now_s() + wait_s
        polls = 0
        while True:
            size_bytes = await self._tools.growth.device_bytes(device, device.disk)
            if size_bytes >= required_bytes:
                return size_bytes
            pause_s = _POLL.pause_s(polls)
            if clock.now_s() + pause_s > until_s:
                raise NodeError(
                    Reason.TIMED_OUT,
                    f"volume {device.volume_id} should have {required_bytes} bytes, but after "
                    f"{wait_s:.0f} s {device.disk} still has {size_bytes}; this is retried; if it "
                    "persists, check in EC2 whether the volume has been modified, and rescan the "
                    "disk on the node (`nvme ns-rescan`)",
                )
            await asyncio.sleep(pause_s)
            polls += 1
