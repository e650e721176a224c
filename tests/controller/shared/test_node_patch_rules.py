"""Changes of nodes as JSON patches, carried out on what the API server has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from provisioner.controller.shared import node_patch_rules
from provisioner.controller.shared.node_patch_rules import Operation
from provisioner.model.node import Node
from provisioner.model.taint import Taint
from tests.json_patch import applied

OURS = "ebs.csi.aws.com/agent-not-ready"
# With a field that this version does not know, as a later API server may have one.
LATER = {"key": "kept", "effect": "NoExecute", "timeAdded": "2026-11-22T05:00:00Z", "new": 1}


def a_document(**changed: Any) -> dict[str, Any]:
    spec = {"taints": [{"key": OURS, "effect": "NoSchedule"}, LATER, {"key": OURS, "effect": "x"}]}
    return {"metadata": {"name": "node-1", "labels": {"a/b": "1"}}, "spec": spec} | changed


def the_node(document: dict[str, Any]) -> Node:
    return msgspec.convert(document, Node)


def test_all_taints_of_a_key_go_and_all_others_stay_as_they_are():
    document = a_document()

    operations = node_patch_rules.without_taints(the_node(document), OURS)

    assert applied(document, operations)["spec"]["taints"] == [LATER]
    assert node_patch_rules.without_taints(the_node(document), "other") == []
    assert node_patch_rules.without_taints(Node(), OURS) == []


@pytest.mark.parametrize("spec", [{}, {"taints": []}, {"taints": [LATER]}])
def test_a_taint_is_added_beside_the_others_once(spec: dict[str, Any]):
    document = a_document(spec=spec)
    taint = Taint(key=OURS, value="v", effect="NoExecute")
    added = {"key": OURS, "value": "v", "effect": "NoExecute"}

    changed = applied(document, node_patch_rules.with_taint(the_node(document), taint))

    assert changed["spec"]["taints"] == [*spec.get("taints", ()), added]
    assert node_patch_rules.with_taint(the_node(changed), taint) == []


def test_one_very_taint_goes_and_its_namesakes_stay():
    taint = Taint(key=OURS, value="v", effect="NoExecute")
    namesakes = [{"key": OURS, "effect": "NoExecute"}, {"key": OURS, "value": "v", "effect": "x"}]
    document = a_document(
        spec={"taints": [LATER, *namesakes, {"key": OURS, "value": "v", "effect": "NoExecute"}]}
    )

    changed = applied(document, node_patch_rules.without_taint(the_node(document), taint))

    assert changed["spec"]["taints"] == [LATER, *namesakes]
    assert node_patch_rules.without_taint(the_node(changed), taint) == []
    assert node_patch_rules.without_taint(Node(), taint) == []


def test_an_annotation_goes_and_others_stay():
    document = a_document(metadata={"name": "node-1", "annotations": {"a/b": "1", "c": "2"}})

    changed = applied(document, node_patch_rules.without_annotation(the_node(document), "a/b"))

    assert changed["metadata"]["annotations"] == {"c": "2"}
    assert node_patch_rules.without_annotation(the_node(changed), "a/b") == []


@pytest.mark.parametrize(
    ("labels", "afterwards"),
    [
        ({"a/b": "1"}, {"a/b": "1", "x~y/z": "2"}),
        (None, {"x~y/z": "2"}),
        ({"x~y/z": "2"}, None),
        ({"x~y/z": "3", "o": "4"}, {"x~y/z": "2", "o": "4"}),
    ],
)
def test_labels_and_annotations_are_set_and_others_kept(
    labels: dict[str, str] | None, afterwards: dict[str, str] | None
):
    for field, change in (
        ("labels", node_patch_rules.labelled),
        ("annotations", node_patch_rules.annotated),
    ):
        document = a_document(metadata={"name": "node-1", field: labels})
        operations: Sequence[Operation] = change(the_node(document), {"x~y/z": "2"})

        assert bool(operations) is (afterwards is not None)
        assert applied(document, operations)["metadata"][field] == (afterwards or labels)


def test_an_annotation_is_added_beside_those_of_which_a_cache_keeps_nothing():
    document = a_document(metadata={"name": "node-1", "annotations": {"example.com/a": "1"}})

    cached = the_node(document).as_cached()
    changed = applied(document, node_patch_rules.annotated(cached, {"x~y/z": "2"}))

    assert changed["metadata"]["annotations"] == {"example.com/a": "1", "x~y/z": "2"}


def test_a_provider_id_is_set():
    document = a_document()

    changed = applied(document, node_patch_rules.with_provider_id("aws:///us-east-1a/i-1"))

    assert the_node(changed).instance_id == "i-1"
