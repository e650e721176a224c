"""Reviews look through the few views that nodes have, which follow every change of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from provisioner.metrics import Metrics
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.node import CsiNode, Node
from tests.webhook import edges
from tests.webhook.reviews.pods import A, B, C, a_node_view, a_pod, ephemeral, known
from tests.webhook.reviews.verdicts import judged
from webhook.model.cluster_view import ClassView, NodeView
from webhook.model.review import Json
from webhook.reviews import claim_rules
from webhook.reviews.caches import Caches, nodes, registrations

NODES: dict[str, Json | None] = {
    "no node": None,
    "here": edges.a_node(zone=A),
    "cordoned": edges.a_node(zone=A, cordoned=True),
    "there": edges.a_node(zone=B),
    "nowhere": edges.a_node(zone=None),
}
CSI_NODES: dict[str, Json | None] = {
    "no registration": None,
    "another driver's": edges.a_csi_node("n", "other.csi"),
    "ours": edges.a_csi_node(),
}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([*NODES, *CSI_NODES]))))
def test_after_any_changes_they_are_what_looking_through_all_nodes_shows(
    changes: list[tuple[str, str]],
):
    caches = Caches(edges.Kube().client, Metrics(), EBS_DRIVER)
    for number, (name, change) in enumerate(changes, 1):
        is_node = change in NODES
        store: Any = (caches._nodes if is_node else caches._registrations)._store
        keep: Any = (nodes() if is_node else registrations(EBS_DRIVER)).keep
        found = {**NODES, **CSI_NODES}[change]
        kept = (
            keep(named(found, name, str(number), Node if is_node else CsiNode)) if found else None
        )
        if kept is None:
            store.remove(name, str(number))
        else:
            store.apply(kept)

        shown = set(caches.nodes_by_name.values())
        assert (set(caches.node_views()), len(caches.node_views())) == (shown, len(shown))


def named(document: Json, name: str, version: str, kind: type[Node | CsiNode]) -> Node | CsiNode:
    found = msgspec.convert(document, kind)
    meta = structs.replace(found.metadata, name=name, resource_version=version)
    return structs.replace(found, metadata=meta)


class Unread(Mapping[str, NodeView | None]):
    """Nodes of which single ones may be looked up."""

    def __getitem__(self, name: str) -> NodeView | None:
        raise KeyError(name)

    def __len__(self) -> int:
        return 10_000

    def __iter__(self) -> NoReturn:
        raise AssertionError("all nodes are gone through")


def test_no_review_of_a_pod_or_a_claim_goes_through_all_nodes():
    full = known(
        classes={"zonal": ClassView(waits=False, zones=frozenset({B, C}))},
        nodes={"a": a_node_view(A), "b": a_node_view(B, schedulable=False)},
    )
    cluster = replace(full, nodes=Unread())
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "zonal"}}

    of_pod = judged(a_pod(ephemeral("scratch")), cluster).warnings
    of_claim = claim_rules.judge(claim, cluster, namespace="shop").warnings

    assert "no node there accepts pods" in of_pod[0]
    assert "where there is no node" in of_claim[1]
