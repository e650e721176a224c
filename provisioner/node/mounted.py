"""What is mounted at the kubelet's paths, seen to be the volume that the kubelet means."""

from pathlib import Path

from provisioner.decide import mount_table
from provisioner.decide.mount_table import Mount
from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices import Device, Devices
from provisioner.node.mounts import Mounts
from provisioner.node.paths import Paths
from provisioner.node.roots import Roots


class Mounted:
    """Finds a volume by the path where it is mounted.

    Args:
        devices: check that it is the volume's device.
        mounts: what is mounted.
        paths: the kubelet's paths.
        roots: where devices are.
    """

    def __init__(self, devices: Devices, mounts: Mounts, paths: Paths, roots: Roots) -> None:
        self._devices = devices
        self._mounts = mounts
        self._paths = paths
        self._roots = roots

    async def at(self, volume_id: str, *paths: str) -> tuple[Device, Mount | None]:
        """The volume's device, and its mount at the first path that has one.

        The mount is None if a raw device is shown there.

        Raises:
            NodeError: VOLUME_NOT_STAGED, nothing is mounted there; DEVICE_NOT_FOUND; WRONG_DEVICE,
                another volume is; INVALID_REQUEST; TIMED_OUT.
        """
        for path in paths:
            real = await self._paths.real(path)
            mount = self._mounts.at(real)
            if mount is None:
                continue
            number = await self._paths.device_number(real)
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
        real = await self._paths.real(path)
        number = await self._paths.device_number(real)
        mount = self._mounts.at(real)
        if number is None or mount is None:
            return await self._devices.find(volume_id, "", "", wait_s=0)
        return await self._device(volume_id, self._node(mount), number)

    async def _device(self, volume_id: str, path: Path, number: str) -> Device:
        device = await self._devices.of_path(volume_id, path)
        if device.number != number:
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"device {number} is mounted where volume {volume_id} should be, which is "
                f"{device.path} ({device.number}) by now",
            )
        return device

    def _node(self, mount: Mount) -> Path:
        """The device node that a mount shows: one right in /dev, bound elsewhere."""
        return self._roots.dev / Path(mount.root.removesuffix(mount_table.DELETED)).name
