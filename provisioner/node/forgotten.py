"""Unmounts staged volumes that their kubelet has forgotten.

A kubelet writes a volume into ``status.volumesInUse`` of its Node before it has it staged, and
takes it out after it was unstaged. So whoever holds the volume's turn and then reads a Node without
it knows that nobody relies on the mount, and nobody can begin to before the turn is over.
"""

import asyncio
from functools import partial
from pathlib import Path

import msgspec
import structlog

from provisioner.decide import forgotten
from provisioner.decide.mount_table import Mount
from provisioner.model.errors import NodeError, Reason, StorageError
from provisioner.node.kube import NodeKube
from provisioner.node.mounts import Mounts
from provisioner.node.operations import Operations
from provisioner.node.paths import Paths

log = structlog.get_logger(__name__)
LOOK_EVERY_S = 3.0
# Kubelet's note beside a stage: Kubernetes 1.36 pkg/volume/csi/csi_util.go, saveVolumeData.
_NOTE = "vol_data.json"


class _Note(msgspec.Struct, frozen=True, rename="camel"):
    """What kubelet notes of a volume that it has staged."""

    volume_handle: str


class Forgotten:
    """Looks for them every few seconds; one that was seen twice is asked for at the API server.

    Args:
        kube: reads the Node.
        operations: whose turn it is.
        mounts: what is mounted.
        paths: the kubelet's paths.
        stages: the folder in which the kubelet has our volumes staged.
    """

    def __init__(
        self,
        kube: NodeKube,
        *,
        operations: Operations,
        mounts: Mounts,
        paths: Paths,
        stages: Path,
    ) -> None:
        self._kube = kube
        self._operations = operations
        self._mounts = mounts
        self._paths = paths
        self._stages = stages
        self._seen: frozenset[int] = frozenset()

    async def keep(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except StorageError as error:
                log.warning("forgotten volumes are not looked for", error=error)

    async def look(self) -> None:
        """Unmount what was staged and shown to no pod now and the last time, if it is forgotten.

        Raises:
            StorageError: the Node cannot be read, or what is mounted is not known.
        """
        stages = str(self._stages.resolve())
        found = forgotten.candidates(self._mounts.table(), stages)
        lasting = [mount for mount in found if mount.mount_id in self._seen]
        self._seen = frozenset(mount.mount_id for mount in found)
        if not lasting:
            return
        in_use = (await self._kube.node()).in_use(self._kube.driver)
        for mount in lasting:
            volume_id = _noted(mount)
            if volume_id and volume_id not in in_use:
                await self._take(volume_id, mount)

    async def _take(self, volume_id: str, mount: Mount) -> None:
        try:
            await self._operations.run(
                volume_id,
                self,
                partial(self._unmount, volume_id, mount),
                what=f"Unmounting the forgotten volume {volume_id}",
            )
        except NodeError as error:
            if error.reason is not Reason.OPERATION_RUNNING:  # then somebody remembers it
                raise

    async def _unmount(self, volume_id: str, mount: Mount) -> None:
        stages = str(self._stages.resolve())
        now = forgotten.candidates(self._mounts.table(), stages)
        if mount.mount_id not in {each.mount_id for each in now}:
            return
        if volume_id in (await self._kube.node()).in_use(self._kube.driver):
            return
        log.warning(
            "unmounting a volume that its kubelet forgot", volume=volume_id, path=mount.path
        )
        await self._mounts.unmount(mount.path)
        await self._paths.remove(volume_id, mount.path)


def _noted(mount: Mount) -> str:
    """The volume that kubelet has staged at a path, "" if that cannot be known."""
    try:
        content = (Path(mount.path).parent / _NOTE).read_bytes()
        return msgspec.json.decode(content, type=_Note).volume_handle
    except (OSError, msgspec.MsgspecError):
        return ""
