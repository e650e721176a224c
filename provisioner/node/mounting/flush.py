"""Flushes a volume to its disk before it is unpublished or unstaged.

A kubelet that is killed before it unstages a volume never finds it again (it only looks through its
pods' directories), so the volume may be detached while its file system is still mounted. What the
pod wrote has to be on the volume by then. A detach takes longer than the end of a pod waits here,
and a flush that is not done by then continues in the background: neither a disk that hangs nor one
with much to write delays a pod, or the next one on this node, for long.

Before the last unmount the flush has to end: umount itself flushes nothing while the file system is
mounted in another mount namespace, such as that of an agent that has a file on it open.
"""

import asyncio
import re
from contextvars import Context
from dataclasses import dataclass

import structlog

from provisioner import clock
from provisioner.model.errors import NodeError, Reason
from provisioner.node.mounting.mounts import Mounts
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount
from provisioner.node.runtime.programs import ProgramResult, Programs

log = structlog.get_logger(__name__)
FLUSH_S = 10.0
# The major number of file systems without a disk, such as the devtmpfs of a device node.
_NO_DISK = "0:"
# Where the kubelet stages volumes: Kubernetes 1.36 pkg/volume/csi/csi_attacher.go.
_STAGED = "/globalmount"
# And where it publishes them: pkg/volume/csi/csi_mounter.go ``GetPath``.
_PUBLISHED = re.compile(r"/pods/[^/]+/volumes/")


@dataclass(frozen=True, slots=True)
class _Flush:
    task: asyncio.Task[ProgramResult]
    until_s: float


class Flushes:
    """Runs one sync(1) per file system at a time.

    Args:
        programs: run it.
        mounts: what is mounted.
        timeout_s: how long the end of a pod waits, in seconds; the flush continues after that.
            The last unmount waits three times as long at a time.
    """

    def __init__(
        self,
        programs: Programs,
        mounts: Mounts,
        *,
        timeout_s: float = FLUSH_S,
    ) -> None:
        self._programs = programs
        self._mounts = mounts
        self._timeout_s = timeout_s
        self._to_its_end_s = 3 * timeout_s
        self._running: dict[str, _Flush] = {}

    async def flush(self, path: str) -> None:
        """Flush a mounted file system to its disk; a failure is logged.

        Skipped while another pod has the volume: then the kubelet still knows it, and the end of
        that pod flushes it. After ``timeout_s`` the flush continues in the background.

        Raises:
            NodeError: PROGRAM_MISSING; MOUNT_FAILED, the kernel's table cannot be read.
        """
        mount = self._written(path)
        if mount is None:
            return
        shown = mount_table_rules.of_device(mount.number, self._mounts.table())
        if any(each.path != path and _PUBLISHED.search(each.path) for each in shown):
            return
        if not await self._flushed(mount, None):
            log.warning(
                "unpublishing before everything is on the disk, which is slow or hangs",
                path=path,
                waited_s=self._timeout_s,
            )

    async def finish(self, path: str) -> None:
        """Flush to the end before the last unmount; then no flush keeps the mount busy either.

        Raises:
            NodeError: TIMED_OUT, it takes longer, or hangs; and as ``flush``.
        """
        mount = self._written(path)
        until_s = clock.now_s() + self._to_its_end_s
        if mount is not None and not await self._flushed(mount, until_s):
            raise NodeError(
                Reason.TIMED_OUT,
                f"flushing {path} to {mount.source} took longer than {self._to_its_end_s:.0f} s, "
                "so it stays mounted: the disk is slow or hangs; check the node's kernel log and "
                "the volume's status in EC2; this is retried",
            )

    def _written(self, path: str) -> Mount | None:
        """The mount at a path, if it has a disk and may have been written to."""
        mount = self._mounts.at(path)
        if mount is None or mount.is_read_only_everywhere or mount.number.startswith(_NO_DISK):
            return None
        return mount

    async def _flushed(self, mount: Mount, until_s: float | None) -> bool:
        """Whether the flush ended by ``until_s``, or by its own deadline if that is None."""
        while (before := self._running.get(mount.number)) is not None:
            if not await _has_ended(before, until_s):
                return False
        flush = self._begin(mount.number, self._held_by(mount))
        if not await _has_ended(flush, until_s):
            return False
        result = flush.task.result()
        if result.exit_code:
            log.warning(
                "could not flush a file system to its disk", path=mount.path, output=result.summary
            )
        return True

    def _begin(self, number: str, path: str) -> _Flush:
        loop = asyncio.get_running_loop()
        # In a context of its own, because the program may outlast the volume's operation.
        task = loop.create_task(
            self._programs.run("sync", "-f", path, why=f"of {path}"), context=Context()
        )
        self._running[number] = flush = _Flush(task, clock.now_s() + self._timeout_s)

        def ended(_: asyncio.Task[ProgramResult]) -> None:
            del self._running[number]

        task.add_done_callback(ended)
        return flush

    def _held_by(self, mount: Mount) -> str:
        """The path to run sync(1) on, which keeps that mount busy until it ends.

        So it is not the mount that is about to be unmounted, if there is another.
        """
        table = self._mounts.table()
        others = [
            other.path
            for other in mount_table_rules.of_device(mount.number, table)
            if other.path != mount.path and mount_table_rules.at(other.path, table) == other
        ]
        return min(others, key=lambda path: not path.endswith(_STAGED), default=mount.path)


async def _has_ended(flush: _Flush, until_s: float | None) -> bool:
    remaining_s = (until_s or flush.until_s) - clock.now_s()
    await asyncio.wait({flush.task}, timeout=max(0.0, remaining_s))
    return flush.task.done()
