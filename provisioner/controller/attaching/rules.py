"""Decide the next step of an attachment, from what was observed.

``multi_attach_rules`` then has a veto against a second writer, and ``initialization_rules`` may
have a volume wait for its data before it counts as attached.

The flow never sleeps in a step: it sends a call, asks the watcher to wake it, and decides again
from what EC2 shows then. So a deletion that arrives while a volume is still attaching is just the
next decision. No object is released before EC2 has confirmed that the volume is off the instance.
Source: external-attacher 4.12 pkg/controller/csi_handler.go; EC2 AttachVolume and DetachVolume.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from provisioner.model.attachment import BLANK, NODE_ID, Attachment
from provisioner.model.backoff import Backoff
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import SETTLED, Refuse, Settled
from provisioner.model.errors import Reason
from provisioner.model.ids import is_instance_id, is_volume_id
from provisioner.model.names import UNCLAIMED, VOLUME_ID
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.pod import Pod
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume

STUCK_S = 90.0  # an attachment that takes longer never succeeds (aws-ebs-csi-driver #2833)
# After this long without a trace of it, a lost AttachVolume is sent again: EC2 attaches only once.
SEND_AGAIN_S = 10.0
DROPPED_AGAIN_S = 300.0  # the longest pause, if EC2 accepts AttachVolume and drops it each time
MULTI_ATTACH_INSTANCES = 16  # EBS user guide "Multi-Attach" (read 2026-11-21)
GONE_S = 10.0  # a volume that was known and is missing for this long is gone
BUSY_S = 60.0  # a detach that takes longer is reported to the user
STALLED_S = 120.0  # a detach that EC2 accepted and that has not begun is sent again


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
    """

    call: Call | None = None
    seen: Volume | None = None
    missing_for_s: float | None = None
    unclaimed: bool = False


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
class Release:
    """EC2 has confirmed that the volume is off the instance: release the object."""

    volume_id: str


Waiting = Refuse | Untag | Detach | Wait
AttachStep = Prepare | Attach | Attached | Waiting
DetachStep = Settled | Detach | Wait | Release


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
        if persistent_volume is None:
            return Refuse(Reason.OBJECT_NOT_FOUND, f'PersistentVolume "{name}" not found')
        if persistent_volume.deleting:
            return Refuse(
                Reason.INVALID_REQUEST, f'PersistentVolume "{name}" is marked for deletion'
            )
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
            f"CSINode {node_name} does not contain driver {driver}; is the node plugin running?",
        )
    if not is_instance_id(registered.node_id):
        return _no_instance(node_name, registered.node_id)
    return Target(volume_id, registered.node_id)


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
) -> AttachStep:
    """The next step towards "attached" of an attachment that nobody is deleting."""
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


def target_to_detach(
    attachment: Attachment,
    *,
    driver: str,
    persistent_volume: PersistentVolume | None,
    csi_node: CsiNode | None,
) -> tuple[str | None, str | None]:
    """Volume id and instance id as far as they are known.

    What was recorded at attach wins: a node that was recreated under its name is another instance.
    """
    volume_id = attachment.annotations.get(VOLUME_ID) or named_volume(
        attachment, persistent_volume, driver
    )
    instance_id = attachment.annotations.get(NODE_ID)
    if not instance_id and csi_node is not None:
        registered = csi_node.driver(driver)
        instance_id = registered.node_id if registered else None
    return volume_id, instance_id


def next_detach_step(
    attachment: Attachment,
    target: Target,
    *,
    driver: str,
    view: View,
    now_s: float,
    look_first: bool,
    attach_may_be_under_way_until_s: float,
) -> DetachStep:
    """The next step of an attachment that is being deleted.

    ``look_first``: an earlier process may have requested the detach already.
    ``attach_may_be_under_way_until_s``: until then a call of an earlier process may take effect.
    """
    if finalizer_of_attacher(driver) not in attachment.finalizers:
        return SETTLED
    if not is_volume_id(target.volume_id) or not is_instance_id(target.instance_id):
        return _by_no_call(target, view)
    call = view.call
    if call is None and look_first and _may_be_leaving(target, view):
        return Wait(target.volume_id)
    if call is None or call.kind is Kind.ATTACH or call.target != target:
        return Detach(target)
    if view.missing_for_s is not None and view.missing_for_s >= GONE_S:
        return Release(target.volume_id)
    there = view.seen.on(target.instance_id) if view.seen is not None else None
    waited_s = now_s - call.sent_at_s
    if there is not None:
        again_s = SEND_AGAIN_S if call.uncertain or call.refused else STALLED_S
        leaving = there.state in (AttachmentState.DETACHING, AttachmentState.BUSY)
        return _still_there(target, waited_s) if leaving or waited_s < again_s else Detach(target)
    if view.seen is None and not call.refused:
        return Wait(target.volume_id)
    # EC2 says that it is not attached. A volume that was seen attached before is off for good. But
    # an attach that was never seen may still take effect if its reply, or the detach's, was lost.
    lost_until_s = call.sent_at_s + CONSISTENCY_S if call.uncertain else 0.0
    late_s = max(lost_until_s, attach_may_be_under_way_until_s) if not attachment.attached else 0.0
    return Release(target.volume_id) if now_s >= late_s else Wait(target.volume_id)


def is_still_wanted(
    asked: Attachment, now: Attachment | None, there: InstanceAttachment | None
) -> bool:
    """Whether a detach that has waited for the limiter is still to be sent.

    ``asked``: the object for which it was decided; ``now``: the one under its name now. ``there``:
    the volume on the instance, as seen since. Two things can have changed: the object was removed
    by force and recreated, or a stuck attach has succeeded.
    """
    if now is None or now.deleting:
        return True
    if asked.deleting:
        return False
    return there is None or there.state is not AttachmentState.ATTACHED


def _by_no_call(target: Target, view: View) -> Wait | Release:
    """An attachment that DetachVolume does not accept; what EC2 shows of the volume decides.

    What is not a volume is attached nowhere. To SageMaker HyperPod nodes the stock driver attaches
    volumes by SageMaker's own call, and EC2 shows these attachments without an instance: API
    VolumeAttachment (read 2026-11-22), ``instanceId`` "returns null" for what AWS manages.
    """
    if not is_volume_id(target.volume_id):
        return Release(target.volume_id)
    if view.seen is None:
        is_gone = view.missing_for_s is not None and view.missing_for_s >= GONE_S
        return Release(target.volume_id) if is_gone else Wait(target.volume_id)
    if not view.seen.on(""):
        return Release(target.volume_id)
    return Wait(
        target.volume_id,
        f"volume {target.volume_id} is attached to {target.instance_id[:100]!r}, which is not an "
        "EC2 instance, so only the service that manages it (SageMaker HyperPod) can detach it; "
        "detach it there",
    )


def _may_be_leaving(target: Target, view: View) -> bool:
    if view.seen is None:
        return view.missing_for_s is None  # not described yet
    there = view.seen.on(target.instance_id)
    return there is not None and there.state in (AttachmentState.DETACHING, AttachmentState.BUSY)


def _still_there(target: Target, waited_s: float) -> Wait:
    if waited_s < BUSY_S:
        return Wait(target.volume_id)
    return Wait(
        target.volume_id,
        f"volume {target.volume_id} has been detaching from instance {target.instance_id} for "
        f"over {BUSY_S:.0f} s; it may still be mounted there: unmount it, or stop the instance",
    )
