"""Why a volume does not come to the node of a pod, or does not leave another one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import msgspec

from provisioner.inspect.explain import controller_rules, key_rules, reason_rules, volume_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.pods import elsewhere_rules, pending_rules
from provisioner.inspect.explain.view_rules import (
    ClaimView,
    NodeView,
    Said,
    View,
    VolumeView,
    newest,
)
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.inspect.shell_words import shell
from provisioner.model.attachment import Attachment
from provisioner.model.errors import Reason
from provisioner.model.persistent_volume import finalizer_of_attacher
from provisioner.model.volume import AttachmentState
from provisioner.model.zone import zone_of

_ATTACH_FAILED = "FailedAttachVolume"
_AGE = timedelta(seconds=30)
_DETACHES_IN = timedelta(seconds=60)
_SHOW = "kubectl get volumeattachment {} -o yaml --show-managed-fields"
_PATCH = "kubectl patch volumeattachment {} --type=json -p {}"
# "busy" is what EC2 calls a detachment that waits for the instance to unmount the volume.
_LEAVING = {AttachmentState.DETACHING, AttachmentState.BUSY}
# A node without a limit or a zone label still runs the pods that it has.
_BLOCKING = {
    Cause.NODE_GONE,
    Cause.NODE_NOT_READY,
    Cause.NODE_PLUGIN_FAILS,
    Cause.DRIVER_NOT_REGISTERED,
    Reason.INSTANCE_NOT_FOUND,
    Reason.INSTANCE_STATE,
}


def blocks(ill: Chain) -> bool:
    """Whether what is wrong with a node keeps its pods from their volumes."""
    return any(each.cause in _BLOCKING for each in ill.links)


@dataclass(frozen=True, slots=True)
class Here:
    """Where a pod is.

    Attributes:
        node: of the pod.
        ill: what is wrong with the node; nothing that is told of a volume that is attached.
        ill_elsewhere: the same of other nodes, by name.
    """

    node: NodeView
    ill: Sequence[Chain] = ()
    ill_elsewhere: Mapping[str, Sequence[Chain]] = field(default_factory=dict)


def chains(view: View, claim: ClaimView, place: Here) -> list[Chain]:
    """Why the volume of a claim is not attached to a node; nothing if it is, or is not ours.

    Args:
        view: all that is known.
        claim: bound.
        place: where its pod is.
    """
    volume, node = claim.volume, place.node
    if volume is None or not _is_ours(view, volume):
        return []
    here = _attachment(volume, node)
    faults = volume_rules.faults(view, volume)
    blocking = [each for each in place.ill if blocks(each)]
    if here is not None and here.attached and not here.deleting:
        return faults or ([] if blocking else lost(view, claim, node))
    faults += [*_wrong_place(volume, node, place.ill), *blocking]
    symptom = _not_attached(node, claim, here)
    if faults:
        return [each.then(symptom) for each in faults]
    if here is not None and here.deleting:
        return [_does_not_leave(view, volume, here).then(_by_event(view, symptom))]
    elsewhere = _elsewhere(view, claim, volume, place)
    if elsewhere is not None:
        return [elsewhere.then(symptom)]
    absent = controller_rules.absence(view, Task.ATTACH, _refused(volume, here))
    if absent is not None:
        return [absent.then(symptom)]
    return [_without_fault(view, volume, here, symptom)]


def lost(view: View, claim: ClaimView, node: NodeView) -> list[Chain]:
    """What EC2 has taken from a node, though Kubernetes has it attached there; else nothing."""
    volume = claim.volume
    if volume is None or not _is_ours(view, volume) or volume_rules.faults(view, volume):
        return []
    here = _attachment(volume, node)
    if here is None or not here.attached or here.deleting:
        return []
    unknown = _unknown_to_ec2(volume, node, here)
    return [Chain((unknown,))] if unknown else []


def _is_ours(view: View, volume: VolumeView) -> bool:
    """Whether this driver attaches it: it does nothing for a volume of EFS, NFS or a host."""
    found = volume.persistent_volume
    return found is not None and found.volume_id(view.driver) is not None


def _attachment(volume: VolumeView, node: NodeView) -> Attachment | None:
    return next((a for a in volume.attachments if a.spec.node_name == node.name), None)


def _refused(volume: VolumeView, here: Attachment | None) -> Said | None:
    """What the attacher said last."""
    if here is None:
        return None
    found = (s for s in volume.said if s.about.endswith(here.name) and "attachError" in s.where)
    return next(found, None)


def _without_fault(view: View, volume: VolumeView, here: Attachment | None, symptom: Link) -> Chain:
    told = _refused(volume, here)
    if told is not None and told.reason is Reason.KEY_UNUSABLE:
        return Chain((key_rules.link(told, key_rules.of_volume(volume)), symptom))
    if told is not None:
        return Chain((reason_rules.link_of(told, Cause.NOT_ATTACHED), symptom))
    if here is None and view.read("volumeattachments"):
        return _not_asked_for(view, symptom)
    made = here.metadata.creation_timestamp if here else None
    pending = pending_rules.link(volume, here, made) if here else None
    links = (pending, symptom) if pending else (symptom,)
    return Chain(links, waits=made is None or view.now - made < _AGE)


def _not_asked_for(view: View, symptom: Link) -> Chain:
    """Nobody has created a VolumeAttachment."""
    made = view.pod.metadata.creation_timestamp if view.pod else None
    link = Link(
        Cause.ATTACHMENT_MISSING,
        "Nobody has asked for the attachment: there is no VolumeAttachment.",
        Proof(symptom.proof.where, "no VolumeAttachment of the volume and the node"),
        next="kube-controller-manager, which creates it",
        remedy="Check that kube-controller-manager runs, and that the Node has the annotation "
        'volumes.kubernetes.io/controller-managed-attach-detach: "true".',
    )
    return Chain((link, symptom), waits=made is not None and view.now - made < _AGE)


def _wrong_place(volume: VolumeView, node: NodeView, ill: Sequence[Chain]) -> list[Chain]:
    """EC2 attaches only within a zone."""
    zone = node.instance.zone if node.instance else zone_of(node.node.labels) if node.node else None
    if volume.ebs is None or not zone or zone == volume.ebs.zone:
        return []
    proof = f"volume {volume.ebs.zone}, node {node.name} {zone}"
    found = volume.persistent_volume
    if found is not None and found.zones is not None and volume.ebs.zone not in found.zones:
        return []  # said already, with the object that is wrong
    link = Link(
        Reason.ZONE_MISMATCH,
        f"Volume {volume.ebs.volume_id} and node {node.name} are in different zones.",
        Proof(f"EC2 DescribeVolumes and node {node.name}", proof),
        next="you; a volume cannot leave its zone",
        remedy=f"Delete the pod, so that the scheduler sends it to {volume.ebs.zone}; check the "
        "PersistentVolume's nodeAffinity and the node's zone label.",
        command=shell("kubectl get node {} --show-labels", node.name),
    )
    label = next((each.links[0] for each in ill if each.cause is Cause.WRONG_ZONE_LABEL), None)
    if label is None:
        return [Chain((link,))]
    remedy = (
        f"{label.remedy} Then delete the pod, so that the scheduler sends it to {volume.ebs.zone}."
    )
    return [Chain((replace(label, remedy=remedy), link))]


def _not_attached(node: NodeView, claim: ClaimView, here: Attachment | None) -> Link:
    where = f"volumeattachment {here.name}" if here else f"{claim.name} on node {node.name}"
    error = here.status.attach_error if here and here.status else None
    seen = error.message if error else "status.attached: false" if here else "none"
    return Link(
        Cause.NOT_ATTACHED,
        f"So the volume of claim {claim.key} is not attached to node {node.name}.",
        Proof(where, seen),
        next="the controller",
    )


def _by_event(view: View, symptom: Link) -> Link:
    """The same, with the pod's event as its proof, if there is one."""
    said = newest(view.pod_said, _ATTACH_FAILED)
    return replace(symptom, proof=reason_rules.proof_of(said)) if said else symptom


def _unknown_to_ec2(volume: VolumeView, node: NodeView, here: Attachment) -> Link | None:
    """The API server says attached, EC2 does not, or not for long."""
    if volume.ebs is None or node.instance is None:
        return None
    volume_id, instance_id = volume.ebs.volume_id, node.instance.instance_id
    there = volume.ebs.on(instance_id)
    if there is not None and there.state not in _LEAVING:
        return None
    return Link(
        Cause.ATTACHMENT_UNKNOWN,
        f"Kubernetes has volume {volume_id} attached to node {node.name}, but EC2 "
        + ("has not: somebody has detached it." if there is None else "is detaching it there.")
        + (" Kubernetes has not asked for that." if there is not None else ""),
        Proof(
            f"volumeattachment {here.name}; EC2 DescribeVolumes",
            f"attached: true; {there.state if there else 'not'} on {instance_id}",
        ),
        next="you",
        remedy="Delete the pod, so that the volume is attached again for the next one.",
    )


def _elsewhere(view: View, claim: ClaimView, volume: VolumeView, here: Here) -> Chain | None:
    """The volume is, for Kubernetes, still on another node."""
    name = here.node.name
    other = next((a for a in volume.attachments if a.spec.node_name != name), None)
    if other is None or (volume.ebs is not None and volume.ebs.multi_attach):
        return None
    if other.deleting:
        return _does_not_leave(view, volume, other)
    ill = [each for each in here.ill_elsewhere.get(other.spec.node_name, ()) if blocks(each)]
    return elsewhere_rules.chain(view, claim, volume, other, ill)


_AFTERWARDS = (
    "Once the VolumeAttachment is gone, kube-controller-manager makes a new one by itself if a pod "
    "waits for the volume."
)


def _does_not_leave(view: View, volume: VolumeView, other: Attachment) -> Chain:
    """It is being detached, and that does not end."""
    told = next(
        (s for s in volume.said if s.about.endswith(other.name) and "detachError" in s.where), None
    )
    absent = controller_rules.absence(view, Task.ATTACH)
    leaving = stuck(view, other, _in_ec2(volume, other))
    if absent is not None:
        return absent.then(leaving)
    if told is not None:
        return Chain((reason_rules.link_of(told, Cause.ATTACHMENT_STUCK), leaving))
    since = deleted_at(other)
    is_new = since is not None and view.now - since < _DETACHES_IN
    pending = pending_rules.link(volume, other, since)
    links = (pending, leaving) if pending else (leaving,)
    return Chain(links, waits=is_new and finalizer_of_attacher(view.driver) in other.finalizers)


def stuck(view: View, attachment: Attachment, ec2: "InEc2 | None" = None) -> Link:
    """A VolumeAttachment that is being deleted, and is still there.

    Args:
        view: all that is known.
        attachment: being deleted.
        ec2: what EC2 says of the volume; None if that is not known.
    """
    ours = finalizer_of_attacher(view.driver)
    foreign = [each for each in attachment.finalizers if each != ours]
    since = at(deleted_at(attachment))
    kept = ", ".join(foreign or attachment.finalizers)
    word, keeps = ("finalizers", "keep") if "," in kept else ("finalizer", "keeps")
    return Link(
        Cause.ATTACHMENT_STUCK,
        f"VolumeAttachment {attachment.name} of node {attachment.spec.node_name} is being deleted "
        f"since {since}, and " + (f"{word} {kept} {keeps} it." if kept else "is still there."),
        Proof(
            f"volumeattachment {attachment.name}, metadata.finalizers"
            + ("; EC2 DescribeVolumes" if ec2 else ""),
            (", ".join(attachment.finalizers) or "none") + (f"; {ec2.seen}" if ec2 else ""),
        ),
        next=f"the owner of {foreign[0]}; unknown to this driver"
        if foreign
        else "the controller, which removes its finalizer once EC2 has detached the volume",
        remedy=f"{_release(foreign[0], ec2)} {_AFTERWARDS}"
        if foreign
        else "Look at the controller's log.",
        command=_remove(attachment, foreign[0])
        if foreign and ec2 and ec2.is_detached
        else shell(_SHOW, attachment.name)
        if foreign
        else controller_rules.log(view, Task.ATTACH),
    )


@dataclass(frozen=True, slots=True)
class InEc2:
    """What EC2 says of the volume of an attachment."""

    seen: str
    is_detached: bool


def _in_ec2(volume: VolumeView, attachment: Attachment) -> InEc2 | None:
    """None if EC2 does not tell."""
    if not volume.asked:
        return None
    ebs = volume.ebs
    if ebs is None:
        return InEc2("EC2 does not have the volume", is_detached=True)
    ids = [each.instance_id for each in ebs.attachments if ebs.on(each.instance_id)]
    names = {volume.nodes_of.get(each, "") for each in ids}
    on = [f"{e} (node {volume.nodes_of[e]})" if e in volume.nodes_of else e for e in ids]
    where = f" on {', '.join(on)}" if on else ""
    # An instance of which the node is not known may be this very node's.
    away = not on or not names & {"", attachment.spec.node_name}
    return InEc2(f"{ebs.volume_id} is {ebs.state}{where}", is_detached=away)


def _release(finalizer: str, ec2: InEc2 | None) -> str:
    no_part = f"No part of this driver removes finalizer {finalizer}: its owner has to."
    if ec2 is None:
        return (
            f"{no_part} Only if the owner is gone for good, and EC2 shows the volume detached from "
            "that node, remove it by hand. The object's managedFields tell who set it."
        )
    if ec2.is_detached:
        return (
            f"{no_part} EC2 does not show the volume on that node. If the owner is gone for good, "
            "remove the finalizer by hand."
        )
    return (
        f"{no_part} EC2 may still have the volume on that node: do not remove the finalizer by "
        "hand yet. The object's managedFields tell who set it."
    )


def _remove(attachment: Attachment, finalizer: str) -> str:
    """The patch fails if the finalizers have changed."""
    path = f"/metadata/finalizers/{attachment.finalizers.index(finalizer)}"
    patch = [{"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]
    text = msgspec.json.encode(patch).decode()
    return shell(_PATCH, attachment.name, text)
