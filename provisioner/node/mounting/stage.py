"""NodeStage and NodeUnstage: a volume's device, formatted if it may be, checked, mounted, grown.

Each step looks first at what is there already, so that it can be done again after any crash:

- killed before the mount: nothing is mounted, and all is done again (``format`` has its own mark);
- killed after it: the device is mounted at the path, which is what was asked for; it is only seen
  whether it still has to grow.

A failure leaves nothing mounted that this call has mounted, if it can; what is mounted all the
same is told to the kubelet (``node/mounting/mounted.py``).
A device stays attached and readable after a failure, for whoever has to look at it.
"""

from functools import partial

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.model.names import MADE_FROM, MULTI_ATTACH
from provisioner.node.devices.lookup import Device
from provisioner.node.formatting import file_system_rules as rules
from provisioner.node.formatting.file_system_rules import Checked
from provisioner.node.formatting.format import FileSystemRequest
from provisioner.node.mounting import rules as mounting
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
    """Makes volumes usable on this node."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._still_mounted = StillMounted(tools)

    async def stage(self, request: Stage, /, time_left_s: float | None = None) -> None:
        """Mount a volume at its staging path; of a raw device, see only that it is there.

        Args:
            request: what is asked for.
            time_left_s: what is left of the kubelet's deadline, in seconds; None if it has none.

        Raises:
            NodeError: in one sentence for the user; OPERATION_RUNNING while another operation of
                the volume runs.
        """
        await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._stage, request, time_left_s),
            what=f"The stage of volume {request.volume_id}",
        )

    async def unstage(self, request: Unstage, /, _: float | None = None) -> None:
        """Unmount a staging path; nothing mounted there, or no such path, is fine.

        Raises:
            NodeError: TARGET_BUSY; TIMED_OUT, its disk hangs; and others; OPERATION_RUNNING.
        """
        await self._tools.operations.run(
            request.volume_id,
            request,
            partial(self._unstage, request),
            what=f"The unstage of volume {request.volume_id}",
        )

    async def _stage(self, request: Stage, time_left_s: float | None) -> None:
        work = self._staged(request, time_left_s)
        await self._still_mounted.told(work, request.volume_id, request.staging_path)

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
            # Of a request for reading too: nothing keeps a pod from writing to a raw device.
            await self._tools.formatter.forget_mark(device)
            return
        mount = await self._already(device, path, read_only=wanted.read_only)
        if mount is None:
            mount = await self._mounted(request, device, path, wanted)
            log.info("staged", volume=device.volume_id, device=str(device.path), path=path)
        elif not wanted.read_only:
            await self._grow(device, path, mount)

    async def _already(self, device: Device, path: str, *, read_only: bool) -> Mount | None:
        """The mount at the path if it is as it should be; None if the path is free now."""
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
                f"volume {device.volume_id} ({device.path}, {device.number}) is to be mounted at "
                f"{path}, and {_told(seen.mount)} is mounted there; unmount that by hand if it is "
                "not in use",
            )
        if place is MountState.READ_ONLY:
            others = [mount.path for mount in elsewhere if mount.path != path]
            raise NodeError(
                Reason.TARGET_BUSY, mounting.read_only_for(device.volume_id, path, others)
            )
        if place is MountState.STALE:
            log.warning("unmounting what is dead or damaged", volume=device.volume_id, path=path)
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
            # A live one cannot be checked, and was before its first mount.
            if not (found.is_new or found.is_live or wanted.read_only):
                await self._check(device, wanted.name)
        await self._tools.paths.make_directory(path)
        options = mounting.mount_options(wanted.name, request.capability)
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
        """Grow what is mounted; what cannot grow is used at its old size: its data are whole.

        Of a claim that grows the kubelet tells that: it asks for the growth itself, too, and gets
        the same answer (``codes``). Of a larger restored volume only the log and the metric do.

        Raises:
            NodeError: as ``Growth.grow``; GROW_FAILED only if it cannot be used either.
        """
        try:
            await self._tools.growth.grow(device, mount)
        except NodeError as error:
            if error.reason is not Reason.GROW_FAILED:
                raise
            if (await self._seen_mounted(device, path)).is_read_only:
                raise
            log.warning("used at its old size", volume=device.volume_id, why=error.message)

    async def _seen_mounted(self, device: Device, path: str) -> Mount:
        seen = await self._tools.mounts.seen(path)
        if seen.mount is None or seen.mount.number != device.number:
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"{device.path} was mounted at {path} for volume {device.volume_id}, and then "
                f"{_told(seen.mount)} is there: the device was exchanged meanwhile; it is tried "
                "again",
            )
        if seen.is_corrupted:  # all mounts of a device are of one file system, which ended
            table = mount_table_rules.of_device(device.number, self._tools.mounts.table())
            others = [mount.path for mount in table if mount.path != path]
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"the file system of volume {device.volume_id} has ended after an error of its "
                f"disk, and is still mounted at {', '.join(others) or 'another mount namespace'}; "
                "delete the pods that have it there, then it is checked and mounted anew",
            )
        return seen.mount

    async def _check(self, device: Device, file_system: str) -> None:
        command = rules.check_command(file_system, device.path)
        if command is None:
            return
        result = await self._tools.programs.run(*command, why=f"to check {device.path}")
        match rules.check_verdict(result.exit_code):
            case Checked.REPAIRED:
                log.warning("repaired a file system", volume=device.volume_id, said=result.summary)
            case Checked.DAMAGED:
                raise NodeError(
                    Reason.FILE_SYSTEM_DAMAGED,
                    f"the {file_system} of volume {device.volume_id} is damaged, and e2fsck does "
                    f"not repair it by itself ({result.ending}): {result.summary} Nothing was "
                    "mounted. "
                    f"Take a snapshot of the volume, then run `e2fsck -f {device.path}` on the "
                    "node",
                )
            case Checked.NOT_CHECKED:
                raise NodeError(
                    rules.unchecked_reason(result.summary),
                    f"the {file_system} of volume {device.volume_id} could not be checked, so it "
                    f"is not mounted: e2fsck -p {device.path} ended with {result.ending}: "
                    f"{result.summary}",
                )
            case Checked.SOUND:
                pass

    async def _unstage(self, request: Unstage) -> None:
        path = await self._tools.paths.real(request.staging_path)
        mount = self._tools.mounts.at(path)
        await self._tools.flushes.finish(path)
        await self._tools.mounts.unmount(path)
        await self._tools.paths.remove(request.volume_id, path)
        if mount is None:
            return
        log.info("unstaged", volume=request.volume_id, device=mount.source, path=path)
        left = mount_table_rules.of_device(mount.number, self._tools.mounts.table())
        if left:
            log.warning(
                "a volume is unstaged and still mounted elsewhere",
                volume=request.volume_id,
                paths=[each.path for each in left],
            )


def _requested(request: Stage) -> FileSystemRequest:
    """What file system is asked for.

    Raises:
        NodeError: INVALID_REQUEST, before anything is looked for.
    """
    try:
        name = rules.chosen(request.capability.file_system)
        rules.formatting_of(request.volume_context)
        mounting.mount_options(name, request.capability)
    except ValueError as error:
        raise NodeError(
            Reason.INVALID_REQUEST, f"volume {request.volume_id} cannot be mounted so: {error}"
        ) from error
    if request.capability.is_read_only and request.publish_context.get(MULTI_ATTACH) == "true":
        # The controller refuses it too; an older one let readers in beside a writer.
        raise NodeError(
            Reason.INVALID_REQUEST,
            f"volume {request.volume_id} has Multi-Attach, and is asked for with a file system and "
            "access mode ReadOnlyMany: mounting it writes, also for reading, and other nodes may "
            "use it; use a PersistentVolume with ReadWriteOnce, or a volume without Multi-Attach",
        )
    read_only = mounting.wants_read_only(request.capability)
    return FileSystemRequest(name, request.volume_context, read_only)


def _refuse_another(device: Device, mount: Mount, wanted: FileSystemRequest) -> None:
    if mount.file_system != wanted.name:
        raise NodeError(
            Reason.FILE_SYSTEM_MISMATCH,
            f"volume {device.volume_id} is asked for with {wanted.name}, and {device.path} is "
            f"mounted as {mount.file_system} at {mount.path}",
        )


def _refuse_read_only(device: Device, mount: Mount) -> None:
    """Linux 6.15 mounts a file system that ended in ``emergency_ro`` once more, as it is."""
    if mount.is_read_only:
        raise NodeError(
            Reason.DEVICE_BUSY,
            f"the file system of volume {device.volume_id} ({device.path}) became read-only after "
            "an error of its disk, and another mount namespace keeps it so: of a container that "
            "has a file of it open; restart the pods of this node that look into the kubelet's "
            "folder (agents for logs, backups, scans), then it is checked and mounted anew",
        )


def _told(mount: Mount | None) -> str:
    return "nothing" if mount is None else f"{mount.source} ({mount.file_system}, {mount.number})"
