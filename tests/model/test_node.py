from typing import Any

import msgspec
import pytest

from provisioner.model.driver import EBS_DRIVER
from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import CsiNode, Node
from provisioner.model.taint import Taint
from tests.bench import standing


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


def a_standing_node(n: int, **metadata: Any) -> Node:
    body = standing.node(n)
    return a_node(**body | {"metadata": body["metadata"] | metadata})


def test_a_cache_keeps_the_labels_of_a_node_and_what_is_ours_and_little_else():
    whole = a_standing_node(7, annotations={ATTACHMENT_LIMIT: "z9.large 28", "example.com/a": "b"})

    kept = whole.as_cached()

    assert kept.annotations == {ATTACHMENT_LIMIT: "z9.large 28"}
    assert (kept.labels, kept.spec, kept.ready) == (whole.labels, whole.spec, "True")
    assert len(kept.status.conditions or ()) == 1
    assert kept.status.addresses is None
    assert kept.as_cached() == kept


def test_a_cache_keeps_the_addresses_of_a_node_that_does_not_name_its_instance():
    whole = a_node(**standing.node(7) | {"spec": {}})

    assert whole.as_cached().status.addresses == whole.status.addresses != []


def test_two_nodes_that_differ_in_what_nobody_asks_are_kept_alike():
    one, two = (a_standing_node(n).as_cached() for n in (0, 3))

    assert one.status == two.status
    assert one.annotations == two.annotations == {}


def a_csi_node(*owners: dict[str, str]) -> CsiNode:
    others = [{"name": "efs.csi.aws.com", "nodeID": "i-1"}]
    body = standing.csi_node(7)
    body["metadata"]["ownerReferences"] = list(owners)
    body["spec"]["drivers"] += others
    return msgspec.convert(body, CsiNode)


NODE = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"}


@pytest.mark.parametrize(
    "owners", [[], [NODE], [NODE, NODE | {"uid": "uid-2"}], [NODE | {"kind": "Pod"}]]
)
def test_a_cached_csi_node_is_of_the_same_node_as_before(owners: list[dict[str, str]]):
    whole = a_csi_node(*owners)
    kept = whole.as_cached(EBS_DRIVER)

    for uid in ("uid-1", "uid-2", ""):
        node = a_node(metadata={"name": "node-1", "uid": uid})
        assert kept.is_of(node) is kept.as_cached(EBS_DRIVER).is_of(node) is whole.is_of(node)


def test_a_cache_keeps_our_driver_of_a_csi_node_and_no_other():
    kept = a_csi_node(NODE).as_cached(EBS_DRIVER)

    assert kept.instances(EBS_DRIVER) == (standing.instance_id(7),)
    assert kept.instances("efs.csi.aws.com") == ()
    assert kept.metadata.owner_references is None
    assert a_csi_node(NODE).as_cached("other").spec.drivers is None
