"""Zones: which ones nodes are in, which ones a class allows."""

from collections.abc import Iterable, Mapping

import msgspec

ZONE_LABEL = "topology.kubernetes.io/zone"
EBS_ZONE_LABEL = "topology.ebs.csi.aws.com/zone"
BETA_ZONE_LABEL = "failure-domain.beta.kubernetes.io/zone"

# The keys under which a zone name may be given, the one to prefer first.
# Source: aws-ebs-csi-driver v1.64 pkg/driver/controller.go (read 2026-11-21).
ZONE_KEYS = (ZONE_LABEL, EBS_ZONE_LABEL, BETA_ZONE_LABEL)


class TopologyRequirement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One expression of a class's ``allowedTopologies``."""

    key: str = ""
    values: list[str] | None = None


class TopologyTerm(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Expressions that must all hold."""

    match_label_expressions: list[TopologyRequirement] | None = None


def zone_of(labels: Mapping[str, str]) -> str | None:
    """The zone that a node's labels tell, None if they tell none."""
    for key in ZONE_KEYS:
        if labels.get(key):
            return labels[key]
    return None


def allowed_zones(terms: Iterable[TopologyTerm]) -> frozenset[str] | None:
    """The zones that ``allowedTopologies`` names; None when it names no zone at all.

    Terms are alternatives; expressions within a term must all hold.
    """
    zones: set[str] = set()
    named = False
    for term in terms:
        of_term: set[str] | None = None
        for expression in term.match_label_expressions or ():
            if expression.key in ZONE_KEYS:
                named = True
                values = set(expression.values or ())
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None  # one alternative leaves the zone open
        zones |= of_term
    return frozenset(zones) if named else None


def foreign_keys(terms: Iterable[TopologyTerm]) -> list[str]:
    """Keys of ``allowedTopologies`` that are not about zones, sorted."""
    keys = {e.key for term in terms for e in term.match_label_expressions or ()}
    return sorted(keys - set(ZONE_KEYS))
