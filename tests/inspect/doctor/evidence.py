"""Evidence of a cluster in which nothing is wrong, to be changed in one thing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from provisioner.inspect.doctor.check_rules import Check
from provisioner.inspect.doctor.command import checks_of
from provisioner.inspect.doctor.evidence_rules import (
    CloudEvidence,
    ClusterEvidence,
    Evidence,
    SeenInstance,
    Try,
)
from provisioner.inspect.reading.quota_rules import QuotaUse
from provisioner.inspect.reading.setup_kind_rules import (
    CsiDriverSetup,
    SeenLease,
    SystemNode,
    Workload,
)
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.leadership import lease_names
from provisioner.model.names import MADE_BY_DRIVER
from provisioner.model.node import CsiNode
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume, VolumeState

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
OLD = "2026-11-23T10:00:00Z"
DRIVER = "ebs.csi.aws.com"
ZONE = "us-east-1a"
VOLUME, INSTANCE = "vol-0123456789abcdef0", "i-0123456789abcdef0"
HOLDER = "ebs-provisioner_controller-0"
ENCRYPTED = "arn:aws:kms:us-east-1:123456789012:key/1"
YES = Try("CreateVolume", "a new volume", "DryRunOperation", "")
NO = Try("CreateVolume", "a new volume", "UnauthorizedOperation", "You are not authorized.")

T = TypeVar("T")


def read(kind: type[T], document: dict[str, Any]) -> T:
    return msgspec.convert(document, kind)


def node(name: str = "node-1", **spec: Any) -> SystemNode:
    labels = {"topology.kubernetes.io/zone": ZONE, "topology.kubernetes.io/region": "us-east-1"}
    document = {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": OLD, "uid": name},
        "spec": {"providerID": f"aws:///{ZONE}/{INSTANCE}"} | spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }
    return read(SystemNode, document)


def not_ready(name: str = "node-1") -> SystemNode:
    """Its kubelet has stopped to report."""
    found = node(name)
    conditions = [structs.replace(each, status="Unknown") for each in found.status.conditions or ()]
    return structs.replace(found, status=structs.replace(found.status, conditions=conditions))


def a_quota(code: str, name: str, limit: float, used: float) -> QuotaUse:
    use = QuotaUse(of="gp3", what="storage", code=code, number=1, used=used, unit="TiB")
    return replace(use, name=name, limit=limit)


def csi_node(name: str = "node-1", count: int | None = 25) -> CsiNode:
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    driver = {"name": DRIVER, "nodeID": INSTANCE} | allocatable
    return read(CsiNode, {"metadata": {"name": name}, "spec": {"drivers": [driver]}})


def lease(
    name: str, holder: str = HOLDER, ago_s: float = 3.0, *, namespace: str = "kube-system"
) -> SeenLease:
    renewed = (NOW - timedelta(seconds=ago_s)).isoformat()
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    meta = {"name": name, "namespace": namespace}
    return read(SeenLease, {"metadata": meta, "spec": spec})


def leases(**changed: SeenLease) -> dict[str, SeenLease]:
    return {name: lease(name) for name in lease_names(DRIVER)} | changed


def storage_class(name: str = "gp3", **parameters: str) -> StorageClass:
    document = {
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"type": "gp3"} | parameters,
    }
    return read(StorageClass, document)


def persistent_volume(zone: str = ZONE, **metadata: Any) -> PlacedVolume:
    term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    document = {
        "metadata": {"name": "pv-1"} | metadata,
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": VOLUME}, "nodeAffinity": affinity},
    }
    return read(PlacedVolume, document)


def attachment(node_name: str = "node-1", *, attached: bool = True) -> Attachment:
    document = {
        "metadata": {"name": "csi-1", "creationTimestamp": OLD},
        "spec": {
            "attacher": DRIVER,
            "nodeName": node_name,
            "source": {"persistentVolumeName": "pv-1"},
        },
        "status": {"attached": attached},
    }
    return read(Attachment, document)


def volume(instance_id: str = INSTANCE, **changes: Any) -> Volume:
    there = InstanceAttachment(instance_id, "/dev/xvdaa", AttachmentState.ATTACHED)
    tags = {MADE_BY_DRIVER: "true"}
    made = Volume(VOLUME, VolumeState.IN_USE, ZONE, 20, attachments=(there,), tags=tags)
    return replace(made, **changes)


def deployment(name: str, component: str, ready: int = 2, **labels: str) -> Workload:
    marks = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": component}
    container = {"name": component, "image": "registry.example/ebs-provisioner:0.2.0"}
    document = {
        "metadata": {"name": name, "namespace": "ebs", "labels": marks | labels},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready},
    }
    return read(Workload, document)


def instance(**changes: Any) -> SeenInstance:
    made = SeenInstance(
        INSTANCE,
        ZONE,
        "running",
        hop_limit=2,
        volume_ids=("vol-root", VOLUME),
        instance_type="m5.large",
        most_volumes=27,
    )
    return replace(made, **changes)


CLUSTER = ClusterEvidence(
    nodes=[node()],
    csi_nodes=[csi_node()],
    csi_driver=read(
        CsiDriverSetup, {"metadata": {"name": DRIVER}, "spec": {"fsGroupPolicy": "File"}}
    ),
    classes=[storage_class()],
    volumes=[persistent_volume()],
    attachments=[attachment()],
    leases=leases(),
    deployments=[deployment("controller", "controller")],
    server_version="v1.36.3",
)
CLOUD = CloudEvidence(
    region="us-east-1",
    identity="arn:aws:sts::123456789012:assumed-role/admin/me",
    tried_as="arn:aws:sts::123456789012:assumed-role/controller/doctor",
    is_controllers=True,
    volumes={VOLUME: volume()},
    instances={INSTANCE: instance()},
    tries=[Try("CreateVolume", "a new volume", "DryRunOperation", "")],
    quotas=[a_quota("L-7A658B76", "Storage for gp3", 50, 5)],
)
SOUND = Evidence(driver=DRIVER, now=NOW, cluster=CLUSTER, cloud=CLOUD)


def with_cluster(**changes: Any) -> Evidence:
    return replace(SOUND, cluster=replace(CLUSTER, **changes))


def with_cloud(**changes: Any) -> Evidence:
    return replace(SOUND, cloud=replace(CLOUD, **changes))


def checked(seen: Evidence) -> dict[str, Check]:
    return {each.id: each for each in checks_of(seen)}


def a_volume(name: str, handle: str) -> PlacedVolume:
    source = {"driver": DRIVER, "volumeHandle": handle}
    return read(PlacedVolume, {"metadata": {"name": name}, "spec": {"csi": source}})


def plugin(name: str = "ebs-csi-node", ready: int = 1, **pods: Any) -> Workload:
    document = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": pods}},
        "status": {"desiredNumberScheduled": 2, "numberReady": ready},
    }
    return read(Workload, document)


def claim(**spec: Any) -> Claim:
    document = {"metadata": {"name": "data", "namespace": "shop"}, "spec": spec}
    return read(Claim, document)
