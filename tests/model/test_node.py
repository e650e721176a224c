import msgspec
import pytest

from provisioner.model.node import CsiNode, Node
from provisioner.model.taint import Taint


def a_node(**parts: object) -> Node:
    return msgspec.json.decode(msgspec.json.encode(parts), type=Node)


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        ("aws:///us-east-1a/i-0123abc", "i-0123abc"),
        ("aws://us-east-1a/i-0123abc", "i-0123abc"),
        ("i-0123abc", "i-0123abc"),
        ("", ""),
        ("kind://docker/i-am-no-instance", ""),
        ("aws:///us-east-1a/i-0123abc/more", ""),
    ],
)
def test_the_instance_is_the_end_of_the_provider_id(provider_id: str, instance_id: str):
    assert a_node(spec={"providerID": provider_id}).instance_id == instance_id


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_node_is_as_ready_as_its_condition_says(status: str):
    others = {"type": "DiskPressure", "status": "False"}
    conditions = [others, {"type": "Ready", "status": status}]

    assert a_node(status={"conditions": conditions}).ready == status


@pytest.mark.parametrize("status", [{}, {"conditions": None}, {"conditions": []}])
def test_a_new_node_is_not_known_to_be_ready_or_not(status: dict[str, object]):
    assert a_node(status=status).ready == ""


def test_a_taint_is_written_back_as_it_was_read():
    written = {
        "key": "node.kubernetes.io/unreachable",
        "effect": "NoExecute",
        "timeAdded": "2026-11-21T10:00:00Z",
    }

    assert msgspec.to_builtins(msgspec.convert(written, Taint)) == written


@pytest.mark.parametrize(
    ("allocatable", "is_complete"), [(None, False), ({}, False), ({"count": 0}, True)]
)
def test_a_registration_is_complete_with_a_number_of_volumes(
    allocatable: object, is_complete: object
):
    driver = {"name": "d", "nodeID": "i-1", "allocatable": allocatable}
    found = msgspec.convert({"spec": {"drivers": [driver]}}, CsiNode)

    registered = found.driver("d")
    assert registered is not None
    assert registered.is_complete is is_complete


def test_a_registration_belongs_to_the_node_that_owns_it():
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"}
    found = msgspec.convert({"metadata": {"name": "node-1", "ownerReferences": [owner]}}, CsiNode)

    assert found.is_of(a_node(metadata={"name": "node-1", "uid": "uid-1"}))
    assert not found.is_of(a_node(metadata={"name": "node-1", "uid": "uid-2"}))
