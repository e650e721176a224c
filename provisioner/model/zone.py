"""Zones and Outposts: which ones nodes are in, which ones a class allows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

ZONE_LABEL = "topology.kubernetes.io/zone"
EBS_ZONE_LABEL = "topology.ebs.csi.aws.com/zone"
BETA_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"

# The keys under which a zone name may be given, the one to prefer first.
# Source: aws-ebs-csi-driver v1.64 pkg/driver/controller.go (read 2026-11-21).
ZONE_KEYS = (ZONE_LABEL, EBS_ZONE_LABEL, BETA_ZONE_LABEL)

# Under this one stands a zone id: the same place has the same id in every account, not the same
# name. Source: AWS user guide "Availability Zone IDs"; the AWS cloud controller labels nodes so.
ZONE_ID_KEY = "topology.k8s.aws/zone-id"

# Where on an Outpost a node or a volume is: all four, or the ARN cannot be told.
# Source: aws-ebs-csi-driver v1.64 pkg/driver/constants.go, BuildOutpostArn.
_REGION_KEY = "topology.ebs.csi.aws.com/region"
_PARTITION_KEY = "topology.ebs.csi.aws.com/partition"
_ACCOUNT_KEY = "topology.ebs.csi.aws.com/account-id"
_OUTPOST_KEY = "topology.ebs.csi.aws.com/outpost-id"
OUTPOST_KEYS = (_REGION_KEY, _PARTITION_KEY, _ACCOUNT_KEY, _OUTPOST_KEY)

_ARN_PARTS = 6


class TopologyRequirement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One expression of a class's ``allowedTopologies``."""

    key: str = ""
    values: list[str] | None = None


class TopologyTerm(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Expressions that must all hold."""

    match_label_expressions: list[TopologyRequirement] | None = None


class Place(NamedTuple):
    """Where a volume can be: in a zone, or on the Outpost of that ARN, which the zone serves."""

    zone: str
    outpost_arn: str = ""

    def __str__(self) -> str:
        return self.outpost_arn or self.zone


def zone_of(labels: Mapping[str, str]) -> str | None:
    """The zone that a node's labels tell, None if they tell none."""
    for key in ZONE_KEYS:
        if labels.get(key):
            return labels[key]
    return None


def place_of(labels: Mapping[str, str]) -> Place | None:
    """Where volumes for a node with these labels have to be, None without a zone."""
    zone = zone_of(labels)
    return Place(zone, outpost_arn_of(labels) or "") if zone is not None else None


def outpost_arn_of(segments: Mapping[str, str]) -> str | None:
    """The Outpost that labels or segments tell; None unless all four are there."""
    if not segments.get(_OUTPOST_KEY):  # most nodes, and all of them are looked through
        return None
    region, partition, account, outpost = (segments.get(key) for key in OUTPOST_KEYS)
    if not (region and partition and account):
        return None
    return f"arn:{partition}:outposts:{region}:{account}:outpost/{outpost}"


def outpost_segments(outpost_arn: str) -> dict[str, str]:
    """The four segments of an Outpost's ARN; none for any other text."""
    parts = outpost_arn.split(":", _ARN_PARTS - 1)
    if len(parts) != _ARN_PARTS or (parts[0], parts[2]) != ("arn", "outposts"):
        return {}
    kind, _, outpost = parts[5].partition("/")
    segments = dict(zip(OUTPOST_KEYS, (parts[3], parts[1], parts[4], outpost), strict=True))
    return segments if kind == "outpost" and all(segments.values()) else {}


def allow_node(terms: Sequence[TopologyTerm], labels: Mapping[str, str]) -> bool:
    """Whether the scheduler takes a node with these labels for a class of these topologies.

    Every key is a label like any other to it; a term without expressions allows no node.
    Source: Kubernetes 1.36 volumebinding plugin; component-helpers ``MatchTopologySelectorTerms``.
    """
    told = [term.match_label_expressions or () for term in terms]
    return not told or any(each and all(_names(e, labels) for e in each) for each in told)


def _names(expression: TopologyRequirement, labels: Mapping[str, str]) -> bool:
    return labels.get(expression.key) in (expression.values or ())


def allowed_zones(
    terms: Iterable[TopologyTerm], zone_names: Mapping[str, str] | None = None
) -> frozenset[str] | None:
    """The zones that ``allowedTopologies`` names; None when it names no zone at all.

    Terms are alternatives; expressions within a term must all hold. ``zone_names``: by zone id;
    without them, ids narrow nothing down.
    """
    zones: set[str] = set()
    named = False
    for term in terms:
        of_term = zones_of_term(term, zone_names)
        if of_term is None:
            return None  # one alternative leaves the zone open
        named = True
        zones |= of_term
    return frozenset(zones) if named else None


def zones_of_term(
    term: TopologyTerm, zone_names: Mapping[str, str] | None = None
) -> frozenset[str] | None:
    """The zones that one term leaves; None when it names none. An unknown id leaves no zone."""
    left: frozenset[str] | None = None
    for expression in term.match_label_expressions or ():
        values = expression.values or ()
        if expression.key in ZONE_KEYS:
            zones = frozenset(values)
        elif expression.key == ZONE_ID_KEY and zone_names is not None:
            zones = frozenset(zone_names[value] for value in values if value in zone_names)
        else:
            continue
        left = zones if left is None else left & zones
    return left


def outpost_of_term(term: TopologyTerm) -> dict[str, frozenset[str]]:
    """What a term asks of an Outpost: the values that it leaves for each of the keys it names."""
    asked: dict[str, frozenset[str]] = {}
    for expression in term.match_label_expressions or ():
        if expression.key in OUTPOST_KEYS:
            values = frozenset(expression.values or ())
            asked[expression.key] = asked.get(expression.key, values) & values
    return asked


def zone_ids(terms: Iterable[TopologyTerm]) -> frozenset[str]:
    """All zone ids that ``allowedTopologies`` names."""
    expressions = (e for term in terms for e in term.match_label_expressions or ())
    return frozenset(value for e in expressions if e.key == ZONE_ID_KEY for value in e.values or ())


def foreign_keys(terms: Iterable[TopologyTerm]) -> list[str]:
    """Keys of ``allowedTopologies`` that hold no zone names, sorted."""
    keys = {e.key for term in terms for e in term.match_label_expressions or ()}
    return sorted(keys - set(ZONE_KEYS))
