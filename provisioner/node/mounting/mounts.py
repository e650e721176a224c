"""Mounts and unmounts, with mount(8) and umount(8), and reads the mount table.

Programs rather than system calls: users write mountOptions for mount(8), and a program that hangs
blocks neither the event loop nor a thread. Exit codes alone are not trusted: the result is checked
in the kernel's mount table. Nothing is ever unmounted lazily or by force.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.node.formatting import file_system_rules
from provisioner.node.formatting.exclusive import peek
from provisioner.node.mounting import rules
from provisioner.node.mounting.rules import Seen
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.mount_table_rules import Mount
from provisioner.node.runtime.programs import Programs
from provisioner.node.runtime.sysfs import SystemDirs

log = structlog.get_logger(__name__)
T = TypeVar("T")
# Mounts on top of each other at one path; more than this must be a loop.
_MOST_LAYERS = 64
_MOST_READS = 4
# mount(8) writes its own options (_netdev, user, x-...) to /run/mount/utab. In our container, whose
# root file system is read-only, that fails after the mount has succeeded.
_NO_UTAB = "--no-mtab"


class Mounts:
    """What is mounted on this node.

    All paths are as returned by ``paths.Paths.real``: absolute, links resolved.

    Args:
        programs: run mount and umount.
        blocking: for calls that may hang.
        dirs: where procfs and sysfs are.
    """

    def __init__(self, programs: Programs, blocking: BlockingCalls, dirs: SystemDirs) -> None:
        self._programs = programs
        self._blocking = blocking
        self._dirs = dirs

    def table(self) -> tuple[Mount, ...]:
        """All mounts that this process sees.

        Raises:
            NodeError: MOUNT_FAILED, the kernel's table cannot be read.
        """
        return self._read(mount_table_rules.parse)

    def at(self, path: str) -> Mount | None:
        """The uppermost mount at a path; None if it is no mount point.

        Raises:
            NodeError: as ``table``.
        """
        return self._read(partial(mount_table_rules.at_in, path))

    async def seen(self, path: str) -> Seen:
        """What is at a path where a volume may be mounted.

        Raises:
            NodeError: TIMED_OUT, a stat of it hangs.
        """
        mount = self.at(path)
        is_corrupted = await self._blocking.call(
            path, partial(_is_corrupted, path), what=f"stat of {path}"
        )
        # Read last, so that a disk that disappears meanwhile is noticed.
        has_device = mount is None or self._has_device(mount.number)
        return Seen(mount, is_corrupted=is_corrupted, has_device=has_device)

    async def mount(
        self, device_path: Path, path: str, *, file_system: str, options: tuple[str, ...]
    ) -> None:
        """Mount a device.

        A failure leaves nothing at the path.

        Args:
            device_path: the device.
            path: an existing directory where nothing is mounted.
            file_system: its type.
            options: for mount(8), with "ro" or "rw".

        Raises:
            NodeError: MOUNT_FAILED, DEVICE_BUSY, DEVICE_READ_ONLY, NOT_SUPPORTED, PROGRAM_MISSING.
        """
        # Without -w, mount(8) silently mounts a device that refuses writes read-only.
        write = () if "ro" in options else ("-w",)
        result = await self._programs.run(
            *("mount", _NO_UTAB, *write, "-t", file_system),
            *("-o", ",".join(options), device_path, path),
            why=f"of {device_path} at {path}",
        )
        if result.exit_code:
            # mount(8) can fail after the kernel has mounted.
            failure = rules.mount_failure(result.output, path, str(device_path))
            was_mounted = await self.clean_up(path)
            hint = await self._hint(device_path, file_system, result.output)
            raise NodeError(
                Reason.MOUNT_FAILED if was_mounted else failure,
                f"{device_path} could not be mounted at {path} as {file_system} with "
                f"{','.join(options)} ({result.ending}): {result.summary}{hint}",
            )
        self._verify_mounted(device_path, path)

    async def _hint(self, device_path: Path, file_system: str, said: str) -> str:
        """What may be behind a failed mount: a kernel that does not know the xfs's features."""
        too_old = file_system_rules.too_old(os.uname().release)
        if file_system != "xfs" or not too_old or not rules.may_be_unknown_features(said):
            return ""
        try:
            head = await self._blocking.call(
                str(device_path),
                partial(peek, device_path, 0, file_system_rules.HEAD_BYTES),
                what=f"reading {device_path}",
            )
        except (NodeError, OSError):
            return ""  # the failed mount is what matters
        if not file_system_rules.has_newer_xfs_features(head):
            return ""
        return f"; {too_old}: if its log says so, move the pod to a node with a newer kernel"

    async def bind(self, source: str | Path, path: str, *, read_only: bool) -> None:
        """Bind-mount a directory or a file at another path.

        A failure leaves nothing at the path. The mount is read-only in our mount namespace alone: a
        flag that is set later does not reach copies of the mount in other namespaces, and mount(8)
        sets it in time only from util-linux 2.39 on (Debian 12 has 2.38). What stops a pod from
        writing is the flag that the runtime sets on the container's own mount, as with
        aws-ebs-csi-driver.

        Raises:
            NodeError: MOUNT_FAILED, PROGRAM_MISSING.
        """
        try:
            await self._change("--bind", str(source), path)
            self._verify_mounted(source, path)
            if read_only:
                await self.remount(path, read_only=True)
        except NodeError:
            await self.clean_up(path)
            raise

    async def remount(self, path: str, *, read_only: bool) -> None:
        """Make the mount at a path, and no other, read-only or writable.

        Raises:
            NodeError: MOUNT_FAILED, PROGRAM_MISSING.
        """
        mode = "ro" if read_only else "rw"
        await self._change("-o", f"remount,bind,{mode}", path)
        mount = self.at(path)
        if mount is None or ("ro" in mount.options) != read_only:
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"mount reports that {path} was remounted {mode}, but the kernel's table does not "
                "show it",
            )

    async def unmount(self, path: str) -> None:
        """Unmount everything at a path; it is fine if nothing is mounted there.

        Raises:
            NodeError: TARGET_BUSY; MOUNT_FAILED, PROGRAM_MISSING.
        """
        for _ in range(_MOST_LAYERS):
            table = self.table()
            mount = mount_table_rules.at(path, table)
            if mount is None:
                return
            result = await self._programs.run("umount", mount.path, why=f"of {mount.path}")
            # The exit code is not trusted: umount(8) can fail after the kernel has unmounted.
            if mount_table_rules.count_at(path, self.table()) < mount_table_rules.count_at(
                path, table
            ):
                continue
            if rules.is_in_use(result.output, path):
                message = f"{self._busy(mount)} (umount: {result.summary})"
                raise NodeError(Reason.TARGET_BUSY, message)
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"{path} could not be unmounted ({result.ending}): {result.summary}",
            )
        raise NodeError(
            Reason.MOUNT_FAILED,
            f"{path} is still a mount point after {_MOST_LAYERS} runs of umount: something keeps "
            "mounting there",
        )

    def _verify_mounted(self, source: str | Path, path: str) -> None:
        if self.at(path) is None:
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"mount reports that {source} is mounted at {path}, but it is not in the kernel's "
                "table; does the container have the directory with mountPropagation: "
                "Bidirectional?",
            )

    async def clean_up(self, path: str) -> bool:
        """Unmount what a failure has left at a path; whether there was anything."""
        if self.at(path) is None:
            return False
        try:
            await self.unmount(path)
        except NodeError as error:
            log.warning("still mounted after a failure", path=path, why=error.message)
        return True

    def _read(self, read: Callable[[bytes], T]) -> T:
        path = self._dirs.proc / "self" / "mountinfo"
        try:
            return read(_steady(path.read_bytes))
        except (OSError, ValueError) as error:
            raise NodeError(
                Reason.MOUNT_FAILED, f"the mount table {path} cannot be read: {error}"
            ) from error

    async def _change(self, *words: str) -> None:
        result = await self._programs.run("mount", _NO_UTAB, *words, why=f"at {words[-1]}")
        if result.exit_code:
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"mount {' '.join(words)} failed ({result.ending}): {result.summary}",
            )

    def _busy(self, mount: Mount) -> str:
        inside = [m.path for m in self.table() if m.path.startswith(f"{mount.path}/")]
        if inside:
            return f"{mount.path} is in use: something is mounted below it, at {inside[0]}"
        return (
            f"{mount.path} is in use; this is retried; run `fuser -vm {mount.path}` on the node to "
            "see by which processes"
        )

    def _has_device(self, number: str) -> bool:
        return (self._dirs.sys / "dev" / "block" / number).exists()


def _steady(read: Callable[[], bytes]) -> bytes:
    """Read until two reads are equal: a table that changes meanwhile may miss lines."""
    last = read()
    for _ in range(_MOST_READS):
        now = read()
        if now == last:
            break
        last = now
    return last


def _is_corrupted(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 -- only whether it fails matters
    except OSError as error:
        return rules.is_corrupted(error)
    return False
