"""Decide which nodes are out of service because their EC2 instances are terminated.

A node that stops answering may only be cut off, and its pods may still write. Kubernetes therefore
leaves its pods Terminating and its volumes attached, the latter for six minutes. ``terminated`` is
EC2's proof that nothing runs there any more, and final; every other state, a failed look, and an
instance that EC2 does not know are no proof.
Source: Kubernetes "Non-graceful node shutdown handling"; EC2 user guide "Instance lifecycle".
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.node import OUT_OF_SERVICE_FOR, CsiNode, Node
from provisioner.model.taint import OUT_OF_SERVICE, Taint

TERMINATED = "terminated"
_READY = "True"
_NOT_READY = ("False", "Unknown")  # not "": a node that was made a moment ago has no conditions

States = Mapping[str, str]
"""What EC2 says of instances, by id; those that it does not know are missing."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is to be done, or nothing is proved."""


@dataclass(frozen=True, slots=True)
class Declare:
    """Write ``taints``, and that ours is among them because of ``instances``."""

    instances: tuple[str, ...]
    taints: tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Write ``taints``, without ours; ``why`` goes into the event."""

    taints: tuple[Taint, ...]
    why: str


Step = Leave | Declare | TakeBack


def instances_of(node: Node, csi_node: CsiNode | None, driver: str) -> frozenset[str]:
    """The instances that a node names: by its driver's registration, and by its providerID.

    Usually one. Two when the Node was taken over by another machine: kubelet registers its drivers
    anew, but a providerID is never changed. The registration of a Node that had this name before
    says nothing: it may be there for a while yet.
    """
    is_its_own = csi_node is not None and csi_node.is_of(node)
    registered = csi_node.driver(driver) if csi_node is not None and is_its_own else None
    named = (registered.node_id if registered is not None else "", node.instance_id)
    return frozenset(each for each in named if each)


def is_suspect(node: Node) -> bool:
    """Whether EC2 is to be asked about a node's instances.

    One that has the taint already, whoever added it, has all that we could do; one with our note
    and without the taint had it taken away by somebody who knows better.
    """
    return (
        node.ready in _NOT_READY
        and OUT_OF_SERVICE_FOR not in node.annotations
        and all(taint.key != OUT_OF_SERVICE.key for taint in node.spec.taints or ())
    )


def next_step(node: Node, csi_node: CsiNode | None, *, driver: str, states: States) -> Step:
    """What is to be done about a node; each instance that it names has to be terminated."""
    named = instances_of(node, csi_node, driver)
    taints = tuple(node.spec.taints or ())
    if OUT_OF_SERVICE_FOR in node.annotations:
        why = _why_back(node, named)
        left = tuple(each for each in taints if not _is_ours(each))
        return TakeBack(left, why) if why else Leave()
    if is_suspect(node) and named and all(states.get(each) == TERMINATED for each in named):
        return Declare(tuple(sorted(named)), (*taints, OUT_OF_SERVICE))
    return Leave()


def declared_for(node: Node) -> frozenset[str]:
    """The instances for which we have added the taint."""
    return frozenset(filter(None, node.annotations.get(OUT_OF_SERVICE_FOR, "").split(",")))


def abandoned(
    attachments: Iterable[Attachment], nodes: Collection[str], driver: str
) -> dict[str, list[Attachment]]:
    """This driver's attachments to nodes that are not there, by the node's name.

    Only those of which is recorded which instance the node was: its name may since have been
    another one's.
    """
    found: dict[str, list[Attachment]] = {}
    for each in attachments:
        name = each.spec.node_name
        is_ours = each.spec.attacher == driver and bool(each.annotations.get(NODE_ID))
        if is_ours and not each.deleting and name not in nodes:
            found.setdefault(name, []).append(each)
    return found


def instance_of(attachment: Attachment) -> str:
    """The instance to which a volume was to be attached, "" if that was not recorded."""
    return attachment.annotations.get(NODE_ID, "")


def _why_back(node: Node, named: frozenset[str]) -> str:
    if node.ready == _READY:
        return "it is ready again"
    others = named - declared_for(node)
    return f"it is instance {', '.join(sorted(others))} now" if others else ""


def _is_ours(taint: Taint) -> bool:
    mine = OUT_OF_SERVICE
    return (taint.key, taint.value, taint.effect) == (mine.key, mine.value, mine.effect)
