"""Unmounts leaked mounts: staged volumes that the kubelet does not know any more.

A kubelet adds a volume to ``status.volumesInUse`` of its Node before it has it staged, and removes
it after it was unstaged. So if the Node, read while an operation of the volume runs here, does not
list it, nothing relies on the mount, and nothing can start to before that operation ends.
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
    """Scans for them every few seconds; reads the Node only for what was seen twice.

    Args:
        kube: reads the Node.
        tools: unmount, as an operation of the volume.
        stages: the directory in which the kubelet stages our volumes.
        timeout_s: how long a scan waits for its unmounts, in seconds; slower ones continue.
    """

    def __init__(
        self, kube: NodeKube, tools: Tools, stages: Path, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._kube = kube
        self._tools = tools
        self._stages = stages
        self._timeout_s = timeout_s
        self._seen: frozenset[int] = frozenset()
        self._unmounting: dict[str, asyncio.Task[None]] = {}
        self._troubles: dict[str, str] = {}

    async def keep(self) -> None:
        """Scan again and again, until cancelled."""
        try:
            while True:
                await asyncio.sleep(POLL_EVERY_S)
                try:
                    await self.scan()
                except StorageError as error:
                    log.warning("cannot look for leaked mounts", error=error)
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop waiting; a umount that runs continues."""
        for task in self._unmounting.values():
            task.cancel()
        await asyncio.gather(*self._unmounting.values(), return_exceptions=True)

    async def scan(self) -> None:
        """Unmount what was staged without a pod in this and the last scan, if it is leaked.

        One that cannot be unmounted, or hangs, is logged and does not delay the others.

        Raises:
            StorageError: the Node or the mount table cannot be read.
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
        for volume_id in volumes.keys() - in_use - self._unmounting.keys():
            task = asyncio.create_task(self._unmount_leaked(volume_id, volumes[volume_id]))
            self._unmounting[volume_id] = task
        if self._unmounting:
            await asyncio.wait(self._unmounting.values(), timeout=self._timeout_s)

    async def _unmount_leaked(self, volume_id: str, mount: Mount) -> None:
        try:
            await self._tools.operations.run(
                volume_id,
                self,
                partial(self._unmount, volume_id, mount),
                what=f"Unmounting the leaked mount of volume {volume_id}",
            )
        except StorageError as error:
            # Another operation runs, so the kubelet knows the volume.
            if error.reason is not Reason.OPERATION_RUNNING:
                self._log_once(volume_id, mount, error)
        finally:
            del self._unmounting[volume_id]

    def _log_once(self, volume_id: str, mount: Mount, error: StorageError) -> None:
        """Once for each trouble: the next scan tries again."""
        if self._troubles.get(volume_id) == error.message:
            return
        self._troubles[volume_id] = error.message
        log.warning(
            "cannot unmount a leaked mount",
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
            "unmounting a volume that the kubelet does not know any more",
            volume=volume_id,
            path=mount.path,
        )
        await self._tools.flushes.finish(mount.path)
        await self._tools.mounts.unmount(mount.path)
        await self._tools.paths.remove(volume_id, mount.path)
