"""Volume snapshots in Kubernetes: the request, its content, and the class of both.

A VolumeSnapshot is a user's request. snapshot-controller creates a VolumeSnapshotContent for it,
and the driver's snapshotter acts on the content alone. Source: external-snapshotter 8.6,
``client/apis/volumesnapshot/v1/types.go``.
"""

from datetime import datetime

import msgspec

from provisioner.model.meta import KubeObject, ObjectReference

_GROUP = "snapshot.storage.kubernetes.io"

# On a content. While it says "yes", EC2 may have been asked for a snapshot that we cannot name.
BEING_CREATED = f"{_GROUP}/volumesnapshot-being-created"
# On a content, by snapshot-controller: the snapshot that it belongs to is being deleted.
BEING_DELETED = f"{_GROUP}/volumesnapshot-being-deleted"
# On a content, by an administrator: a volume of the other mode may be made from it.
ALLOW_VOLUME_MODE_CHANGE = f"{_GROUP}/allow-volume-mode-change"
# On a content that is one of a group: the group's controller takes its snapshot.
GROUP_HANDLE = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"
CONTENT_FINALIZER = f"{_GROUP}/volumesnapshotcontent-bound-protection"
# On a snapshot from which a volume is being made, by external-provisioner 6.3 and by us.
SOURCE_FINALIZER = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
# Labels of Velero: on a content of a backup, and besides on one that was restored from it.
# Source: Velero 1.18.1 pkg/apis/velero/v1/labels_annotations.go (read 2026-11-23).
VELERO_BACKUP = "velero.io/backup-name"
VELERO_RESTORE = "velero.io/restore-name"
YES = "yes"
DELETE, RETAIN = "Delete", "Retain"


class SnapshotError(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status.error``, of a snapshot and of a content."""

    time: str | None = None
    message: str | None = None


class VolumeSnapshotStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a snapshot, as snapshot-controller copies it from the content.

    ``restore_size`` is a quantity here, and a number of bytes in a content.
    """

    bound_volume_snapshot_content_name: str | None = None
    creation_time: datetime | None = None
    ready_to_use: bool | None = None
    restore_size: str | int | None = None
    error: SnapshotError | None = None


class VolumeSnapshot(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeSnapshot."""

    status: VolumeSnapshotStatus | None = None

    @property
    def content_name(self) -> str:
        """The content that it is bound to, "" before."""
        return (self.status.bound_volume_snapshot_content_name or "") if self.status else ""

    @property
    def is_ready(self) -> bool:
        """Whether volumes can be made from it."""
        return self.status is not None and self.status.ready_to_use is True

    @property
    def restore_size(self) -> str:
        """The least size of a volume made from it, as a quantity; "" if it is not known."""
        size = self.status.restore_size if self.status else None
        return "" if size is None else str(size)


class ContentSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.source`` of a content: a volume to take a snapshot of, or a snapshot that exists."""

    volume_handle: str | None = None
    snapshot_handle: str | None = None


class VolumeSnapshotContentSpec(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True
):
    """``spec`` of a content."""

    deletion_policy: str = ""
    driver: str = ""
    source: ContentSource = ContentSource()
    source_volume_mode: str | None = None
    volume_snapshot_class_name: str | None = None
    volume_snapshot_ref: ObjectReference = ObjectReference()


class VolumeSnapshotContentStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True
):
    """``status`` of a content: ``creation_time`` in nanoseconds, ``restore_size`` in bytes."""

    snapshot_handle: str | None = None
    creation_time: int | None = None
    restore_size: int | None = None
    ready_to_use: bool | None = None
    error: SnapshotError | None = None
    volume_group_snapshot_handle: str | None = None


class VolumeSnapshotContent(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeSnapshotContent."""

    spec: VolumeSnapshotContentSpec = VolumeSnapshotContentSpec()
    status: VolumeSnapshotContentStatus | None = None

    @property
    def volume_id(self) -> str:
        """The volume to take a snapshot of; "" when the snapshot existed before the content."""
        return self.spec.source.volume_handle or ""

    @property
    def snapshot_id(self) -> str:
        """The snapshot, made for it or given; "" while there is none."""
        made = (self.status.snapshot_handle or "") if self.status else ""
        return made or self.spec.source.snapshot_handle or ""

    @property
    def is_ready(self) -> bool:
        """Whether volumes can be made from the snapshot."""
        return self.status is not None and self.status.ready_to_use is True

    @property
    def class_name(self) -> str:
        """Its VolumeSnapshotClass, or ""."""
        return self.spec.volume_snapshot_class_name or ""

    @property
    def snapshot_uid(self) -> str:
        """The UID of the VolumeSnapshot that it belongs to; "" while that is not bound."""
        return self.spec.volume_snapshot_ref.uid

    @property
    def snapshot_key(self) -> str:
        """``namespace/name`` of the VolumeSnapshot that it belongs to, or "" for none."""
        owner = self.spec.volume_snapshot_ref
        return f"{owner.namespace}/{owner.name}" if owner.name else ""

    @property
    def is_being_created(self) -> bool:
        """Whether EC2 may have been asked for a snapshot that the content does not name."""
        return BEING_CREATED in self.annotations

    @property
    def snapshot_name(self) -> str:
        """The value of the tag CSIVolumeSnapshotName: equal for two tries, and for the sidecar.

        Source: external-snapshotter 8.6 ``makeSnapshotName`` with the prefix "snapshot".
        """
        return f"snapshot-{self.snapshot_uid}"

    def belongs_to(self, snapshot: VolumeSnapshot) -> bool:
        """Whether it is this snapshot's, and not that of an older one of its name."""
        owner, meta = self.spec.volume_snapshot_ref, snapshot.metadata
        return (owner.namespace, owner.name, owner.uid) == (meta.namespace, meta.name, meta.uid)


class VolumeSnapshotClass(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeSnapshotClass."""

    driver: str = ""
    deletion_policy: str = ""
    parameters: dict[str, str] | None = None
