"""The node affinity of a persistent volume against the place that its volume is in.

It can be set while it is nil, and never changed afterwards unless the API server has the feature
gate MutablePVNodeAffinity, so it has to be right at creation: each term is narrowed to the volume's
zone, whatever else it asks of a node.
Source: Kubernetes 1.36 ``ValidatePersistentVolumeUpdate``.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from provisioner.model.node_affinity import (
    REGION_KEYS,
    allows,
    expressions_of,
    names_zone,
    region_of,
    terms_of,
    zones_named,
)
from provisioner.model.zone import OUTPOST_KEYS, ZONE_KEYS, ZONE_LABEL, outpost_segments
from webhook.model.cluster_view import Zones
from webhook.model.review import Json, inside

_REQUIRED = ("spec", "nodeAffinity", "required")
_OUTPOST_KEY = OUTPOST_KEYS[-1]
_MOST_LISTED = 3


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
    key, so they are no sign of it: such a term becomes one for each of ``labels.zone_keys``.

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
