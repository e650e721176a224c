"""Checks a file system that is not mounted, before its mount, with e2fsck.

The kernel recovers xfs by itself when it mounts it.
"""

from functools import partial
from pathlib import Path

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Device, Devices
from provisioner.node.formatting import file_system_rules as rules
from provisioner.node.formatting.exclusive import peek, unreadable
from provisioner.node.formatting.file_system_rules import Checked
from provisioner.node.formatting.superblock_rules import Superblock, superblock
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import ProgramResult, Programs

log = structlog.get_logger(__name__)
HALF_GROWN = Path(rules.__file__).with_name("half_grown.e2fsck.conf")


class Checks:
    """Checks and repairs file systems.

    Args:
        programs: run e2fsck and debugfs.
        devices: check a device again before something is written.
        blocking: reads devices.
    """

    def __init__(self, programs: Programs, devices: Devices, blocking: BlockingCalls) -> None:
        self._programs = programs
        self._devices = devices
        self._blocking = blocking

    async def superblock(self, device: Device) -> Superblock | None:
        """The superblock of an ext file system, from the device; None for others.

        Raises:
            NodeError: DEVICE_NOT_FOUND; TIMED_OUT, the disk hangs.
        """
        try:
            head = await self._blocking.call(
                device.resource,
                partial(peek, device.path, 0, rules.HEAD_BYTES),
                what=f"reading {device.path}",
            )
        except OSError as error:
            raise unreadable(device.path, error) from error
        return superblock(head)

    async def check(self, device: Device, file_system: str) -> None:
        """Check a file system; only safe repairs are made.

        One that a resize2fs has left half-grown is repaired: e2fsck alone refuses that.

        Raises:
            NodeError: FILE_SYSTEM_DAMAGED; DEVICE_BUSY; PROGRAM_MISSING; and those of
                ``superblock``.
        """
        command = rules.check_command(file_system, device.path)
        if command is None:
            return
        found = await self.superblock(device)
        result = await self._run(*command, device=device)
        is_damaged = rules.check_verdict(result.exit_code) is Checked.DAMAGED
        if is_damaged and found is not None and found.is_half_grown:
            result = await self._repaired(device, command)
        _judge(device, file_system, result)

    async def check_whole(self, device: Device, file_system: str) -> bool:
        """Check all of a file system, even if it was unmounted cleanly.

        Returns:
            Whether the check came to its end; if not (out of memory), ``check`` is needed.

        Raises:
            NodeError: as ``check``.
        """
        result = await self._run("e2fsck", "-f", "-p", str(device.path), device=device)
        if rules.check_verdict(result.exit_code) is Checked.NOT_CHECKED:
            log.warning(
                "a whole check did not come to its end",
                volume=device.volume_id,
                ending=result.ending,
                output=result.summary,
            )
            return False
        _judge(device, file_system, result)
        return True

    async def _repaired(self, device: Device, command: tuple[str, ...]) -> ProgramResult:
        """Make the inode of the reserved blocks again, and repair the rest as usual."""
        log.warning(
            "repairing a file system that resize2fs has left half-grown",
            volume=device.volume_id,
            device=str(device.path),
        )
        await self._devices.verify(device)
        # -n: the checksums of what was half-written are wrong.
        await self._run("debugfs", "-n", "-w", "-R", "clri <7>", str(device.path), device=device)
        return await self._run("env", f"E2FSCK_CONFIG={HALF_GROWN}", *command, device=device)

    async def _run(self, *command: str, device: Device) -> ProgramResult:
        return await self._programs.run(*command, why=f"to check {device.path}")


def _judge(device: Device, file_system: str, result: ProgramResult) -> None:
    match rules.check_verdict(result.exit_code):
        case Checked.REPAIRED:
            log.warning("repaired a file system", volume=device.volume_id, output=result.summary)
        case Checked.DAMAGED:
            raise NodeError(
                Reason.FILE_SYSTEM_DAMAGED,
                f"the {file_system} of volume {device.volume_id} is damaged, and e2fsck -p "
                f"cannot repair it ({result.ending}): {result.summary} Nothing was mounted. "
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
