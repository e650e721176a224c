"""Decide what a pod does with the new volume of a move before the swap, and what is made for it.

The pod that copies has two claims of its own, bound to two PersistentVolumes of their own that name
the old volume and the new one, with the policy Retain. So the old PersistentVolume stays held: no
pod of the claim has its volume attached. The old volume is mounted read-only, for whoever comes to
its node (``READ_ONLY``). All of this is gone before the swap begins, and both volumes are detached.

A pod that only checks the new volume has one claim, and mounts it read-only as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from provisioner.controller.moving.copying.plan_rules import OF_ALL
from provisioner.controller.moving.form_rules import in_csi_form
from provisioner.controller.moving.phase_rules import Await, GoOn, Undo, Use
from provisioner.model.claim import BIND_COMPLETED, CLAIM_KIND
from provisioner.model.copy_pod import CopyPod
from provisioner.model.copy_report import CheckReport, CopyReport, decoded
from provisioner.model.document import Document
from provisioner.model.names import COPY_OF
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.sentences import listed
from provisioner.model.volume import serial_of
from provisioner.model.volume_move import API_VERSION, KIND, VolumeMove

Json = dict[str, Any]
FROM, TO, CHECKED = "from", "to", "check"
# How an end is mounted that nothing is written to. ext4 and xfs replay their log on a read-only
# mount, too: what is checked stays as it is, and after a clean detach there is nothing to replay.
# Source: Linux 6.18 Documentation/admin-guide/{ext4,xfs}.rst.
_MODE: Mapping[str, Sequence[str]] = {FROM: ("ro",), CHECKED: ("ro", "norecovery")}


@dataclass(frozen=True, slots=True)
class Job:
    """What a pod does for a move.

    Attributes:
        noun: what it is, and the container's name.
        ends: what its claims and volumes are to it; it finds each under this name in "/".
        program: the command of ours that it runs.
        capabilities: what the program takes. The Pod Security level "baseline" allows these.
        does: in words, of the pod that runs.
        did: of the pod that has ended.
    """

    noun: str
    ends: tuple[str, ...]
    program: str
    capabilities: tuple[str, ...]
    does: str
    did: str


COPY = Job(
    "copy",
    (FROM, TO),
    "copy-files",
    ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"),  # files of all owners
    "copies the files",
    "has copied the files",
)
CHECK = Job(
    "check",
    (CHECKED,),
    "check-volume",
    ("DAC_OVERRIDE",),  # a root directory of another user
    "checks the new volume",
    "has checked the new volume",
)


def job_of(move: VolumeMove) -> Job:
    """What the pod of a move that has one does."""
    return COPY if move.copies_files else CHECK


def volume_name(move: VolumeMove, end: str) -> str:
    """The name of the PersistentVolume of one end."""
    return f"{move.persistent_volume_name}-{end}"


def claim_name(move: VolumeMove, end: str) -> str:
    """The name of the claim of one end."""
    return f"{move.pod_name}-{end}"


# -- what is made


def volume_body(move: VolumeMove, end: str, old: Document, new: Document) -> Json:
    """The PersistentVolume of one end.

    Args:
        move: whose pod has it.
        end: FROM, TO or CHECKED.
        old: the old PersistentVolume, in either form.
        new: the one that is reserved for the claim.
    """
    driver = str(new.spec["csi"]["driver"])
    told = in_csi_form(old, driver) if end == FROM else new
    options = [each for each in old.spec.get("mountOptions") or () if each in OF_ALL - {"rw", "ro"}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(move, end), "annotations": {COPY_OF: f"{end} {move.key}"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": told.spec["capacity"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": CLAIM_KIND,
                "namespace": move.metadata.namespace,
                "name": claim_name(move, end),
            },
            "csi": told.spec["csi"] | {"volumeHandle": _handle(move, end, told.spec["csi"])},
            # For readers that come to its node later, too: what is mounted once is mounted so.
            **({"mountOptions": [*_MODE[end], *options]} if end in _MODE else {}),
            "nodeAffinity": new.spec["nodeAffinity"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "volumeMode": "Filesystem",
        },
    }


def _handle(move: VolumeMove, end: str, csi: Json) -> str:
    """Another spelling of the old volume, so that Kubernetes does not take the two for one.

    By the same handle, a pod of the claim on the node of the copy would share the attachment, which
    Kubernetes then keeps for it: the old volume is never detached after the copy, and the pod never
    starts. Source: Kubernetes 1.36 pkg/volume/util GetUniqueVolumeNameFromSpec.
    AWS's node plugin takes the serial number too, by which it looks for the disk, and its
    controller does not (aws-ebs-csi-driver findDevicePath, read 2026-11-28).
    """
    handle, volume_id = str(csi["volumeHandle"]), move.source.volume_id
    if end != FROM:
        return handle
    return serial_of(volume_id) if handle == volume_id else volume_id


def claim_body(move: VolumeMove, end: str, volume: PersistentVolume) -> Json:
    """The claim of one end, bound by name to its PersistentVolume."""
    return {
        "apiVersion": "v1",
        "kind": CLAIM_KIND,
        "metadata": _meta(move, claim_name(move, end)),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": dict(volume.spec.capacity or {})},
            "storageClassName": "",
            "volumeMode": "Filesystem",
            "volumeName": volume.name,
        },
    }


def pod_body(move: VolumeMove, image: str, job: Job) -> Json:
    """The pod: root, which may do to files what its job takes, and nothing else."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _meta(move, move.pod_name),
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # A container that was killed goes on where it was.
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(image, job)],
            "volumes": [
                {
                    "name": end,
                    "persistentVolumeClaim": {
                        "claimName": claim_name(move, end),
                        "readOnly": end in _MODE,
                    },
                }
                for end in job.ends
            ],
        },
    }


def image_of(controller: Document) -> str:
    """The image of the controller's own pod, "" if no container is that of the controller."""
    containers = controller.spec.get("containers") or ()
    return next((str(c["image"]) for c in containers if c.get("name") == "controller"), "")


def _container(image: str, job: Job) -> Json:
    return {
        "name": job.noun,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [job.program, *(f"/{end}" for end in job.ends)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": list(job.capabilities), "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": False,
            "runAsUser": 0,
            "runAsGroup": 0,
        },
        "volumeMounts": [
            {"name": end, "mountPath": f"/{end}", "readOnly": end in _MODE} for end in job.ends
        ],
    }


def _meta(move: VolumeMove, name: str) -> Json:
    """Whatever becomes of the controller, it goes with the move."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": move.name, "uid": move.uid}
    return {
        "name": name,
        "namespace": move.metadata.namespace,
        "labels": {COPY_OF: move.uid},
        "ownerReferences": [owner],
    }


def is_ours(move: VolumeMove, found: Document | CopyPod) -> bool:
    """Whether an object in the move's namespace was made for its pod, or is that pod."""
    owners = found.metadata.owner_references or []
    return any(each.get("uid") == move.uid for each in owners)


def is_our_volume(move: VolumeMove, end: str, found: PersistentVolume) -> bool:
    """Whether a PersistentVolume was made for the pod of a move."""
    return found.annotations.get(COPY_OF) == f"{end} {move.key}"


# -- what is done next


@dataclass(frozen=True, slots=True)
class MakeVolume:
    """Create the PersistentVolume of one end."""

    end: str


@dataclass(frozen=True, slots=True)
class MakeClaim:
    """Create the claim of one end."""

    end: str


@dataclass(frozen=True, slots=True)
class MakePod:
    """Create the pod."""


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Delete a pod that cannot go on; another one does."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Write down that all is copied."""

    report: CopyReport


@dataclass(frozen=True, slots=True)
class Checked:
    """Write down what was found on the new volume."""

    report: CheckReport


PodStep = MakeVolume | MakeClaim | MakePod | RemovePod | Copied | Checked | Await | Undo


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is of a job, by its ends.

    ``strangers``: other pods that use a claim of its own, or the one whose files are copied.
    """

    volumes: Mapping[str, PersistentVolume | None]
    claims: Mapping[str, Document | None]
    pod: CopyPod | None
    strangers: Sequence[Use] = ()


def is_over(move: VolumeMove) -> bool:
    """Whether the pod has done its job: what is left of it goes."""
    return move.told.copied is not None or move.told.checked is not None


def has_started(pod: CopyPod | None) -> bool:
    """Whether the pod runs, or has ended well: from then on it may take as long as it likes."""
    return pod is not None and pod.status.phase in ("Running", "Succeeded")


def next_step(move: VolumeMove, seen: Seen) -> PodStep:
    """How a pod comes to do its job; each step can be repeated."""
    job = job_of(move)
    wrong = came(move, seen.strangers) or _taken(move, job, seen)
    if wrong is not None:
        return wrong
    for end in job.ends:
        volume, claim = seen.volumes[end], seen.claims[end]
        if volume is None:
            return MakeVolume(end)
        if claim is None:
            return MakeClaim(end)
        if volume.deleting or claim.deleting:
            return Undo(f"somebody has deleted a claim or a PersistentVolume of the {job.noun}")
        if BIND_COMPLETED not in claim.annotations:
            return Await(f"the claims of the {job.noun} are being bound")
    return _next_of_pod(move, job, seen.pod)


def came(move: VolumeMove, strangers: Sequence[Use]) -> Undo | None:
    """Whether somebody may have written what the copy does not have, or into the copy.

    Nobody can write by the claim of a check.
    """
    if not strangers or not move.copies_files:
        return None
    names = listed([each.name for each in strangers], "and")
    return Undo(
        f"pod {names} came to use claim {move.claim_key} or its copy while files were copied, so "
        "the copy is thrown away"
    )


def _taken(move: VolumeMove, job: Job, seen: Seen) -> Undo | None:
    """Whether something of another has the name of one of ours."""
    named = {FROM: move.source.volume_id, TO: move.told.volume, CHECKED: move.told.volume}
    found: list[tuple[str, str, bool]] = []
    for end in job.ends:
        volume, claim = seen.volumes[end], seen.claims[end]
        if volume is not None:
            ours = is_our_volume(move, end, volume) and volume.named_volume == named[end]
            found.append(("PersistentVolume", volume.name, ours))
        if claim is not None:
            bound = claim.spec.get("volumeName") == volume_name(move, end)
            found.append(("claim", claim.name, is_ours(move, claim) and bound))
    if seen.pod is not None:
        found.append(("pod", seen.pod.name, is_ours(move, seen.pod)))
    foreign = [f"{kind} {name}" for kind, name, ours in found if not ours]
    if foreign:
        return Undo(
            f"{foreign[0]} has the name of one of the {job.noun}, and is another's: delete it"
        )
    return None


def _next_of_pod(move: VolumeMove, job: Job, pod: CopyPod | None) -> PodStep:
    if pod is None:
        return MakePod()
    if pod.deleting:
        return Await(f"waiting until pod {pod.name}, which was deleted, is gone")
    if pod.status.phase == "Succeeded":
        return _copied(pod) if job is COPY else _checked(move, pod)
    if pod.status.phase == "Failed":
        return RemovePod()
    return Await(_waiting(job, pod))


def _left_by(pod: CopyPod) -> str:
    """The termination message, "" if there is none."""
    ended = [each.state.terminated for each in pod.status.container_statuses or ()]
    return ended[0].message if ended and ended[0] is not None else ""


def _copied(pod: CopyPod) -> Copied | Undo:
    report = decoded(_left_by(pod), CopyReport)
    if report is None:
        return Undo(f"pod {pod.name} has ended without a report, so the copy is thrown away")
    if report.refused or not report.done:
        return Undo(f"the files are not copied: {report.refused or 'nobody says why'}")
    return Copied(report)


def _checked(move: VolumeMove, pod: CopyPod) -> Checked | Undo:
    report, made = decoded(_left_by(pod), CheckReport), move.told.volume
    if report is None or not (report.refused or report.file_system):
        return Undo(
            f"pod {pod.name} has ended without a report, so the new volume {made} is not checked"
        )
    if report.refused:
        return Undo(f"the new volume {made} cannot be read: {report.refused}")
    body = move.told.persistent_volume or {}
    named = body.get("spec", {}).get("csi", {}).get("fsType")
    if named and named != report.file_system:
        return Undo(
            f"the new volume {made} has the file system {report.file_system}, and PersistentVolume "
            f"{move.persistent_volume_name} names {named}"
        )
    return Checked(structs.replace(report, node=pod.spec.node_name or ""))


def _waiting(job: Job, pod: CopyPod) -> str:
    """What the pod does, or what is in its way."""
    status = pod.status
    for each in status.container_statuses or ():
        last = each.last_state.terminated
        if last is not None and each.state.waiting is not None:
            told = f": {last.message.strip()}" if last.message.strip() else ""
            return f"pod {pod.name} has failed, and is started again{told}"
        waiting = each.state.waiting
        if waiting is not None and waiting.message:
            return f"pod {pod.name} cannot start ({waiting.reason}): {waiting.message}"
    where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    if status.phase == "Running":
        return f"pod {pod.name} {job.does}{where}"
    for condition in status.conditions or ():
        if condition.status == "False" and condition.reason == "Unschedulable":
            return f"pod {pod.name} cannot be scheduled: {condition.message}"
    return (
        f"pod {pod.name}, which {job.does}, is starting{where}; if it does not, its events say "
        f"why: kubectl -n {pod.metadata.namespace} describe pod {pod.name}"
    )


# -- how it is all removed


def leftover(move: VolumeMove, seen: Seen) -> Await | GoOn:
    """What is still there of a job that has ended."""
    job = job_of(move)
    if seen.pod is not None and is_ours(move, seen.pod):
        return Await(f"waiting until pod {seen.pod.name}, which {job.did}, is gone")
    for end in job.ends:
        claim = seen.claims[end]
        if claim is not None and is_ours(move, claim):
            users = listed([each.name for each in seen.strangers], "and")
            used = f": it is used by {users}" if users else ""
            return Await(f"waiting until claim {claim.name} of the {job.noun} is gone{used}")
    for end in job.ends:
        volume = seen.volumes[end]
        if volume is not None and is_our_volume(move, end, volume):
            what = f"volume {volume.named_volume} is detached after the {job.noun}"
            return Await(f"waiting until {what}")
    return GoOn()
