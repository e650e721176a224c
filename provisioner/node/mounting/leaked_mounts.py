"""Unmounts staged volumes that their kubelet has forgotten.

A kubelet writes a volume into ``status.volumesInUse`` of its Node before it has it staged, and
takes it out after it was unstaged. So whoever holds the volume's turn and then reads a Node without
it knows that nobody relies on the mount, and nobody can begin to before the turn is over.
"""

import asyncio
from functools import partial
from pathlib import Path

import structlog

from provisioner.model.errors import Reason, StorageError
from provisioner.node.instance.kube import NodeKube
from provisioner.node.mounting.tools import Tools
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount
from provisioner.node.runtime.paths import noted_volume

log = structlog.get_logger(__name__)
POLL_EVERY_S = 3.0
TIMEOUT_S = 10.0


class LeakedMounts:
    """Looks for them every few seconds; one that was seen twice is asked for at the API server.

    Args:
        kube: reads the Node.
        tools: unmount, at the volume's turn.
        stages: the folder in which the kubelet has our volumes staged.
        timeout_s: how long a look waits for what it unmounts, in seconds; what takes longer goes
            on by itself.
    """

    def __init__(
        self, kube: NodeKube, tools: Tools, stages: Path, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._kube = kube
        self._tools = tools
        self._stages = stages
        self._timeout_s = timeout_s
        self._seen: frozenset[int] = frozenset()
        self._taking: dict[str, asyncio.Task[None]] = {}
        self._troubles: dict[str, str] = {}

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        try:
            while True:
                await asyncio.sleep(POLL_EVERY_S)
                try:
                    await self.scan()
                except StorageError as error:
                    log.warning("forgotten volumes are not looked for", error=error)
        finally:
            await self.close()

    async def close(self) -> None:
        """Wait for nothing any more; a umount that runs goes on."""
        for task in self._taking.values():
            task.cancel()
        await asyncio.gather(*self._taking.values(), return_exceptions=True)

    async def scan(self) -> None:
        """Unmount what was staged and shown to no pod now and the last time, if it is forgotten.

        One that cannot be unmounted, or hangs, is told in the log and keeps no other one mounted.

        Raises:
            StorageError: the Node cannot be read, or what is mounted is not known.
        """
        stages = str(self._stages.resolve())
        found = mount_table_rules.staged_without_pod(self._tools.mounts.table(), stages)
        lasting = [mount for mount in found if mount.mount_id in self._seen]
        self._seen = frozenset(mount.mount_id for mount in found)
        volumes = {volume_id: mount for mount in lasting if (volume_id := noted_volume(mount))}
        self._troubles = {each: self._troubles[each] for each in self._troubles.keys() & volumes}
        if not volumes:
            return
        in_use = (await self._kube.node()).in_use(self._kube.driver)
        for volume_id in volumes.keys() - in_use - self._taking.keys():
            task = asyncio.create_task(self._take(volume_id, volumes[volume_id]))
            self._taking[volume_id] = task
        if self._taking:
            await asyncio.wait(self._taking.values(), timeout=self._timeout_s)

    async def _take(self, volume_id: str, mount: Mount) -> None:
        try:
            await self._tools.operations.run(
                volume_id,
                self,
                partial(self._unmount, volume_id, mount),
                what=f"Unmounting the forgotten volume {volume_id}",
            )
        except StorageError as error:
            # Another one's turn: then somebody remembers it.
            if error.reason is not Reason.OPERATION_RUNNING:
                self._tell(volume_id, mount, error)
        finally:
            del self._taking[volume_id]

    def _tell(self, volume_id: str, mount: Mount, error: StorageError) -> None:
        """Once for each trouble: it is tried again every few seconds."""
        if self._troubles.get(volume_id) == error.message:
            return
        self._troubles[volume_id] = error.message
        log.warning(
            "a volume that its kubelet forgot cannot be unmounted",
            volume=volume_id,
            path=mount.path,
            error=error,
        )

    async def _unmount(self, volume_id: str, mount: Mount) -> None:
        stages = str(self._stages.resolve())
        now = mount_table_rules.staged_without_pod(self._tools.mounts.table(), stages)
        if mount.mount_id not in {each.mount_id for each in now}:
            return
        if volume_id in (await self._kube.node()).in_use(self._kube.driver):
            return
        log.warning(
            "unmounting a volume that its kubelet forgot", volume=volume_id, path=mount.path
        )
        await self._tools.flushes.finish(mount.path)
        await self._tools.mounts.unmount(mount.path)
        await self._tools.paths.remove(volume_id, mount.path)
