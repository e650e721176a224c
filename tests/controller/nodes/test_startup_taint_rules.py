"""When the startup taint comes off a node."""

from __future__ import annotations

import pytest

from provisioner.controller.nodes.startup_taint_rules import is_waiting, operations, taint_key
from provisioner.model.node import (
    Allocatable,
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    Node,
    NodeMeta,
    NodeSpec,
    OwnedMeta,
    Owner,
)
from provisioner.model.taint import Taint
from tests.builders import DRIVER

KEY = "ebs.csi.aws.com/agent-not-ready"
OURS = Owner(kind="Node", uid="uid-1")


def a_node(*effects: str) -> Node:
    taints = [Taint(key="other", effect="NoSchedule"), *(Taint(key=KEY, effect=e) for e in effects)]
    return Node(metadata=NodeMeta(name="node-1", uid="uid-1"), spec=NodeSpec(taints=taints))


def registered(
    driver: str = DRIVER, count: int | None = 25, owners: list[Owner] | None = None
) -> CsiNode:
    entry = CsiNodeDriver(name=driver, node_id="i-1", allocatable=Allocatable(count=count))
    return CsiNode(
        metadata=OwnedMeta(name="node-1", owner_references=[OURS] if owners is None else owners),
        spec=CsiNodeSpec(drivers=[entry]),
    )


@pytest.mark.parametrize("effects", [("NoSchedule",), ("NoExecute", "NoSchedule"), ("new",)])
def test_it_comes_off_with_every_effect_once_the_driver_is_registered(effects: tuple[str, ...]):
    node = a_node(*effects)

    removed = [each["path"] for each in operations(node, registered(), DRIVER)]

    assert is_waiting(node, DRIVER)
    assert removed == [f"/spec/taints/{index}" for index in range(len(effects), 0, -1)]


@pytest.mark.parametrize(
    "csi_node",
    [
        None,
        CsiNode(metadata=OwnedMeta(owner_references=[OURS])),
        registered("other.csi"),
        registered(count=None),
        registered(owners=[]),
        registered(owners=[Owner(kind="Node", uid="of the node before")]),
        registered(owners=[Owner(kind="Pod", uid="uid-1")]),
        CsiNode(
            metadata=OwnedMeta(owner_references=[OURS]),
            spec=CsiNodeSpec(drivers=[CsiNodeDriver(name=DRIVER)]),
        ),
    ],
)
def test_it_stays_until_then(csi_node: CsiNode | None):
    assert operations(a_node("NoSchedule"), csi_node, DRIVER) == []


def test_nodes_without_it_are_left():
    assert not is_waiting(a_node(), DRIVER)
    assert not is_waiting(Node(), DRIVER)
    assert operations(a_node(), registered(), DRIVER) == []


def test_it_is_that_of_the_stock_driver_and_each_driver_has_its_own():
    assert taint_key(DRIVER) == KEY
    assert not is_waiting(a_node("NoSchedule"), "other.csi")
