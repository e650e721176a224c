"""Decide the next step of an attachment, from what was observed.

``detach_rules`` does so for one that is being deleted, and ``initialization_rules`` may have a
volume wait for its data before it counts as attached.

The flow never sleeps in a step: it sends a call, asks the watcher to wake it, and decides again
from what EC2 shows then. So a deletion that arrives while a volume is still attaching is just the
next decision.
Source: external-attacher 4.12 pkg/controller/csi_handler.go; EC2 AttachVolume.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from provisioner.model.attachment import BLANK, NODE_ID, Attachment
from provisioner.model.backoff import Backoff
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.ids import is_instance_id, is_volume_id
from provisioner.model.names import HELD_FOR_MOVE, UNCLAIMED, VOLUME_ID
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import (
    READERS_MODE,
    PersistentVolume,
    finalizer_of_attacher,
)
from provisioner.model.pod import Pod
from provisioner.model.volume import AttachmentState, Volume

STUCK_S = 90.0  # an attachment that takes longer never succeeds (aws-ebs-csi-driver #2833)
# After this long without a trace of it, a lost AttachVolume is sent again: EC2 attaches only once.
SEND_AGAIN_S = 10.0
DROPPED_AGAIN_S = 300.0  # the longest pause, if EC2 accepts AttachVolume and drops it each time
MULTI_ATTACH_INSTANCES = 16  # EBS user guide "Multi-Attach" (read 2026-11-21)


class Kind(Enum):
    """What was last asked of EC2 for an attachment."""

    ATTACH = "attach"
    DETACH = "detach"


@dataclass(frozen=True, slots=True)
class Target:
    """Which volume goes to, or comes from, which instance."""

    volume_id: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class Call:
    """The last call for an attachment. ``sent_at_s``: seconds of the monotonic clock.

    ``uncertain``: its reply was lost, or said that it had been carried out before.
    ``refused``: EC2 answered a detach with "it is not attached".
    ``taken``: how many attaches in a row EC2 has accepted without attaching the volume.
    """

    kind: Kind
    target: Target
    sent_at_s: float
    uncertain: bool = False
    refused: bool = False
    taken: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What is known of the volume. ``seen`` is its newest description, None while there is none.

    ``missing_for_s``: since when EC2 has not known it, None when it does or was not asked.
    ``unclaimed``: it may still have the tag of a volume that no persistent volume names.
    ``may_be_reported``: this process may have reported the volume as attached.
    """

    call: Call | None = None
    seen: Volume | None = None
    missing_for_s: float | None = None
    unclaimed: bool = False
    may_be_reported: bool = False


@dataclass(frozen=True, slots=True)
class Prepare:
    """Record the target and add our finalizers before anything is attached."""

    target: Target
    hold_persistent_volume: str  # its name, "" when it is held already


@dataclass(frozen=True, slots=True)
class Untag:
    """Wait until the tag ``unclaimed`` is removed: a tagged volume must never hold data."""

    volume_id: str


@dataclass(frozen=True, slots=True)
class Attach:
    """Call AttachVolume."""

    target: Target


@dataclass(frozen=True, slots=True)
class Detach:
    """Call DetachVolume."""

    target: Target


@dataclass(frozen=True, slots=True)
class Attached:
    """Report it as attached."""

    target: Target
    device: str
    made_from: str  # the snapshot or the volume whose data it began with, or BLANK
    multi_attach: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for what EC2 shows next; ``message`` is what the user is told until then."""

    volume_id: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another attachment of the volume, and how far it is. ``instance_id``: as recorded, or "".

    ``is_going``: its AttachVolume may have been sent by this process.
    ``is_younger``: it gives way if both are attached and neither may be reported.
    """

    instance_id: str
    may_be_reported: bool = False
    is_going: bool = False
    is_younger: bool = False

    @property
    def gives_way(self) -> bool:
        """Whether it was certainly not reported to a node, and is the younger one."""
        return self.is_younger and not self.may_be_reported


Waiting = Refuse | Untag | Detach | Wait
AttachStep = Prepare | Attach | Attached | Waiting


def target_to_attach(
    attachment: Attachment,
    *,
    driver: str,
    persistent_volume: PersistentVolume | None,
    node: Node | None,
    csi_node: CsiNode | None,
) -> Target | Refuse:
    """Find volume and instance; None stands for objects that the API server itself lacks."""
    source, node_name = attachment.spec.source, attachment.spec.node_name
    if source.persistent_volume_name:
        name = source.persistent_volume_name
        refused = _unusable(name, persistent_volume)
        if refused is not None:
            return refused
    volume_id = named_volume(attachment, persistent_volume, driver)
    if volume_id is None:
        return Refuse(
            Reason.INVALID_REQUEST,
            f"the volume of attachment {attachment.name} does not belong to driver {driver}",
        )
    if not is_volume_id(volume_id):
        return _no_volume(volume_id, source.persistent_volume_name)
    if csi_node is None or node is None:
        return Refuse(Reason.OBJECT_NOT_FOUND, f'node "{node_name}" has no Node or CSINode object')
    if node.deleting:
        return Refuse(Reason.INVALID_REQUEST, f'node "{node_name}" is marked for deletion')
    registered = csi_node.driver(driver)
    if registered is None:
        return Refuse(
            Reason.INVALID_REQUEST,
            f"CSINode {node_name} does not contain driver {driver}: kubectl ebs explain node "
            f"{node_name} says what keeps the node plugin from registering there",
        )
    if not is_instance_id(registered.node_id):
        return _no_instance(node_name, registered.node_id)
    return Target(volume_id, registered.node_id)


def _unusable(name: str, persistent_volume: PersistentVolume | None) -> Refuse | None:
    if persistent_volume is None:
        return Refuse(Reason.OBJECT_NOT_FOUND, f'PersistentVolume "{name}" not found')
    if persistent_volume.deleting:
        return Refuse(Reason.INVALID_REQUEST, f'PersistentVolume "{name}" is marked for deletion')
    return held(persistent_volume)


def held(persistent_volume: PersistentVolume) -> Refuse | None:
    """Why a volume is attached to no node at present, if a VolumeMove holds it."""
    move = persistent_volume.annotations.get(HELD_FOR_MOVE)
    if move is None:
        return None
    return Refuse(
        Reason.VOLUME_IN_USE,
        f'PersistentVolume "{persistent_volume.name}" is held by VolumeMove {move}, which gives '
        "its claim another volume: wait until that is done, or abort it; if there is no such "
        "VolumeMove, remove the "
        f"annotation {HELD_FOR_MOVE}",
    )


def _no_volume(handle: str, persistent_volume: str | None) -> Refuse:
    where = f'PersistentVolume "{persistent_volume}"' if persistent_volume else "the pod's volume"
    return Refuse(
        Reason.INVALID_REQUEST,
        f"{where} names {handle[:100]!r}, which is not an EBS volume; recreate it with the id of a "
        "volume, such as vol-0123456789abcdef0",
    )


def _no_instance(node_name: str, node_id: str) -> Refuse:
    return Refuse(
        Reason.NOT_SUPPORTED,
        f"node {node_name} is registered as {node_id[:100]!r}, which is not an EC2 instance, so no "
        "volume can be attached to it (SageMaker HyperPod nodes are not supported)",
    )


def next_attach_step(
    attachment: Attachment,
    target: Target,
    persistent_volume: PersistentVolume | None,
    *,
    driver: str,
    view: View,
    now_s: float,
    rivals: Sequence[Rival] = (),
) -> AttachStep:
    """The next step towards "attached" of an attachment that nobody is deleting.

    ``rivals``: the other attachments of its volume. No two nodes may write to one file system.
    """
    step = _towards_attached(
        attachment, target, persistent_volume, driver=driver, view=view, now_s=now_s
    )
    if isinstance(step, Attached) and view.may_be_reported:
        return step
    inline = attachment.spec.source.inline_volume_spec
    spec = inline if persistent_volume is None else persistent_volume.spec
    if spec is not None and not spec.is_file_system:
        return step
    is_for_readers = spec is not None and spec.is_for_readers
    return with_one_writer(step, target, view=view, rivals=rivals, is_for_readers=is_for_readers)


def _towards_attached(
    attachment: Attachment,
    target: Target,
    persistent_volume: PersistentVolume | None,
    *,
    driver: str,
    view: View,
    now_s: float,
) -> AttachStep:
    finalizer = finalizer_of_attacher(driver)
    holds = persistent_volume is None or finalizer in persistent_volume.finalizers
    recorded = attachment.annotations.get(NODE_ID), attachment.annotations.get(VOLUME_ID)
    if (
        not holds
        or finalizer not in attachment.finalizers
        or recorded != (target.instance_id, target.volume_id)
    ):
        name = persistent_volume.name if persistent_volume is not None and not holds else ""
        return Prepare(target, name)
    if view.unclaimed:
        return Untag(target.volume_id)
    call = view.call
    if call is None or call.target != target:
        return Attach(target)  # what was asked of another instance says nothing about this one
    if view.seen is None:
        if view.missing_for_s is not None and view.missing_for_s >= CONSISTENCY_S:
            return Refuse(Reason.VOLUME_NOT_FOUND, f"EC2 has no volume {target.volume_id}")
        return Wait(target.volume_id)
    follow = _after_attach if call.kind is Kind.ATTACH else _after_detach
    return follow(target, call, view.seen, now_s - call.sent_at_s)


def taken_before(last: Call | None, target: Target) -> int:
    """How many attaches to this target EC2 has taken in a row, before the one to be sent now."""
    same = last is not None and last.kind is Kind.ATTACH and last.target == target
    return last.taken if last is not None and same else 0


def is_new(old: Attachment | None, new: Attachment) -> bool:
    """Whether an update needs a pass; the echo of our own error messages does not.

    Source: external-attacher ``shouldEnqueueVAChange``: otherwise each error resets its backoff.
    """
    if old is None or old.uid != new.uid:
        return True
    if old.metadata.resource_version == new.metadata.resource_version:
        return True
    return (old.spec, old.deleting, old.finalizers, old.annotations, old.attached) != (
        new.spec,
        new.deleting,
        new.finalizers,
        new.annotations,
        new.attached,
    )


def _after_attach(target: Target, call: Call, seen: Volume, waited_s: float) -> AttachStep:
    there = seen.on(target.instance_id)
    if there is None:
        leaving = (AttachmentState.DETACHED, AttachmentState.DETACHING)
        elsewhere = [a.instance_id for a in seen.attachments if a.state not in leaving]
        if call.uncertain and len(elsewhere) >= (
            MULTI_ATTACH_INSTANCES if seen.multi_attach else 1
        ):
            return _is_taken(target, elsewhere)
        return _after_nothing(target, call, waited_s)
    if there.state is AttachmentState.ATTACHED:
        if UNCLAIMED in seen.tags:
            return Untag(target.volume_id)
        return Attached(target, there.device, seen.made_from or BLANK, seen.multi_attach)
    if there.state is AttachmentState.ATTACHING and waited_s >= STUCK_S:
        return Detach(target)
    return Wait(target.volume_id)


def _is_taken(target: Target, by: list[str]) -> Refuse:
    who = f"volume {target.volume_id} is attached to instance {', '.join(sorted(by))}"
    many = f", and EC2 allows no more than {MULTI_ATTACH_INSTANCES}" if len(by) > 1 else ""
    return Refuse(Reason.VOLUME_IN_USE, f"{who}{many}; detach it there first")


def _after_nothing(target: Target, call: Call, waited_s: float) -> AttachStep:
    """The volume is not on the instance. Once, EC2's answer may be old; twice, EC2 drops it."""
    again_s = Backoff(SEND_AGAIN_S, DROPPED_AGAIN_S).pause_s(max(call.taken - 1, 0))
    if waited_s >= again_s:
        return Attach(target)
    if call.taken < 2 or waited_s < SEND_AGAIN_S:  # noqa: PLR2004 -- twice
        return Wait(target.volume_id)
    return Wait(
        target.volume_id,
        f"EC2 accepts the attachment of volume {target.volume_id} to instance {target.instance_id} "
        "and drops it each time; if the volume is encrypted, check that its KMS key is enabled "
        "and that the key allows kms:CreateGrant and kms:Decrypt to the controller's IAM role",
    )


def _after_detach(target: Target, call: Call, seen: Volume, waited_s: float) -> AttachStep:
    """A stuck attach was cancelled by a detach: try again once EC2 shows it as gone.

    If the attach succeeds after all, it is not trusted: the detach may still be in flight.
    """
    there = seen.on(target.instance_id)
    if there is None:
        return Attach(target)
    again_s = SEND_AGAIN_S if call.uncertain or call.refused else STUCK_S
    leaving = there.state in (AttachmentState.DETACHING, AttachmentState.BUSY)
    return Wait(target.volume_id) if leaving or waited_s < again_s else Detach(target)


def holders_of(persistent_volumes: Iterable[PersistentVolume]) -> frozenset[str]:
    """The namespaces of the claims that these have, or had."""
    claims = (each.spec.claim_ref for each in persistent_volumes)
    return frozenset(claim.namespace for claim in claims if claim is not None and claim.namespace)


def strangers_use(
    volume_id: str, node_name: str, holders: frozenset[str], pods: Iterable[Pod]
) -> Refuse | None:
    """Why an inline volume that backs claims is not attached; None if only their pods name it.

    An attachment does not say which pod it is for, so all pods on the node that name the volume
    count. If none does, the pod is gone or not seen yet, and this is checked again. The message
    reaches the events of the pod, so it says nothing about the holder.

    Args:
        volume_id: what the attachment names inline.
        node_name: where it is wanted.
        holders: ``holders_of`` the persistent volumes on it, at least one.
        pods: those of the node.
    """
    users = {pod.metadata.namespace for pod in pods if volume_id in pod.inline_volumes}
    if users and users <= holders:
        return None
    who = "a pod of another namespace names it" if users else "no pod of that namespace names it"
    return Refuse(
        Reason.NOT_YOUR_VOLUME,
        f"volume {volume_id} backs a claim, so it is attached only for pods of the claim's "
        f"namespace, but on node {node_name} {who} (awsElasticBlockStore); use a claim",
    )


def named_volume(
    attachment: Attachment, persistent_volume: PersistentVolume | None, driver: str
) -> str | None:
    """The volume that an attachment's source names, None when it is no volume of ours."""
    if persistent_volume is not None:
        return persistent_volume.volume_id(driver)
    inline = attachment.spec.source.inline_volume_spec
    return PersistentVolume(spec=inline).volume_id(driver) if inline is not None else None


def with_one_writer(
    step: AttachStep,
    target: Target,
    *,
    view: View,
    rivals: Sequence[Rival],
    is_for_readers: bool = False,
) -> AttachStep:
    """The step of an attachment that lets a node mount a file system, or what is done instead.

    EC2 attaches a volume with Multi-Attach to any instance, and kube-controller-manager requests
    several nodes if any access mode of a PersistentVolume allows it (IsMultiAttachAllowed), and
    always for volumes that a pod names inline. The kubelet passes only the first mode to the node
    plugin. So only here can it be seen that two nodes would mount one file system for writing.
    Readers are refused too, as by aws-ebs-csi-driver: the kernel writes even at a read-only mount,
    and a node that reads a file system while another one changes it gets corrupt data.
    Source: Kubernetes 1.36 pkg/volume/util/util.go, pkg/volume/csi/csi_attacher.go ``MountDevice``.
    """
    if not isinstance(step, Attach | Attached):
        return step
    others = [each for each in rivals if each.instance_id not in ("", target.instance_id)]
    if view.seen is None:
        # Also if the other one waits as well: the previous leader may have sent its AttachVolume.
        looks_first = (others or is_for_readers) and view.missing_for_s is None
        return Wait(target.volume_id) if looks_first else step
    if not view.seen.multi_attach:
        return step
    return _no_reader(target) if is_for_readers else _sole_writer(step, target, view.seen, others)


def _sole_writer(
    step: AttachStep, target: Target, seen: Volume, rivals: Sequence[Rival]
) -> AttachStep:
    states = {
        each.instance_id: each.state
        for each in seen.attachments
        if each.instance_id != target.instance_id and each.state is not AttachmentState.DETACHED
    }
    getting = {each.instance_id for each in rivals if each.may_be_reported or each.is_going}
    others = states.keys() | getting
    if _is_attached_to(seen, target.instance_id):
        # Otherwise two that are attached and not reported would refuse each other forever.
        others -= _instances(rivals) - _instances(r for r in rivals if not r.gives_way)
    leaving = {each for each in others if states.get(each) is AttachmentState.DETACHING} - getting
    if others - leaving:
        return _second_writer(target, others - leaving)
    return Wait(target.volume_id) if leaving else step


def _no_reader(target: Target) -> Refuse:
    return Refuse(
        Reason.INVALID_REQUEST,
        f"volume {target.volume_id} has Multi-Attach, and its PersistentVolume has a file system "
        f"and {READERS_MODE} as its first access mode: other nodes may write to the volume at the "
        "same time, and reads would return corrupt data; use a PersistentVolume with "
        "ReadWriteOnce (a pod can still mount it with readOnly: true), or a volume without "
        "Multi-Attach",
    )


def _instances(rivals: Iterable[Rival]) -> set[str]:
    return {each.instance_id for each in rivals}


def _is_attached_to(seen: Volume, instance_id: str) -> bool:
    there = seen.on(instance_id)
    return there is not None and there.state is not AttachmentState.DETACHING


def _second_writer(target: Target, others: Iterable[str]) -> Refuse:
    return Refuse(
        Reason.VOLUME_IN_USE,
        f"volume {target.volume_id} is attached, or being attached, to instance "
        f"{', '.join(sorted(others))}, so it is not attached to instance {target.instance_id} as "
        "well: EC2 would allow that (Multi-Attach), but two nodes that write to one file system "
        "destroy it; delete the pods that use it there, or use a PersistentVolume with volumeMode "
        "Block",
    )
