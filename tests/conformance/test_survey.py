"""Which nodes of a cluster the worked example takes."""

import pytest

from provisioner.conformance.cluster import survey
from provisioner.model.node import Node, NodeCondition, NodeMeta, NodeSpec, NodeStatus
from provisioner.model.taint import Taint
from provisioner.model.zone import ZONE_LABEL

READY = NodeStatus(conditions=[NodeCondition(type="Ready", status="True")])


def node(name: str, zone: str = "a", spec: NodeSpec | None = None, **changes: object) -> Node:
    meta = NodeMeta(name=name, labels={ZONE_LABEL: zone})
    status = changes.get("status", READY)
    assert isinstance(status, NodeStatus)
    return Node(metadata=meta, spec=spec or NodeSpec(), status=status)


@pytest.mark.parametrize(
    ("zones", "zone", "names"),
    [
        ("ab", "a", ["0"]),
        ("abb", "b", ["1", "2"]),
        ("aabbb", "a", ["0", "1"]),
        ("b", "b", ["0"]),
    ],
)
def test_two_nodes_of_one_zone_are_taken_if_there_are_two(zones: str, zone: str, names: list[str]):
    nodes = [node(str(number), each) for number, each in enumerate(zones)]

    found, taken = survey._chosen(reversed(nodes))

    assert found == zone
    assert [each.name for each in taken] == names


@pytest.mark.parametrize(
    "unfit",
    [
        node("x", status=NodeStatus()),
        node("x", status=NodeStatus(conditions=[NodeCondition(type="Ready", status="Unknown")])),
        node("x", spec=NodeSpec(unschedulable=True)),
        node("x", spec=NodeSpec(taints=[Taint(key="a", effect="NoExecute")])),
    ],
)
def test_a_node_that_takes_no_pods_is_not_taken(unfit: Node):
    assert not survey._takes_pods(unfit)


def test_a_node_that_is_only_less_liked_is_taken():
    liked_less = NodeSpec(taints=[Taint(key="a", effect="PreferNoSchedule")])

    assert survey._takes_pods(node("x", spec=liked_less))
