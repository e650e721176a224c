"""Mounts and unmounts, by mount(8) and umount(8), and knows what is mounted.

The programs and not the system calls: users write mountOptions in mount(8)'s language, and one that
hangs blocks neither the event loop nor a thread. That something was mounted is then seen in the
kernel's table of our mount namespace: exit codes alone are not believed. Nothing is ever unmounted
lazily or by force.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.node.mounting import rules
from provisioner.node.mounting.rules import Seen
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.mount_table_rules import Mount
from provisioner.node.runtime.programs import Programs
from provisioner.node.runtime.sysfs import SystemDirs

log = structlog.get_logger(__name__)
T = TypeVar("T")
# Mounts on each other at one path; more than this is somebody's loop.
_MOST_LAYERS = 64
_MOST_READS = 4
# mount(8) writes its own options (_netdev, user, x-...) to /run/mount/utab, and where it cannot it
# fails after it has mounted. The root file system of our container is read-only.
_NO_NOTE = "--no-mtab"


class Mounts:
    """What is mounted on this node, and how it is changed.

    All paths are those of ``paths.Paths.real``: absolute, links resolved.

    Args:
        programs: run mount and umount.
        blocking: looks at what may hang.
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
        """What there is at a path where a volume may be mounted.

        Raises:
            NodeError: TIMED_OUT, a look at it hangs.
        """
        mount = self.at(path)
        is_corrupted = await self._blocking.call(
            path, partial(_is_corrupted, path), what=f"looking at {path}"
        )
        # Looked up last: a disk that went meanwhile is seen to have gone.
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
        # -w: else mount(8) takes a device that refuses writes for read-only without a word.
        write = () if "ro" in options else ("-w",)
        result = await self._programs.run(
            *("mount", _NO_NOTE, *write, "-t", file_system),
            *("-o", ",".join(options), device_path, path),
            why=f"of {device_path} at {path}",
        )
        if result.exit_code:
            # It can fail with what it does after the kernel has mounted.
            failure = rules.mount_failure(result.output, path, str(device_path))
            was_mounted = await self.clean_up(path)
            raise NodeError(
                Reason.MOUNT_FAILED if was_mounted else failure,
                f"{device_path} could not be mounted at {path} as {file_system} with "
                f"{','.join(options)} ({result.ending}): {result.summary}",
            )
        self._verify_mounted(device_path, path)

    async def bind(self, source: str | Path, path: str, *, read_only: bool) -> None:
        """Show a directory, or a file, at another path too.

        A failure leaves nothing at the path. Read-only it is in our mount namespace alone: a flag
        that is set later does not reach the copies that other namespaces have of a mount, and
        mount(8) sets it before only from util-linux 2.39 on (Debian 12 has 2.38). What holds a pod
        is the same flag that the kubelet has the runtime set on the container's own mount; so it is
        with aws-ebs-csi-driver.

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
        """Change whether a path can be written to, there alone.

        Raises:
            NodeError: MOUNT_FAILED, PROGRAM_MISSING.
        """
        mode = "ro" if read_only else "rw"
        await self._change("-o", f"remount,bind,{mode}", path)
        mount = self.at(path)
        if mount is None or ("ro" in mount.options) != read_only:
            raise NodeError(Reason.MOUNT_FAILED, f"{path} was made {mode}, and the kernel has not")

    async def unmount(self, path: str) -> None:
        """Unmount all that is mounted at a path; nothing mounted there is fine.

        Raises:
            NodeError: TARGET_BUSY; MOUNT_FAILED, PROGRAM_MISSING.
        """
        for _ in range(_MOST_LAYERS):
            table = self.table()
            mount = mount_table_rules.at(path, table)
            if mount is None:
                return
            result = await self._programs.run("umount", mount.path, why=f"of {mount.path}")
            # Its exit code is not believed: it can fail with what it does after the unmount.
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
            f"{path} is still a mount point after {_MOST_LAYERS} times umount: something mounts "
            "there again and again",
        )

    def _verify_mounted(self, source: str | Path, path: str) -> None:
        if self.at(path) is None:
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"mount says that {source} is mounted at {path}, and the kernel does not; is the "
                "folder shared with this process (mountPropagation: Bidirectional)?",
            )

    async def clean_up(self, path: str) -> bool:
        """Unmount what a failure has left at a path, if anything: true if something was there."""
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
                Reason.MOUNT_FAILED, f"what is mounted is not known: {path}: {error}"
            ) from error

    async def _change(self, *words: str) -> None:
        result = await self._programs.run("mount", _NO_NOTE, *words, why=f"at {words[-1]}")
        if result.exit_code:
            raise NodeError(
                Reason.MOUNT_FAILED,
                f"mount {' '.join(words)} failed ({result.ending}): {result.summary}",
            )

    def _busy(self, mount: Mount) -> str:
        inside = [m.path for m in self.table() if m.path.startswith(f"{mount.path}/")]
        if inside:
            return f"{mount.path} is in use: something is mounted within it, at {inside[0]}"
        return (
            f"{mount.path} is in use; `fuser -vm {mount.path}` on the node tells by whom; it is "
            "tried again"
        )

    def _has_device(self, number: str) -> bool:
        return (self._dirs.sys / "dev" / "block" / number).exists()


def _steady(read: Callable[[], bytes]) -> bytes:
    """Read until two in a row are equal: a table that changes meanwhile can come with a gap."""
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
