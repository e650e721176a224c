"""The nodes that can take a volume of a class, by place, with the labels that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from provisioner.model.node import Node
from provisioner.model.node_affinity import Json, expressions_of
from provisioner.model.zone import Place


@dataclass(frozen=True, slots=True)
class EligibleNode:
    """A node that can take a volume of the class, and the place where that has to be."""

    node: Node
    place: Place


_Labels = Counter[tuple[str, str]]


@dataclass(slots=True)
class _There:
    """The nodes of one place.

    Attributes:
        nodes: sorted by name.
        counted: how many of them have each label; None until it is asked: for thousands of nodes it
            takes 20 ms.
    """

    nodes: tuple[Node, ...] = ()
    counted: _Labels | None = None

    @property
    def labels(self) -> _Labels:
        """How many of the nodes have each label."""
        if self.counted is None:
            self.counted = _labels_of(self.nodes)
        return self.counted


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
        labels = self._there.get(place, _There()).labels
        return all(any(_is_absent(each, labels) for each in expressions_of(t)) for t in terms)

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
        gone = [node for node in before.nodes if node.name in names]
        after = _exchanged(before, gone, more) if gone or more else before
        if after.nodes:
            found[place] = after
    return found


def _exchanged(before: _There, gone: Sequence[Node], added: Sequence[Node]) -> _There:
    names = {node.name for node in gone}
    nodes = [*(node for node in before.nodes if node.name not in names), *added]
    counted = before.counted
    if counted is not None:
        counted = counted + _labels_of(added) - _labels_of(gone)
    return _There(tuple(sorted(nodes, key=lambda node: node.name)), counted)


def _labels_of(nodes: Iterable[Node]) -> _Labels:
    return Counter(chain.from_iterable(node.labels.items() for node in nodes))


def _is_absent(expression: Json, labels: _Labels) -> bool:
    if expression.get("operator") != "In":
        return False
    key, values = str(expression.get("key")), expression.get("values") or ()
    return not any((key, str(value)) in labels for value in values)


NO_NODES = EligibleNodes()
