"""Which labels and node affinity say where a persistent volume is, and which contradict it.

VolumeZone, a filter of the scheduler, rejects every node that lacks a label which the persistent
volume has, so a label is only written where all nodes that could mount the volume carry it too.
Words that are no names of AWS's, under whatever key, are somebody's own and left alone.

The node affinity can be set while it is nil, and never changed afterwards unless the API server has
the feature gate MutablePVNodeAffinity, so it has to be right at creation: each term is narrowed to
the volume's zone, whatever else it asks of a node.
Source: Kubernetes 1.36 pkg/scheduler/framework/plugins/volumezone, and
``ValidatePersistentVolumeUpdate``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from provisioner.model.node_affinity import (
    BETA_REGION_LABEL,
    REGION_KEYS,
    REGION_LABEL,
    allows,
    expressions_of,
    labels_in,
    names_region,
    names_zone,
    region_of,
    terms_of,
    zones_named,
)
from provisioner.model.zone import (
    BETA_ZONE_LABEL,
    EBS_ZONE_LABEL,
    OUTPOST_KEYS,
    ZONE_KEYS,
    ZONE_LABEL,
    outpost_segments,
)
from webhook.model.cluster_view import NodeView, Zones
from webhook.model.review import Json, inside

# VolumeZone holds a label under a beta key against a node's new one, where the node has no other.
_CURRENT = {
    BETA_ZONE_LABEL: ZONE_LABEL,
    EBS_ZONE_LABEL: ZONE_LABEL,
    BETA_REGION_LABEL: REGION_LABEL,
}
# Between the zones of a label. Source: component-helpers node/topology LabelMultiZoneDelimiter.
_ZONES_APART = "__"
_REQUIRED = ("spec", "nodeAffinity", "required")
_OUTPOST_KEY = OUTPOST_KEYS[-1]
_MOST_LISTED = 3


# -- labels


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


def zone_keys(zone: str, nodes: Collection[NodeView]) -> tuple[str, ...]:
    """The keys under which a node affinity names this zone: alternatives, one of which will do.

    The one that nodes of every cloud have, or the driver's own where nodes name the zone by that
    alone, as with an old node plugin and no cloud controller. While the zone has no node, those of
    other zones tell; both keys where they do not agree, or there is none: an affinity is never
    changed, so it has to match whatever node comes.
    """
    there = _with_driver_in(zone, nodes)
    if there:
        current = any((ZONE_LABEL, zone) in node.labels for node in there)
        own = any((EBS_ZONE_LABEL, zone) in node.labels for node in there)
        return (EBS_ZONE_LABEL,) if own and not current else (ZONE_LABEL,)
    named = [
        {key for key, value in node.labels if names_zone(value)}
        for node in nodes
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
    return [node for node in nodes if node.has_driver and node.may_be_in(there)]


# -- node affinity


def terms_in(persistent_volume: Json) -> list[Json]:
    """The terms of its node affinity, [] when it has none."""
    return terms_of(inside(persistent_volume, *_REQUIRED))


def says_nothing(terms: Iterable[Json]) -> bool:
    """Whether there is no term, or none but empty ones, as an older webhook left them behind.

    Source: kubernetes-sigs/cloud-pv-admission-labeler; the API server accepts an empty term, and
    no node matches it (1.36.3).
    """
    return all(_is_empty(term) for term in terms)


def excludes(terms: Sequence[Json], zone: str) -> bool:
    """Whether no node of this zone can match."""
    return bool(terms) and not allows(terms, zone)


def elsewhere(terms: Iterable[Json], zone: str) -> Zones:
    """The other zones that terms allow by name."""
    named = [zones_named([term]) or frozenset() for term in terms]
    return frozenset[str]().union(*named) - {zone}


def is_off(outpost_arn: str, terms: Iterable[Json]) -> bool:
    """Whether terms let pods run outside the Outpost that the volume is on; "" is none."""
    outpost = outpost_segments(outpost_arn).get(_OUTPOST_KEY)
    return outpost is not None and not all(
        _values([term], [_OUTPOST_KEY]) == {outpost} for term in terms if not _is_empty(term)
    )


def confined(
    terms: Sequence[Json], zone: str, keys: Sequence[str] = (ZONE_LABEL,)
) -> tuple[list[Json], frozenset[str]]:
    """The terms, each confined to this zone, and the keys of the requirements that this added.

    The requirement is added to the others of its term, under the zone key that the term already
    asks for with ``In``: two keys would both have to be on a node, and nodes may carry one of them
    only (aws-ebs-csi-driver#899, #962). ``NotIn`` and ``DoesNotExist`` hold on nodes that lack the
    key, so they are no sign of it: such a term becomes one for each of ``zone_rules.zone_keys``.

    A term with a word of somebody's own for its zone stays open rather than to match no node. So
    does an empty term: it matches none, and filling it would let in more than the others do.
    """
    made: list[Json] = []
    added: set[str] = set()
    for term in terms:
        added_keys = () if _is_empty(term) or _is_in(term, zone) else _keys_for(term, keys)
        if not added_keys:
            made.append(term)
        for key in added_keys:
            made.append({**term, "matchExpressions": [*expressions_of(term), _in(key, zone)]})
            added.add(key)
    return made, frozenset(added)


def affinity_of(zone: str, keys: Sequence[str] = (ZONE_LABEL,), outpost_arn: str = "") -> Json:
    """``spec.nodeAffinity`` of a volume in this zone, or on an Outpost of it: a term for each key.

    As our provisioner writes it (``provisioner.controller.provisioning.persistent_volume_rules``).
    """
    outpost = [_in(key, value) for key, value in outpost_segments(outpost_arn).items()]
    terms = [{"matchExpressions": [_in(key, zone), *outpost]} for key in keys]
    return {"required": {"nodeSelectorTerms": terms}}


def verdict(terms: Sequence[Json], zone: str) -> str:
    """In words, what terms that exclude this zone allow in its place."""
    zones = _values(terms, ZONE_KEYS) - {zone}
    regions = _values(terms, REGION_KEYS) - {region_of(zone)}
    if zones:
        return f"only allows {listed(zones)}"
    if regions:
        return f"only allows Region {listed(regions)}"
    return "matches no node" if says_nothing(terms) else "excludes that zone"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, not too many: ``us-east-1a or us-east-1b``."""
    ordered = sorted(name or '""' for name in names)
    rest = [f"{len(ordered) - _MOST_LISTED} more"] if len(ordered) > _MOST_LISTED else []
    return " or ".join(ordered[:_MOST_LISTED] + rest)


def _values(terms: Iterable[Json], keys: Sequence[str]) -> set[str]:
    return {
        str(value)
        for term in terms
        for expression in expressions_of(term)
        if expression.get("key") in keys and expression.get("operator") == "In"
        for value in expression.get("values") or ()
    }


def _is_empty(term: Json) -> bool:
    return not expressions_of(term) and not term.get("matchFields")


def _is_in(term: Json, zone: str) -> bool:
    named = zones_named([term])
    return named is not None and named <= {zone}


def _keys_for(term: Json, keys: Sequence[str]) -> list[str]:
    used: dict[str, bool] = {}  # whether a key is only asked for by names of AWS's
    for each in expressions_of(term):
        key = str(each.get("key"))
        if key in ZONE_KEYS and each.get("operator") == "In":
            values: list[Any] = each.get("values") or []
            used[key] = used.get(key, True) and all(names_zone(str(value)) for value in values)
    fitting = [key for key in ZONE_KEYS if used.get(key)]
    return fitting[:1] or [key for key in keys if key not in used]


def _in(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}
