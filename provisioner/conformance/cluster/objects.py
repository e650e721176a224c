"""The objects of the worked example, as they are sent."""

from collections.abc import Mapping
from typing import Any

from provisioner.conformance.cluster.kinds import SNAPSHOTS
from provisioner.conformance.cluster.steps import SIZE
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.names import CLUSTER_RUN_TAG, CONFORMANCE_RUN

Body = dict[str, Any]

DATA, RESTORED, SNAPSHOT = "data", "restored", "monday"

TOLD = "/dev/termination-log"
CHECK = f"sha256sum < /data/file > {TOLD}"
WRITE = f"dd if=/dev/urandom of=/data/file bs=1M count=20 2> /dev/null && sync && {CHECK}"
CHANGE = "echo later > /data/later && echo changed > /data/file && sync"
# The files too: nothing may be there that came after the snapshot.
CHECK_ALL = f"{CHECK} && ls /data | grep -v lost+found | tr '\\n' ' ' >> {TOLD}"
_MIB_1500 = 1_500 * 1024
GROWS = (
    f"until [ $(df -k /data 2> /dev/null | awk 'END {{ print $2 + 0 }}') -gt {_MIB_1500} ]; "
    f"do sleep 0.2; done; {CHECK}"
)
HELLO = f"echo hello > {TOLD}"
_NOBODY = 65534


def name_of(run: str) -> str:
    """The namespace of a run, and the name of its classes."""
    return f"ebs-conformance-{run}"


def namespace(run: str) -> Body:
    """The namespace of a run."""
    labels = {CONFORMANCE_RUN: run, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"metadata": {"name": name_of(run), "labels": labels}}


def storage_class(run: str, file_system: str) -> Body:
    """The class of its claims."""
    return {
        "metadata": {"name": name_of(run), "labels": {CONFORMANCE_RUN: run}},
        "provisioner": EBS_DRIVER,
        "parameters": {
            "type": "gp3",
            "csi.storage.k8s.io/fstype": file_system,
            "tagSpecification_1": f"{CLUSTER_RUN_TAG}={run}",
        },
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def impossible_class(run: str) -> Body:
    """One that the webhook refuses: EC2 has no such volume type."""
    name = f"{name_of(run)}-impossible"
    return {
        "metadata": {"name": name, "labels": {CONFORMANCE_RUN: run}},
        "provisioner": EBS_DRIVER,
        "parameters": {"type": "gp33"},
    }


def snapshot_class(run: str) -> Body:
    """The class of its snapshot."""
    return {
        "metadata": {"name": name_of(run), "labels": {CONFORMANCE_RUN: run}},
        "driver": EBS_DRIVER,
        "deletionPolicy": "Delete",
        "parameters": {"tagSpecification_1": f"{CLUSTER_RUN_TAG}={run}"},
    }


def claim(run: str, name: str = DATA, *, of_snapshot: bool = False, size: str = SIZE) -> Body:
    """A claim, empty or made from the snapshot."""
    spec: Body = {
        "storageClassName": name_of(run),
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    if of_snapshot:
        spec["dataSource"] = {
            "apiGroup": SNAPSHOTS.group,
            "kind": SNAPSHOTS.kind,
            "name": SNAPSHOT,
        }
    return {"metadata": {"name": name}, "spec": spec}


def snapshot(run: str) -> Body:
    """A snapshot of the first claim's volume."""
    return {
        "metadata": {"name": SNAPSHOT},
        "spec": {
            "volumeSnapshotClassName": name_of(run),
            "source": {"persistentVolumeClaimName": DATA},
        },
    }


def pod(
    name: str, script: str, *, image: str, node: Mapping[str, str], claim_name: str = ""
) -> Body:
    """A pod that runs a script once, on a node with these labels; its claim is at /data."""
    container: Body = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec: Body = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "nodeSelector": dict(node),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    if claim_name:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return {"metadata": {"name": name}, "spec": spec}
