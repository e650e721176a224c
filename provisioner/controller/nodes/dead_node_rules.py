"""Decide which nodes are out of service because their EC2 instances are terminated.

A node that stops answering may only be cut off, and its pods may still write. Kubernetes therefore
leaves its pods Terminating and its volumes attached, the latter for six minutes. The state
``terminated`` in EC2 is final and proves that nothing runs there any longer. Every other state, a
failed call, and an instance that EC2 does not know prove nothing.

Nor does a Node prove which machine it is: another one may have its name now, and providerID never
changes. So a node whose kubelet answers is never declared dead, whatever it reports, and every
instance that anything names for the Node counts.
Source: Kubernetes "Non-graceful node shutdown handling"; EC2 user guide "Instance lifecycle".
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from provisioner.controller.shared import node_patch_rules
from provisioner.controller.shared.node_patch_rules import Operation
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.names import OUT_OF_SERVICE_FOR
from provisioner.model.node import CsiNode, Node
from provisioner.model.taint import OUT_OF_SERVICE

TERMINATED = "terminated"
_READY = "True"
# The node lifecycle controller sets it for a kubelet that has not reported for 50 s. "False" comes
# from a live kubelet, and a new node has no conditions.
_NOT_HEARD = "Unknown"
_NO_WORD = (_NOT_HEARD, "")

States = Mapping[str, str]
"""States of instances in EC2, by id; those that it does not know are missing."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is to be done, or nothing is proved."""


@dataclass(frozen=True, slots=True)
class Declare:
    """Add our taint, and the note that it is ours, because of ``instances``."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Remove our taint and its note; ``why`` goes into the event."""

    why: str


Step = Leave | Declare | TakeBack


def registered_instance(node: Node, csi_node: CsiNode | None, driver: str) -> str:
    """The instance as which the driver is registered on a node, "" while it is not.

    The registration of an earlier Node of this name may still exist, and does not count.
    """
    if csi_node is None or not csi_node.is_of(node):
        return ""
    registered = csi_node.driver(driver)
    return registered.node_id if registered is not None else ""


def instances_of(
    node: Node, csi_node: CsiNode | None, attachments: Iterable[Attachment], driver: str
) -> frozenset[str]:
    """The instances that a node may be: all that anything names for it.

    Usually one. More when the Node was taken over by another machine: kubelet registers its drivers
    anew, but a providerID is never changed; and while the driver is not registered, only an
    attachment tells whose volumes would be taken away.

    Args:
        node: the node.
        csi_node: of its name, if there is one.
        attachments: to its name, of whatever driver.
        driver: ours.
    """
    ours = (each for each in attachments if each.spec.attacher == driver)
    named = {registered_instance(node, csi_node, driver), node.instance_id}
    return frozenset(named.union(map(instance_of, ours)) - {""})


def that_alone_name(
    unknown: Collection[str],
    node: Node,
    csi_node: CsiNode | None,
    attachments: Iterable[Attachment],
    driver: str,
) -> list[str]:
    """The attachments by which EC2 is asked about ``unknown`` instances, if it is by these alone.

    Nothing of the node names those, so it may be another machine than it was then.
    """
    if {registered_instance(node, csi_node, driver), node.instance_id} & set(unknown):
        return []
    ours = (each for each in attachments if each.spec.attacher == driver)
    return sorted(each.name for each in ours if instance_of(each) in unknown)


def is_suspect(node: Node) -> bool:
    """Whether EC2 is to be asked about a node's instances.

    One that has the taint already, whoever added it, has all that we could do; one with our note
    and without the taint had it taken away by somebody who knows better.
    """
    return (
        node.ready == _NOT_HEARD
        and OUT_OF_SERVICE_FOR not in node.annotations
        and all(taint.key != OUT_OF_SERVICE.key for taint in node.spec.taints or ())
    )


def next_step(node: Node, named: frozenset[str], states: States) -> Step:
    """What is to be done about a node; each instance that is ``named`` has to be terminated."""
    if OUT_OF_SERVICE_FOR in node.annotations:
        why = _why_back(node, named)
        return TakeBack(why) if why else Leave()
    if is_suspect(node) and named and all(states.get(each) == TERMINATED for each in named):
        return Declare(tuple(sorted(named)))
    return Leave()


def operations(node: Node, step: Step) -> list[Operation]:
    """The change of the node that a step is, all in one patch."""
    match step:
        case Declare(instances=instances):
            note = node_patch_rules.annotated(node, {OUT_OF_SERVICE_FOR: ",".join(instances)})
            return [*node_patch_rules.with_taint(node, OUT_OF_SERVICE), *note]
        case TakeBack():
            taint = node_patch_rules.without_taint(node, OUT_OF_SERVICE)
            return [*taint, *node_patch_rules.without_annotation(node, OUT_OF_SERVICE_FOR)]
        case Leave():
            return []


def is_done(node: Node, step: Step) -> bool:
    """Whether a step whose reply was lost was carried out."""
    match step:
        case Declare(instances=instances):
            return declared_for(node) == frozenset(instances)
        case TakeBack():
            return OUT_OF_SERVICE_FOR not in node.annotations
        case Leave():
            return False


def declared_for(node: Node) -> frozenset[str]:
    """The instances for which we have added the taint."""
    return frozenset(filter(None, node.annotations.get(OUT_OF_SERVICE_FOR, "").split(",")))


def abandoned(
    attachments: Iterable[Attachment], registered: Mapping[str, str], driver: str
) -> dict[str, list[Attachment]]:
    """This driver's attachments that no other flow will handle again, by the node's name.

    Those to nodes that do not exist; and those that are attached to another instance than the one
    that has the node's name now, where a pod would wait for its device forever. Only those that
    record which instance the node was.

    Args:
        attachments: all of them.
        registered: by the name of each node that is there, as which instance the driver is
            registered on it, "" while it is not.
        driver: ours.
    """
    found: dict[str, list[Attachment]] = {}
    for each in attachments:
        name, recorded = each.spec.node_name, instance_of(each)
        if each.spec.attacher != driver or each.deleting or not recorded:
            continue
        if name not in registered or (each.attached and registered[name] not in {"", recorded}):
            found.setdefault(name, []).append(each)
    return found


def instance_of(attachment: Attachment) -> str:
    """The instance to which a volume was to be attached, "" if that was not recorded."""
    return attachment.annotations.get(NODE_ID, "")


def _why_back(node: Node, named: frozenset[str]) -> str:
    if node.ready == _READY:
        return "it is ready again"
    if node.ready not in _NO_WORD:
        return "its kubelet answers again, so another machine has its name now"
    others = named - declared_for(node)
    return f"it is instance {', '.join(sorted(others))} now" if others else ""
