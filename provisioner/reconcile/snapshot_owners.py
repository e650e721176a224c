"""Who else wants an EBS snapshot, or the content that is to go: by caches, and by live lists.

A cache may be behind, so what it lacks is no proof before a snapshot is deleted.
"""

from collections.abc import Collection, Mapping, Sequence

from provisioner.decide import snapshot_owners as rules
from provisioner.ec2.coalescer import Coalescer
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import SNAPSHOT_CONTENTS, VOLUME_SNAPSHOTS
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume_snapshot import BEING_DELETED, VolumeSnapshotContent
from provisioner.reconcile.caches import Caches

_GATHER_S = 0.25  # deletions within this time share a list

Contents = Sequence[VolumeSnapshotContent]


class Owners:
    """The VolumeSnapshots of contents, and other contents of the same EBS snapshots."""

    def __init__(self, client: KubeClient, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._lists = Coalescer[Contents](self._list, window_s=_GATHER_S, fresh_for_s=0.0)

    async def is_gone(self, content: VolumeSnapshotContent) -> bool:
        """Whether the API server itself has no such VolumeSnapshot.

        It is not asked where the answer does not matter.

        Raises:
            KubeError: it could not be asked.
        """
        owner = content.spec.volume_snapshot_ref
        if not content.deleting or BEING_DELETED in content.annotations or not owner.uid:
            return False
        if rules.owns(content, self._caches.snapshots.get(content.snapshot_key)):
            return False
        try:
            live = await self._client.get(VOLUME_SNAPSHOTS, owner.name, owner.namespace)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return True
            raise
        return not rules.owns(content, live)

    async def namesakes(
        self, content: VolumeSnapshotContent, *, live: bool = False
    ) -> Collection[str]:
        """Other contents for which the snapshot of one that goes must stay, by name.

        Args:
            content: none are searched unless it is being deleted.
            live: ask the API server, so that nobody is missed.

        Raises:
            KubeError: it could not be asked, or a content could not be read.
        """
        snapshot_id = content.snapshot_id
        if not content.deleting or not snapshot_id:
            return ()
        cached = self._caches.contents.keyed("snapshot", snapshot_id)
        named = await self._lists.get(snapshot_id) if live else cached
        others = [each for each in named if each.uid != content.uid]
        return [
            each.name
            for each in others
            if rules.keeps(each, owner_is_gone=await self.is_gone(each))
        ]

    async def close(self) -> None:
        """End what is under way; whoever waits for it is cancelled."""
        await self._lists.close()

    async def _list(self, snapshot_ids: list[str]) -> Mapping[str, Contents]:
        listing = await self._client.list(SNAPSHOT_CONTENTS)
        if listing.unreadable:
            raise KubeError(
                Reason.UNREADABLE,
                "a volumesnapshotcontent cannot be read (see the log line about it), so it is not "
                "certain which snapshots are in use; none is deleted meanwhile",
            )
        return {
            wanted: [each for each in listing.items if each.snapshot_id == wanted]
            for wanted in snapshot_ids
        }
