"""Nodes by place: never other ones than a look at each of them shows."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.placement.eligible_node_rules import EligibleNode, EligibleNodes
from provisioner.model.node_affinity import matcher
from provisioner.model.zone import Place
from tests.builders import a_node

A, B = Place("us-east-1a"), Place("us-east-1b")
KEYS, VALUES = ("pool", "disk"), ("x", "y")

eligible = st.builds(
    lambda name, place, labels: EligibleNode(a_node(name, zone=place.zone, labels=labels), place),
    st.sampled_from(("n1", "n2", "n3")),
    st.sampled_from((A, B)),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
)
expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Odd")),
    },
    optional={"values": st.lists(st.sampled_from((*VALUES, 5))) | st.none() | st.just(5)},
)
terms = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(expressions, max_size=2) | st.none()}
)


def in_(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}


def shown(nodes: EligibleNodes) -> list[tuple[str, str, dict[str, str]]]:
    return [(each.place.zone, each.node.name, dict(each.node.labels)) for each in nodes]


def rebuilt(found: list[EligibleNode]) -> EligibleNodes:
    return EligibleNodes({each.node.name: each for each in found}.values())


@given(st.lists(st.tuples(st.sampled_from(("n1", "n2", "n3")), st.none() | eligible)))
def test_after_changes_they_are_the_nodes_that_there_are(
    changes: list[tuple[str, EligibleNode | None]],
):
    there: dict[str, EligibleNode] = {}
    kept = EligibleNodes()
    for name, new in changes:
        gone = name if new is None else new.node.name
        there.pop(gone, None)
        if new is not None:
            there[gone] = new
        before = shown(kept)
        after = kept.but({gone}, [] if new is None else [new])
        assert shown(kept) == before
        kept = after

        anew = EligibleNodes(there.values())
        assert (shown(kept), len(kept)) == (shown(anew), len(there))
        for key, value in itertools.product(KEYS, VALUES):
            asked = [in_(key, value)]
            lacking = [place for place in (A, B) if kept.lack(place, asked)]
            assert lacking == [place for place in (A, B) if anew.lack(place, asked)]


@given(st.lists(eligible), st.lists(terms, max_size=2))
def test_no_node_that_matches_is_in_a_place_that_lacks_it(
    found: list[EligibleNode], selector: list[Any]
):
    nodes = rebuilt(found)
    fits = matcher(selector)

    for each in nodes:
        if fits(each.node.labels, each.node.name):
            assert not nodes.lack(each.place, selector)


def test_a_place_lacks_a_pool_that_is_elsewhere_or_nowhere():
    nodes = EligibleNodes(
        EligibleNode(a_node(f"node-{pool}", zone=place.zone, labels={"pool": pool}), place)
        for pool, place in (("x", A), ("y", B))
    )

    assert [nodes.lack(place, [in_("pool", "x", "z")]) for place in (A, B)] == [False, True]
