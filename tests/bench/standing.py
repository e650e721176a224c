"""The objects of a large cluster in which everything is settled, as the API server stores them.

Object number n of each kind is made from n alone, so a hundred thousand of them cost no memory.
They are as long as real ones: with the record of managed fields, and nodes with their images.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from provisioner.model import tags
from provisioner.model.claim import SELECTED_NODE
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.names import INSTANCE_ID, MADE_FROM, PINNED_ZONE, UNCLAIMED
from provisioner.model.node_affinity import REGION_LABEL, region_of
from provisioner.model.persistent_volume import DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume, VolumeState
from provisioner.model.zone import ZONE_LABEL

Json = dict[str, Any]

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
CLASS = "ebs"
_VOLUME_ID = re.compile("vol-([0-9a-f]{17})")
_MADE = "2026-11-20T00:00:00Z"
TEAMS = 200
TEAM = "team-0"
_IMAGES = 50  # as many as a kubelet tells (nodeStatusMaxImages)
_IDENTITY = "1795494010535-9436-ebs.csi.aws.com"
_OTHERS = 10**8  # the UIDs of a claim, its volume, its attachment and a CSINode are four


@dataclass(frozen=True, slots=True)
class Standing:
    """How many there are; each volume has a claim, the first of them are attached."""

    volumes: int
    nodes: int
    attachments: int

    @classmethod
    def of(cls, volumes: int) -> "Standing":
        """As the largest cluster that Kubernetes promises to carry has them, for each volume."""
        return cls(volumes, max(1, volumes // 10), volumes * 6 // 10)

    @property
    def claims_of_one_team(self) -> int:
        """How many claims ``TEAM`` has."""
        return -(-self.volumes // TEAMS)

    def stored(self) -> Iterator[tuple[str, Json]]:
        """Everything, by its key in etcd."""
        for n in range(TEAMS):
            yield f"/registry/namespaces/{team(n)}", namespace(n)
        yield f"/registry/storageclasses/{CLASS}", storage_class()
        for n in range(self.nodes):
            yield f"/registry/minions/{node_name(n)}", node(n)
            yield f"/registry/csinodes/{node_name(n)}", csi_node(n)
        for n in range(self.volumes):
            yield f"/registry/persistentvolumes/{volume_name(n)}", persistent_volume(n)
            yield (
                f"/registry/persistentvolumeclaims/{team(n)}/{claim_name(n)}",
                claim(n, self.nodes),
            )
        for n in range(self.attachments):
            body = attachment(n, self.nodes)
            yield f"/registry/volumeattachments/{body['metadata']['name']}", body

    def volume(self, n: int, cluster_id: str) -> Volume:
        """What EC2 has of a volume."""
        owner = tags.Owner(team(n), claim_name(n), volume_name(n), "Delete")
        written = dict(tags.of_new_volume(owner, cluster_id=cluster_id, extra={}))
        del written[UNCLAIMED]
        held = InstanceAttachment(
            instance_id(n % self.nodes), "/dev/xvdaa", AttachmentState.ATTACHED
        )
        is_held = n < self.attachments
        return Volume(
            volume_id=volume_id(n),
            state=VolumeState.IN_USE if is_held else VolumeState.AVAILABLE,
            size_gib=size_gib(n),
            zone=ZONES[n % len(ZONES)],
            tags=written,
            attachments=(held,) if is_held else (),
        )


# No pods stand here. Without it the controller manager would write it to each claim, for minutes
# (Kubernetes 1.37 pvc-protection-controller, feature PersistentVolumeClaimUnusedSinceTime).
UNUSED = {
    "type": "Unused",
    "status": "True",
    "reason": "NoPodsUsingPVC",
    "message": "No pods are currently referencing this PVC",
    "lastProbeTime": None,
    "lastTransitionTime": _MADE,
}


def team(n: int) -> str:
    """The namespace of claim n."""
    return f"team-{n % TEAMS}"


def _uid(n: int) -> str:
    return f"{n:08x}-7f00-4a7e-9d61-{n:012x}"


def volume_name(n: int) -> str:
    """Of a persistent volume."""
    return f"pvc-{_uid(n)}"


def claim_name(n: int) -> str:
    """Of a claim."""
    return f"data-app-{n}"


def of_one_team(turn: int) -> str:
    """Of a claim of ``TEAM``: every so many-th belongs to it."""
    return claim_name(turn * TEAMS)


def node_name(n: int) -> str:
    """Of a node."""
    return f"ip-{n}.ec2.internal"


def volume_id(n: int) -> str:
    """Of a volume in EC2."""
    return f"vol-{n:017x}"


def number_of(volume_id: str) -> int | None:
    """The opposite of ``volume_id``; None for what is no id, a large number for any other."""
    found = _VOLUME_ID.fullmatch(volume_id)
    return int(found[1], 16) if found is not None else None


def instance_id(n: int) -> str:
    """Of a node's instance."""
    return f"i-{n:017x}"


def _meta(name: str, n: int, **more: Any) -> Json:
    made = {"name": name, "uid": _uid(n), "creationTimestamp": _MADE}
    return {**made, **more, "managedFields": [_managed(name) for _ in range(2)]}


def _managed(name: str) -> Json:
    """As long as what the API server records of each writer."""
    owned: Json = {f"f:{field}-of-a-spec": {} for field in ("a", "b", "c", "d", "e", "f")}
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _MADE,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, f"f:{name}": {}}}, "f:spec": owned},
    }


def namespace(n: int) -> Json:
    """One of those that the claims are in."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": _meta(team(n), n),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def size_gib(n: int) -> int:
    """One of 300 sizes: equal parts of objects are held once, so claims that are alike are cheap."""
    return n % 300 + 1


def _applied(n: int) -> str:
    """What ``kubectl apply`` writes to a claim."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeMode": "Filesystem"}
    meta = {"name": claim_name(n), "namespace": team(n), "labels": {"app": f"app-{n}"}}
    return json.dumps({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})


def claim(n: int, nodes: int) -> Json:
    """Bound, when a pod was scheduled."""
    annotations = {
        SELECTED_NODE: node_name(n % nodes),
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/storage-provisioner": EBS_DRIVER,
        PINNED_ZONE: f"{ZONES[n % len(ZONES)]}/{_uid(n)}",
        "kubectl.kubernetes.io/last-applied-configuration": _applied(n),
    }
    size = {"storage": f"{size_gib(n)}Gi"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _meta(
            claim_name(n),
            n,
            namespace=team(n),
            labels={"app": f"app-{n}"},
            annotations=annotations,
            finalizers=["kubernetes.io/pvc-protection"],
        ),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": size},
            "storageClassName": CLASS,
            "volumeMode": "Filesystem",
            "volumeName": volume_name(n),
        },
        "status": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": size,
            "phase": "Bound",
            "conditions": [UNUSED],
        },
    }


def persistent_volume(n: int) -> Json:
    """Bound, as the product writes them."""
    zone = ZONES[n % len(ZONES)]
    term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": _meta(
            volume_name(n),
            _OTHERS + n,
            labels={ZONE_LABEL: zone, REGION_LABEL: region_of(zone)},
            annotations={
                "pv.kubernetes.io/provisioned-by": EBS_DRIVER,
                DELETION_SECRET_NAME: "",
                DELETION_SECRET_NAMESPACE: "",
            },
            finalizers=[
                "external-provisioner.volume.kubernetes.io/finalizer",
                "kubernetes.io/pv-protection",
                "external-attacher/ebs-csi-aws-com",
            ],
        ),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": f"{size_gib(n)}Gi"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": team(n),
                "name": claim_name(n),
                "uid": _uid(n),
                "resourceVersion": "1",
            },
            "csi": {
                "driver": EBS_DRIVER,
                "fsType": "ext4",
                "volumeHandle": volume_id(n),
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": _IDENTITY},
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Bound"},
    }


def attachment(n: int, nodes: int) -> Json:
    """Of volume n, attached."""
    told = {
        "devicePath": "/dev/xvdaa",
        INSTANCE_ID: instance_id(n % nodes),
        MADE_FROM: "blank",
    }
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": _meta(
            f"csi-{n:064x}",
            2 * _OTHERS + n,
            annotations={
                "csi.alpha.kubernetes.io/node-id": instance_id(n % nodes),
                "ebs-provisioner.io/volume-id": volume_id(n),
            },
            finalizers=["external-attacher/ebs-csi-aws-com"],
        ),
        "spec": {
            "attacher": EBS_DRIVER,
            "nodeName": node_name(n % nodes),
            "source": {"persistentVolumeName": volume_name(n)},
        },
        "status": {"attached": True, "attachmentMetadata": told},
    }


def node(n: int) -> Json:
    """Ready, as kOps and its cloud controller, kubelet, Calico and the node plugin leave one."""
    zone = ZONES[n % len(ZONES)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta(
            node_name(n), n, labels=_labels_of_node(n, zone), annotations=_annotations_of_node(n)
        ),
        "spec": {
            "providerID": f"aws:///{zone}/{instance_id(n)}",
            "podCIDR": f"100.64.{n % 250}.0/24",
            "podCIDRs": [f"100.64.{n % 250}.0/24"],
        },
        "status": {
            "capacity": _capacity("2", "7902476Ki"),
            "allocatable": _capacity("1930m", "7187724Ki"),
            "conditions": conditions(_MADE),
            "addresses": [
                {"type": "InternalIP", "address": _address(n)},
                {"type": "InternalDNS", "address": node_name(n)},
                {"type": "Hostname", "address": node_name(n)},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": _node_info(n),
            "images": [_image(i) for i in range(_IMAGES)],
        },
    }


def _address(n: int) -> str:
    return f"10.{n // 65_536 % 256}.{n // 256 % 256}.{n % 256}"


def _labels_of_node(n: int, zone: str) -> dict[str, str]:
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "m5.large",
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": region_of(zone),
        "failure-domain.beta.kubernetes.io/zone": zone,
        "k8s.io/cloud-provider-aws": "7e9a2c8b0c5d4e1fb1f3e6a9d0c4b7a2",
        "kops.k8s.io/instancegroup": f"nodes-{zone}",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node_name(n),
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/node": "",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.ebs.csi.aws.com/zone": zone,
        "topology.k8s.aws/zone-id": f"use1-az{ZONES.index(zone) + 1}",
        "topology.kubernetes.io/region": region_of(zone),
        "topology.kubernetes.io/zone": zone,
    }


def _annotations_of_node(n: int) -> dict[str, str]:
    return {
        "alpha.kubernetes.io/provided-node-ip": _address(n),
        "csi.volume.kubernetes.io/nodeid": json.dumps({EBS_DRIVER: instance_id(n)}),
        "node.alpha.kubernetes.io/ttl": "0",
        "projectcalico.org/IPv4Address": f"{_address(n)}/19",
        "projectcalico.org/IPv4IPIPTunnelAddr": f"100.64.{n % 250}.1",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }


def _capacity(cpu: str, memory: str) -> dict[str, str]:
    return {
        "cpu": cpu,
        "ephemeral-storage": "60858996Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": memory,
        "pods": "110",
    }


def _node_info(n: int) -> dict[str, str]:
    return {
        "machineID": f"ec2{n:029x}",
        "systemUUID": f"ec2{n:05x}-7f00-4a7e-9d61-{n:012x}",
        "bootID": _uid(n),
        "kernelVersion": "6.8.0-1031-aws",
        "osImage": "Ubuntu 24.04.3 LTS",
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _image(i: int) -> Json:
    name = f"registry.example/team-{i}/app"
    return {"names": [f"{name}@sha256:{i:064x}", f"{name}:v1.{i}.0"], "sizeBytes": 10**8 + i}


def conditions(heartbeat: str) -> list[Json]:
    """What a kubelet writes every five minutes, with the time of that."""
    told = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "has sufficient memory"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "has sufficient PID"),
        "Ready": ("True", "KubeletReady", "is posting ready status"),
    }
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": f"kubelet {what}",
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": _MADE,
        }
        for kind, (status, reason, what) in told.items()
    ]


def csi_node(n: int) -> Json:
    """Registered with the driver."""
    driver = {
        "name": EBS_DRIVER,
        "nodeID": instance_id(n),
        "topologyKeys": ["topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"],
        "allocatable": {"count": 25},
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name(n), "uid": _uid(n)}
    migrated = ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume")
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": _meta(
            node_name(n),
            3 * _OTHERS + n,
            annotations={
                "storage.alpha.kubernetes.io/migrated-plugins": ",".join(
                    f"kubernetes.io/{each}" for each in migrated
                )
            },
            ownerReferences=[owner],
        ),
        "spec": {"drivers": [driver]},
    }


def storage_class(name: str = CLASS) -> Json:
    """Of all claims, or of those of some teams."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": _meta(name, 1),
        "provisioner": EBS_DRIVER,
        "parameters": {"type": "gp3"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
