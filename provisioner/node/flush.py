"""Brings what was written to a volume to its disk, before the volume is taken from a pod.

A kubelet that is killed before it unstages forgets the volume (it looks for those of its pods'
folders only), so it may be detached while its file system is still mounted: what the pod wrote has
to be on the volume by then. That takes such a kubelet longer than a pod's end waits here, and what
is not done by then runs on by itself: neither a disk that hangs nor one with much to write keeps a
pod, or the next one on this node, for long.
"""

import asyncio
import re
from contextvars import Context
from dataclasses import dataclass

import structlog

from provisioner.decide import mount_table
from provisioner.decide.mount_table import Mount
from provisioner.node.mounts import Mounts
from provisioner.node.programs import Programs, Ran

log = structlog.get_logger(__name__)
FLUSH_S = 10.0
SETTLED_S = 30.0
# The major number of file systems without a disk, such as the one that a device's node is on.
_NO_DISK = "0:"
# Where a kubelet has volumes staged: Kubernetes 1.36 pkg/volume/csi/csi_attacher.go.
_STAGED = "/globalmount"
# And where pods have them: pkg/volume/csi/csi_mounter.go ``GetPath``.
_SHOWN = re.compile(r"/pods/[^/]+/volumes/")


@dataclass(frozen=True, slots=True)
class _Flush:
    task: asyncio.Task[Ran]
    until_s: float


class Flushes:
    """Runs one sync(1) per file system at a time.

    Args:
        programs: run it.
        mounts: what is mounted.
        patience_s: how long one is waited for, in seconds; then it runs on by itself.
        settled_s: how long one that runs is waited for before an unmount, in seconds.
    """

    def __init__(
        self,
        programs: Programs,
        mounts: Mounts,
        *,
        patience_s: float = FLUSH_S,
        settled_s: float = SETTLED_S,
    ) -> None:
        self._settled_s = settled_s
        self._programs = programs
        self._mounts = mounts
        self._patience_s = patience_s
        self._running: dict[str, _Flush] = {}

    async def flush(self, path: str) -> None:
        """Bring all that was written to a mounted file system to its disk; a failure is logged.

        Nothing is to be done where nothing is mounted, or no disk, or nothing can be written; nor
        where another pod has it still, for then the kubelet remembers it, and that pod's end has it
        done.

        Raises:
            NodeError: PROGRAM_MISSING; MOUNT_FAILED, the kernel's table cannot be read.
        """
        mount = self._mounts.at(path)
        if mount is None or mount.is_read_only_everywhere or mount.number.startswith(_NO_DISK):
            return
        shown = mount_table.of_device(mount.number, self._mounts.table())
        if any(each.path != path and _SHOWN.search(each.path) for each in shown):
            return
        while (before := self._running.get(mount.number)) is not None:
            if not await self._has_ended(before, path):
                return
        flush = self._begin(mount.number, self._held_by(mount))
        if not await self._has_ended(flush, path):
            return
        ran = flush.task.result()
        if ran.exit_code:
            log.warning("could not be written to its disk", path=path, said=ran.essence)

    async def settled(self, mount: Mount) -> None:
        """Wait for a flush that still runs: it holds the mount busy."""
        if (running := self._running.get(mount.number)) is not None:
            await asyncio.wait({running.task}, timeout=self._settled_s)

    def _begin(self, number: str, path: str) -> _Flush:
        loop = asyncio.get_running_loop()
        # In a context of its own: the volume's operation does not last as long as the program.
        task = loop.create_task(
            self._programs.run("sync", "-f", path, why=f"of {path}"), context=Context()
        )
        self._running[number] = flush = _Flush(task, loop.time() + self._patience_s)

        def ended(_: asyncio.Task[Ran]) -> None:
            del self._running[number]

        task.add_done_callback(ended)
        return flush

    async def _has_ended(self, flush: _Flush, path: str) -> bool:
        remaining_s = flush.until_s - asyncio.get_running_loop().time()
        await asyncio.wait({flush.task}, timeout=max(0.0, remaining_s))
        if flush.task.done():
            return True
        log.warning(
            "taken away before all that was written is on its disk, which is slow or hangs",
            path=path,
            waited_s=self._patience_s,
        )
        return False

    def _held_by(self, mount: Mount) -> str:
        """Where the program looks at the file system; it holds the mount there until it ends.

        So it is another one than that which is to be unmounted, if there is another.
        """
        table = self._mounts.table()
        others = [
            other.path
            for other in mount_table.of_device(mount.number, table)
            if other.path != mount.path and mount_table.at(other.path, table) == other
        ]
        return min(others, key=lambda path: not path.endswith(_STAGED), default=mount.path)
