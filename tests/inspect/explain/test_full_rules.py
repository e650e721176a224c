"""Which nodes take no more volumes, what they have, and what keeps the pod from the others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain.chain_rules import Link
from provisioner.inspect.explain.view_rules import View
from provisioner.model.attachment import AttachmentSource
from provisioner.model.node import TYPE_LABEL, Node, Owner
from provisioner.model.taint import Taint
from tests.inspect.explain.views import (
    NODE,
    attachment_of,
    chains,
    controlled_by,
    csi_node_of,
    first_causes,
    node_of,
    pod_of,
    view,
)

MESSAGE = "0/3 nodes are available: 1 node(s) exceed max volume count, 2 node(s) didn't match"
HOST = "kubernetes.io/hostname"


def a_node(name: str, kind: str = "m5.large") -> Node:
    found = node_of(name)
    labels = {**found.labels, HOST: name, TYPE_LABEL: kind}
    return structs.replace(found, metadata=structs.replace(found.metadata, labels=labels))


def on(node: str, pv: str) -> Any:
    found = attachment_of(node, attached=True)
    source = AttachmentSource(persistent_volume_name=pv)
    return structs.replace(found, spec=structs.replace(found.spec, source=source))


def full(*, limits: dict[str, int], selector: dict[str, str] | None = None, **changes: Any) -> View:
    """A pod without a node; on node-1 is one volume, of claim shop/first."""
    usual: dict[str, Any] = {
        "pod": pod_of(node="", message=MESSAGE, node_selector=selector),
        "node": None,
        "nodes": tuple(a_node(name) for name in limits),
        "csi_nodes": {name: csi_node_of(name, count=n) for name, n in limits.items()},
        "asked_attachments": True,
        "attachments": (on(NODE, "pv-first"),),
        "claim_of": {"pv-first": "shop/first"},
    }
    return view("pod", **usual | changes)


def cause_of(found: View) -> Link:
    (chain,) = chains(found)
    assert [str(each.cause) for each in chain.links] == ["NodesFull", "NoNodeFits"]
    return chain.links[0]


SELECTED = {HOST: NODE}
ELSEWHERE = {NODE: 1, "node-2": 25, "node-3": 25}


def test_the_full_node_comes_first_then_its_odd_limit_then_room_on_nodes_that_are_not_selected():
    link = cause_of(full(limits=ELSEWHERE, selector=SELECTED))
    assert link.sentence == (
        f"Node node-1, the only one in us-east-1a that the pod's nodeSelector ({HOST}={NODE}) "
        "allows, takes no more volumes (1 of 1, of claim shop/first). The limit of node-1 (1) is "
        "below that of another m5.large (25). Other nodes in us-east-1a have room: node-2 (0 of "
        "25), node-3 (0 of 25)."
    )
    assert "No further node is needed" in link.remedy
    assert link.next == (
        "you; an autoscaler helps only if it can add a node that the pod's nodeSelector "
        f"({HOST}={NODE}) allows"
    )
    assert link.command == ("kubectl get pods -A -o wide --field-selector spec.nodeName=node-1")


@pytest.mark.parametrize(
    ("owner", "labels", "remedy"),
    [
        (None, {}, "Delete the pod and create it without that nodeSelector; or delete a pod that "),
        (
            controlled_by("StatefulSet", "web"),
            {},
            "Change the nodeSelector in StatefulSet web, so that it allows a node with room; or ",
        ),
        (
            controlled_by("ReplicaSet", "web-5d9f"),
            {"pod-template-hash": "5d9f"},
            "Change the nodeSelector in Deployment web, so that it allows a node with room; or ",
        ),
    ],
)
def test_the_selector_is_to_be_changed_where_the_pod_is_defined(
    owner: Owner | None, labels: dict[str, str], remedy: str
):
    pod = pod_of(node="", message=MESSAGE, node_selector=SELECTED)
    owners = [owner] if owner else None
    metadata = structs.replace(pod.metadata, owner_references=owners, labels=labels)
    pod = structs.replace(pod, metadata=metadata)
    assert cause_of(full(limits=ELSEWHERE, pod=pod)).remedy.startswith(remedy)


def test_of_more_nodes_that_the_pod_selects_each_is_named():
    same = {TYPE_LABEL: "m5.large"}
    found = full(
        limits={NODE: 1, "node-2": 1},
        selector=same,
        attachments=(on(NODE, "pv-first"), on("node-2", "pv-more")),
    )
    assert cause_of(found).sentence == (
        f"2 nodes in us-east-1a that the pod's nodeSelector ({TYPE_LABEL}=m5.large) allows take no "
        "more volumes: node-1 (1 of 1, of claim shop/first), node-2 (1 of 1)."
    )


def test_a_node_that_a_taint_excludes_does_not_make_the_selector_choose_one_only():
    nodes = (a_node(NODE), a_node("node-2"))
    taint = Taint(key="team", effect="NoSchedule")
    tainted = structs.replace(nodes[1], spec=structs.replace(nodes[1].spec, taints=[taint]))
    found = full(
        limits={NODE: 1, "node-2": 1},
        selector={TYPE_LABEL: "m5.large"},
        nodes=(nodes[0], tainted),
    )
    assert f"({TYPE_LABEL}=m5.large) and tolerations allow, takes" in cause_of(found).sentence


def test_a_node_is_advised_where_no_other_node_has_room():
    link = cause_of(full(limits={NODE: 1}))
    assert link.sentence == (
        "The node in us-east-1a that could take the pod takes no more volumes: "
        "node-1 (1 of 1, of claim shop/first)."
    )
    assert "add a node in us-east-1a" in link.remedy
    assert "selector" not in link.sentence


def test_the_schedulers_message_is_shown_once():
    (chain,) = chains(full(limits={NODE: 1}))
    assert [MESSAGE in each.proof.seen for each in chain.links] == [False, True]
    assert chain.links[0].proof.seen == "node-1: limit 1, attached 1"


def test_of_many_full_nodes_the_first_three_are_named():
    names = [f"node-{number}" for number in range(1, 6)]
    found = full(
        limits=dict.fromkeys(names, 1),
        attachments=tuple(on(name, "pv-first") for name in names),
        claim_of={},
    )
    assert (
        "node-1 (1 of 1), node-2 (1 of 1), node-3 (1 of 1) and 2 more" in cause_of(found).sentence
    )


def test_a_limit_below_that_of_other_nodes_of_the_type_is_told_and_what_to_check():
    link = cause_of(full(limits={NODE: 1, "node-2": 25}, selector={HOST: NODE}))
    assert "The limit of node-1 (1) is below that of another m5.large (25)" in link.sentence
    assert "of node-1 is not intended, check --volume-attach-limit and " in link.remedy


def test_a_node_with_room_that_the_scheduler_excludes_for_another_reason_is_not_called_full():
    (chain,) = chains(full(limits={NODE: 1, "node-2": 25}))
    (link,) = chain.links
    assert (str(link.cause), link.proof.seen) == ("NoNodeFits", MESSAGE)
    assert "node-2 (" not in link.sentence
    assert "1 more would have room; the scheduler names another reason" in link.sentence


def test_attachments_that_could_not_be_read_prove_no_room():
    found = full(
        limits={NODE: 1, "node-2": 25},
        selector={HOST: NODE},
        attachments=(),
        unread=frozenset({"list volumeattachments"}),
    )
    link = cause_of(found)
    assert "takes no more volumes (limit 1)" in link.sentence
    assert "have room" not in link.sentence
    assert "attached not read" in link.proof.seen


MIXED = "0/5 nodes are available: 1 node(s) exceed max volume count, 4 Insufficient memory."


@pytest.mark.parametrize(
    ("number", "message", "cause"),
    [
        (5, MIXED, "NoNodeFits"),
        (0, MIXED, "NoNodeFits"),
        (1, MIXED, "NodesFull"),
        (0, "0/3 nodes are available: 3 node(s) exceed max volume count.", "NodesFull"),
    ],
)
def test_nodes_are_full_only_if_all_that_could_take_the_pod_are(
    number: int, message: str, cause: str
):
    nodes = tuple(node_of(f"n{index}") for index in range(number))
    pod = pod_of(node="", message=message)
    found = view("pod", pod=pod, node=None, nodes=nodes)
    assert first_causes(found) == [cause]
