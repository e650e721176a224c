"""A large cluster in which pods run: the standing one, with real instances and with its pods.

Without the pods the attach/detach controller would detach everything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from provisioner.model.attachment import attachment_name
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.volume import Volume
from provisioner.sandbox import nodes
from provisioner.sandbox.strict_ec2.instances import Instance
from tests.bench import standing
from tests.bench.standing import ZONES, Json, Standing

_PER_NODE = 10
_PER_CLASS = 1_000
_POD_UIDS = 2 * 10**8  # unlike those of claims and volumes
# As Kubernetes 1.37 leaves a claim that a pod uses (see ``standing.UNUSED``).
_USED = {
    "type": "Unused",
    "status": "False",
    "reason": "PodUsingPVC",
    "message": "A pod is currently referencing this PVC",
    "lastProbeTime": None,
    "lastTransitionTime": "2026-11-20T00:00:00Z",
}


@dataclass(frozen=True, slots=True)
class Populated:
    """How many there are, and the instances that the nodes are; node n is instance n.

    Attributes:
        classes: over how many StorageClasses the volumes are spread; a team has one of them.
    """

    volumes: int
    attachments: int
    instances: Sequence[str]
    classes: int = 1

    @property
    def nodes(self) -> int:
        """How many."""
        return len(self.instances)

    @property
    def _standing(self) -> Standing:
        return Standing(self.volumes, self.nodes, self.attachments)

    def volume(self, n: int, cluster_id: str) -> Volume:
        """What EC2 has of a volume."""
        found = self._standing.volume(n, cluster_id)
        held = [replace(each, instance_id=self._instance_of(n)) for each in found.attachments]
        return replace(found, attachments=tuple(held))

    def stored(self) -> Iterator[tuple[str, Json]]:
        """Everything, by its key in etcd."""
        for key, body in self._standing.stored():
            kind, name = key.split("/")[2], key.rpartition("/")[2]
            if kind in {"minions", "csinodes", "storageclasses"}:
                continue
            if kind == "volumeattachments":
                n = int(name.removeprefix("csi-"), 16)
                yield self._attachment(self._on_instance(body, n), n)
            elif kind == "persistentvolumeclaims":
                n = int(name.rpartition("-")[2])
                if self.is_used(n):
                    body["status"]["conditions"] = [_USED]
                yield key, self._in_class(body, n)
            elif kind == "persistentvolumes":
                yield key, self._in_class(body, int(name.rpartition("-")[2], 16))
            else:
                yield key, body
        for n in range(self.classes):
            name = class_name(n, self.classes)
            yield f"/registry/storageclasses/{name}", standing.storage_class(name)
        for n in range(self.nodes):
            yield f"/registry/minions/{standing.node_name(n)}", self._node(n)
            yield (
                f"/registry/csinodes/{standing.node_name(n)}",
                self._on_instance(standing.csi_node(n), n),
            )
        for n in range(self.attachments):
            yield f"/registry/pods/{standing.team(n)}/{pod_name(n)}", self._pod(n)

    def _in_class(self, body: Json, n: int) -> Json:
        body["spec"]["storageClassName"] = class_name(n, self.classes)
        return body

    def is_used(self, n: int) -> bool:
        """Whether a pod uses volume n."""
        return n < self.attachments

    def _attachment(self, body: Json, n: int) -> tuple[str, Json]:
        """By the name under which the attach/detach controller looks for it."""
        node = standing.node_name(n % self.nodes)
        body["metadata"]["name"] = attachment_name(standing.volume_id(n), EBS_DRIVER, node)
        return f"/registry/volumeattachments/{body['metadata']['name']}", body

    def _instance_of(self, n: int) -> str:
        return self.instances[n % self.nodes]

    def _on_instance(self, body: Json, n: int) -> Json:
        """With the real instance's id wherever its number's stands."""
        number = standing.instance_id(n % self.nodes).encode()
        text = msgspec.json.encode(body).replace(number, self._instance_of(n).encode())
        found: Json = msgspec.json.decode(text)
        return found

    def _node(self, n: int) -> Json:
        """Ready, as kubelet and attach/detach controller leave it."""
        instance = instance_of(n, self.instances[n])
        body = self._on_instance(standing.node(n), n)
        made = nodes.node(instance)
        body["metadata"]["annotations"] = made["metadata"]["annotations"]
        held = [handle(each) for each in range(n, self.attachments, self.nodes)]
        ready = nodes.ready_status(instance, datetime.now(UTC))
        body["status"] = {
            **ready,
            "images": body["status"]["images"],
            "volumesAttached": [{"name": each, "devicePath": ""} for each in held],
            "volumesInUse": held,
        }
        # What a store reads is not defaulted as what a client sends.
        body["status"]["nodeInfo"] |= {"kubeletVersion": "v1.37.2"}
        return body

    def _pod(self, n: int) -> Json:
        body = pod(n, standing.team(n))
        uid = standing.claim(_POD_UIDS + n, 1)["metadata"]["uid"]
        body["metadata"] |= {"uid": uid, "creationTimestamp": "2026-11-20T00:00:00Z"}
        body["spec"] |= {
            "nodeName": standing.node_name(n % self.nodes),
            "serviceAccountName": "default",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
        }
        running = {"state": {"running": {"startedAt": "2026-11-20T00:00:00Z"}}, "ready": True}
        about = {"name": "main", "image": "main", "imageID": "", "restartCount": 0}
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        body["status"] = {
            "phase": "Running",
            "conditions": [{"type": kind, "status": "True"} for kind in kinds],
            "containerStatuses": [{**about, **running}],
            "startTime": "2026-11-20T00:00:00Z",
        }
        return body


def class_name(n: int, classes: int) -> str:
    """Of claim n: each team has one of so many classes."""
    return f"{standing.CLASS}-{n % standing.TEAMS % classes}"


def classes_for(volumes: int) -> int:
    """As many as there are a thousand volumes: the scheduler's price of a pod is by those of one."""
    return max(1, volumes // _PER_CLASS)


def pod_name(n: int) -> str:
    """Of the pod that uses claim n."""
    return f"app-{n}"


def pod(n: int, namespace: str) -> Json:
    """What a workload's controller asks for: one container, and claim n."""
    claim = {"claimName": standing.claim_name(n)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(n),
            "namespace": namespace,
            "labels": {"app": f"app-{n}"},
        },
        "spec": {
            "containers": [{"name": "main", "image": "main"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        },
    }


def handle(n: int) -> str:
    """How kubelet and attach/detach controller call volume n."""
    return unique_name(standing.volume_id(n))


def unique_name(volume_id: str) -> str:
    """How kubelet and attach/detach controller call a volume."""
    return f"kubernetes.io/csi/{EBS_DRIVER}^{volume_id}"


def instance_of(n: int, instance_id: str) -> Instance:
    """Node n's, whose name is the standing cluster's."""
    zone = ZONES[n % len(ZONES)]
    return Instance(instance_id, zone, zone[:-1], "m5.large", standing.node_name(n))


def attached(volumes: int) -> int:
    """How many of so many volumes pods use."""
    return volumes * 6 // 10


def nodes_for(volumes: int) -> int:
    """As many in each zone."""
    each = max(2, round(volumes / _PER_NODE / len(ZONES)))
    return each * len(ZONES)
