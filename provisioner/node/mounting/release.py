"""Keeps an unstaged volume attached while its file system is still mounted anywhere on the node.

Once NodeUnstage succeeds, the kubelet reports that the volume is not in use, and the controller
detaches it. But the kubelet may ask too early: if a pod was deleted by force while its kubelet was
down, kubelet 1.36 unpublishes and unstages the volume before it has ended the container. Our own
unmounts succeed then, because the container has the volume mounted in a mount namespace of its own,
and everything that it writes after the detach is lost. So after its unmount, NodeUnstage fails as
long as the kernel still has a file system on the device, and the kubelet tries again.

- What ends it: the end of the container, or of whatever else has the file system mounted or a file
  on it open. It has no time limit: a kubelet that knows a pod does not unmount its volume before
  the containers have ended either, however long that takes, and an unmount in our own namespace has
  none. A mount of an ended process does not count: the kernel removes it with its namespace.
- An agent whose container has a copy of the kubelet's mounts does not delay anything, unless it has
  a file on the volume open: the kernel drops such copies when the staging directory is removed.
- A file system that is read-only everywhere may go: nothing that is written can be lost.
- A raw device that a container has opened cannot be seen from here: the kernel tells only
  exclusive users, and the plugin does not see the host's processes. Neither is a device below LVM,
  MD or device mapper kept: these stay set up after their users have ended, and nobody would end it.

aws-ebs-csi-driver v1.64 (pkg/driver/node.go ``NodeUnstageVolume``) does not check this.

Source: Linux 6.18 block/bdev.c ``bd_prepare_to_claim``; fs/namespace.c ``__detach_mounts``, called
by rmdir; Kubernetes 1.36 pkg/kubelet/volumemanager/reconciler/reconstruct.go. The order of calls
was seen in the sandbox with kubelet 1.36 (tests/cluster/test_real_node_orphans.py).
"""

import asyncio
from functools import partial
from pathlib import Path

import structlog

from provisioner import clock
from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices import exclusive_use
from provisioner.node.devices.lookup import Device
from provisioner.node.mounting.tools import Tools
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount

log = structlog.get_logger(__name__)
# A container that is being ended goes within this time, or while the kubelet repeats the call. A
# new pod on the node waits as long for a volume that an agent has a file on open.
WAIT_S = 10.0
LOOK_EVERY_S = 0.2


class Release:
    """Waits until nothing on the node has a volume's file system mounted.

    Args:
        tools: find the volume's device.
        wait_s: how long one call waits, in seconds.
    """

    def __init__(self, tools: Tools, *, wait_s: float = WAIT_S) -> None:
        self._tools = tools
        self._wait_s = wait_s

    async def wait(self, volume_id: str, path: str, mount: Mount | None) -> None:
        """Wait, after the unmount, until the volume may be detached.

        Nothing is remembered: a call that is repeated, also after a restart of the plugin, finds
        the device by the volume.

        Args:
            volume_id: the volume.
            path: where it was staged.
            mount: what this call has unmounted there; None if nothing was mounted.

        Raises:
            NodeError: TARGET_BUSY, its file system is still mounted; TIMED_OUT, its disk hangs.
            KubeError: its device has no serial, and the attachment, which names it, cannot be read.
        """
        if mount is not None and mount.is_read_only_everywhere:
            return
        device = await self._device(volume_id, mount)
        if device is None:
            return
        if await self._is_in_use(device):
            log.info("waiting until nothing uses an unmounted volume", volume=volume_id, path=path)
            await self._until_free(device, path)

    async def _until_free(self, device: Device, path: str) -> None:
        until_s = clock.now_s() + self._wait_s
        while clock.now_s() < until_s:
            await asyncio.sleep(LOOK_EVERY_S)
            if not await self._is_in_use(device):
                return
        raise NodeError(Reason.TARGET_BUSY, self._still_used(device, path))

    async def _device(self, volume_id: str, mount: Mount | None) -> Device | None:
        """The volume's device; None if it is not on this node any more."""
        try:
            if mount is not None:
                device = await self._tools.devices.of_path(volume_id, Path(mount.source))
                return device if device.number == mount.number else None
            return await self._tools.devices.find(volume_id, "", "", wait_s=0)
        except NodeError as error:
            if error.reason not in (Reason.DEVICE_NOT_FOUND, Reason.WRONG_DEVICE):
                raise
        return await self._by_name(volume_id) if mount is None else None

    async def _by_name(self, volume_id: str) -> Device | None:
        """Its device on a Xen instance, where only the attachment names it."""
        if await self._tools.devices.volumes():
            return None  # Nitro's disks report their volumes, so it is gone
        name = await self._tools.attached_here.device_name(volume_id)
        if not name:
            return None
        try:
            device = await self._tools.devices.find(volume_id, name, "", wait_s=0)
            await self._tools.attached_here.check(device, {})
        except NodeError as error:
            if error.reason not in (Reason.DEVICE_NOT_FOUND, Reason.WRONG_DEVICE):
                raise
            return None
        return device

    async def _is_in_use(self, device: Device) -> bool:
        look = partial(exclusive_use.has_file_system, self._tools.dirs, device)
        what = f"looking whether {device.disk} is in use"
        # A resource of its own: nothing is read, so a read that hangs is no reason to wait.
        return await self._tools.blocking.call(f"the use of {device.number}", look, what=what)

    def _still_used(self, device: Device, path: str) -> str:
        here = mount_table_rules.of_device(device.number, self._tools.mounts.table())
        where = f"at {here[0].path}" if here else "in another mount namespace"
        return (
            f"volume {device.volume_id} was unmounted from {path}, but {device.path} is still "
            f"mounted {where}: a container has not ended, or a program has a file on it open; the "
            "volume stays attached until then, so that nothing is lost that they write; this is "
            f"retried; run `grep -l ' {device.number} ' /proc/*/mountinfo` and "
            f"`lsof {device.path}` on the node to see which processes they are"
        )
