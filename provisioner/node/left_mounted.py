"""Tells the kubelet of what a failed stage or publish leaves mounted.

After most errors the kubelet takes nothing to be mounted (``node/codes.py``): it does not ask for
an unmount any more, and the volume is detached under the mount. So the kernel's table is looked at
whenever such a call fails, whatever for, and whoever mounted what is there.
"""

from collections.abc import Awaitable
from pathlib import Path

from provisioner.decide.mount_table import Mount
from provisioner.model.errors import NodeError, Outcome, Reason, StorageError
from provisioner.node.devices import Devices
from provisioner.node.mounts import Mounts
from provisioner.node.paths import Paths


class ForeignMountError(NodeError):
    """What is mounted at the path is not the volume, as far as that is known."""


class LeftMounted:
    """Looks at paths after failures.

    Args:
        devices: whose device a mount is of.
        mounts: the kernel's table.
        paths: the kubelet's paths.
    """

    def __init__(self, *, devices: Devices, mounts: Mounts, paths: Paths) -> None:
        self._devices = devices
        self._mounts = mounts
        self._paths = paths

    async def told(self, work: Awaitable[None], volume_id: str, path: str) -> None:
        """Do the work.

        Args:
            work: mounts a volume.
            volume_id: the volume.
            path: where.

        Raises:
            StorageError: what the work raised; with an unknown outcome if the volume is mounted.
        """
        try:
            await work
        except StorageError as error:
            if not await self._is_left(error, volume_id, path):
                raise
            raise NodeError(
                error.reason,
                f"{error.message}; volume {volume_id} is still mounted at {path}",
                outcome=Outcome.UNKNOWN,
            ) from error

    async def _is_left(self, error: StorageError, volume_id: str, path: str) -> bool:
        if error.reason is Reason.TIMED_OUT:  # nor would another look come back
            return False
        try:
            mount = self._mounts.at(await self._real(path))
        except NodeError:
            return True  # the table cannot be read
        if mount is None or not isinstance(error, ForeignMountError):
            return mount is not None
        return await self._is_of(volume_id, mount)

    async def _is_of(self, volume_id: str, mount: Mount) -> bool:
        """Whether a mount is the volume's all the same: of another partition, say."""
        try:
            device = await self._devices.of_path(volume_id, Path(mount.source))
        except NodeError:
            return False
        return device.number == mount.number

    async def _real(self, path: str) -> str:
        try:
            return await self._paths.real(path)
        except NodeError:
            return path
