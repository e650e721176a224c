"""The node affinity of a persistent volume against the zone that its volume is in.

It can be set while it is nil and never changed afterwards, so it has to be right at creation: each
term is narrowed to the volume's zone, whatever else it asks of a node.
Source: Kubernetes 1.36 ``ValidatePersistentVolumeUpdate``.
"""

from collections.abc import Collection, Iterable, Sequence

from provisioner.model.node_affinity import (
    REGION_KEYS,
    allows,
    expressions_of,
    region_of,
    terms_of,
    zones_named,
)
from provisioner.model.zone import ZONE_KEYS
from webhook.decide.documents import inside, put
from webhook.decide.nodes import suits, zone_words
from webhook.model.patch import add
from webhook.model.review import Json, Operation
from webhook.model.views import NodeView, Zones

_TERMS = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")
_MOST_LISTED = 3


def terms_in(persistent_volume: Json) -> list[Json]:
    """The terms of its node affinity, [] when it has none."""
    return terms_of(inside(persistent_volume, *_TERMS[:-1]))


def says_nothing(terms: Iterable[Json]) -> bool:
    """Whether there is no term, or none but empty ones, as an older webhook left them behind.

    Source: kubernetes-sigs/cloud-pv-admission-labeler; the API server accepts an empty term, and
    no node matches it (1.36.3).
    """
    return all(_is_empty(term) for term in terms)


def excludes(terms: Sequence[Json], zone: str, nodes: Iterable[NodeView] = ()) -> bool:
    """Whether no node of this zone can match, and none of those that are there does.

    ``nodes`` are those of ``nodes.running_driver_in`` that zone, here and below.
    """
    return bool(terms) and not allows(terms, zone) and not any(suits(terms, node) for node in nodes)


def elsewhere(terms: Iterable[Json], zone: str, nodes: Iterable[NodeView] = ()) -> Zones:
    """The other zones that terms allow by name; nodes of this one may have such a name for it."""
    named = [zones_named([term]) or frozenset() for term in terms]
    return frozenset[str]().union(*named) - {zone} - zone_words(nodes)


def confined(
    persistent_volume: Json, zone: str, key: str, nodes: Collection[NodeView] = ()
) -> list[Operation]:
    """What confines each term to this zone; nothing for a term that is.

    The requirement is added to the others of its term, under the zone key that the term already
    asks for with ``In``: two keys would both have to be on a node, and nodes may carry one of them
    only (aws-ebs-csi-driver#899, #962). ``NotIn`` and ``DoesNotExist`` hold on nodes that lack the
    key, so they are no sign of it: such a term gets ``key``, that of ``labels.zone_key``. Where
    nodes that match a term name the zone by another key than that, the term gets theirs.

    An empty term beside others stays as it is: it matches no node, and filling it would let in more
    nodes than the others do.
    """
    terms = terms_in(persistent_volume)
    if not terms:
        return [put(persistent_volume, affinity_of(zone, key)["required"][_TERMS[-1]], *_TERMS)]
    fill = says_nothing(terms)
    return [
        _narrowed(term, index, zone, _key_for(term, zone, key, nodes))
        for index, term in enumerate(inside(persistent_volume, *_TERMS))
        if isinstance(term, dict) and (fill or not _is_empty(term)) and not _is_in(term, zone)
    ]


def keys_added(confining: Iterable[Operation]) -> list[str]:
    """The keys of the requirements that ``confined`` adds to terms that are there, sorted."""
    values = [each.value for each in confining]
    return sorted({(value[0] if isinstance(value, list) else value)["key"] for value in values})


def affinity_of(zone: str, key: str) -> Json:
    """``spec.nodeAffinity`` of a volume in this zone, under a key of ``labels.zone_key``."""
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [_in(key, zone)]}]}}


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


def _key_for(term: Json, zone: str, key: str, nodes: Collection[NodeView]) -> str:
    used = {each.get("key") for each in expressions_of(term) if each.get("operator") == "In"}
    wished = [*(each for each in ZONE_KEYS if each in used), key]
    meant = [node for node in nodes if suits([term], node)]
    naming = (
        each for each in (*wished, *ZONE_KEYS) if any((each, zone) in node.labels for node in meant)
    )
    return next(naming, wished[0])


def _narrowed(term: Json, index: int, zone: str, key: str) -> Operation:
    requirement = _in(key, zone)
    if isinstance(term.get("matchExpressions"), list):
        return add(requirement, *_TERMS, index, "matchExpressions", "-")
    return add([requirement], *_TERMS, index, "matchExpressions")


def _in(key: str, zone: str) -> Json:
    return {"key": key, "operator": "In", "values": [zone]}
