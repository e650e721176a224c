"""Builders of the objects that rules look at: one a kind, each showing only what matters."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from string import ascii_lowercase

from msgspec import structs

from provisioner.classes.storage_class_rules import read
from provisioner.controller.provisioning.plan_rules import Plan, plan
from provisioner.model import attachment as a
from provisioner.model import claim as c
from provisioner.model import persistent_volume as p
from provisioner.model import zone as z
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.names import VOLUME_ID
from provisioner.model.node import (
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    Node,
    NodeMeta,
    OwnedMeta,
    Owner,
)
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume, VolumeState

DRIVER = EBS_DRIVER
UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000001"
ZONE = "us-east-1a"
INSTANCE = "i-0aaaaaaaaaaaaaaa1"
OTHER_INSTANCE = "i-0bbbbbbbbbbbbbbb2"
VOLUME = "vol-0123456789abcdef0"
ATTACHER_FINALIZER = p.finalizer_of_attacher(DRIVER)
DELETED_AT = "2026-11-21T10:00:00Z"
JUST_NOW = datetime.now(UTC)


def a_claim(
    name: str = "data",
    *,
    size: str = "1Gi",
    uid: str = UID,
    modes: Sequence[str] = ("ReadWriteOnce",),
    volume_mode: str | None = None,
    volume_name: str = "",
    node: str = "",
    deleting: bool = False,
    annotations: Mapping[str, str] | None = None,
    source: c.DataSource | None = None,
    source_ref: c.DataSource | None = None,
    selector: dict[str, object] | None = None,
    attributes_class: str | None = None,
    created_at: datetime | None = JUST_NOW,
) -> c.Claim:
    """A claim of class "fast" that the driver is asked to provision.

    ``annotations`` replace the one that asks the driver; ``node`` is the selected one.
    """
    written = dict({c.STORAGE_PROVISIONER: DRIVER} if annotations is None else annotations)
    return c.Claim(
        metadata=ObjectMeta(
            name=name,
            namespace="shop",
            uid=uid,
            resource_version="7",
            creation_timestamp=created_at,
            annotations=written | ({c.SELECTED_NODE: node} if node else {}),
            deletion_timestamp=DELETED_AT if deleting else None,
        ),
        spec=c.ClaimSpec(
            access_modes=list(modes),
            resources=c.ClaimResources(requests={"storage": size}),
            storage_class_name="fast",
            volume_mode=volume_mode,
            volume_name=volume_name,
            data_source=source,
            data_source_ref=source_ref,
            selector=selector,
            volume_attributes_class_name=attributes_class,
        ),
    )


def a_class(
    name: str = "fast",
    *,
    provisioner: str = DRIVER,
    parameters: dict[str, str] | None = None,
    reclaim_policy: str | None = "Delete",
    waits: bool = False,
    mount_options: list[str] | None = None,
    allowed: list[z.TopologyTerm] | None = None,
) -> StorageClass:
    """A StorageClass; ``waits`` for the first consumer of a claim."""
    return StorageClass(
        metadata=ObjectMeta(name=name),
        provisioner=provisioner,
        parameters=parameters,
        reclaim_policy=reclaim_policy,
        volume_binding_mode="WaitForFirstConsumer" if waits else "Immediate",
        mount_options=mount_options,
        allowed_topologies=allowed,
    )


def a_term(**values: list[str]) -> z.TopologyTerm:
    """One alternative of allowedTopologies: ``a_term(zone=[…], os=[…])``; other keys are free."""
    keys = {
        "zone": z.ZONE_LABEL,
        "ebs_zone": z.EBS_ZONE_LABEL,
        "beta_zone": z.BETA_ZONE_LABEL,
        "zone_id": "topology.k8s.aws/zone-id",
        "region": "topology.ebs.csi.aws.com/region",
        "partition": "topology.ebs.csi.aws.com/partition",
        "account": "topology.ebs.csi.aws.com/account-id",
        "outpost": "topology.ebs.csi.aws.com/outpost-id",
        "os": "kubernetes.io/os",
    }
    return z.TopologyTerm(
        match_label_expressions=[
            z.TopologyRequirement(key=keys[key], values=found) for key, found in values.items()
        ]
    )


def a_node(
    name: str = "node-1",
    *,
    zone: str | None = ZONE,
    labels: Mapping[str, str] | None = None,
    version: str = "",
    deleting: bool = False,
) -> Node:
    """A node with the label of its zone, and more ``labels``."""
    return Node(
        metadata=NodeMeta(
            name=name,
            resource_version=version,
            labels={**({z.ZONE_LABEL: zone} if zone else {}), **(labels or {})} or None,
            deletion_timestamp=DELETED_AT if deleting else None,
        ),
    )


def a_csi_node(
    name: str = "node-1", *, instance: str = INSTANCE, driver: str | None = DRIVER
) -> CsiNode:
    """A node's registration of the driver; ``driver=None``: of none."""
    drivers = [CsiNodeDriver(name="other.csi"), CsiNodeDriver(name=driver or "", node_id=instance)]
    return CsiNode(
        metadata=OwnedMeta(name=name), spec=CsiNodeSpec(drivers=drivers if driver else None)
    )


def owned_csi_node(
    name: str = "node-1", *, uid: str = "", instance: str = INSTANCE, driver: str | None = DRIVER
) -> CsiNode:
    """The same of a very node: that with this UID, or with its name as its UID."""
    found = a_csi_node(name, instance=instance, driver=driver)
    owners = [Owner(kind="Node", uid=uid or name)]
    metadata = structs.replace(found.metadata, owner_references=owners)
    return structs.replace(found, metadata=metadata)


def a_persistent_volume(
    name: str = f"pvc-{UID}",
    *,
    uid: str = "pv-uid-1",
    phase: str = "Bound",
    policy: str = "Delete",
    handle: str = VOLUME,
    driver: str = DRIVER,
    in_tree: bool = False,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (p.PROVISIONER_FINALIZER,),
    deleting: bool = False,
    claim_uid: str | None = UID,
    volume_mode: str | None = None,
    access_modes: Sequence[str] = ("ReadWriteOnce",),
) -> p.PersistentVolume:
    """One that this driver has provisioned and that is bound."""
    provisioned = {p.PROVISIONED_BY: DRIVER}
    return p.PersistentVolume(
        metadata=ObjectMeta(
            name=name,
            uid=uid,
            annotations=dict(provisioned if annotations is None else annotations),
            finalizers=list(finalizers),
            deletion_timestamp=DELETED_AT if deleting else None,
        ),
        spec=p.PersistentVolumeSpec(
            claim_ref=ObjectReference(uid=claim_uid) if claim_uid else None,
            persistent_volume_reclaim_policy=policy,
            csi=None if in_tree else p.CsiSource(driver=driver, volume_handle=handle),
            aws_elastic_block_store=p.InTreeSource(volume_id=handle) if in_tree else None,
            volume_mode=volume_mode,
            access_modes=list(access_modes),
        ),
        status=p.PersistentVolumeStatus(phase=phase),
    )


def an_attachment(
    name: str = "csi-1",
    *,
    uid: str = "va-uid-1",
    version: str = "1",
    persistent_volume: str | None = f"pvc-{UID}",
    inline: p.PersistentVolumeSpec | None = None,
    node: str = "node-1",
    prepared: bool = True,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] | None = None,
    attached: bool = False,
    error: str = "",
    deleting: bool = False,
    created_at: datetime | None = None,
) -> a.Attachment:
    """A wish for ``VOLUME`` on ``INSTANCE``; ``prepared``: both recorded, the object held."""
    recorded = {a.NODE_ID: INSTANCE, VOLUME_ID: VOLUME} if prepared else {}
    held = (ATTACHER_FINALIZER,) if prepared else ()
    return a.Attachment(
        metadata=a.AttachmentMeta(
            name=name,
            uid=uid,
            resource_version=version,
            annotations=dict(recorded if annotations is None else annotations),
            finalizers=list(held if finalizers is None else finalizers),
            creation_timestamp=created_at,
            deletion_timestamp=DELETED_AT if deleting else None,
        ),
        spec=a.AttachmentSpec(
            attacher=DRIVER,
            node_name=node,
            source=a.AttachmentSource(
                persistent_volume_name=persistent_volume, inline_volume_spec=inline
            ),
        ),
        status=a.AttachmentStatus(
            attached=attached, attach_error=a.AttachmentError(message=error) if error else None
        ),
    )


def a_volume(
    volume_id: str = VOLUME,
    *,
    state: VolumeState = VolumeState.AVAILABLE,
    zone: str = ZONE,
    size_gib: int = 1,
    encrypted: bool = False,
    outpost_arn: str = "",
    multi_attach: bool = False,
    created_at: datetime | None = datetime(2026, 11, 21, 9, 0, tzinfo=UTC),
    tags: Mapping[str, str] | None = None,
    on: Mapping[str, AttachmentState] | None = None,
) -> Volume:
    """A volume as EC2 tells it; ``on``: instance id -> state of the attachment, in use then."""
    attachments = tuple(
        InstanceAttachment(instance, f"/dev/xvda{letter}", at)
        for letter, (instance, at) in zip(ascii_lowercase, (on or {}).items(), strict=False)
    )
    return Volume(
        volume_id,
        VolumeState.IN_USE if attachments else state,
        zone,
        size_gib,
        encrypted=encrypted,
        outpost_arn=outpost_arn,
        multi_attach=multi_attach,
        created_at=created_at,
        tags=dict(tags or {}),
        attachments=attachments,
    )


def a_plan(
    claim: c.Claim | None = None, storage_class: StorageClass | None = None, *, zone: str = ZONE
) -> Plan:
    """What is made for a claim."""
    made = plan(
        claim or a_claim(),
        read(storage_class or a_class()),
        zone=zone,
        cluster_id="prod",
        extra_tags=(),
        default_file_system="ext4",
    )
    assert isinstance(made, Plan)
    return made


def an_ec2_error(
    reason: Reason = Reason.INVALID_REQUEST, outcome: Outcome = Outcome.NOTHING
) -> Ec2Error:
    """A failed CreateVolume."""
    return Ec2Error(reason, f"EC2 says {reason}", action="CreateVolume", outcome=outcome)
