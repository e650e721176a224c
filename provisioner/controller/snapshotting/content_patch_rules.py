"""What EC2 is asked for a VolumeSnapshotContent, and what is written to its status.

Source: external-snapshotter 8.6 ``updateSnapshotContentStatus``, ``clearVolumeContentStatus``;
aws-ebs-csi-driver v1.64 pkg/driver/controller.go ``CreateSnapshot`` (tags, description).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.controller.snapshotting import class_rules
from provisioner.controller.snapshotting.class_rules import SnapshotParameters
from provisioner.model import tags
from provisioner.model.ebs_snapshot import EVERY_S, EbsSnapshot, SnapshotRequest
from provisioner.model.errors import Reason, StorageError
from provisioner.model.ids import is_volume_id
from provisioner.model.tag_template import Names, TagTemplate
from provisioner.model.volume import normalised_handle
from provisioner.model.volume_snapshot import (
    CONTENT_FINALIZER,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)

# When to look again at what only people can change.
SLOWLY_S = 60.0
_GIB = 2**30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is done for one content."""

    request: SnapshotRequest
    parameters: SnapshotParameters
    annotations: Mapping[str, str | None]  # of the content, before its snapshot is taken


def plan(
    content: VolumeSnapshotContent,
    read_class: VolumeSnapshotClass | None,
    *,
    driver: str,
    cluster_id: str,
    extra_tags: Iterable[TagTemplate],
) -> Plan:
    """The request for CreateSnapshot, and what is done afterwards.

    Extra tags are written as they are: their templates name claims.

    Raises:
        StorageError: CLASS_NOT_FOUND, INVALID_CLASS or NOT_SUPPORTED; one sentence.
    """
    volume_id = normalised_handle(content.volume_id)
    if not is_volume_id(volume_id):
        message = (
            f"{content.volume_id[:100]!r} is not an EBS volume, so no snapshot can be taken of it"
        )
        raise StorageError(Reason.NOT_SUPPORTED, message, retry_after_s=SLOWLY_S)
    parameters = _parameters_of(content, read_class, driver=driver)
    owner = content.spec.volume_snapshot_ref
    names = Names(
        snapshot_namespace=owner.namespace, snapshot_name=owner.name, content_name=content.name
    )
    try:
        extra = {each.key: each.text for each in extra_tags}
        extra |= tags.rendered(parameters.tag_templates, names)
        written = tags.of_new_snapshot(content.snapshot_name, cluster_id=cluster_id, extra=extra)
    except ValueError as error:
        raise invalid(content, error) from error
    request = SnapshotRequest(
        volume_id=volume_id,
        description=f"Created by ebs-provisioner for volume {volume_id}",
        tags=written,
        outpost_arn=parameters.outpost_arn,
    )
    return Plan(request, parameters, class_rules.settings_of(read_class))


def _parameters_of(
    content: VolumeSnapshotContent, read_class: VolumeSnapshotClass | None, *, driver: str
) -> SnapshotParameters:
    """What the class of a content asks for.

    Raises:
        StorageError: CLASS_NOT_FOUND or INVALID_CLASS; one sentence.
    """
    if read_class is None:
        name = content.class_name
        message = (
            f"VolumeSnapshotClass {name} does not exist; create it"
            if name
            else f"VolumeSnapshotContent {content.name} names no VolumeSnapshotClass, which would "
            "say how to take the snapshot"
        )
        raise StorageError(Reason.CLASS_NOT_FOUND, message, retry_after_s=SLOWLY_S)
    if read_class.driver != driver:
        raise StorageError(
            Reason.INVALID_CLASS,
            f"VolumeSnapshotClass {read_class.name} is for {read_class.driver}, not {driver}",
            retry_after_s=SLOWLY_S,
        )
    try:
        return class_rules.parse(read_class.parameters or {})
    except ValueError as error:
        raise invalid(content, error) from error


def invalid(content: VolumeSnapshotContent, why: object) -> StorageError:
    """The class of a content cannot be used; ``why`` is a sentence."""
    message = f"VolumeSnapshotClass {content.class_name}: {why}"
    return StorageError(Reason.INVALID_CLASS, message, retry_after_s=SLOWLY_S)


def is_announced(content: VolumeSnapshotContent, annotations: Mapping[str, str | None]) -> bool:
    """Whether it says that a snapshot may be taken for it, and has our finalizer."""
    is_said = all(content.annotations.get(key) == text for key, text in annotations.items())
    return is_said and content.is_being_created and CONTENT_FINALIZER in content.finalizers


def waits_s(siblings: Iterable[VolumeSnapshotContent], now: datetime) -> float:
    """For how long EC2 takes no further snapshot of a volume; by the snapshots of its contents.

    ``now`` is of our clock, the contents' times are of EC2's. If they differ, EC2 refuses, and
    it is retried.
    """
    times = (each.status.creation_time for each in siblings if each.status is not None)
    latest_ns = max((at_ns for at_ns in times if at_ns is not None), default=0)
    since_s = now.timestamp() - latest_ns / 1e9
    return EVERY_S - since_s if 0 <= since_s < EVERY_S else 0.0


def recorded(
    content: VolumeSnapshotContent, snapshot: EbsSnapshot, *, ready: bool, now: datetime
) -> dict[str, Any]:
    """The status that names a snapshot; what is there already stays."""
    at = snapshot.started_at or now
    known = content.status
    found: dict[str, Any] = {
        "snapshotHandle": (known and known.snapshot_handle) or snapshot.snapshot_id,
        "creationTime": (known and known.creation_time) or _nanoseconds(at),
        "readyToUse": ready,
        "error": None,
    }
    size = (known and known.restore_size) or snapshot.size_gib * _GIB
    return found | ({"restoreSize": size} if size else {})


def failed(content: VolumeSnapshotContent, message: str, now: datetime) -> dict[str, Any] | None:
    """The status that reports a failure; None if it reports this one already."""
    known = content.status.error if content.status else None
    if known is not None and known.message == message:
        return None
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"error": {"time": at, "message": message}, "readyToUse": False}


def cleared() -> Mapping[str, None]:
    """The status of a content whose snapshot was deleted."""
    return dict.fromkeys(("snapshotHandle", "readyToUse", "creationTime", "restoreSize"))


def _nanoseconds(at: datetime) -> int:
    """Since 1970, exactly: a float would lose the last digits."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
