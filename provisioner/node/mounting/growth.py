"""Grows a mounted file system to its device, if the device is larger.

Restored volumes may be larger than their snapshot's file system, and expanded ones are.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Device, Devices
from provisioner.node.formatting import file_system_rules as rules
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.mount_table_rules import Mount
from provisioner.node.runtime.programs import ProgramResult, Programs

log = structlog.get_logger(__name__)
T = TypeVar("T")
_AGAIN_S = 0.5
_TO_CHECK_IT = (
    "delete the pods on this node that use it: it is checked before it is mounted again; if errors "
    "remain, another mount namespace keeps it mounted: restart the pods on this node that read the "
    "kubelet's directory as well (agents for logs, backups, scans)"
)


class Growth:
    """Grows file systems.

    Args:
        programs: run resize2fs and xfs_growfs.
        devices: know the errors of file systems.
        blocking: reads the devices.

    Attributes:
        failed: how many growths have failed.
    """

    def __init__(self, programs: Programs, devices: Devices, blocking: BlockingCalls) -> None:
        self._programs = programs
        self._devices = devices
        self._blocking = blocking
        self.failed = 0

    async def device_bytes(self, device: Device, path: Path) -> int:
        """The size that a device, or the disk that it is a part of, has now.

        Raises:
            NodeError: DEVICE_NOT_FOUND, TIMED_OUT.
        """
        return await self._look(device, partial(_size_of, path))

    async def grow(self, device: Device, mount: Mount) -> None:
        """Grow a mounted file system that is smaller than its device, by its superblock.

        The superblock on the disk may lag behind that in memory (xfs): then the growth runs again,
        which changes nothing.

        Raises:
            NodeError: GROW_FAILED, with ``retry_after_s`` if a transient failure came twice, but
                not if the program was killed twice; FILE_SYSTEM_DAMAGED, it has errors, new or old,
                or no superblock;
                DEVICE_NOT_FOUND, TIMED_OUT, PROGRAM_MISSING.
        """
        try:
            await self._grow(device, mount)
        except NodeError as error:
            self.failed += error.reason in (Reason.GROW_FAILED, Reason.FILE_SYSTEM_DAMAGED)
            raise

    async def _grow(self, device: Device, mount: Mount) -> None:
        size_bytes = await self.device_bytes(device, device.path)
        head = await self._look(device, partial(_head_of, device.path))
        has = rules.measured(head)
        if has is None:
            raise NodeError(
                Reason.FILE_SYSTEM_DAMAGED,
                f"{device.path} of volume {device.volume_id} has no superblock of the "
                f"{mount.file_system} that is mounted from it: something has overwritten it; "
                f"take a snapshot of the volume, and {_TO_CHECK_IT}",
            )
        if not rules.can_grow(has, size_bytes):
            return
        command = rules.grow_command(mount.file_system, device.path, Path(mount.path))
        result = await self._run(device, command)
        if rules.may_try_again(result.exit_code, result.output):
            await asyncio.sleep(_AGAIN_S)
            result = await self._run(device, command)
        if result.exit_code:
            sizes = f"from {has.size_bytes} to {size_bytes} bytes"
            raise self._failure(device, mount, sizes, command, result)
        log.info(
            "grew a file system",
            volume=device.volume_id,
            device=str(device.path),
            from_bytes=has.size_bytes,
            to_bytes=size_bytes,
        )

    def _failure(
        self,
        device: Device,
        mount: Mount,
        sizes: str,
        command: tuple[str, ...],
        result: ProgramResult,
    ) -> NodeError:
        ended = f"{' '.join(command)} ended with {result.ending}: {result.summary}"
        if self._devices.errors(device):
            return NodeError(
                Reason.FILE_SYSTEM_DAMAGED,
                f"the kernel found errors in the {mount.file_system} of volume {device.volume_id} "
                f"(see its log), and it was not grown: {ended}; {_TO_CHECK_IT}",
            )
        # If it is always killed, pods shall get the volume at its old size.
        may_later = rules.is_transient(result.output)
        return NodeError(
            Reason.GROW_FAILED,
            f"the file system of volume {device.volume_id} could not be grown {sizes}: {ended}"
            f"{'; this is retried' if may_later else _hint(result)}",
            retry_after_s=_AGAIN_S if may_later else None,
        )

    async def _run(self, device: Device, command: tuple[str, ...]) -> ProgramResult:
        return await self._programs.run(*command, why=f"to grow {device.path}")

    async def _look(self, device: Device, function: Callable[[], T]) -> T:
        try:
            what = f"reading {device.path}"
            return await self._blocking.call(device.resource, function, what=what)
        except OSError as error:
            raise NodeError(
                Reason.DEVICE_NOT_FOUND,
                f"volume {device.volume_id}: {device.path} cannot be read: {error.strerror}",
            ) from error


def _hint(result: ProgramResult) -> str:
    if result.exit_code < 0:
        return " twice; if the node's kernel log says that it was out of memory, free some"
    if "Permission denied" not in result.summary:
        return ""
    return "; growing a mounted ext file system needs CAP_SYS_RESOURCE (a privileged container)"


def _size_of(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def _head_of(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, rules.HEAD_BYTES, 0)
    finally:
        os.close(fd)
