"""What the nodes of a zone say of themselves, held against node selector terms.

``provisioner.model.node_affinity`` reasons over any node of a zone. Nodes that are there may be
labelled in a way that it does not expect: an old node plugin writes the driver's own key only,
people write racks and Regions of their own. So the nodes are asked before something is refused for
that reasoning; they are never a reason to refuse, as the next node may be labelled otherwise.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from provisioner.model.node_affinity import REGION_KEYS, expressions_of
from provisioner.model.zone import ZONE_KEYS
from webhook.model.review import Json
from webhook.model.views import NodeView

_KEYS = frozenset((*ZONE_KEYS, *REGION_KEYS))
_MOST_TOLD = 2


def kinds(nodes: Iterable[NodeView | None]) -> frozenset[NodeView]:
    """The nodes as far as their labels of zone and Region go, alike ones once.

    Thousands of nodes are of a few kinds: what is asked of nodes is asked of as many.
    """
    # Equal views are one object mostly, and an id is found far sooner than a view's hash.
    distinct = {id(node): node for node in nodes if node is not None}
    return frozenset(
        NodeView(
            labels=tuple(each for each in node.labels if each[0] in _KEYS),
            zone=node.zone,
            schedulable=True,
            has_driver=node.has_driver,
        )
        for node in distinct.values()
    )


def running_driver_in(zone: str, nodes: Iterable[NodeView]) -> frozenset[NodeView]:
    """The kinds of nodes that run our driver and may be in this zone by one of their keys."""
    there = frozenset((zone,))
    return frozenset(node for node in kinds(nodes) if node.has_driver and node.may_be_in(there))


def suits(terms: Iterable[Json], node: NodeView) -> bool:
    """Whether a node matches one of the terms by these labels, if its others allow it."""
    labels = dict(node.labels)
    return any(_suits(term, labels, missing_may_come=False) for term in terms)


def contradicts(terms: Iterable[Json], node: NodeView) -> bool:
    """Whether no term can match a node unless a label that it has is changed."""
    labels = dict(node.labels)
    return not any(_suits(term, labels, missing_may_come=True) for term in terms)


def told(key: str, nodes: Iterable[NodeView]) -> frozenset[str]:
    """The values that nodes have under a key."""
    return frozenset(value for node in nodes for each, value in node.labels if each == key)


def zone_words(nodes: Iterable[NodeView]) -> frozenset[str]:
    """Everything that nodes call their zone."""
    return frozenset(value for node in nodes for key, value in node.labels if key in ZONE_KEYS)


def keys_disagree(nodes: Iterable[NodeView]) -> bool:
    """Whether some node calls its zone by several names."""
    return any(len(zone_words([node])) > 1 for node in nodes)


def unmet(terms: Sequence[Json], nodes: Collection[NodeView]) -> str:
    """In words, why no term can match any of these nodes; "" if one can, or there is no node."""
    if not terms or not nodes or not all(contradicts(terms, node) for node in nodes):
        return ""
    for each in (each for term in terms for each in expressions_of(term)):
        key = str(each.get("key"))
        asked, there = {str(value) for value in _values(each)}, told(key, nodes)
        if each.get("operator") == "In" and asked and there and there.isdisjoint(asked):
            return f"asks for {key} {_few(asked)}, and nodes there have {_few(there)}"
    return "matches none of the nodes there"


def _few(values: Collection[str]) -> str:
    first = " or ".join(sorted(values)[:_MOST_TOLD])
    more = len(values) - _MOST_TOLD
    return first if more <= 0 else f"{first} or {more} more"


def _values(expression: Json) -> list[Any]:
    values = expression.get("values")
    return values if isinstance(values, list) else []


def _suits(term: Json, labels: Mapping[str, str], *, missing_may_come: bool) -> bool:
    expressions = expressions_of(term)
    if not expressions and not term.get("matchFields"):
        return False
    return all(
        key not in _KEYS
        or (missing_may_come and key not in labels)
        or _holds(each, labels.get(key))
        for each in expressions
        for key in [str(each.get("key"))]
    )


def _holds(expression: Json, value: str | None) -> bool:
    """As kube-scheduler has it. Source: Kubernetes 1.36 apimachinery labels.Requirement."""
    values = _values(expression)
    match expression.get("operator"):
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and value.lstrip("-").isdecimal()
        case _:
            return True
