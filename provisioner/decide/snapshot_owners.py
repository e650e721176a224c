"""Decide for whom a content and its EBS snapshot are: their VolumeSnapshot, and other contents."""

from provisioner.model.volume_snapshot import (
    BEING_DELETED,
    DELETE,
    VolumeSnapshot,
    VolumeSnapshotContent,
)


def owns(content: VolumeSnapshotContent, snapshot: VolumeSnapshot | None) -> bool:
    """Whether this is the VolumeSnapshot of the content, there and not made anew."""
    return snapshot is not None and snapshot.uid == content.snapshot_uid


def keeps(content: VolumeSnapshotContent, *, owner_is_gone: bool) -> bool:
    """Whether the snapshot of a content must stay when another one that names it goes.

    One that goes as well, and wants its snapshot deleted too, keeps nothing.
    """
    if not content.deleting or content.spec.deletion_policy != DELETE:
        return True
    is_ended = BEING_DELETED in content.annotations or owner_is_gone
    return bool(content.snapshot_uid) and not is_ended
