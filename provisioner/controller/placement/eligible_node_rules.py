"""The nodes that can take a volume of a class, by place, with the labels that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from provisioner.model.node import Node
from provisioner.model.node_affinity import Json, expressions_of
from provisioner.model.zone import Place


@dataclass(frozen=True, slots=True)
class EligibleNode:
    """A node that can take a volume of the class, and the place where that has to be."""

    node: Node
    place: Place


@dataclass(frozen=True, slots=True)
class _There:
    """The nodes of one place, sorted by name, and the values that they have of a label."""

    nodes: tuple[Node, ...] = ()
    _values: dict[str, frozenset[str]] = field(default_factory=dict)  # of those that were asked for

    def values(self, key: str) -> frozenset[str]:
        if key not in self._values:
            labels = (node.labels for node in self.nodes)
            self._values[key] = frozenset(each[key] for each in labels if key in each)
        return self._values[key]


class EligibleNodes:
    """Nodes by place. One of these is never changed, so a claim may hold on to it."""

    def __init__(self, nodes: Iterable[EligibleNode] = ()) -> None:
        self._there = _changed({}, frozenset(), nodes)

    def but(self, changed: Collection[str], nodes: Iterable[EligibleNode]) -> EligibleNodes:
        """The same without the nodes of these names, and with these nodes."""
        found = EligibleNodes()
        found._there = _changed(self._there, changed, nodes)
        return found

    @property
    def places(self) -> Sequence[Place]:
        """Where there are any, sorted."""
        return sorted(self._there)

    def there(self, place: Place) -> Sequence[Node]:
        """Those of one place, sorted by name."""
        return self._there.get(place, _There()).nodes

    def lack(self, place: Place, terms: Iterable[Json]) -> bool:
        """Whether no node there can match one of the terms of a selector, by its labels alone.

        False says nothing. Pods that are tied to a zone or to a pool of nodes are told so without
        a look at thousands of nodes elsewhere.
        """
        there = self._there.get(place, _There())
        return all(any(_is_absent(each, there) for each in expressions_of(t)) for t in terms)

    def __iter__(self) -> Iterator[EligibleNode]:
        return (EligibleNode(node, place) for place in self.places for node in self.there(place))

    def __len__(self) -> int:
        return sum(len(each.nodes) for each in self._there.values())


def _changed(
    there: Mapping[Place, _There], names: Collection[str], nodes: Iterable[EligibleNode]
) -> dict[Place, _There]:
    added: dict[Place, list[Node]] = {}
    for each in nodes:
        added.setdefault(each.place, []).append(each.node)
    found: dict[Place, _There] = {}
    for place in dict.fromkeys(chain(there, added)):
        before, more = there.get(place, _There()), added.get(place, [])
        kept = [node for node in before.nodes if node.name not in names]
        if len(kept) == len(before.nodes) and not more:
            found[place] = before
        elif kept or more:
            found[place] = _There(tuple(sorted([*kept, *more], key=lambda node: node.name)))
    return found


def _is_absent(expression: Json, there: _There) -> bool:
    known = there.values(str(expression.get("key")))
    match expression.get("operator"), expression.get("values"):
        case "In", list(values):
            return known.isdisjoint(map(str, values))
        case "Exists", _:
            return not known
        case _:
            return False


NO_NODES = EligibleNodes()
