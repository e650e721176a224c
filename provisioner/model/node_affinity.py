"""Node selector terms, asked about a node, or about a zone: may a node of this zone match?

Terms are alternatives, the expressions of one term must all hold; a term without expressions
matches no node. Of a node that is only known by its zone, every other label may have any value, and
the older keys for a zone and those for a Region may be missing, which NotIn and DoesNotExist hold
for. Nodes without a cloud controller are labelled by hand, so what they call their zone or Region
may be any word that AWS does not use for one: an expression with such a word says nothing of zones.
Source: Kubernetes 1.36 API reference, core/v1 NodeSelector; component-helpers nodeaffinity.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from provisioner.model.zone import ZONE_KEYS, ZONE_LABEL

Json = dict[str, Any]
Zones = frozenset[str]

REGION_LABEL = "topology.kubernetes.io/region"
BETA_REGION_LABEL = "failure-domain.beta.kubernetes.io/region"
REGION_KEYS = (REGION_LABEL, BETA_REGION_LABEL)
# By which a persistent volume tells where it is, as nodes do.
PLACE_KEYS = frozenset((*ZONE_KEYS, *REGION_KEYS))
# us-west-2-lax-1a is in us-west-2, us-gov-east-1b in us-gov-east-1.
# Source: cloud-provider-aws pkg/providers/v1/aws.go (read 2026-11-21).
_REGION = re.compile(r"([a-zA-Z]+-)+\d+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")  # Go's 64 bits
# us-west-2-lax-1 is what AWS calls a network border group. Source: EC2 API DescribeRegions and
# DescribeAvailabilityZones; botocore data/partitions.json (read 2026-11-21).
_REGION_PROPER = r"([a-z]{2}|eusc)(-[a-z]+)?-(north|south|east|west|central)(east|west)?-\d"
_NAMES_AWS_REGION = re.compile(rf"{_REGION_PROPER}(-[a-z]+-\d)?")
# us-east-1a, the Local Zone us-west-2-lax-1a, the Wavelength Zones us-east-1-wl1-bos-wlz-1 and, of
# the newer form, eu-west-3-cmn-wlz-1a.
# Source: EC2 API DescribeAvailabilityZones; AWS user guides (read 2026-11-22).
_WAVELENGTH = r"(wl\d-)?[a-z]+-wlz-\d[a-z]?"
_NAMES_AWS_ZONE = re.compile(rf"{_REGION_PROPER}((-[a-z]+-\d)?[a-z]|-{_WAVELENGTH})")


def region_of(zone: str) -> str:
    """The Region of a zone, local zones included; "" if the name has another form."""
    found = _REGION.match(zone)
    return found[0] if found else ""


def names_region(value: str) -> bool:
    """Whether a value means a Region of AWS; "home" or "acme-east-1" is somebody's own word."""
    return _NAMES_AWS_REGION.fullmatch(value) is not None


def names_zone(value: str) -> bool:
    """Whether a value means a zone of AWS; "rack-7" is somebody's own word."""
    return _NAMES_AWS_ZONE.fullmatch(value) is not None


def labels_in(zone: str) -> dict[str, str]:
    """What is known of a node in this zone: its zone and Region, under every key for them."""
    region = region_of(zone)
    known = dict.fromkeys(ZONE_KEYS, zone)
    return known | (dict.fromkeys(REGION_KEYS, region) if region else {})


def terms_of(required: Any) -> list[Json]:
    """The terms of a ``NodeSelector``, [] when there is none."""
    terms = required.get("nodeSelectorTerms") if isinstance(required, dict) else None
    return [term for term in _listed(terms) if isinstance(term, dict)]


def allows(terms: Sequence[Json], zone: str) -> bool:
    """Whether a node in this zone may match one of the terms."""
    known = labels_in(zone)
    return any(may_match(term, known) for term in terms)


def may_match(term: Json, known: Mapping[str, str]) -> bool:
    """Whether a node with these labels, and any others, may match a term."""
    expressions = expressions_of(term)
    if not expressions and not term.get("matchFields"):
        return False
    return all(_may_hold(expression, known) for expression in expressions)


def matches(terms: Iterable[Json], labels: Mapping[str, str], name: str) -> bool:
    """Whether the node of this name, with these labels and no others, matches one of the terms.

    What the API server would not have stored (an unknown operator, a bound that is no number)
    matches nothing, as in the scheduler.
    """
    return matcher(terms)(labels, name)


def matcher(terms: Iterable[Json]) -> Callable[[Mapping[str, str], str], bool]:
    """``matches`` for many nodes: the terms are read once."""
    read = [(expressions_of(term), _fields_of(term)) for term in terms]

    def is_matched(labels: Mapping[str, str], name: str) -> bool:
        for expressions, fields in read:
            if not expressions and not fields:
                continue
            if all(_holds(each, labels) for each in expressions) and (
                not fields or all(_holds(each, _fields(name)) for each in fields)
            ):
                return True
        return False

    return is_matched


def unmet(terms: Iterable[Json], labels: Mapping[str, str], name: str) -> str:
    """What a node lacks for each of the terms, in words: "disk Exists or tier In a, b"."""
    return " or ".join(
        " and ".join(
            [_shown(each) for each in expressions_of(term) if not _holds(each, labels)]
            + [_shown(each) for each in _fields_of(term) if not _holds(each, _fields(name))]
        )
        or "(empty)"
        for term in terms
    )


def _shown(expression: Json) -> str:
    values = ", ".join(map(str, _listed(expression.get("values"))))
    return " ".join(
        filter(None, map(str, (expression.get("key"), expression.get("operator"), values)))
    )


def _fields_of(term: Json) -> list[Json]:
    return [each for each in _listed(term.get("matchFields")) if isinstance(each, dict)]


def _fields(name: str) -> dict[str, str]:
    return {"metadata.name": name}


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(str(expression.get("key")))
    values = _listed(expression.get("values"))
    match expression.get("operator"):
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _is_above(value, *values)
        case "Lt":
            return _is_above(*values, value)
        case _:
            return False


def _is_above(*numbers: Any) -> bool:
    """Whether the first of two numbers, in text, is the greater one."""
    if len(numbers) != 2 or not all(_INTEGER.fullmatch(str(each)) for each in numbers):  # noqa: PLR2004 -- two
        return False
    first, second = (int(each) for each in numbers)
    return first > second


def expressions_of(term: Json) -> list[Json]:
    """``matchExpressions`` of a term, [] when there are none."""
    return [each for each in _listed(term.get("matchExpressions")) if isinstance(each, dict)]


def zones_named(terms: Iterable[Json]) -> Zones | None:
    """The zones that the terms leave; None if a term leaves the zone open (or there is no term)."""
    zones: set[str] = set()
    empty = True
    for term in terms:
        if not expressions_of(term) and not term.get("matchFields"):
            continue  # matches no node
        empty = False
        of_term = _zones_of_term(term)
        if of_term is None:
            return None
        zones |= of_term
    return None if empty else frozenset(zones)


def _listed(found: Any) -> list[Any]:
    """An array of a document, [] when something else is in its place."""
    return found if isinstance(found, list) else []


def _zones_of_term(term: Json) -> set[str] | None:
    named: set[str] | None = None
    for expression in expressions_of(term):
        if expression.get("key") in ZONE_KEYS and expression.get("operator") == "In":
            values = {str(value) for value in _listed(expression.get("values"))}
            if all(map(names_zone, values)):
                named = values if named is None else named & values
    if named is None:
        return None
    return {zone for zone in named if may_match(term, labels_in(zone))}


def _may_hold(expression: Json, known: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    value = known.get(key)
    if value is None:
        return True
    values = _listed(expression.get("values"))
    match operator:
        case "In":
            names = names_region if key in REGION_KEYS else names_zone
            return value in values or not all(names(str(each)) for each in values)
        case "NotIn":
            return value not in values or key != ZONE_LABEL
        case "DoesNotExist":
            return key != ZONE_LABEL
        case "Gt" | "Lt":
            return key in REGION_KEYS  # a zone is no number
        case _:
            return True
