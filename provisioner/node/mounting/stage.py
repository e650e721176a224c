"""NodeStage and NodeUnstage: find a volume's device, format it if allowed, check, mount, grow.

Each step first looks at what is already there, so it can be repeated after any crash:

- killed before the mount: nothing is mounted, and everything runs again (``format`` has its mark);
- killed after the mount: the device is mounted at the path as requested, and only the growth is
  checked again.

After a failure, what this call has mounted is unmounted; if that fails, the kubelet is told
(``node/mounting/still_mounted.py``). The device stays attached and readable, for debugging.
"""

from collections.abc import Callable
from functools import partial

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.model.names import MADE_FROM, MULTI_ATTACH, READ_ONLY
from provisioner.node.devices.lookup import Device
from provisioner.node.formatting import file_system_rules as rules
from provisioner.node.formatting.format import FileSystemRequest
from provisioner.node.mounting import rules as mounting
from provisioner.node.mounting.release import WAIT_S, Release
from provisioner.node.mounting.rules import MountState
from provisioner.node.mounting.still_mounted import ForeignMountError, StillMounted
from provisioner.node.mounting.tools import Tools
from provisioner.node.requests import Stage, Unstage
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount

log = structlog.get_logger(__name__)
DEVICE_PATH = "devicePath"
PARTITION = "partition"


class Stager:
    """Makes volumes usable on this node.

    Args:
        tools: what it works with.
        release_s: how long one unstage waits for others to end their use, in seconds.
        on_stage: called with the id of each volume that is to be staged.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        release_s: float = WAIT_S,
        on_stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tools = tools
        self._on_stage = on_stage
        self._still_mounted = StillMounted(tools)
        self._release = Release(tools, wait_s=release_s)

    async def stage(self, request: Stage, /, time_left_s: float | None = None) -> None:
        """Mount a volume at its staging path; for a raw device, only find it.

        Args:
            request: of the kubelet.
            time_left_s: until the kubelet's deadline, in seconds; None if it has none.

        Raises:
            NodeError: in one sentence for the user; OPERATION_RUNNING while another operation of
                the volume runs.
        """
        self._on_stage(request.volume_id)
        await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._stage, request, time_left_s),
            what=f"Staging volume {request.volume_id}",
        )

    async def unstage(self, request: Unstage, /, _: float | None = None) -> None:
        """Unmount a staging path; it is fine if nothing is mounted there or it does not exist.

        Raises:
            NodeError: TARGET_BUSY, also if only another mount namespace has the volume mounted
                (``node/mounting/release.py``); TIMED_OUT, its disk hangs; and others;
                OPERATION_RUNNING.
            KubeError: the attachment cannot be read (only on Xen, and once the volume is gone).
        """
        await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._unstage, request),
            what=f"Unstaging volume {request.volume_id}",
        )

    async def _stage(self, request: Stage, time_left_s: float | None) -> None:
        work = self._staged(request, time_left_s)
        await self._still_mounted.report(work, request.volume_id, request.staging_path)

    async def _staged(self, request: Stage, time_left_s: float | None) -> None:
        wanted = None if request.capability.is_block else _requested(request)
        path = await self._tools.paths.real(request.staging_path)
        device = await self._tools.devices.find(
            request.volume_id,
            request.publish_context.get(DEVICE_PATH, ""),
            request.volume_context.get(PARTITION, ""),
            wait_s=mounting.wait_s(time_left_s),
        )
        await self._tools.attached_here.check(device, request.publish_context)
        if wanted is None:
            # Also if requested read-only: nothing stops a pod from writing to a raw device.
            await self._tools.formatter.forget_mark(device)
            return
        mount = await self._already(device, path, read_only=wanted.read_only)
        if mount is None:
            mount = await self._mounted(request, device, path, wanted)
            log.info("staged", volume=device.volume_id, device=str(device.path), path=path)
        elif not wanted.read_only:
            await self._grow(device, path, mount)

    async def _already(self, device: Device, path: str, *, read_only: bool) -> Mount | None:
        """The mount at the path if it is the requested one; None if the path is free now."""
        seen = await self._tools.mounts.seen(path)
        elsewhere = mount_table_rules.of_device(device.number, self._tools.mounts.table())
        place = mounting.staged(
            *(seen, device.number),
            read_only=read_only,
            has_errors=self._tools.devices.errors(device) > 0,
            is_alone=len(elsewhere) == 1,
        )
        if place is MountState.FOREIGN:
            raise ForeignMountError(
                Reason.WRONG_DEVICE,
                f"volume {device.volume_id} ({device.path}, {device.number}) cannot be mounted at "
                f"{path}: {_shown(seen.mount)} is already mounted there; unmount that by hand if "
                "it is not in use",
            )
        if place is MountState.READ_ONLY:
            others = [mount.path for mount in elsewhere if mount.path != path]
            raise NodeError(
                Reason.TARGET_BUSY, mounting.read_only_for(device.volume_id, path, others)
            )
        if place is MountState.STALE:
            log.warning("unmounting a dead or damaged mount", volume=device.volume_id, path=path)
            await self._tools.mounts.unmount(path)
            return None
        return seen.mount if place is MountState.DONE else None

    async def _mounted(
        self, request: Stage, device: Device, path: str, wanted: FileSystemRequest
    ) -> Mount:
        elsewhere = mount_table_rules.of_device(device.number, self._tools.mounts.table())
        if elsewhere:
            _refuse_another(device, elsewhere[0], wanted)
        else:
            origin = request.publish_context.get(MADE_FROM, "")
            found = await self._tools.formatter.ensure(device, wanted, origin)
            # A mounted one cannot be checked, and was before its first mount.
            if not (found.is_new or found.is_live or wanted.read_only):
                await self._tools.checks.check(device, wanted.name)
                await self._tools.unmounted_growth.grow(device, wanted.name)
        await self._tools.paths.make_directory(path)
        options = mounting.mount_options(
            wanted.name, request.capability, read_only=wanted.read_only
        )
        await self._tools.mounts.mount(device.path, path, file_system=wanted.name, options=options)
        try:
            mount = await self._seen_mounted(device, path)
            if not wanted.read_only:
                _refuse_read_only(device, mount)
                await self._grow(device, path, mount)
        except NodeError:
            await self._tools.mounts.clean_up(path)
            raise
        return mount

    async def _grow(self, device: Device, path: str, mount: Mount) -> None:
        """Grow a mounted file system; one that cannot grow is used at its old size.

        For a claim that is expanded, the kubelet reports the failure: it calls NodeExpandVolume as
        well, which fails the same way. For a larger restored volume only the log and a metric do.

        Raises:
            NodeError: as ``Growth.grow``; GROW_FAILED only if it is read-only as well.
        """
        try:
            await self._tools.growth.grow(device, mount)
        except NodeError as error:
            if error.reason is not Reason.GROW_FAILED:
                raise
            if (await self._seen_mounted(device, path)).is_read_only:
                raise
            log.warning(
                "could not grow a file system; using it at its old size",
                volume=device.volume_id,
                why=error.message,
            )

    async def _seen_mounted(self, device: Device, path: str) -> Mount:
        seen = await self._tools.mounts.seen(path)
        if seen.mount is None or seen.mount.number != device.number:
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"{device.path} was mounted at {path} for volume {device.volume_id}, but now "
                f"{_shown(seen.mount)} is there: the device was replaced meanwhile; this is "
                "retried",
            )
        if seen.is_corrupted:  # all mounts of a device share one file system, which was shut down
            table = mount_table_rules.of_device(device.number, self._tools.mounts.table())
            others = [mount.path for mount in table if mount.path != path]
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"the file system of volume {device.volume_id} was shut down after a disk error, "
                f"and is still mounted at {', '.join(others) or 'another mount namespace'}; delete "
                "the pods that use it there, then it is checked and mounted again",
            )
        return seen.mount

    async def _unstage(self, request: Unstage) -> None:
        path = await self._tools.paths.real(request.staging_path)
        mount = self._tools.mounts.at(path)
        await self._tools.flushes.finish(path)
        await self._tools.mounts.unmount(path)
        # Before the look: this drops copies of the mount in other mount namespaces.
        await self._tools.paths.remove(request.volume_id, path)
        await self._release.wait(request.volume_id, path, mount)
        if mount is not None:
            log.info("unstaged", volume=request.volume_id, device=mount.source, path=path)


def _requested(request: Stage) -> FileSystemRequest:
    """The requested file system.

    Raises:
        NodeError: INVALID_REQUEST.
    """
    try:
        name = rules.chosen(request.capability.file_system)
        rules.formatting_of(request.volume_context)
        mounting.mount_options(name, request.capability)
    except ValueError as error:
        raise NodeError(
            Reason.INVALID_REQUEST, f"volume {request.volume_id} cannot be mounted: {error}"
        ) from error
    if request.capability.is_read_only and request.publish_context.get(MULTI_ATTACH) == "true":
        # The controller refuses this too, but older versions allowed readers beside a writer.
        raise NodeError(
            Reason.INVALID_REQUEST,
            f"volume {request.volume_id} has Multi-Attach and is requested with a file system and "
            "access mode ReadOnlyMany: even a read-only mount writes to it, and other nodes may be "
            "using it; use a PersistentVolume with ReadWriteOnce, or a volume without Multi-Attach",
        )
    # A pod that comes to the node while a move has the volume read must not change it.
    is_only_read = request.publish_context.get(READ_ONLY) == "true"
    read_only = is_only_read or mounting.wants_read_only(request.capability)
    return FileSystemRequest(name, request.volume_context, read_only)


def _refuse_another(device: Device, mount: Mount, wanted: FileSystemRequest) -> None:
    if mount.file_system != wanted.name:
        raise NodeError(
            Reason.FILE_SYSTEM_MISMATCH,
            f"volume {device.volume_id} is requested with {wanted.name}, but {device.path} is "
            f"already mounted as {mount.file_system} at {mount.path}",
        )


def _refuse_read_only(device: Device, mount: Mount) -> None:
    """Linux 6.15 mounts a file system in ``emergency_ro`` again as it is."""
    if mount.is_read_only:
        raise NodeError(
            Reason.DEVICE_BUSY,
            f"the file system of volume {device.volume_id} ({device.path}) became read-only after "
            "a disk error, and another mount namespace keeps it mounted: that of a container with "
            "an open file on it; restart the pods on this node that read the kubelet's directory "
            "(agents for logs, backups, scans), then it is checked and mounted again",
        )


def _shown(mount: Mount | None) -> str:
    return "nothing" if mount is None else f"{mount.source} ({mount.file_system}, {mount.number})"
