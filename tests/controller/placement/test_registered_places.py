"""Where nodes are that can use volumes, after every change of a node or of its registration."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from provisioner.controller.shared.caches import Caches
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.node import CsiNode, Node, registered_place
from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.zone import OUTPOST_KEYS, Place
from tests.builders import DRIVER, a_csi_node, a_node
from tests.controller.services import Kube

ARN = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"
ON_OUTPOST = dict(zip(OUTPOST_KEYS, ("us-east-1", "aws", "111122223333", "op-1"), strict=True))
HERE, THERE = Place("us-east-1a"), Place("us-east-1b")


def test_the_places_of_registered_nodes_follow_every_change():
    caches = Caches(cast("KubeClient", Kube()), Metrics(), DRIVER)
    nodes, csi_nodes = caches.nodes._store, caches.csi_nodes._store
    assert caches.registered.places == set()

    nodes.apply(a_node(zone=None, version="1"))
    assert caches.registered.places == set()
    csi_nodes.apply(a_csi_node())
    assert caches.registered.places == set()
    nodes.apply(a_node(version="2"))
    assert caches.registered.places == {HERE}
    nodes.apply(a_node(labels=ON_OUTPOST, version="3"))
    assert caches.registered.places == {Place("us-east-1a", ARN)}

    csi_nodes.apply(a_csi_node("node-2"))
    assert caches.registered.places == {Place("us-east-1a", ARN)}
    nodes.apply(a_node("node-2", zone="us-east-1b"))
    assert caches.registered.places == {Place("us-east-1a", ARN), THERE}

    csi_nodes.remove("node-1", "")
    assert caches.registered.places == {THERE}
    nodes.remove("node-2", "")
    assert caches.registered.places == set()


def test_a_node_on_which_only_other_drivers_are_registered_does_not_count():
    caches = Caches(cast("KubeClient", Kube()), Metrics(), DRIVER)
    caches.nodes._store.apply(a_node())
    caches.csi_nodes._store.apply(a_csi_node(driver="other.csi"))

    assert caches.registered.places == set()


def test_between_changes_nodes_are_not_looked_through_again():
    caches = Caches(cast("KubeClient", Kube()), Metrics(), DRIVER)
    caches.nodes._store.apply(a_node(version="1"))
    caches.csi_nodes._store.apply(a_csi_node())
    first = caches.registered.places

    caches.nodes._store.apply(a_node(labels={"heartbeat": "2"}, version="2"))

    assert caches.registered.places is first


NODES: dict[str, Node | None] = {
    "no node": None,
    "without a zone": a_node(zone=None),
    "here": a_node(zone=HERE.zone),
    "here, with its Region": a_node(zone=HERE.zone, labels={REGION_LABEL: "us-east-1"}),
}
CSI_NODES: dict[str, CsiNode | None] = {
    "no registration": None,
    "another driver's": a_csi_node(driver="other.csi"),
    "ours": a_csi_node(),
}


def are_as_shown(caches: Caches) -> None:
    """Places as they are found by looking at each node."""
    places = {
        node.name: registered_place(node, caches.csi_nodes.get(node.name), DRIVER)
        for node in caches.nodes.values()
    }
    assert caches.registered.places == {place for place in places.values() if place is not None}
    assert {name: caches.registered.place(name) for name in places} == places
    here = [caches.nodes.get(name) for name, place in places.items() if place == HERE]
    are_labelled = bool(here) and all(node and REGION_LABEL in node.labels for node in here)
    assert caches.registered.have_region_label(HERE.zone) is are_labelled


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([*NODES, *CSI_NODES]))))
def test_after_any_changes_they_are_what_looking_through_all_nodes_shows(
    changes: list[tuple[str, str]],
):
    caches = Caches(cast("KubeClient", Kube()), Metrics(), DRIVER)
    nodes, csi_nodes = caches.nodes._store, caches.csi_nodes._store
    registered = [(name, "ours") for name in "ab"]
    for number, (name, change) in enumerate([*registered, *changes], 1):
        store: Any = nodes if change in NODES else csi_nodes
        found, version = {**NODES, **CSI_NODES}[change], str(number)
        if found is None:
            store.remove(name, version)
        else:
            meta = structs.replace(found.metadata, name=name, resource_version=version)
            store.apply(structs.replace(found, metadata=meta))
        are_as_shown(caches)


def test_a_region_is_labelled_where_all_nodes_with_the_driver_carry_it():
    caches = Caches(cast("KubeClient", Kube()), Metrics(), DRIVER)
    for name in ("a1", "a2", "b", "c"):
        caches.csi_nodes._store.apply(a_csi_node(name))
    for name, zone, region in (("a1", "a", "us-east-1"), ("b", "b", ""), ("c", "c", "home")):
        labels = {REGION_LABEL: region} if region else {}
        caches.nodes._store.apply(a_node(name, zone=f"us-east-1{zone}", labels=labels))

    zones = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
    assert [caches.registered.have_region_label(zone) for zone in zones] == [
        True,
        False,
        False,
        False,
    ]
    caches.nodes._store.apply(a_node("a2"))
    assert not caches.registered.have_region_label("us-east-1a")
