"""Grows an ext file system before it is mounted, where the kernel would not grow a mounted one.

The kernel grows a mounted ext file system only for CAP_SYS_RESOURCE, which a privileged container
has, unless the machine itself lacks it (a node in a container, for example). Where it is there, the
growth waits for the mount: the kernel's growth is journaled and takes a moment, and resize2fs on an
unmounted one needs a check of the whole file system first, and repair if it is killed.
"""

import re

import structlog

from provisioner.node.devices.lookup import Device, Devices
from provisioner.node.formatting.superblock_rules import BeforeMount
from provisioner.node.mounting.check import Checks
from provisioner.node.runtime.programs import Programs
from provisioner.node.runtime.sysfs import SystemDirs

log = structlog.get_logger(__name__)
_SYS_RESOURCE = 24  # linux/capability.h


class UnmountedGrowth:
    """Grows ext file systems that are mounted nowhere.

    Args:
        programs: runs resize2fs.
        devices: check a device again before something is written.
        checks: check the file system before, and after a failure.
        is_needed: whether the kernel grows no mounted ext file system for this process.
    """

    def __init__(
        self, programs: Programs, devices: Devices, checks: Checks, *, is_needed: bool
    ) -> None:
        self._programs = programs
        self._devices = devices
        self._checks = checks
        self._is_needed = is_needed

    async def grow(self, device: Device, file_system: str) -> None:
        """Grow a file system, which has just been checked, to its device, if that is safe.

        If it cannot grow, it keeps its size, which ``Growth`` reports once it is mounted.

        Raises:
            NodeError: FILE_SYSTEM_DAMAGED, the whole check has found damage; DEVICE_NOT_FOUND,
                WRONG_DEVICE, DEVICE_BUSY, TIMED_OUT, PROGRAM_MISSING.
        """
        found = await self._checks.superblock(device) if self._is_needed else None
        step = found.before_mount(device.size_bytes) if found else BeforeMount.NOTHING
        if step is BeforeMount.NOTHING:
            return
        if step is BeforeMount.CHECK_AND_GROW and not await self._checks.check_whole(
            device, file_system
        ):
            await self._checks.check(device, file_system)
            return
        await self._devices.verify(device)
        result = await self._programs.run(
            "resize2fs", device.path, why=f"to grow {device.path} before it is mounted"
        )
        if result.exit_code:
            log.warning(
                "could not grow a file system before its mount",
                volume=device.volume_id,
                ending=result.ending,
                output=result.summary,
            )
            await self._checks.check(device, file_system)  # it may be half-grown
            return
        log.info(
            "grew a file system before its mount",
            volume=device.volume_id,
            device=str(device.path),
            to_bytes=device.size_bytes,
        )


def is_needed(dirs: SystemDirs) -> bool:
    """Whether this process lacks the capability for which the kernel grows a mounted ext."""
    try:
        status = (dirs.proc / "self/status").read_text()
    except OSError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return found is not None and not int(found[1], 16) >> _SYS_RESOURCE & 1
