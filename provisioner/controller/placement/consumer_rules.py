"""Decide where the pods that wait for a claim can run: on which nodes, in which places.

Only what holds for sure counts: node selector, required affinity, taints, cordons, the volumes that
the pods have already and those that are being made for them. Free room, spreading and affinity
between pods are the scheduler's business: it sees them change.
Source: Kubernetes 1.36 scheduler plugins NodeAffinity, NodeName, NodeUnschedulable,
TaintToleration, VolumeBinding.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.placement import zone_rules
from provisioner.controller.placement.eligible_node_rules import (
    NO_NODES,
    EligibleNode,
    EligibleNodes,
)
from provisioner.model.claim import Claim
from provisioner.model.node import Node
from provisioner.model.node_affinity import matcher, matches
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.pod import Pod
from provisioner.model.storage_class import StorageClass
from provisioner.model.taint import keeps_away
from provisioner.model.zone import Place, TopologyTerm, allow_node, zone_of

InCreation = frozenset[Place]
Topology = bytes


@dataclass(frozen=True, slots=True)
class Consumers:
    """The pods that wait for one claim, and what says where they can run.

    Attributes:
        pods: not on their way out.
        eligible_nodes: the nodes that come into question for a volume of the claim's class.
        volumes: the persistent volumes of the pods' other claims.
        in_creation: where volumes of the pods' other claims are being made.
    """

    pods: tuple[Pod, ...] = ()
    eligible_nodes: EligibleNodes = NO_NODES
    volumes: tuple[PlacedVolume, ...] = ()
    in_creation: InCreation = frozenset()

    @property
    def are_constrained(self) -> bool:
        """Whether anything but the nodes themselves says where the pods have to be."""
        selective = any(p.node_name or p.spec.selections or p.spec.inline_zones for p in self.pods)
        return bool(selective or self.volumes or self.in_creation)


@dataclass(frozen=True, slots=True)
class SiblingVolumes:
    """Where the other volumes of a claim's pods are, by the keys of the claims that they are for.

    Attributes:
        volumes: those that are there.
        in_creation: those that are being made, or will be made there.
    """

    volumes: Mapping[str, PlacedVolume]
    in_creation: Mapping[str, Place]

    def exclude(self, pod: Pod, place: Place, node: Node) -> bool:
        """Whether one of its volumes keeps a pod from this node, which is in this place."""
        made = (self.in_creation.get(key, place) for key in pod.claim_keys)
        there = (self.volumes[key] for key in pod.claim_keys if key in self.volumes)
        return any(each != place for each in made) or not all(can_use(v, node) for v in there)


def is_surely_beside(sibling: Claim, claim: Claim, place: Place) -> bool:
    """Whether the volume of another claim of the same pod need not be read.

    ``claim`` waits for its volume, and the node that the scheduler chose for it is in that place. A
    volume that was provisioned is where its claim says that it was made, or, without such a word
    (another driver's), where the scheduler has sent both claims.
    """
    if not sibling.spec.volume_name:
        return True
    if sibling.spec.volume_name != sibling.persistent_volume_name:
        return False
    if sibling.pinned_zone:
        return sibling.pinned_place == place
    return sibling.selected_node == claim.selected_node


def topology_of(read_class: ReadClass) -> Topology:
    """What classes have in common of which the same nodes are eligible."""
    terms = read_class.allowed_topologies
    return msgspec.json.encode((terms, _terms_for_scheduler(read_class.storage_class)))


def _terms_for_scheduler(storage_class: StorageClass) -> Sequence[TopologyTerm]:
    return (storage_class.allowed_topologies or ()) if storage_class.waits_for_consumer else ()


def eligible_nodes(
    read_class: ReadClass, nodes: Iterable[tuple[Node, Place | None]]
) -> Iterator[EligibleNode]:
    """Those of the nodes whose place the class allows.

    For a class that waits for the first consumer, only those that the scheduler would take: it
    looks at the labels alone.

    Args:
        read_class: the class.
        nodes: each with its place; None if the driver is not registered on it.
    """
    terms = _terms_for_scheduler(read_class.storage_class)
    for node, place in nodes:
        if place is None or node.deleting or not allow_node(terms, node.labels):
            continue
        if zone_rules.kept_out(read_class, node.name, node.labels, place.zone) is None:
            yield EligibleNode(node, place)


def places(consumers: Consumers) -> dict[Place, str]:
    """Where each of the pods has a node that it can run on, with the name of one such node.

    Empty without pods.
    """
    found: dict[Place, str] = {}
    for place in consumers.eligible_nodes.places if consumers.pods else ():
        fitting = [_first_node(consumers, pod, place) for pod in consumers.pods]
        if all(fitting):
            found[place] = fitting[0]
    return found


def _first_node(consumers: Consumers, pod: Pod, place: Place) -> str:
    if _is_surely_elsewhere(consumers, pod, place):
        return ""
    fitting = [matcher(terms) for terms in pod.spec.selections]  # once, not for each of 5,000 nodes
    for node in consumers.eligible_nodes.there(place):
        is_selected = all(fits(node.labels, node.name) for fits in fitting)
        if is_selected and next(obstacles(consumers, pod, place, node), None) is None:
            return node.name
    return ""


def _is_surely_elsewhere(consumers: Consumers, pod: Pod, place: Place) -> bool:
    """Whether the place as a whole is none for a pod; of thousands of nodes none need be seen."""
    if consumers.in_creation - {place} or pod.spec.inline_zones - {place.zone}:
        return True
    selectors = [*pod.spec.selections, *(each.terms for each in consumers.volumes if each.terms)]
    return any(consumers.eligible_nodes.lack(place, terms) for terms in selectors)


def obstacles(consumers: Consumers, pod: Pod, place: Place, node: Node) -> Iterator[str]:
    """What keeps a pod from running on a node, as the part of a sentence."""
    if pod.node_name and pod.node_name != node.name:
        yield f"pod {pod.key} is already on node {pod.node_name}"
    taint = keeps_away(node.taints, pod.tolerations)
    if taint is not None:
        yield f"node {node.name} has taint {taint.key}, which pod {pod.key} does not tolerate"
    if not all(matches(terms, node.labels, node.name) for terms in pod.spec.selections):
        yield f"nodeSelector or required affinity of pod {pod.key} excludes node {node.name}"
    for volume in consumers.volumes:
        if not can_use(volume, node):
            yield f"PersistentVolume {volume.name} of pod {pod.key} is elsewhere"
    if pod.spec.inline_zones - {place.zone}:
        yield f"an inline volume of pod {pod.key} is elsewhere"
    if consumers.in_creation - {place}:
        yield f"another volume for pod {pod.key} is being created elsewhere"


def can_use(volume: PlacedVolume, node: Node) -> bool:
    """Whether pods on this node can use a persistent volume."""
    if volume.terms and not matches(volume.terms, node.labels, node.name):
        return False
    return not volume.labelled_zones or zone_of(node.labels) in volume.labelled_zones


def beside_siblings(candidates: Sequence[Place], consumers: Consumers) -> Sequence[Place]:
    """Of the candidates for a claim that binds at once, those where its pods have to be.

    All of them when nothing ties the pods to a place, or when none suits them: the claim has to be
    bound all the same, and other pods may come.
    """
    if not consumers.pods or not consumers.are_constrained:
        return candidates
    suiting = places(consumers)
    found = [place for place in candidates if place in suiting]
    # A node may be missing only for now: what has a place already says it, too.
    return found or [p for p in candidates if _is_beside(p, consumers)] or candidates


def _is_beside(place: Place, consumers: Consumers) -> bool:
    told = [volume.zones for volume in consumers.volumes if volume.zones is not None]
    if not told and not consumers.in_creation:
        return False
    return all(place.zone in zones_ for zones_ in told) and not consumers.in_creation - {place}


def why_no_place(consumers: Consumers, but: Collection[Place]) -> str:
    """Why the pods can run in no place but those, one reason a place, for the user."""
    reasons: dict[Place, str] = {}
    for place in consumers.eligible_nodes.places:
        found = (
            obstacle
            for node in consumers.eligible_nodes.there(place)
            for pod in consumers.pods
            for obstacle in obstacles(consumers, pod, place, node)
        )
        reason = next(found, None) if place not in but else None
        if reason is not None:
            reasons[place] = f"{place.outpost_arn or place.zone}: {reason}"
    return "; ".join(reasons.values()) or "no other allowed zone has a node with the driver"
