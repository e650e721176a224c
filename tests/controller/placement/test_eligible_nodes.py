"""Which nodes can take a class's volumes: kept between claims, and never older than the nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.placement import consumer_rules as rules
from provisioner.controller.placement import waiting_pods
from provisioner.controller.placement.waiting_pods import WaitingPods
from provisioner.controller.shared.caches import Caches
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from tests.builders import DRIVER, a_class, a_csi_node, a_node, a_term
from tests.controller.services import Kube
from tests.pods import tainted

A, B = "us-east-1a", "us-east-1b"
CLASS = read(a_class(waits=True))


class World:
    """A node in A, with the driver."""

    def __init__(self) -> None:
        client = cast("KubeClient", Kube())
        self.caches = Caches(client, Metrics(), DRIVER)
        self.nodes, self.csi_nodes = self.caches.nodes._store, self.caches.csi_nodes._store
        self.pods = WaitingPods(client, self.caches, DRIVER)
        self.nodes.apply(a_node(zone=A, version="1"))
        self.csi_nodes.apply(a_csi_node())

    def eligible_nodes(self, read_class: ReadClass = CLASS) -> list[tuple[str, str]]:
        return [(each.node.name, each.place.zone) for each in self.pods.eligible_nodes(read_class)]


def test_they_follow_every_change_of_nodes_and_registrations():
    world = World()
    assert world.eligible_nodes() == [("node-1", A)]

    world.nodes.apply(a_node("node-2", zone=B, version="2"))
    assert world.eligible_nodes() == [("node-1", A)]
    world.csi_nodes.apply(a_csi_node("node-2"))
    assert world.eligible_nodes() == [("node-1", A), ("node-2", B)]
    world.nodes.apply(a_node(zone=B, version="3"))
    assert world.eligible_nodes() == [("node-1", B), ("node-2", B)]
    world.csi_nodes.remove("node-2", "")
    assert world.eligible_nodes() == [("node-1", B)]
    world.nodes.apply(a_node(zone=B, version="4", deleting=True))
    assert world.eligible_nodes() == []


def test_taints_and_labels_of_a_node_are_those_of_now():
    world = World()
    world.pods.eligible_nodes(CLASS)

    world.nodes.apply(tainted(a_node(zone=A, labels={"disk": "ssd"}, version="2"), "gpu"))

    (node,) = world.pods.eligible_nodes(CLASS)
    assert node.node.labels["disk"] == "ssd"
    assert [taint.key for taint in node.node.taints] == ["gpu"]


def test_a_report_of_a_kubelet_and_other_drivers_have_no_node_looked_at_again():
    world = World()
    first = world.pods.eligible_nodes(CLASS)

    world.nodes.apply(a_node(zone=A, version="2"))
    drivers = [*(a_csi_node().spec.drivers or ()), *(a_csi_node(driver="late").spec.drivers or ())]
    spec = msgspec.structs.replace(a_csi_node().spec, drivers=drivers)
    world.csi_nodes.apply(msgspec.structs.replace(a_csi_node(), spec=spec))

    assert world.pods.eligible_nodes(CLASS) is first


def test_classes_that_allow_other_topologies_have_other_nodes():
    world = World()
    assert world.eligible_nodes() == [("node-1", A)]

    assert world.eligible_nodes(read(a_class(waits=True, allowed=[a_term(zone=[B])]))) == []

    assert world.eligible_nodes() == [("node-1", A)]


def test_classes_that_allow_the_same_share_their_nodes():
    world = World()
    allowed = [a_term(zone=[A])]
    first, other = (a_class(name, waits=True, allowed=allowed) for name in ("fast", "cheap"))

    assert world.pods.eligible_nodes(read(first)) is world.pods.eligible_nodes(read(other))


def test_nothing_is_kept_for_a_class_that_is_gone():
    world = World()
    classes = world.caches.classes._store
    classes.apply(a_class(waits=True))
    world.eligible_nodes()

    classes.remove(CLASS.name, "")

    assert world.pods._eligible == {}


def test_after_a_change_only_the_changed_node_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    world = World()
    for n in range(2, 50):
        world.nodes.apply(a_node(f"node-{n}", zone=B, version=str(n)))
        world.csi_nodes.apply(a_csi_node(f"node-{n}"))
    looked_at: list[str] = []

    def eligible_nodes(read_class: ReadClass, nodes: Any) -> Any:
        looked_at.extend(node.name for node, _ in nodes)
        return rules.eligible_nodes(read_class, nodes)

    counting = SimpleNamespace(eligible_nodes=eligible_nodes, topology_of=rules.topology_of)
    monkeypatch.setattr(waiting_pods, "rules", counting)
    assert len(world.eligible_nodes()) == 49
    looked_at.clear()

    world.nodes.apply(a_node("node-7", zone=A, version="100"))
    world.csi_nodes.remove("node-8", "")

    assert ("node-7", A) in world.eligible_nodes()
    assert len(world.eligible_nodes()) == 48
    assert sorted(looked_at) == ["node-7", "node-8"]
