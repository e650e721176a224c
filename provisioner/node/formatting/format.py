"""Gives a volume's device the requested file system, and never destroys data.

``node/formatting/rules.py`` decides; here the facts are read and the decision is carried out. The
device is open exclusively meanwhile, so nothing else mounts or formats it. From writing the mark to
clearing it the operation is shielded from cancellation. If the process is killed in between, the
next one finds the mark.
"""

import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, assert_never

import structlog

from provisioner.model.errors import NodeError, Reason, StorageError
from provisioner.model.names import FORMAT_CONSENT
from provisioner.node.devices.lookup import Device, Devices
from provisioner.node.formatting.blank_rules import (
    ALIGNMENT_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    Data,
    Zeros,
)
from provisioner.node.formatting.exclusive import (
    CHUNK_BYTES,
    ExclusiveDevice,
    clear_mark,
    is_marked,
    peek,
    read_content,
    unreadable,
    write_mark,
)
from provisioner.node.formatting.file_system_rules import (
    check_block_size,
    check_kernel,
    mkfs_command,
)
from provisioner.node.formatting.rules import (
    BLKID,
    AskConsent,
    Because,
    Consent,
    Format,
    Mount,
    Read,
    Refuse,
    Signature,
    View,
    is_unfinished,
    next_step,
    read_signature,
    serves,
)
from provisioner.node.formatting.rules import HEAD_BYTES as SUPERBLOCK_BYTES
from provisioner.node.instance.kube import NodeKube
from provisioner.node.runtime.blocking import BlockingCalls, NotStartedError
from provisioner.node.runtime.operations import shielded
from provisioner.node.runtime.programs import Programs

log = structlog.get_logger(__name__)
T = TypeVar("T")
# A file descriptor is reused before close() returns, so it cannot name the resource.
_CLOSINGS = itertools.count()


class Consents:
    """Finds a volume's PersistentVolume by its attachment to this node."""

    def __init__(self, kube: NodeKube) -> None:
        self._kube = kube

    async def of(self, volume_id: str) -> Consent:
        """What the PersistentVolume says now.

        Raises:
            KubeError: it cannot be read.
        """
        attachment = await self._kube.attachment(volume_id)
        name = attachment.persistent_volume if attachment is not None else ""
        volume = await self._kube.persistent_volume(name) if name else None
        # The attachment may name another volume's PersistentVolume: that one allows nothing.
        if volume is None or volume.volume_id(self._kube.driver) != volume_id:
            return Consent("")
        return Consent(name, volume.annotations.get(FORMAT_CONSENT))


@dataclass(frozen=True, slots=True)
class FileSystemRequest:
    """The requested file system.

    Attributes:
        name: "ext4", "ext3" or "xfs".
        options: ``volumeAttributes`` of the volume, with those for mkfs.
        read_only: nothing may be written, so nothing is formatted.
    """

    name: str
    options: Mapping[str, str]
    read_only: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What is on the device now.

    ``is_new``: it was just made; ``is_live``: it is mounted in another mount namespace.
    """

    file_system: str
    is_new: bool = False
    is_live: bool = False


class Formatter:
    """Probes, refuses, formats.

    Args:
        programs: runs blkid and mkfs.
        devices: checks the device again before anything is written.
        consents: read only for a volume that would be refused.
        blocking: works on devices.
        is_legacy_xfs: whether Linux before 5.10 has to mount the xfs.
    """

    def __init__(
        self,
        programs: Programs,
        devices: Devices,
        consents: Consents,
        blocking: BlockingCalls,
        *,
        is_legacy_xfs: bool = False,
    ) -> None:
        self._is_legacy_xfs = is_legacy_xfs
        self._programs = programs
        self._devices = devices
        self._consents = consents
        self._blocking = blocking

    async def ensure(self, device: Device, wanted: FileSystemRequest, origin: str) -> Found:
        """Make sure that a device, mounted nowhere on this node, has a file system.

        Args:
            device: the volume's device.
            wanted: the requested file system.
            origin: "blank", "snap-…" or "vol-…" as the controller recorded it; "" if unknown.

        Raises:
            NodeError: NOT_BLANK, FILE_SYSTEM_MISMATCH, DEVICE_READ_ONLY, DEVICE_BUSY,
                DEVICE_NOT_FOUND, WRONG_DEVICE, FORMAT_FAILED, INVALID_REQUEST;
                TIMED_OUT, the disk hangs.
        """
        try:
            opened = await self._open(device)
        except NodeError as error:
            if error.reason is Reason.DEVICE_BUSY and await self._is_live(device, wanted):
                return Found(wanted.name, is_live=True)
            raise
        try:
            view = await self._view(opened, device, wanted, origin)
            while True:
                match step := next_step(view):
                    case Read():
                        view = replace(view, content=await self._content(opened, device))
                    case AskConsent():
                        view = replace(view, consent=await self._consent(device))
                    case Refuse():
                        raise NodeError(step.reason, step.message)
                    case Mount():
                        if step.clears_mark:
                            await self._on(device, lambda: clear_mark(opened, device))
                        return Found(step.file_system)
                    case Format():
                        return await self._format(opened, device, wanted, step)
                    case _:
                        assert_never(step)
        finally:
            opened.close()

    async def forget_mark(self, device: Device) -> None:
        """Clear our mark before a volume is used as a raw device.

        A device without a mark is not opened exclusively: pods may be using it.

        Raises:
            NodeError: DEVICE_NOT_FOUND, WRONG_DEVICE; DEVICE_BUSY, it has a mark and is in use, for
                example by an mkfs that still runs; TIMED_OUT, the disk hangs.
        """
        read = partial(peek, device.path)
        if not await self._on(device, lambda: is_marked(read, device)):
            return
        opened = await self._open(device)
        try:
            if not await self._on(device, lambda: opened.is_read_only):
                await self._on(device, lambda: clear_mark(opened, device))
        finally:
            opened.close()

    async def _open(self, device: Device) -> ExclusiveDevice:
        """Open a device exclusively.

        Raises:
            NodeError: DEVICE_BUSY, DEVICE_NOT_FOUND, WRONG_DEVICE; TIMED_OUT, the disk hangs, or an
                earlier call on it does; PROGRAM_MISSING, no thread can be started.
        """
        opened = await self._blocking.call(
            device.resource,
            partial(ExclusiveDevice.open, device.path),
            what=f"opening {device.path} of volume {device.volume_id}",
            undo=ExclusiveDevice.close,
        )
        if opened.number != device.number:
            opened.close()
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"{device.path} of volume {device.volume_id} is a different device now; this is "
                "retried",
            )
        return opened

    async def _is_live(self, device: Device, wanted: FileSystemRequest) -> bool:
        """Whether the requested file system is mounted in another mount namespace.

        There a process has one of its files open, such as an agent whose container has the
        kubelet's directory. Then it may be mounted here as well: nothing is written before, and the
        kernel mounts the file system that it already has, or refuses.
        """
        if not self._devices.is_live(device):
            return False
        signature = await self._signature(device)
        if not serves(signature, wanted.name):
            return False
        log.warning(
            "mounting a file system that is also mounted in another mount namespace",
            volume=device.volume_id,
            device=str(device.path),
            file_system=signature.type,
        )
        return True

    async def _on(
        self,
        device: Device,
        work: Callable[[], T],
        *,
        if_left: Callable[[], None] = lambda: None,
    ) -> T:
        """Work on a device, without a timeout: a slow disk must not interrupt this."""
        what = f"work on {device.path} of volume {device.volume_id}"
        try:
            return await self._blocking.call(
                device.resource, work, what=what, is_bounded=False, if_left=if_left
            )
        except OSError as error:
            raise unreadable(device.path, error) from error

    async def _content(self, opened: ExclusiveDevice, device: Device) -> Zeros | Data:
        unwanted = threading.Event()
        read = partial(read_content, opened, device.size_bytes, device.volume_id, unwanted)
        return await self._on(device, read, if_left=unwanted.set)

    async def _close(self, held: int) -> None:
        close = partial(os.close, held)
        try:
            await self._blocking.call(
                f"closing {next(_CLOSINGS)}", close, what="closing a device", is_bounded=False
            )
        except NotStartedError:
            close()  # a program has just used the device, so this hardly ever blocks

    async def _view(
        self, opened: ExclusiveDevice, device: Device, wanted: FileSystemRequest, origin: str
    ) -> View:
        head, has_mark, is_read_only = await self._on(
            device,
            lambda: (
                opened.read(0, SUPERBLOCK_BYTES),
                is_marked(opened.read, device),
                opened.is_read_only,
            ),
        )
        signature = await self._signature(device)
        return View(
            device=str(device.path),
            volume_id=device.volume_id,
            wanted=wanted.name,
            read_only=wanted.read_only,
            device_read_only=is_read_only,
            origin=origin,
            signature=signature,
            is_unfinished=is_unfinished(signature.type, head),
            is_marked=has_mark,
        )

    async def _signature(self, device: Device) -> Signature:
        result = await self._programs.run(
            *BLKID, device.path, why=f"to read the signatures of {device.path}"
        )
        try:
            return read_signature(result.exit_code, result.stdout)
        except ValueError as error:
            raise NodeError(
                Reason.FORMAT_FAILED,
                f"cannot tell what is on volume {device.volume_id} ({device.path}), so it is "
                f"neither formatted nor mounted: {error} ({result.ending}: {result.summary})",
            ) from error

    async def _consent(self, device: Device) -> Consent:
        try:
            return await self._consents.of(device.volume_id)
        except StorageError as error:
            return Consent("", trouble=error.message)

    def _command(self, device: Device, wanted: FileSystemRequest) -> tuple[str, ...]:
        """The command line of mkfs, for a file system that this node's kernel mounts.

        Raises:
            NodeError: INVALID_REQUEST.
        """
        try:
            command = mkfs_command(
                wanted.name, wanted.options, device.path, is_legacy_xfs=self._is_legacy_xfs
            )
            check_block_size(wanted.name, wanted.options, page_bytes=mmap.PAGESIZE)
            check_kernel(wanted.name, os.uname().release, is_legacy_xfs=self._is_legacy_xfs)
        except ValueError as error:
            raise NodeError(
                Reason.INVALID_REQUEST, f"volume {device.volume_id} is not formatted: {error}"
            ) from error
        return command

    async def _format(
        self, opened: ExclusiveDevice, device: Device, wanted: FileSystemRequest, step: Format
    ) -> Found:
        command = self._command(device, wanted)
        # Nothing has been written up to here.
        await self._devices.verify(device)
        began_s = time.monotonic()
        with shielded(f"formatting {device.path} with {wanted.name}"):
            if step.writes_mark:
                await self._on(device, lambda: write_mark(opened, device, time.time()))
            if step.because is Because.CONSENT:
                # If the erasing is interrupted and the consent is withdrawn, an older mark would
                # still allow formatting over the data that are left.
                await self._on(device, lambda: clear_mark(opened, device))
                await self._on(device, lambda: _erase_signatures(opened, device.size_bytes))
            # While a disk is open, the kernel gives its name to no other disk, even if it is gone.
            held = await self._on(device, opened.keep_name)
            try:
                opened.close()  # mkfs opens it exclusively itself
                await self._mkfs(command, device)
            finally:
                await self._close(held)
            await self._finish(device, wanted)
        log.info(
            "formatted a volume",
            volume=device.volume_id,
            device=str(device.path),
            file_system=wanted.name,
            because=step.because.value,
            seconds=round(time.monotonic() - began_s, 3),
        )
        return Found(wanted.name, is_new=True)

    async def _mkfs(self, command: tuple[str | Path, ...], device: Device) -> None:
        result = await self._programs.run(*command, why=f"to format {device.path}")
        if result.exit_code:
            raise NodeError(
                Reason.FORMAT_FAILED,
                f"volume {device.volume_id} could not be formatted: "
                f"{' '.join(str(word) for word in command)} ended with {result.ending}: "
                f"{result.summary}",
            )

    async def _finish(self, device: Device, wanted: FileSystemRequest) -> None:
        """Check that the file system is there, and only then clear the mark."""
        opened = await self._open(device)
        try:
            view = await self._view(opened, device, wanted, "")
            if view.signature.type != wanted.name or view.is_unfinished:
                raise NodeError(
                    Reason.FORMAT_FAILED,
                    f"volume {device.volume_id} ({device.path}) was formatted with {wanted.name}, "
                    f"but now blkid finds {view.signature} on it; it is not mounted",
                )
            await self._on(device, lambda: clear_mark(opened, device))
        finally:
            opened.close()


def _erase_signatures(opened: ExclusiveDevice, size_bytes: int) -> None:
    """Zero the beginning and the end, so that no old signature is left.

    mkfs overwrites only some signatures, and a volume with two of them is not mounted.
    """
    chunk = bytes(CHUNK_BYTES)
    tail = max(0, size_bytes - TAIL_BYTES) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    for begin, end in ((0, min(HEAD_BYTES, tail)), (tail, size_bytes)):
        for offset in range(begin, end, CHUNK_BYTES):
            opened.write(offset, chunk[: min(CHUNK_BYTES, end - offset)])
