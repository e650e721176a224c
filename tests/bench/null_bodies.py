"""What the null controller writes: the tags, objects and events of the product, hard-wired."""

import time
from datetime import UTC, datetime
from typing import Any

from tests.bench.world import CLUSTER

DRIVER = "ebs.csi.aws.com"
MARK = "ebs-provisioner.io/unclaimed"
PV_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
Json = dict[str, Any]


def tags(meta: Json, name: str) -> list[Json]:
    """The tags of a new volume."""
    found = {
        "CSIVolumeName": name,
        "KubernetesCluster": CLUSTER,
        "Name": f"{CLUSTER}-dynamic-{name}",
        "ebs.csi.aws.com/cluster": "true",
        "ebs.csi.aws.com/cluster-name": CLUSTER,
        f"kubernetes.io/cluster/{CLUSTER}": "owned",
        "kubernetes.io/created-for/pv/name": name,
        "kubernetes.io/created-for/pvc/name": meta["name"],
        "kubernetes.io/created-for/pvc/namespace": meta["namespace"],
        MARK: "Delete",
    }
    return [{"Key": key, "Value": value} for key, value in found.items()]


def manifest(meta: Json, spec: Json, name: str, volume_id: str, zone: str) -> Json:
    """The persistent volume of a claim."""
    in_zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": DRIVER,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
            "finalizers": [PV_FINALIZER],
        },
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                **{key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")},
            },
            "storageClassName": spec["storageClassName"],
            "csi": {
                "driver": DRIVER,
                "volumeHandle": volume_id,
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "null"},
                "fsType": "ext4",
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
        },
    }


def event(meta: Json, name: str) -> Json:
    """The event that it is done."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{time.time_ns():x}",
            "namespace": meta["namespace"],
        },
        "involvedObject": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **about},
        "reason": "ProvisioningSucceeded",
        "message": f"Successfully provisioned volume {name}",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "null"},
        "reportingComponent": "null",
    }
