"""What our accounts write, each in one way that a policy of the manifests is about.

``test_account_writes`` sends each of them, and shows that each clause of the policies decides one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from provisioner.controller.moving.copying.rules import CHECK as CHECKS
from provisioner.controller.moving.copying.rules import COPY as COPIES
from provisioner.controller.moving.copying.rules import Job, pod_body
from provisioner.model.driver import AUTO_MODE_DRIVER, EBS_DRIVER
from provisioner.model.volume_move import API_VERSION, KIND, VolumeMove
from tests.cluster.accounts import CONTROLLER, WEBHOOK
from tests.cluster.hands import ATTACHMENTS, PVS, claims_of, pods_of
from tests.cluster.static import ZONE, pinned

Json = dict[str, Any]

NAME = "account-writes"
"""Of the namespace, and of each object, that the writes are about."""
RELEASER = "the controller with manifests/release-dead-nodes"
MOVER = "the controller with manifests/volume-moves"
ADMINISTRATOR = "the administrator"
TENANT = "who administers one namespace"

NODES = "/api/v1/nodes"
SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAME}/volumesnapshots"
CONTENTS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
NODE = f"{NODES}/{NAME}"
VOLUME, DIRECTORY, SHARE, GUARDED, INLINE = (
    f"{PVS}/{NAME}-{each}" for each in ("ebs", "directory", "share", "guarded", "inline")
)
CLAIM = f"{claims_of(NAME)}/{NAME}"
ATTACHMENT = f"{ATTACHMENTS}/{NAME}"
SNAPSHOT, CONTENT = f"{SNAPSHOTS}/{NAME}", f"{CONTENTS}/{NAME}"
POD = f"{pods_of(NAME)}/{NAME}"
COPY = f"{pods_of(NAME)}/move-there"
MOVE = f"/apis/{API_VERSION}/namespaces/{NAME}/volumemoves/{NAME}"
GATE, HELD = "ebs-provisioner.io/volume-move", "ebs-provisioner.io/held-for-move"

EBS: Json = {"driver": EBS_DRIVER, "volumeHandle": "vol-0123"}
SHARED: Json = {"csi": {"driver": "share.csi.test", "volumeHandle": "//server/share"}}
HOST_PATH: Json = {"hostPath": {"path": "/"}}
IN_TREE: Json = {"awsElasticBlockStore": {"volumeID": "vol-0123"}}
SECRET: Json = {"namespace": "shop", "name": "password"}
SECRET_REFS = (
    *("controllerPublishSecretRef", "controllerExpandSecretRef"),
    *("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"),
)
# The garbage collector deletes what has no owner that exists.
OWNER: Json = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "1-2-3"}
ORPHANED: Json = {"metadata": {"ownerReferences": [OWNER]}}
FINALIZER: Json = {"metadata": {"finalizers": ["example.com/mine"]}}
FOREIGN = "example.com/kept"
STARTUP = f"{EBS_DRIVER}/agent-not-ready"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def a_volume(name: str, **spec: Json) -> Json:
    return {
        "metadata": {
            "name": f"{NAME}-{name}",
            "labels": {FOREIGN: "1", ZONE: "us-east-1a"},
            "annotations": {FOREIGN: "1"},
        },
        "spec": {
            "capacity": {"storage": "4Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            # Not that of the claim: the two are not to be bound to each other.
            "storageClassName": f"{NAME}-volumes",
            "mountOptions": ["noatime"],
            **spec,
        },
    }


def labels(**changed: str | None) -> Json:
    return {"metadata": {"labels": changed}}


def notes(**changed: str | None) -> Json:
    return {"metadata": {"annotations": changed}}


def taint(key: str, effect: str = "NoSchedule") -> Json:
    return {"key": key, "effect": effect}


def a_copy(uid: str = "new", job: Job = COPIES) -> Json:
    """The pod that the controller creates to copy files, or to check a volume."""
    move = {"metadata": {"namespace": NAME, "name": NAME, "uid": uid}}
    return pod_body(msgspec.convert(move, VolumeMove), "copy:1", job)


def a_kept_copy() -> Json:
    """One that is there. Its VolumeMove is not: the garbage collector deletes it at once."""
    body = a_copy("there")
    return body | {"metadata": body["metadata"] | FINALIZER["metadata"]}


SPECIMENS: dict[str, Json] = {
    NODE: {
        "metadata": {"name": NAME, "labels": {FOREIGN: "1"}, "annotations": {FOREIGN: "1"}},
        # The first taints, in this order: the writes below name them by their index.
        "spec": {
            "unschedulable": True,
            "taints": [taint(STARTUP), taint(UNINITIALIZED), taint(FOREIGN)],
        },
    },
    VOLUME: a_volume("ebs", csi=EBS),
    INLINE: a_volume("inline", **IN_TREE),
    GUARDED: a_volume("guarded", csi=EBS | dict.fromkeys(SECRET_REFS, SECRET)),
    DIRECTORY: a_volume("directory", **HOST_PATH),
    SHARE: a_volume("share", **SHARED),
    CLAIM: {
        "metadata": {"name": NAME},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": NAME,
            "resources": {"requests": {"storage": "4Gi"}},
        },
    },
    ATTACHMENT: {
        "metadata": {"name": NAME},
        "spec": {
            "attacher": "policies.ebs.test",
            "nodeName": NAME,
            "source": {"persistentVolumeName": NAME},
        },
    },
    POD: {
        "metadata": {
            "name": NAME,
            "labels": {FOREIGN: "1"},
            "annotations": {FOREIGN: "1", HELD: "1"},
        },
        # The writes below name the gates by their index.
        "spec": {
            "schedulingGates": [{"name": FOREIGN}, {"name": GATE}],
            "containers": [{"name": "main", "image": "main"}],
        },
    },
    COPY: a_kept_copy(),
    MOVE: {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": NAME},
        "spec": {"claimName": NAME, "to": {"zone": "us-east-1b"}, "dryRun": True},
    },
    SNAPSHOT: {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": NAME},
        "spec": {
            "volumeSnapshotClassName": NAME,
            "source": {"persistentVolumeClaimName": NAME},
        },
    },
    CONTENT: {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {"name": NAME},
        "spec": {
            "deletionPolicy": "Retain",
            "driver": "policies.ebs.test",
            "source": {"snapshotHandle": "snap-0123"},
            "volumeSnapshotRef": {"name": "gone", "namespace": NAME},
        },
    },
}

Answer = Literal["a policy refuses it", "the API server refuses it", "it is accepted"]
REFUSED: Answer = "a policy refuses it"
INVALID: Answer = "the API server refuses it"
ACCEPTED: Answer = "it is accepted"


@dataclass(frozen=True)
class Write:
    """One request: a dict is a merge patch, a list a JSON patch, except of a POST."""

    answer: Answer
    account: str
    what: str
    path: str
    body: Any = None
    method: str = "PATCH"

    def __str__(self) -> str:
        return f"{self.account}: {self.what}: {self.answer}"


def on_nodes() -> Iterator[Write]:
    def writes(answer: Answer, what: str, body: Any, account: str = CONTROLLER) -> Write:
        return Write(answer, account, what, NODE, body)

    def add(*taints: Json) -> list[Json]:
        return [{"op": "add", "path": "/spec/taints/-", "value": each} for each in taints]

    def remove(index: int, key: str) -> list[Json]:
        path = f"/spec/taints/{index}"
        return [
            {"op": "test", "path": f"{path}/key", "value": key},
            {"op": "remove", "path": path},
        ]

    yield writes(REFUSED, "adds a foreign taint", add(taint("example.com/mine")))
    yield writes(REFUSED, "removes a foreign taint", remove(2, FOREIGN))
    yield writes(REFUSED, "adds a startup taint", add(taint(STARTUP, "NoExecute")))
    yield writes(REFUSED, "evicts the pods", add(taint(OUT_OF_SERVICE, "NoExecute")))
    evicts = add(taint(OUT_OF_SERVICE, "NoExecute"))
    yield writes(ACCEPTED, "evicts the pods", evicts, RELEASER)
    yield writes(REFUSED, "adds a startup taint", add(taint(STARTUP, "NoExecute")), RELEASER)
    started = [*remove(1, UNINITIALIZED), *remove(0, STARTUP)]
    yield writes(ACCEPTED, "removes the startup taints", started)

    for kind, changed in (("label", labels), ("annotation", notes)):
        yield writes(REFUSED, f"adds a foreign {kind}", changed(**{"example.com/mine": "1"}))
        yield writes(REFUSED, f"changes a foreign {kind}", changed(**{FOREIGN: "2"}))
        yield writes(REFUSED, f"removes a foreign {kind}", changed(**{FOREIGN: None}))
    role = labels(**{"node-role.kubernetes.io/control-plane": ""})
    yield writes(REFUSED, "makes it a control plane's", role)
    zone = {ZONE: "z", "topology.kubernetes.io/region": "r"}
    yield writes(
        ACCEPTED, "names its zone", labels(**zone, **{"node.kubernetes.io/instance-type": "t"})
    )
    own = {"ebs-provisioner.io/attachment-limit": "2", "ebs-provisioner.io/out-of-service-for": "i"}
    yield writes(ACCEPTED, "writes its own annotations", notes(**own))

    yield writes(REFUSED, "uncordons it", {"spec": {"unschedulable": None}})
    pods = {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}
    yield writes(REFUSED, "gives it addresses of pods", {"spec": pods})
    yield writes(ACCEPTED, "names its instance", {"spec": {"providerID": "aws:///z/i-0123"}})
    yield writes(REFUSED, "holds it by a finalizer", FINALIZER)
    yield writes(REFUSED, "has it deleted by an owner", ORPHANED)
    cordoned = {"spec": {"unschedulable": None}} | labels(role="")
    yield writes(ACCEPTED, "uncordons and labels it", cordoned, ADMINISTRATOR)


def on_volumes() -> Iterator[Write]:
    def creates(answer: Answer, what: str, account: str = CONTROLLER, **source: Json) -> Write:
        return Write(answer, account, f"creates {what}", PVS, a_volume("new", **source), "POST")

    yield creates(REFUSED, "a volume of a node's directory", **HOST_PATH)
    yield creates(ACCEPTED, "a volume of a node's directory", ADMINISTRATOR, **HOST_PATH)
    yield creates(REFUSED, "an NFS volume", nfs={"server": "evil.example", "path": "/"})
    yield creates(REFUSED, "a volume of another driver", **SHARED)
    yield creates(REFUSED, "a volume of another driver", MOVER, **SHARED)
    auto = EBS | {"driver": AUTO_MODE_DRIVER}
    yield creates(REFUSED, "a volume of EKS Auto Mode", csi=auto)
    yield creates(ACCEPTED, "a volume of EKS Auto Mode", MOVER, csi=auto)
    for ref in SECRET_REFS:
        yield creates(REFUSED, f"a volume with a {ref}", csi=EBS | {ref: SECRET})
    yield creates(ACCEPTED, "a volume", csi=EBS)
    yield creates(ACCEPTED, "an in-tree volume", **IN_TREE)

    for path, name in ((DIRECTORY, "a node's directory"), (SHARE, "another driver")):
        note = notes(a="b")
        yield Write(REFUSED, CONTROLLER, f"annotates a volume of {name}", path, note)
        yield Write(REFUSED, CONTROLLER, f"deletes a volume of {name}", path, None, method="DELETE")
    for path, name in ((VOLUME, "a volume"), (INLINE, "an in-tree volume")):
        yield Write(ACCEPTED, CONTROLLER, f"deletes {name}", path, None, method="DELETE")
    yield from of_a_volume(CONTROLLER)
    affinity = {"spec": {"nodeAffinity": pinned("us-east-1a")}}
    yield Write(REFUSED, CONTROLLER, "gives a volume an affinity", VOLUME, affinity)
    grown = {"spec": {"capacity": {"storage": "8Gi"}, "volumeAttributesClassName": "fast"}}
    marked = {"metadata": {"finalizers": ["a.test/b"], "annotations": {"a": "b"}}}
    for path, name in ((VOLUME, "a volume"), (GUARDED, "a volume with Secrets")):
        yield Write(ACCEPTED, CONTROLLER, f"grows and marks {name}", path, grown | marked)
    kept = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    yield Write(ACCEPTED, MOVER, "changes the reclaim policy of a volume", VOLUME, kept)
    given = {"spec": {"storageClassName": "mine"}}
    yield Write(REFUSED, MOVER, "changes the class of a volume", VOLUME, given)


def of_a_volume(account: str) -> Iterator[Write]:
    """What neither account may write of a volume that exists."""

    def writes(answer: Answer, what: str, body: Json, path: str = VOLUME) -> Write:
        return Write(answer, account, f"changes {what} of a volume", path, body)

    for what, change in {
        "the claim": {"claimRef": {"namespace": "shop", "name": "mine"}},
        "the reclaim policy": {"persistentVolumeReclaimPolicy": "Delete"},
        "the access modes": {"accessModes": ["ReadWriteMany"]},
        "the class": {"storageClassName": "mine"},
        "the mount options": {"mountOptions": ["suid"]},
        "the last mount option": {"mountOptions": None},
        "the Secret for growing": {"csi": {"controllerExpandSecretRef": SECRET}},
    }.items():
        yield writes(REFUSED, what, {"spec": change})
    yield writes(REFUSED, "the owner", ORPHANED)
    yield writes(INVALID, "the id", {"spec": {"csi": {"volumeHandle": "vol-4567"}}})
    moved = {"spec": {"awsElasticBlockStore": {"volumeID": "vol-4567"}}}
    yield writes(INVALID, "the in-tree id", moved, INLINE)
    yield writes(INVALID, "the mode", {"spec": {"volumeMode": "Block"}})


def on_requests() -> Iterator[Write]:
    def writes(answer: Answer, what: str, path: str, body: Json) -> Write:
        return Write(answer, CONTROLLER, what, path, body)

    objects = {
        "a claim": CLAIM,
        "a claim's status": f"{CLAIM}/status",
        "an attachment": ATTACHMENT,
        "a VolumeSnapshot": SNAPSHOT,
        "a VolumeSnapshotContent": CONTENT,
    }
    for name, path in objects.items():
        yield writes(REFUSED, f"has {name} deleted by an owner", path, ORPHANED)
    owned = Write(ACCEPTED, ADMINISTRATOR, "gives a claim an owner", CLAIM, ORPHANED)
    yield owned
    for volume_name, answer in (("pvc-1-2-3", ACCEPTED), ("somebodys", REFUSED), (None, REFUSED)):
        what = f"creates a claim that names {volume_name or 'no volume'}"
        body = {
            "metadata": {"name": f"{NAME}-moved"},
            "spec": SPECIMENS[CLAIM]["spec"] | ({"volumeName": volume_name} if volume_name else {}),
        }
        yield Write(answer, MOVER, what, claims_of(NAME), body, "POST")
        if answer == REFUSED:
            yield Write(ACCEPTED, ADMINISTRATOR, what, claims_of(NAME), body, "POST")
    yield writes(REFUSED, "binds a claim", CLAIM, {"spec": {"volumeName": "somebodys"}})
    changed = {"spec": {"volumeSnapshotClassName": "mine"}}
    yield writes(REFUSED, "changes the class of a VolumeSnapshot", SNAPSHOT, changed)
    deleted = {"spec": {"deletionPolicy": "Delete"}}
    yield writes(REFUSED, "changes what becomes of a snapshot", CONTENT, deleted)
    moved = {"spec": {"nodeName": "another"}}
    yield writes(INVALID, "moves an attachment to another node", ATTACHMENT, moved)

    marked = {"metadata": {"finalizers": ["a.test/b"], "annotations": {"a": "b"}}}
    for name in ("a claim", "an attachment", "a VolumeSnapshot", "a VolumeSnapshotContent"):
        yield writes(ACCEPTED, f"marks {name}", objects[name], marked)
    resizing = {"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}
    yield writes(ACCEPTED, "says that a claim grows", f"{CLAIM}/status", resizing)
    attached = {"status": {"attached": True}}
    yield writes(ACCEPTED, "says that a volume is attached", f"{ATTACHMENT}/status", attached)
    taken = {"status": {"readyToUse": False}}
    yield writes(ACCEPTED, "says that a snapshot is taken", f"{CONTENT}/status", taken)


def on_pods() -> Iterator[Write]:
    def writes(answer: Answer, what: str, body: Any, account: str = MOVER) -> Write:
        return Write(answer, account, f"{what} a pod", POD, body)

    def remove(index: int, name: str) -> list[Json]:
        path = f"/spec/schedulingGates/{index}"
        return [
            {"op": "test", "path": f"{path}/name", "value": name},
            {"op": "remove", "path": path},
        ]

    note = f"/metadata/annotations/{HELD.replace('/', '~1')}"
    free = [*remove(1, GATE), {"op": "remove", "path": note}]
    yield writes(ACCEPTED, "removes its own gate of", free)
    yield writes(ACCEPTED, "names another move on", notes(**{HELD: "2"}))
    yield writes(REFUSED, "removes a foreign gate of", remove(0, FOREIGN))
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
    yield writes(REFUSED, "changes the image of", image)
    yield writes(REFUSED, "ends", {"spec": {"activeDeadlineSeconds": 1}})
    yield writes(REFUSED, "adds a label to", labels(app="mine"))
    yield writes(REFUSED, "adds an annotation to", notes(a="b"))
    yield writes(REFUSED, "removes an annotation of", notes(**{FOREIGN: None}))
    yield writes(REFUSED, "holds by a finalizer", FINALIZER)
    yield writes(REFUSED, "gives an owner to", ORPHANED)
    yield writes(ACCEPTED, "changes the image of", image, ADMINISTRATOR)


def creates_pod(answer: Answer, what: str, body: Json, account: str = MOVER) -> Write:
    return Write(answer, account, f"creates {what}", pods_of(NAME), body, "POST")


def having(**changed: Any) -> Json:
    """The pod that copies, with another spec."""
    body = a_copy()
    return body | {"spec": body["spec"] | changed}


def on_copies() -> Iterator[Write]:
    def named(**changed: Any) -> Json:
        body = a_copy()
        return body | {"metadata": body["metadata"] | changed}

    volumes = a_copy()["spec"]["volumes"]
    yield creates_pod(ACCEPTED, "a pod that copies files", a_copy())
    yield creates_pod(REFUSED, "a copy without an owner", named(ownerReferences=[]))
    yield creates_pod(REFUSED, "a copy without its label", named(labels={}))
    yield creates_pod(
        REFUSED, "a copy of a Namespace", named(ownerReferences=[OWNER | {"uid": "new"}])
    )
    yield creates_pod(REFUSED, "a copy of another move", named(name="move-another"))
    for field in ("hostIPC", "hostNetwork", "hostPID"):
        yield creates_pod(REFUSED, f"a copy with {field}", having(**{field: True}))
    other: Json = {"name": "other", "image": "evil"}
    yield creates_pod(REFUSED, "a copy that is prepared", having(initContainers=[other]))
    yield creates_pod(INVALID, "a copy that is debugged", having(ephemeralContainers=[other]))
    yield creates_pod(REFUSED, "a copy on a node", having(nodeName=NAME))
    yield creates_pod(REFUSED, "a copy with a token", having(automountServiceAccountToken=True))
    for kind, source in {
        "a node's directory": HOST_PATH,
        "a Secret": {"secret": {"secretName": "password"}},
        "another claim": {"persistentVolumeClaim": {"claimName": NAME}},
    }.items():
        given = having(volumes=[*volumes, {"name": "more", **source}])
        yield creates_pod(REFUSED, f"a copy with {kind}", given)
        instead = having(volumes=[{"name": "from", **source}, volumes[1]])
        yield creates_pod(REFUSED, f"a copy of {kind}", instead)
    unconfined = having(securityContext={"seccompProfile": {"type": "Unconfined"}})
    yield creates_pod(REFUSED, "a copy that may call anything", unconfined)
    yield creates_pod(
        ACCEPTED, "any pod", SPECIMENS[POD] | {"metadata": {"name": "any"}}, ADMINISTRATOR
    )

    yield Write(ACCEPTED, MOVER, "deletes a pod that copies files", COPY, None, "DELETE")
    yield Write(REFUSED, MOVER, "deletes any pod", POD, None, "DELETE")
    yield Write(ACCEPTED, ADMINISTRATOR, "deletes any pod", POD, None, "DELETE")


def on_programs_of_copies() -> Iterator[Write]:
    def running(**changed: Any) -> Json:
        return having(containers=[container | changed])

    def allowed(**changed: Any) -> Json:
        return running(securityContext=container["securityContext"] | changed)

    [container] = a_copy()["spec"]["containers"]
    other: Json = {"name": "other", "image": "evil"}
    # Some versions of the API server write it into all pods (kubernetes/kubernetes#116119).
    resized = running(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}])
    yield creates_pod(ACCEPTED, "a copy with a resizePolicy", resized)
    yield creates_pod(REFUSED, "a copy beside a program", having(containers=[container, other]))
    runs = {"exec": {"command": ["sh"]}}
    programs: dict[str, Json] = {
        "other arguments": {"args": ["controller"]},
        "a command": {"command": ["sh"]},
        "a variable": {"env": [{"name": "LD_PRELOAD", "value": "/from/evil.so"}]},
        "the variables of a Secret": {"envFrom": [{"secretRef": {"name": "password"}}]},
        "a hook at its start": {"lifecycle": {"postStart": runs}},
        "a hook at its end": {"lifecycle": {"preStop": runs}},
        "a port of the node": {"ports": [{"containerPort": 80, "hostPort": 80}]},
        **{
            f"a {kind}Probe": {f"{kind}Probe": runs}
            for kind in ("liveness", "readiness", "startup")
        },
    }
    for what, changed in programs.items():
        yield creates_pod(REFUSED, f"a copy with {what}", running(**changed))
    privileged = allowed(privileged=True, allowPrivilegeEscalation=True)
    yield creates_pod(REFUSED, "a privileged copy", privileged)
    capable = allowed(capabilities={"add": ["NET_ADMIN"], "drop": ["ALL"]})
    yield creates_pod(REFUSED, "a copy with another capability", capable)
    yield creates_pod(ACCEPTED, "a pod that checks a volume", check := a_copy(job=CHECKS))
    [checks] = check["spec"]["containers"]
    for what, changed in {
        "the capabilities of a copy": {"securityContext": container["securityContext"]},
        "the arguments of a copy": {"args": container["args"]},
    }.items():
        mixed = check["spec"] | {"containers": [checks | changed]}
        yield creates_pod(REFUSED, f"a check with {what}", check | {"spec": mixed})
    other_claim = {"persistentVolumeClaim": {"claimName": NAME}}
    instead = check["spec"] | {"volumes": [{"name": "check", **other_claim}]}
    yield creates_pod(REFUSED, "a check of another claim", check | {"spec": instead})


def of_the_webhook() -> Iterator[Write]:
    def writes(answer: Answer, what: str, body: Json, account: str = WEBHOOK) -> Write:
        return Write(answer, account, what, VOLUME, body)

    yield from of_a_volume(WEBHOOK)
    yield writes(REFUSED, "grows a volume", {"spec": {"capacity": {"storage": "8Gi"}}})
    fast = {"spec": {"volumeAttributesClassName": "fast"}}
    yield writes(REFUSED, "gives a volume another performance", fast)
    yield writes(REFUSED, "annotates a volume", notes(a="b"))
    yield writes(REFUSED, "holds a volume by a finalizer", FINALIZER)
    yield writes(REFUSED, "adds a foreign label to a volume", labels(app="mine"))
    yield writes(REFUSED, "changes a foreign label of a volume", labels(**{FOREIGN: "2"}))
    yield writes(REFUSED, "removes a foreign label of a volume", labels(**{FOREIGN: None}))
    zones = {
        **{f"topology.kubernetes.io/{each}": each for each in ("zone", "region")},
        **{f"failure-domain.beta.kubernetes.io/{each}": each for each in ("zone", "region")},
        "topology.ebs.csi.aws.com/zone": "zone",
    }
    pinned_there = {"spec": {"nodeAffinity": pinned("us-east-1a")}}
    yield writes(ACCEPTED, "says where a volume is", labels(**zones) | pinned_there)
    yield writes(ACCEPTED, "removes the zone of a volume", labels(**{ZONE: None}))
    grown = {"spec": {"capacity": {"storage": "8Gi"}}}
    yield writes(ACCEPTED, "grows a volume", grown | notes(a="b"), ADMINISTRATOR)


def on_moves() -> Iterator[Write]:
    """By the status, the controller would create a PersistentVolume of somebody else's volume."""
    body = a_volume("stolen", csi=EBS)
    forged = {"status": {"phase": "Swapping", "persistentVolume": body}}
    for account, answer in ((TENANT, REFUSED), (MOVER, ACCEPTED), (ADMINISTRATOR, ACCEPTED)):
        yield Write(answer, account, "writes the status of a move", f"{MOVE}/status", forged)
    yield Write(ACCEPTED, TENANT, "aborts a move", MOVE, {"spec": {"abort": True}})


WRITES = [
    *on_moves(),
    *on_nodes(),
    *on_volumes(),
    *on_requests(),
    *on_pods(),
    *on_copies(),
    *on_programs_of_copies(),
    *of_the_webhook(),
]
