"""Builders of what claims are made from: snapshots, and claims to clone, with their volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from provisioner.model import volume_snapshot as v
from provisioner.model.claim import BIND_COMPLETED, Claim, ClaimStatus, DataSource
from provisioner.model.data_source import Source
from provisioner.model.decision import Refuse
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.persistent_volume import PersistentVolume
from tests.builders import DELETED_AT, DRIVER, VOLUME, a_claim, a_persistent_volume

SNAPSHOT_ID = "snap-0aaaaaaaaaaaaaaa1"
SNAPSHOT_UID = "5a4b0000-0000-4000-8000-000000000001"
OTHER_UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f0000000f"
OF_SNAPSHOT = DataSource(kind="VolumeSnapshot", name="monday", api_group="snapshot.storage.k8s.io")
OF_CLAIM = DataSource(kind="PersistentVolumeClaim", name="origin")
RESTORE = a_claim(source=OF_SNAPSHOT)
CLONE = a_claim(source=OF_CLAIM)

S = TypeVar("S", bound=msgspec.Struct)


def replaced(struct: S, **fields: object) -> S:
    """The same with other fields."""
    return msgspec.structs.replace(struct, **fields)


def a_snapshot(
    name: str = "monday",
    *,
    content: str = "content",
    size: str | None = "1Gi",
    ready: bool | None = True,
    error: str = "",
    deleting: bool = False,
    finalizers: Sequence[str] = (),
) -> v.VolumeSnapshot:
    """A VolumeSnapshot as snapshot-controller leaves it, ready to use."""
    return v.VolumeSnapshot(
        metadata=ObjectMeta(
            name=name,
            namespace="shop",
            uid=SNAPSHOT_UID,
            resource_version="4",
            deletion_timestamp=DELETED_AT if deleting else None,
            finalizers=list(finalizers),
        ),
        status=v.VolumeSnapshotStatus(
            bound_volume_snapshot_content_name=content or None,
            ready_to_use=ready,
            restore_size=size,
            error=v.SnapshotError(message=error) if error else None,
        ),
    )


def a_content(
    *,
    handle: str | None = SNAPSHOT_ID,
    driver: str = DRIVER,
    owner: str = "monday",
    owner_uid: str = SNAPSHOT_UID,
    mode: str | None = "Filesystem",
    allows: bool = False,
    deleting: bool = False,
) -> v.VolumeSnapshotContent:
    """What is behind it; ``allows`` the other volume mode."""
    return v.VolumeSnapshotContent(
        metadata=ObjectMeta(
            name="content",
            annotations={v.ALLOW_VOLUME_MODE_CHANGE: "true"} if allows else None,
            deletion_timestamp=DELETED_AT if deleting else None,
        ),
        spec=v.VolumeSnapshotContentSpec(
            driver=driver,
            source_volume_mode=mode,
            volume_snapshot_ref=ObjectReference(namespace="shop", name=owner, uid=owner_uid),
        ),
        status=v.VolumeSnapshotContentStatus(snapshot_handle=handle, ready_to_use=True),
    )


def a_source(
    *,
    size: str = "1Gi",
    uid: str = OTHER_UID,
    mode: str | None = None,
    volume_name: str = f"pvc-{OTHER_UID}",
    phase: str = "Bound",
    class_name: str | None = "fast",
    deleting: bool = False,
    finalizers: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> Claim:
    """A bound claim to clone."""
    bound = {BIND_COMPLETED: "yes"} if volume_name else {}
    claim = a_claim(
        "origin",
        size=size,
        uid=uid,
        volume_mode=mode,
        volume_name=volume_name,
        deleting=deleting,
        annotations={**bound, **(annotations or {})},
    )
    spec = replaced(claim.spec, storage_class_name=class_name)
    meta = replaced(claim.metadata, finalizers=list(finalizers))
    return replaced(claim, metadata=meta, spec=spec, status=ClaimStatus(phase=phase))


def its_volume(
    *,
    handle: str = VOLUME,
    driver: str = DRIVER,
    in_tree: bool = False,
    phase: str = "Bound",
    claim_uid: str | None = OTHER_UID,
    claim_name: str = "origin",
) -> PersistentVolume:
    """The persistent volume of that claim."""
    found = a_persistent_volume(
        f"pvc-{OTHER_UID}", handle=handle, driver=driver, in_tree=in_tree, phase=phase
    )
    holder = ObjectReference(namespace="shop", name=claim_name, uid=claim_uid or "")
    return replaced(found, spec=replaced(found.spec, claim_ref=holder if claim_uid else None))


def refused(answer: Source | Refuse) -> str:
    """What a claim is told that cannot be made from its source."""
    assert isinstance(answer, Refuse)
    assert answer.settled
    assert not answer.normal
    return answer.message


def waited_for(answer: Source | Refuse) -> str:
    """What a claim is told that waits for its source."""
    assert isinstance(answer, Refuse)
    assert answer.settled
    assert answer.normal
    return answer.message
