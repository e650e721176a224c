"""Builders of snapshots, their contents and classes, each showing only what matters."""

from collections.abc import Mapping

from provisioner.model import volume_snapshot as v
from provisioner.model.meta import ObjectMeta, ObjectReference
from tests.builders import DELETED_AT, DRIVER, VOLUME

SNAPSHOT_UID = "5a1b2e0c-7f00-4a7e-9d61-3b1f00000051"
CONTENT = f"snapcontent-{SNAPSHOT_UID}"
SNAPSHOT = "snap-0123456789abcdef0"
GIB = 2**30


def a_snapshot(
    name: str = "daily",
    *,
    uid: str = SNAPSHOT_UID,
    content: str = CONTENT,
    ready: bool | None = True,
    restore_size: str | int | None = "1Gi",
    deleting: bool = False,
    finalizers: list[str] | None = None,
) -> v.VolumeSnapshot:
    """A snapshot of claim "data" in namespace "shop", bound to a content unless that is ""."""
    status = v.VolumeSnapshotStatus(
        bound_volume_snapshot_content_name=content, ready_to_use=ready, restore_size=restore_size
    )
    return v.VolumeSnapshot(
        metadata=ObjectMeta(
            name=name,
            namespace="shop",
            uid=uid,
            resource_version="3",
            deletion_timestamp=DELETED_AT if deleting else None,
            finalizers=finalizers,
        ),
        status=status if content else None,
    )


def a_content(
    name: str = CONTENT,
    *,
    volume_id: str | None = VOLUME,
    given: str | None = None,
    policy: str = v.DELETE,
    status: v.VolumeSnapshotContentStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    deleting: bool = False,
    driver: str = DRIVER,
    class_name: str | None = "ebs",
    mode: str | None = None,
    owner: ObjectReference | None = None,
    finalizers: tuple[str, ...] = (v.CONTENT_FINALIZER,),
) -> v.VolumeSnapshotContent:
    """A content for snapshot "shop/daily": of a volume, or of a snapshot that was given."""
    return v.VolumeSnapshotContent(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-of-{name}",
            resource_version="5",
            annotations=dict(annotations or {}) or None,
            labels=dict(labels or {}) or None,
            deletion_timestamp=DELETED_AT if deleting else None,
            finalizers=list(finalizers),
        ),
        spec=v.VolumeSnapshotContentSpec(
            deletion_policy=policy,
            driver=driver,
            source=v.ContentSource(
                volume_handle=None if given else volume_id, snapshot_handle=given
            ),
            source_volume_mode=mode,
            volume_snapshot_class_name=class_name,
            volume_snapshot_ref=owner
            or ObjectReference(namespace="shop", name="daily", uid=SNAPSHOT_UID),
        ),
        status=status,
    )


def a_content_status(
    snapshot_id: str | None = SNAPSHOT,
    *,
    ready: bool | None = False,
    size_bytes: int | None = GIB,
    created_ns: int | None = 1_763_722_800_000_000_000,
    error: str | None = None,
) -> v.VolumeSnapshotContentStatus:
    """``status`` of a content."""
    return v.VolumeSnapshotContentStatus(
        snapshot_handle=snapshot_id,
        creation_time=created_ns,
        restore_size=size_bytes,
        ready_to_use=ready,
        error=None if error is None else v.SnapshotError(time=DELETED_AT, message=error),
    )


def a_snapshot_class(
    name: str = "ebs",
    *,
    driver: str = DRIVER,
    policy: str = v.DELETE,
    parameters: Mapping[str, str] | None = None,
) -> v.VolumeSnapshotClass:
    """A snapshot class of the driver, without parameters."""
    return v.VolumeSnapshotClass(
        metadata=ObjectMeta(name=name, resource_version="2"),
        driver=driver,
        deletion_policy=policy,
        parameters=dict(parameters) if parameters is not None else None,
    )
