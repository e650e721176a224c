"""Decide in which zone a claim's volume is made.

A claim that waits for its first consumer gets the zone of the node that its pods are on, or that
the scheduler chose; any other one gets a zone that its class allows, spread by the claim's name so
that the volumes of a StatefulSet lie side by side (``data-web-1`` and ``logs-web-1`` share a zone).
What other volumes of the pods, refusals of EC2 and the source of a clone change about that is in
``consumer_rules``, ``failover_rules`` and ``clone_rules``.
Source: external-provisioner 6.3 pkg/controller/topology.go; the Outpost of the node or the class
as in aws-ebs-csi-driver v1.64 pkg/driver/controller.go.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.model import zone as zones
from provisioner.model.claim import Claim
from provisioner.model.errors import Reason
from provisioner.model.node import CsiNode, Node
from provisioner.model.pod import Pod
from provisioner.model.zone import Place, TopologyTerm

_FNV_OFFSET, _FNV_PRIME, _UINT32 = 2166136261, 16777619, 2**32
_ORDINAL = re.compile(r"(?P<base>.*)-(?P<ordinal>[0-9]+)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NoZone:
    """No zone can be chosen now.

    ``choose_again``: the chosen node is of no use, the scheduler has to pick another one.
    ``retry_after_s``: when to look again, None leaves it to the backoff.
    """

    reason: Reason
    message: str
    choose_again: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class DecidingNode:
    """The node whose place a claim's volume is to have.

    ``is_settled``: its pods are on it already, so they cannot follow a volume to another place.
    """

    name: str
    is_settled: bool = False


def deciding_node(claim: Claim, read_class: ReadClass, pods: Sequence[Pod]) -> DecidingNode | None:
    """The node that decides about a claim's zone; None if any place that the class allows will do.

    Pods that all have a node count more than the scheduler's choice, which may be one for a pod
    that is gone. ``pods``: those that wait for the claim.
    """
    if read_class.storage_class.waits_for_consumer:
        settled = node_of(pods)
        if settled and (not claim.selected_node or all(pod.node_name for pod in pods)):
            return DecidingNode(settled, is_settled=True)
    return DecidingNode(claim.selected_node) if claim.selected_node else None


def node_of(pods: Iterable[Pod]) -> str:
    """The node on which one of these pods is already, "" if the scheduler has to choose.

    The scheduler binds a pod after its claims, so such a pod came to its node without it.
    """
    return next((pod.node_name for pod in pods if pod.node_name), "")


def have_other_claims(pods: Iterable[Pod], claim: Claim) -> bool:
    """Whether one of the pods of a claim uses others, too, whose volumes may be elsewhere."""
    return any(pod.claim_keys != (claim.key,) for pod in pods)


def needs_zone_names(read_class: ReadClass) -> bool:
    """Whether the names of the zones that the class gives by id have to be known."""
    return bool(zones.zone_ids(read_class.allowed_topologies))


def for_selected_node(
    read_class: ReadClass,
    driver: str,
    node_name: str,
    node: Node | None,
    csi_node: CsiNode | None,
) -> Place | NoZone:
    """The zone, and the Outpost, of the node that the scheduler chose.

    ``node`` and ``csi_node`` are None only when the API server itself has none of that name.
    """
    if node is None or csi_node is None:
        return NoZone(
            Reason.NO_ZONE,
            f"node {node_name!r}, chosen for the claim's pod, no longer exists; asking the "
            "scheduler for another node",
            choose_again=True,
        )
    if csi_node.driver(driver) is None:
        return NoZone(
            Reason.NO_ZONE,
            f"driver {driver} is not registered on node {node_name!r} (CSINode has no entry): "
            f"kubectl ebs explain node {node_name} says what keeps the node plugin from it",
        )
    place = zones.place_of(node.labels)
    if place is None:
        return NoZone(
            Reason.NO_ZONE,
            f"node {node_name!r} has no label {zones.ZONE_LABEL}; the cloud controller or the "
            "node plugin sets it",
        )
    wrong = kept_out(read_class, node_name, node.labels, place.zone)
    return place if wrong is None else wrong


def kept_out(
    read_class: ReadClass, node_name: str, labels: Mapping[str, str], zone: str
) -> NoZone | None:
    """Why the class keeps volumes out of the node's place, if so; the scheduler has looked, too.

    The node's own labels tell which zone its zone id is, so EC2 need not be asked.
    """
    terms = read_class.allowed_topologies
    if not terms:
        return None
    zone_id = labels.get(zones.ZONE_ID_KEY)
    names = {zone_id: zone} if zone_id else None
    fitting = [t for t in terms if _holds(zones.zones_of_term(t, names), zone)]
    what = f"node {node_name!r} is in zone {zone}, but class {read_class.name!r} allows only"
    if not fitting:
        named = {zone for t in terms for zone in zones.zones_of_term(t) or ()}
        return NoZone(Reason.NO_ZONE, f"{what} {_listed(named | zones.zone_ids(terms))}")
    if not any(_is_on(zones.outpost_of_term(t), labels) for t in fitting):
        asked = [key for t in fitting for key in zones.outpost_of_term(t)]
        return NoZone(
            Reason.NO_ZONE,
            f"{what} Outposts that the node's labels do not match "
            f"({', '.join(sorted(set(asked)))})",
        )
    return None


def candidates(
    read_class: ReadClass,
    registered: Collection[Place],
    zone_names: Mapping[str, str] | None = None,
) -> tuple[Place, ...] | NoZone:
    """All places for a claim that binds at once, in order; never an empty tuple.

    Without any word from the class, an Outpost is chosen only where there is nothing else: what
    lies on one serves its own instances alone.

    Args:
        read_class: the claim's class.
        registered: where the nodes are on which the driver is registered.
        zone_names: by zone id, when ``needs_zone_names``.
    """
    terms = read_class.allowed_topologies
    places = [_places(term, registered, zone_names) for term in terms]
    open_terms = [t for t, of_term in zip(terms, places, strict=True) if of_term is None]
    if open_terms or not terms:
        return _open(read_class, open_terms, registered)
    found = {place for of_term in places for place in of_term or ()}
    return tuple(sorted(found)) or NoZone(Reason.NO_ZONE, _why_none(read_class, zone_names))


def allows(
    read_class: ReadClass, place: Place, zone_names: Mapping[str, str] | None = None
) -> bool:
    """Whether a class leaves a place to its volumes; ``zone_names`` as for ``candidates``."""
    terms = read_class.allowed_topologies
    on = zones.outpost_segments(place.outpost_arn)
    return not terms or any(
        _holds(zones.zones_of_term(term, zone_names), place.zone)
        and _is_on(zones.outpost_of_term(term), on)
        for term in terms
    )


def _places(
    term: TopologyTerm, registered: Collection[Place], zone_names: Mapping[str, str] | None
) -> set[Place] | None:
    """The places that one term leaves; None when it narrows down neither zone nor Outpost."""
    in_zones = zones.zones_of_term(term, zone_names)
    asked = zones.outpost_of_term(term)
    if not asked:
        return None if in_zones is None else {Place(zone) for zone in in_zones}
    known = {
        place
        for place in registered
        if _holds(in_zones, place.zone) and _is_on(asked, zones.outpost_segments(place.outpost_arn))
    }
    # An Outpost on which no node is yet has to be named in full, and its zone with it.
    combined = product(*(sorted(asked.get(key, ())) for key in zones.OUTPOST_KEYS))
    named = (zones.outpost_arn_of(dict(zip(zones.OUTPOST_KEYS, c, strict=True))) for c in combined)
    with_nodes = {place.outpost_arn for place in registered}
    without = {arn for arn in named if arn and arn not in with_nodes}
    return known | {Place(zone, arn) for zone in in_zones or () for arn in without}


def _open(
    read_class: ReadClass, terms: Sequence[TopologyTerm], registered: Collection[Place]
) -> tuple[Place, ...] | NoZone:
    """The class leaves the zone open, by these of its terms: where nodes are."""
    # The scheduler checks other keys for a claim that waits; here nobody would, and the volume
    # could come to lie where the class forbids it.
    foreign = zones.foreign_keys(terms)
    if foreign:
        return NoZone(
            Reason.INVALID_CLASS,
            f"allowedTopologies of class {read_class.name!r} restrict {', '.join(foreign)} "
            f"but name no zone; add the key {zones.ZONE_LABEL} to each term, or use "
            "volumeBindingMode WaitForFirstConsumer",
        )
    in_region = {place for place in registered if not place.outpost_arn}
    return tuple(sorted(in_region or set(registered))) or NoZone(
        Reason.NO_ZONE,
        "no node has the driver registered and a zone label yet, and class "
        f"{read_class.name!r} names no zone in allowedTopologies",
    )


def _why_none(read_class: ReadClass, zone_names: Mapping[str, str] | None) -> str:
    """Why the terms of a class leave no place: by what its first one says."""
    terms = read_class.allowed_topologies
    what = f"allowedTopologies of class {read_class.name!r}"
    unknown = zones.zone_ids(terms) - set(zone_names or ())
    if unknown and zone_names is not None:
        has = ", ".join(f"{zone_id} ({name})" for zone_id, name in sorted(zone_names.items()))
        return (
            f"{what} allow no zone: {_listed(unknown)} is not a zone ID of this region, which "
            f"has {has or 'none'}"
        )
    for term in terms:
        asked = zones.outpost_of_term(term)
        if asked and zones.zones_of_term(term, zone_names) != frozenset():
            return (
                f"{what} require an Outpost ({', '.join(sorted(asked))}) on which no node has the "
                f"driver registered; specify the zone ({zones.ZONE_LABEL}) and all of "
                f"{', '.join(zones.OUTPOST_KEYS)}, or wait for a node there"
            )
    said = (e for term in terms for e in term.match_label_expressions or ())
    named = " and ".join(
        f"{e.key} in [{', '.join(e.values or ())}]"
        for e in said
        if e.key in (*zones.ZONE_KEYS, zones.ZONE_ID_KEY)
    )
    return f"{what} allow no zone: the lists of one term have no zone in common: {named}"


def _holds(allowed: Collection[str] | None, zone: str) -> bool:
    return allowed is None or zone in allowed


def _is_on(asked: Mapping[str, Collection[str]], labels: Mapping[str, str]) -> bool:
    """Whether labels have one of the values that are asked for, for every key."""
    return all(labels.get(key) in values for key, values in asked.items())


def in_turn(candidates_: Sequence[Place], claim_name: str) -> list[Place]:
    """The candidates, from the one on that falls to the claim's name."""
    begin = spread(claim_name) % len(candidates_)
    return [*candidates_[begin:], *candidates_[:begin]]


def spread(claim_name: str) -> int:
    """A number for a claim's name: equal names with successive ordinals give successive numbers.

    Source: external-provisioner ``getPVCNameHashAndIndexOffset``: FNV-1, 32 bits; for ``X-N`` the
    hash of X without its last ``-`` part, plus N, so that all claims of one pod agree.
    """
    found = _ORDINAL.fullmatch(claim_name)
    if found is None or int(found["ordinal"]) >= _UINT32:
        return _fnv1(claim_name)
    base = found["base"]
    return (_fnv1(base.rpartition("-")[2]) + int(found["ordinal"])) % _UINT32


def _fnv1(text: str) -> int:
    value = _FNV_OFFSET
    for byte in text.encode():
        value = value * _FNV_PRIME % _UINT32 ^ byte
    return value


def _listed(zones_: Collection[str]) -> str:
    return " or ".join(sorted(zones_)) or "none"
