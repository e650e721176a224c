"""Views for the rules of ``explain``: all is well, but for what a test changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from provisioner.inspect.explain import target_rules
from provisioner.inspect.explain.chain_rules import Chain
from provisioner.inspect.explain.view_rules import (
    ClaimView,
    ControllerView,
    Lease,
    NodeView,
    Said,
    View,
    VolumeView,
)
from provisioner.inspect.object_name_rules import ObjectName
from provisioner.inspect.reading.kind_rules import PodStatus, WatchedPod
from provisioner.model import persistent_volume as p
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim, ClaimStatus, Condition
from provisioner.model.errors import Reason
from provisioner.model.leadership import lease_names
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.node import (
    Allocatable,
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    Node,
    NodeCondition,
    NodeMeta,
    NodeSpec,
    NodeStatus,
    OwnedMeta,
    Owner,
)
from provisioner.model.pod import ClaimSource, PodSpec, PodVolume
from provisioner.model.volume import (
    AttachmentState,
    Instance,
    InstanceAttachment,
    Volume,
    VolumeState,
)
from provisioner.model.zone import ZONE_LABEL
from tests.builders import DRIVER, INSTANCE, UID, VOLUME, ZONE, a_claim, a_class, an_attachment

NOW = datetime(2026, 11, 23, 20, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
PV = f"pvc-{UID}"
POD, CLAIM, NODE = "shop/web-0", "shop/data", "node-1"


def led(by: str = "ebs-provisioner_pod_1", ago_s: float = 3.0) -> ControllerView:
    """All four leases held."""
    renewed = NOW - timedelta(seconds=ago_s)
    pod = "storage/controller-0" if by else ""
    return ControllerView(tuple(Lease(name, by, renewed, pod=pod) for name in lease_names(DRIVER)))


def said(text: str, event: str = "ProvisioningFailed", **changes: Any) -> Said:
    """An event of the claim."""
    usual: dict[str, Any] = {"event": event, "at": NOW - timedelta(minutes=1)}
    return Said(f"pvc {CLAIM}", f"event {event}", text, **usual | changes)


def refused(reason: Reason, text: str = "EC2 says no") -> Said:
    """A ProvisioningFailed of ours."""
    return said(f"{reason}: {text}", reason=reason)


def claim_of(phase: str = "Pending", **changes: Any) -> Claim:
    """The claim "data", made an hour ago."""
    found = a_claim(created_at=LONG_AGO, **changes)
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    if phase in {"Bound", "Lost"}:
        spec = structs.replace(found.spec, volume_name=PV)
        meta = structs.replace(found.metadata, annotations={**found.annotations, **bound})
        found = structs.replace(found, spec=spec, metadata=meta)
    status = ClaimStatus(phase=phase, capacity={"storage": "1Gi"} if phase == "Bound" else None)
    return structs.replace(found, status=status)


def pv_of(
    zone: str = ZONE, *, name: str = PV, phase: str = "Bound", **changes: Any
) -> p.PlacedVolume:
    """A PersistentVolume that was provisioned in a zone."""
    usual: dict[str, Any] = {"policy": "Delete", "handle": VOLUME, "deleting": False}
    known = usual | changes
    terms = [{"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}]
    ref = ObjectReference(namespace="shop", name="data", uid=UID)
    return p.PlacedVolume(
        metadata=ObjectMeta(
            name=name,
            uid="pv-uid-1",
            annotations={p.PROVISIONED_BY: DRIVER},
            finalizers=known.get("finalizers", [p.PROVISIONER_FINALIZER]),
            deletion_timestamp="2026-11-23T19:00:00Z" if known["deleting"] else None,
        ),
        spec=p.PlacedSpec(
            capacity={"storage": "1Gi"},
            claim_ref=ref,
            persistent_volume_reclaim_policy=known["policy"],
            csi=p.CsiSource(driver=known.get("driver", DRIVER), volume_handle=known["handle"]),
            access_modes=["ReadWriteOnce"],
            node_affinity=p.Affinity(required=p.Required(node_selector_terms=terms)),
        ),
        status=p.PlacedStatus(phase=phase, last_phase_transition_time=known.get("since", NOW)),
    )


def ebs(zone: str = ZONE, *, on: str = INSTANCE, **changes: Any) -> Volume:
    """EC2's volume, attached to an instance unless ``on`` is ""."""
    there = InstanceAttachment(on, "/dev/xvdba", AttachmentState.ATTACHED)
    usual: dict[str, Any] = {
        "state": VolumeState.IN_USE if on else VolumeState.AVAILABLE,
        "attachments": (there,) if on else (),
    }
    return Volume(VOLUME, zone=zone, size_gib=1, **usual | changes)


def attachment_of(node: str = NODE, **changes: Any) -> Attachment:
    """The VolumeAttachment of the volume on a node."""
    return an_attachment(f"csi-{node}", node=node, **changes)


def of_another_driver(driver: str = "efs.csi.aws.com") -> VolumeView:
    """A bound volume that is not of this driver, and that nobody attaches; "" for no CSI driver."""
    found = pv_of(name="efs-pv", driver=driver, handle="fs-0123456789abcdef0")
    csi = found.spec.csi if driver else None
    spec = structs.replace(found.spec, csi=csi, node_affinity=None)
    return VolumeView("efs-pv", structs.replace(found, spec=spec), all_attachments=True)


def volume_of(**changes: Any) -> VolumeView:
    """Attached to node-1, as Kubernetes and EC2 say."""
    usual: dict[str, Any] = {
        "persistent_volume": pv_of(),
        "ebs": ebs(),
        "asked": True,
        "region": "us-east-1",
        "attachments": (attachment_of(attached=True),),
        "all_attachments": True,
        "nodes_of": {INSTANCE: NODE},
        "left": 4,
    }
    return VolumeView(PV, **usual | changes)


def claim_view(phase: str = "Pending", **changes: Any) -> ClaimView:
    """A claim with its class; a bound one with its volume."""
    usual: dict[str, Any] = {
        "claim": claim_of(phase),
        "storage_class": a_class(),
        "volume": volume_of() if phase == "Bound" else None,
    }
    return ClaimView(CLAIM, **usual | changes)


def node_of(name: str = NODE, zone: str | None = ZONE, **spec: Any) -> Node:
    """A ready node with an instance."""
    labels = {ZONE_LABEL: zone} if zone else {}
    provider = {"provider_id": f"aws:///{zone}/{INSTANCE}"}
    return Node(
        metadata=NodeMeta(name=name, uid=name, labels=labels),
        spec=NodeSpec(**provider | spec),
        status=NodeStatus(conditions=[NodeCondition(type="Ready", status="True")]),
    )


def csi_node_of(name: str = NODE, *, driver: str = DRIVER, count: int | None = 25) -> CsiNode:
    """The registration of the driver on a node."""
    entry = CsiNodeDriver(name=driver, node_id=INSTANCE, allocatable=Allocatable(count=count))
    return CsiNode(metadata=OwnedMeta(name=name), spec=CsiNodeSpec(drivers=[entry]))


def node_view(**changes: Any) -> NodeView:
    """A node with which all is well."""
    usual: dict[str, Any] = {
        "node": node_of(),
        "csi_node": csi_node_of(),
        "instance": Instance(INSTANCE, ZONE, "running", "m5.large"),
        "asked": True,
        "plugins": (),
    }
    known = usual | changes
    return NodeView(known.pop("name", NODE), **known)


def controlled_by(kind: str, name: str, uid: str = "1", **changes: Any) -> Owner:
    """The ownerReference of what creates a pod."""
    usual: dict[str, Any] = {"api_version": "apps/v1", "controller": True}
    return Owner(kind=kind, name=name, uid=uid, **usual | changes)


def pod_of(
    *, phase: str = "Running", node: str = NODE, message: str = "", name: str = "web-0", **spec: Any
) -> WatchedPod:
    """The pod "web-0", which uses the claim "data"; of ``spec``, owner and such go elsewhere."""
    meta: dict[str, Any] = {"owner_references": [spec.pop("owner")] if "owner" in spec else None}
    meta["deletion_timestamp"] = spec.pop("deleted_at", None)
    meta["annotations"] = spec.pop("annotations", {})
    containers = spec.pop("containers", None)
    claim = PodVolume(name="data", persistent_volume_claim=ClaimSource(claim_name="data"))
    scheduled = Condition(
        type="PodScheduled",
        status="True" if node else "False",
        reason="" if node else "Unschedulable",
        message=message,
    )
    return WatchedPod(
        metadata=OwnedMeta(
            name=name, namespace="shop", uid=name, creation_timestamp=LONG_AGO, **meta
        ),
        spec=PodSpec(node_name=node, volumes=[claim], **spec),
        status=PodStatus(
            phase=phase if node else "Pending",
            conditions=[scheduled],
            container_statuses=containers,
        ),
    )


def view(kind: str = "pvc", **changes: Any) -> View:
    """Around an object with which all is well."""
    namespace = "" if kind in {"pv", "node"} else "shop"
    name = {"pvc": "data", "pod": "web-0", "pv": PV, "node": NODE, "snapshot": "snap"}[kind]
    of_kind: Mapping[str, Mapping[str, Any]] = {
        "pvc": {"claims": (claim_view("Bound"),)},
        "pod": {"pod": pod_of(), "claims": (claim_view("Bound"),), "node": node_view()},
        "pv": {"volume": volume_of()},
        "node": {"node": node_view()},
    }
    start = View(ObjectName(kind, namespace, name), DRIVER, NOW, controller=led())
    return replace(start, **{**of_kind.get(kind, {}), **changes})


def causes(found: View) -> list[list[str]]:
    """The causes of each chain."""
    return [[str(link.cause) for link in chain.links] for chain in chains(found)]


def first_causes(found: View) -> list[str]:
    """The first cause of each chain."""
    return [str(chain.cause) for chain in chains(found)]


def chains(found: View) -> Sequence[Chain]:
    """All chains."""
    return target_rules.explain(found).chains
