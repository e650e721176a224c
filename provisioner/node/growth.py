"""Grows a mounted file system to its device, if the device is larger.

Restored volumes may be larger than their snapshot's file system, and expanded ones are.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from provisioner.decide import file_system as rules
from provisioner.decide.mount_table import Mount
from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices import Device
from provisioner.node.patience import Patience
from provisioner.node.programs import Programs, Ran

log = structlog.get_logger(__name__)
T = TypeVar("T")


class Growth:
    """Grows file systems.

    Args:
        programs: run resize2fs and xfs_growfs.
        patience: reads the devices.

    Attributes:
        failed: how many growths have failed.
    """

    def __init__(self, programs: Programs, patience: Patience) -> None:
        self._programs = programs
        self._patience = patience
        self.failed = 0

    async def device_bytes(self, device: Device, path: Path) -> int:
        """The size that a device, or the disk that it is a part of, has now.

        Raises:
            NodeError: DEVICE_NOT_FOUND, TIMED_OUT.
        """
        return await self._look(device, partial(_size_of, path))

    async def grow(self, device: Device, mount: Mount) -> None:
        """Grow what is mounted, if its superblock says that it is smaller than its device.

        The superblock on the disk may lag behind that in memory (xfs): then nothing is done once
        more, which does no harm.

        Raises:
            NodeError: GROW_FAILED; DEVICE_NOT_FOUND, TIMED_OUT, PROGRAM_MISSING.
        """
        try:
            await self._grow(device, mount)
        except NodeError as error:
            self.failed += error.reason is Reason.GROW_FAILED
            raise

    async def _grow(self, device: Device, mount: Mount) -> None:
        size_bytes = await self.device_bytes(device, device.path)
        head = await self._look(device, partial(_head_of, device.path))
        has = rules.measured(head)
        command = rules.grow_command(mount.file_system, device.path, Path(mount.path))
        if has is None or command is None:
            raise NodeError(
                Reason.GROW_FAILED,
                f"volume {device.volume_id} ({device.path}) has file system {mount.file_system}, "
                "which cannot be grown here",
            )
        if not rules.can_grow(has, size_bytes):
            return
        ran = await self._programs.run(*command, why=f"to grow {device.path}")
        if ran.exit_code:
            raise NodeError(
                Reason.GROW_FAILED,
                f"the file system of volume {device.volume_id} could not be grown from "
                f"{has.size_bytes} to {size_bytes} bytes: {' '.join(command)} ended with "
                f"{ran.ending}: {ran.essence}{_hint(ran)}",
            )
        log.info(
            "grew a file system",
            volume=device.volume_id,
            device=str(device.path),
            from_bytes=has.size_bytes,
            to_bytes=size_bytes,
        )

    async def _look(self, device: Device, function: Callable[[], T]) -> T:
        try:
            what = f"reading {device.path}"
            return await self._patience.call(device.resource, function, what=what)
        except OSError as error:
            raise NodeError(
                Reason.DEVICE_NOT_FOUND,
                f"volume {device.volume_id}: {device.path} cannot be read: {error.strerror}",
            ) from error


def _hint(ran: Ran) -> str:
    if "Permission denied" not in ran.essence:
        return ""
    return "; a mounted ext file system grows only for who has CAP_SYS_RESOURCE (privileged)"


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
