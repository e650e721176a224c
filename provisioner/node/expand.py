"""NodeExpand: a file system grows to its device, once the device shows its new size."""

import asyncio
from functools import partial

from provisioner.decide.mount_table import Mount
from provisioner.decide.waiting import patience_s
from provisioner.model.errors import NodeError, Reason
from provisioner.model.node_requests import Expand
from provisioner.node.attached_here import AttachedHere
from provisioner.node.devices import Device
from provisioner.node.growth import Growth
from provisioner.node.mounted import Mounted
from provisioner.node.operations import Operations

# EC2 has grown the volume already; its guest hears of it within moments. No event tells of it
# that reaches into every container, so the size is read, ever less often.
_FIRST_LOOK_S, _SLOWEST_LOOK_S = 0.1, 2.0


class Expander:
    """Grows volumes.

    Args:
        operations: one at a time per volume.
        mounted: finds what is mounted where.
        attached_here: refuses a device that only has its name, of another instance.
        growth: grows.
    """

    def __init__(
        self,
        *,
        operations: Operations,
        mounted: Mounted,
        attached_here: AttachedHere,
        growth: Growth,
    ) -> None:
        self._operations = operations
        self._mounted = mounted
        self._attached_here = attached_here
        self._growth = growth

    async def expand(self, request: Expand, /, *, time_left_s: float | None = None) -> int:
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
        return await self._operations.run(
            request.volume_id,
            request,
            partial(self._expand, request, time_left_s),
            what=f"The growing of volume {request.volume_id}",
        )

    async def _expand(self, request: Expand, time_left_s: float | None) -> int:
        device, mount = await self._where(request)
        await self._attached_here.check(device, {})  # CSI hands on none here
        size_bytes = await self._grown(device, request.required_bytes, patience_s(time_left_s))
        if mount is None:
            return size_bytes
        if mount.is_read_only_everywhere:
            raise NodeError(
                Reason.GROW_FAILED,
                f"the file system of volume {request.volume_id} is read-only at {mount.path}, so "
                "it cannot grow now; it grows when it is staged for writing next time",
            )
        await self._growth.grow(device, mount)
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
        until_s, pause_s = loop.time() + wait_s, _FIRST_LOOK_S
        while True:
            size_bytes = await self._growth.device_bytes(device, device.disk)
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
            pause_s = min(_SLOWEST_LOOK_S, 2 * pause_s)
