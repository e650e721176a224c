"""NodePublish and NodeUnpublish: bind-mount a staged volume for a pod.

For a file system the staged directory is bound, for a raw device its device node onto an empty
file. What is already there is compared by the kernel's device numbers, so each call can be
repeated, and after any crash.

A raw device that is published read-only can still be written: the "ro" of a mount applies to files,
not to the device behind a device node. What stops a pod from writing is its container's device
cgroup, which the runtime sets read-only only if the pod's own volume says ``readOnly: true``.
"""

from functools import partial
from pathlib import Path

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.node.mounting import rules
from provisioner.node.mounting.rules import MountState
from provisioner.node.mounting.stage import DEVICE_PATH, PARTITION
from provisioner.node.mounting.still_mounted import ForeignMountError, StillMounted
from provisioner.node.mounting.tools import Tools
from provisioner.node.requests import Publish, Unpublish
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount

log = structlog.get_logger(__name__)


class Publisher:
    """Publishes staged volumes to pods."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._still_mounted = StillMounted(tools)

    async def publish(self, request: Publish, /, time_left_s: float | None = None) -> None:
        """Mount a volume at a pod's path.

        Args:
            request: of the kubelet.
            time_left_s: until the kubelet's deadline, in seconds; None if it has none.

        Raises:
            NodeError: in one sentence for the user; VOLUME_NOT_STAGED; OPERATION_RUNNING.
        """
        await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._publish, request, time_left_s),
            what=f"Publishing volume {request.volume_id}",
        )

    async def unpublish(self, request: Unpublish, /, _: float | None = None) -> None:
        """Unmount a volume from a pod's path; it is fine if nothing is there.

        Raises:
            NodeError: TARGET_BUSY and others; OPERATION_RUNNING.
        """
        await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._unpublish, request),
            what=f"Unpublishing volume {request.volume_id}",
        )

    async def _publish(self, request: Publish, time_left_s: float | None) -> None:
        publish = self._publish_block if request.capability.is_block else self._publish_directory
        work = publish(request, time_left_s)
        await self._still_mounted.report(work, request.volume_id, request.target_path)

    async def _publish_directory(self, request: Publish, _: float | None) -> None:
        staging = await self._staged(request)
        target = await self._tools.paths.real(request.target_path)
        read_only = request.read_only or rules.wants_read_only(request.capability)
        seen = await self._tools.mounts.seen(target)
        match rules.published(seen, staging, read_only=read_only):
            case MountState.DONE:
                return
            case MountState.REMOUNT:
                await self._tools.mounts.remount(target, read_only=read_only)
                return
            case MountState.READ_ONLY:
                others = mount_table_rules.of_device(staging.number, self._tools.mounts.table())
                paths = [mount.path for mount in others if mount.path != staging.path]
                said = rules.read_only_for(request.volume_id, staging.path, paths)
                raise NodeError(Reason.TARGET_BUSY, said)
            case MountState.FOREIGN:
                raise _foreign(request, seen.mount)
            case MountState.STALE:
                log.warning("unmounting a dead mount", volume=request.volume_id, path=target)
                await self._tools.mounts.unmount(target)
            case MountState.FREE:
                pass
        await self._tools.paths.make_directory(target)
        await self._tools.mounts.bind(staging.path, target, read_only=read_only)

    async def _staged(self, request: Publish) -> Mount:
        """The staged mount, checked to be this volume's: a pod must not write to another."""
        path = await self._tools.paths.real(request.staging_path)
        staging = self._tools.mounts.at(path)
        if staging is None:
            raise NodeError(
                Reason.VOLUME_NOT_STAGED,
                f"volume {request.volume_id} is not mounted at its staging path {path}; delete "
                "the pod: the kubelet stages the volume again for the next one",
            )
        device = await self._tools.devices.of_path(request.volume_id, Path(staging.source))
        if device.number != staging.number:
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"device {staging.number} is mounted at the staging path {path} of volume "
                f"{request.volume_id}, but the volume is now {device.path} ({device.number}); "
                "delete the pods on this node that use it",
            )
        await self._tools.attached_here.check(device, request.publish_context)
        return staging

    async def _publish_block(self, request: Publish, time_left_s: float | None) -> None:
        target = await self._tools.paths.real(request.target_path)
        device = await self._tools.devices.find(
            request.volume_id,
            request.publish_context.get(DEVICE_PATH, ""),
            request.volume_context.get(PARTITION, ""),
            wait_s=rules.wait_s(time_left_s),
        )
        await self._tools.attached_here.check(device, request.publish_context)
        read_only = request.read_only or rules.wants_read_only(request.capability)
        mount = self._tools.mounts.at(target)
        if mount is not None:
            shown = await self._tools.paths.device_number(target)
            if shown == device.number and ("ro" in mount.options) == read_only:
                return
            # An earlier device of this volume, or the wrong mode: mount it again.
            await self._tools.mounts.unmount(target)
        await self._tools.paths.make_file(target)
        await self._tools.mounts.bind(device.path, target, read_only=read_only)

    async def _unpublish(self, request: Unpublish) -> None:
        target = await self._tools.paths.real(request.target_path)
        await self._tools.flushes.flush(target)
        await self._tools.mounts.unmount(target)
        await self._tools.paths.remove(request.volume_id, target)


def _foreign(request: Publish, mount: Mount | None) -> ForeignMountError:
    found = "something" if mount is None else f"{mount.source} ({mount.number}, {mount.root})"
    return ForeignMountError(
        Reason.WRONG_DEVICE,
        f"volume {request.volume_id} cannot be mounted at {request.target_path}: {found} is "
        "already mounted there; unmount that by hand if it is not in use",
    )
