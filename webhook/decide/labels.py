"""Which labels of zone and Region a persistent volume may carry.

VolumeZone, a filter of the scheduler, rejects every node that lacks a label which the persistent
volume has, so a label is only written where all nodes that could mount the volume carry it too.
Source: Kubernetes 1.36 pkg/scheduler/framework/plugins/volumezone.
"""

from collections.abc import Collection, Iterable, Mapping

from provisioner.model.node_affinity import (
    BETA_REGION_LABEL,
    REGION_KEYS,
    REGION_LABEL,
    labels_in,
    names_region,
    region_of,
)
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_KEYS, ZONE_LABEL
from webhook.decide.nodes import running_driver_in
from webhook.model.views import NodeView

# VolumeZone holds a label under a beta key against a node's new one, where the node has no other.
_CURRENT = {
    BETA_ZONE_LABEL: ZONE_LABEL,
    EBS_ZONE_LABEL: ZONE_LABEL,
    BETA_REGION_LABEL: REGION_LABEL,
}


def writable(zone: str, nodes: Iterable[NodeView]) -> dict[str, str]:
    """The labels of zone and Region that a persistent volume in this zone may be given.

    Each only when every node of the zone that runs our driver carries it with that value. With no
    such node nothing is known of the next one, so there is no label at all; repairs add them when
    nodes have come. Never an empty value: it would keep all nodes away (kubernetes#124525).
    """
    there = running_driver_in(zone, nodes)
    if not there:
        return {}
    true = {ZONE_LABEL: zone, REGION_LABEL: region_of(zone)}
    return {
        key: value
        for key, value in true.items()
        if value and all((key, value) in node.labels for node in there)
    }


def zone_key(zone: str, nodes: Iterable[NodeView]) -> str:
    """The key under which a node affinity names this zone.

    The one that nodes of every cloud have; the driver's own where no node names the zone by it, as
    in a cluster without a cloud controller, or one whose owner writes racks there: an affinity is
    never changed, and would keep them all away.
    """
    there = running_driver_in(zone, nodes)
    current = any((ZONE_LABEL, zone) in node.labels for node in there)
    own = any((EBS_ZONE_LABEL, zone) in node.labels for node in there)
    return EBS_ZONE_LABEL if own and not current else ZONE_LABEL


def missing(written: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Of the writable labels, those that are not there under any value."""
    return {key: value for key, value in labels.items() if key not in written}


def contradicting(
    written: Mapping[str, str], zone: str, nodes: Collection[NodeView] = ()
) -> dict[str, str]:
    """The keys that are written with another zone or Region than this zone's, and the true value.

    The nodes are the judges of what is no name of AWS: what one of them carries is satisfiable, and
    what all of them gainsay is wrong, be it the true name, as it keeps every node away. While they
    say nothing, any word may be what the cluster calls its Region.

    A set of zones (``us-east-1a__us-east-1b``) contradicts as well: an EBS volume is in one.

    Args:
        written: the labels as they are.
        zone: where the volume is.
        nodes: ``nodes.running_driver_in`` that zone.
    """
    return {
        key: true
        for key, true in labels_in(zone).items()
        if key in written and _contradicts(key, written[key], true, nodes)
    }


def provable(wrong: Mapping[str, str], written: Mapping[str, str]) -> list[str]:
    """The keys of labels that contradict whatever nodes come: they name another place of AWS's."""
    return [
        key
        for key, true in wrong.items()
        if written[key] != true and not _is_homemade(key, written[key])
    ]


def corrected(
    written: Mapping[str, str],
    zone: str,
    labels: Mapping[str, str],
    nodes: Collection[NodeView] = (),
) -> dict[str, str | None]:
    """What becomes of labels that contradict: the true value, None to take one away.

    A true label that nodes lack would keep all of them away as a wrong one does.

    Args:
        written: the labels as they are.
        zone: where the volume is.
        labels: the writable ones of that zone.
        nodes: ``nodes.running_driver_in`` that zone.
    """
    return {
        key: true
        if _CURRENT.get(key, key) in labels and all(_seen(key, each) == true for each in nodes)
        else None
        for key, true in contradicting(written, zone, nodes).items()
    }


def _contradicts(key: str, value: str, true: str, nodes: Collection[NodeView]) -> bool:
    seen = {_seen(key, node) for node in nodes}
    if value == true:
        return bool(seen) and None not in seen and true not in seen
    if not value:
        return True
    if key in REGION_KEYS and any(seen):
        return value not in seen
    if key in ZONE_KEYS and value in seen:
        return names_region(value[:-1])  # us-east-1b on a node of us-east-1a is a mistake, no word
    return not _is_homemade(key, value)


def _seen(key: str, node: NodeView) -> str | None:
    """The value that VolumeZone holds a label under this key against."""
    carried = dict(node.labels)
    return carried.get(key, carried.get(_CURRENT.get(key, key)))


def _is_homemade(key: str, value: str) -> bool:
    return key in REGION_KEYS and bool(value) and not names_region(value)
