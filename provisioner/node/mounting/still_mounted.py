"""What a failed stage or publish has left mounted, for the kubelet to know.

After most errors the kubelet assumes that nothing is mounted (``csi/server.py``): it never asks for
an unmount, and the volume is detached while it is mounted. So after every failed stage or publish
the kernel's mount table is read, whatever the error was, and whatever mounted what is there.
"""

from collections.abc import Awaitable
from pathlib import Path

from provisioner.model.errors import NodeError, Outcome, Reason, StorageError
from provisioner.node.mounting.tools import Tools
from provisioner.node.runtime.mount_table_rules import Mount


class ForeignMountError(NodeError):
    """Something other than the volume is mounted at the path, as far as is known."""


class StillMounted:
    """Reports after a failure whether the volume is still mounted."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def report(self, work: Awaitable[None], volume_id: str, path: str) -> None:
        """Wait for work that mounts a volume at a path.

        Raises:
            StorageError: as the work; with an unknown outcome if the volume is still mounted.
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
        if error.reason is Reason.TIMED_OUT:  # whatever hung would hang again
            return False
        try:
            mount = self._tools.mounts.at(await self._real(path))
        except NodeError:
            return True  # the table cannot be read
        if mount is None or not isinstance(error, ForeignMountError):
            return mount is not None
        return await self._is_of(volume_id, mount)

    async def _is_of(self, volume_id: str, mount: Mount) -> bool:
        """Whether a foreign mount is the volume's after all: of another partition, say."""
        try:
            device = await self._tools.devices.of_path(volume_id, Path(mount.source))
        except NodeError:
            return False
        return device.number == mount.number

    async def _real(self, path: str) -> str:
        try:
            return await self._tools.paths.real(path)
        except NodeError:
            return path
