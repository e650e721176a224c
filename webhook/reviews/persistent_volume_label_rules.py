"""Which labels of zone and Region a persistent volume may carry, and how nodes name their zone.

VolumeZone, a filter of the scheduler, rejects every node that lacks a label which the persistent
volume has, so a label is only written where all nodes that could mount the volume carry it too.
Words that are no names of AWS's, under whatever key, are somebody's own and left alone.
Source: Kubernetes 1.36 pkg/scheduler/framework/plugins/volumezone.
"""

from collections.abc import Iterable, Mapping

from provisioner.model.node_affinity import (
    BETA_REGION_LABEL,
    REGION_LABEL,
    labels_in,
    names_region,
    names_zone,
    region_of,
)
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_LABEL
from webhook.model.cluster_view import NodeView

# VolumeZone holds a label under a beta key against a node's new one, where the node has no other.
_CURRENT = {
    BETA_ZONE_LABEL: ZONE_LABEL,
    EBS_ZONE_LABEL: ZONE_LABEL,
    BETA_REGION_LABEL: REGION_LABEL,
}
# Between the zones of a label. Source: component-helpers node/topology LabelMultiZoneDelimiter.
_ZONES_APART = "__"


def writable(zone: str, nodes: Iterable[NodeView]) -> dict[str, str]:
    """The labels of zone and Region that a persistent volume in this zone may be given.

    Each only when every node of the zone that runs our driver carries it with that value. With no
    such node nothing is known of the next one, so there is no label at all; repairs add them when
    nodes have come. Never an empty value: it would keep all nodes away (kubernetes#124525).
    """
    there = _with_driver_in(zone, nodes)
    if not there:
        return {}
    true = {ZONE_LABEL: zone, REGION_LABEL: region_of(zone)}
    return {
        key: value
        for key, value in true.items()
        if value and all((key, value) in node.labels for node in there)
    }


def zone_keys(zone: str, nodes: Iterable[NodeView]) -> tuple[str, ...]:
    """The keys under which a node affinity names this zone: alternatives, one of which will do.

    The one that nodes of every cloud have, or the driver's own where nodes name the zone by that
    alone, as with an old node plugin and no cloud controller. While the zone has no node, those of
    other zones tell; both keys where they do not agree, or there is none: an affinity is never
    changed, so it has to match whatever node comes.
    """
    nodes = list(nodes)
    there = _with_driver_in(zone, nodes)
    if there:
        current = any((ZONE_LABEL, zone) in node.labels for node in there)
        own = any((EBS_ZONE_LABEL, zone) in node.labels for node in there)
        return (EBS_ZONE_LABEL,) if own and not current else (ZONE_LABEL,)
    named = [
        {key for key, value in node.labels if names_zone(value)}
        for node in _distinct(nodes)
        if node.has_driver
    ]
    if named and all(ZONE_LABEL in keys for keys in named):
        return (ZONE_LABEL,)
    return (ZONE_LABEL, EBS_ZONE_LABEL)


def missing(written: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Of the writable labels, those that are not there under any value."""
    return {key: value for key, value in labels.items() if key not in written}


def contradicting(written: Mapping[str, str], zone: str) -> dict[str, str]:
    """The keys that are written with another zone or Region than this zone's, and the true value.

    A set of zones (``us-east-1a__us-east-1b``) contradicts as well, as an EBS volume is in one; so
    does an empty value, which keeps every node away.
    """
    return {
        key: true
        for key, true in labels_in(zone).items()
        if written.get(key, true) != true and _names_places(written[key])
    }


def corrected(
    written: Mapping[str, str], zone: str, labels: Mapping[str, str]
) -> dict[str, str | None]:
    """What becomes of labels that contradict: the true value, None to take one away.

    A true label that nodes lack would keep all of them away as a wrong one does.

    Args:
        written: the labels as they are.
        zone: where the volume is.
        labels: the writable ones of that zone.
    """
    return {
        key: true if _CURRENT.get(key, key) in labels else None
        for key, true in contradicting(written, zone).items()
    }


def _names_places(value: str) -> bool:
    parts = value.split(_ZONES_APART) if value else []
    return all(names_zone(each) or names_region(each) for each in parts)


def _with_driver_in(zone: str, nodes: Iterable[NodeView]) -> list[NodeView]:
    """The nodes that run our driver and may be in this zone by one of their keys."""
    there = frozenset((zone,))
    return [node for node in _distinct(nodes) if node.has_driver and node.may_be_in(there)]


def _distinct(nodes: Iterable[NodeView]) -> Iterable[NodeView]:
    # Equal views are one object mostly, and an id is found far sooner than a view's hash.
    return {id(node): node for node in nodes}.values()
