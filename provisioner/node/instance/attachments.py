"""VolumeAttachments of the volumes that a machine has: asked for once of those that have none.

The root volume never has one. A volume gets its VolumeAttachment before it is attached, so one
that is here without any is not Kubernetes'. It can become so where it is: an administrator makes a
PersistentVolume for it. Then the kubelet has it staged.
"""

import time
from collections.abc import Collection

from provisioner.node.instance.documents import AttachmentView
from provisioner.node.instance.kube import NodeKube

# How long to cache that a volume has none, if no kubelet stages it.
FOREIGN_S = 6 * 3600.0


class AttachmentLookups:
    """Looks up VolumeAttachments, for all who ask whether a volume is ours.

    Args:
        kube: reads them.
        foreign_s: how long to cache that a volume has none, in seconds.
    """

    def __init__(self, kube: NodeKube, *, foreign_s: float = FOREIGN_S) -> None:
        self._kube = kube
        self._foreign_s = foreign_s
        self._foreign_until_s: dict[str, float] = {}
        self._lookups: dict[str, object] = {}  # the latest: an older answer is not cached

    def is_foreign(self, volume_id: str) -> bool:
        """Whether it had no VolumeAttachment when it was last asked for."""
        return time.monotonic() < self._foreign_until_s.get(volume_id, 0.0)

    async def find(self, volume_id: str) -> AttachmentView | None:
        """The VolumeAttachment of a volume to this node; None, and cached, if there is none.

        Raises:
            KubeError: the API server cannot be asked.
        """
        if self.is_foreign(volume_id):
            return None
        lookup = self._lookups[volume_id] = object()
        found = await self._kube.attachment(volume_id)
        if found is None and self._lookups.get(volume_id) is lookup:
            self._foreign_until_s[volume_id] = time.monotonic() + self._foreign_s
        return found

    def ask_again(self, volume_id: str) -> None:
        """It may have become ours: the kubelet stages it, or the Node names it."""
        self._lookups.pop(volume_id, None)
        self._foreign_until_s.pop(volume_id, None)

    def keep(self, seen: Collection[str]) -> None:
        """Forget the volumes that are not here any more."""
        for gone in (self._foreign_until_s.keys() | self._lookups.keys()) - set(seen):
            self.ask_again(gone)
