"""Why a volume stays on another node: who uses it there, and whether that node is alive."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain.chain_rules import Chain
from provisioner.inspect.explain.view_rules import NodeView, View
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.model.node import Node, NodeCondition
from provisioner.model.volume import Instance
from tests.builders import INSTANCE, OTHER_INSTANCE, ZONE
from tests.inspect.explain.views import (
    NOW,
    attachment_of,
    chains,
    claim_view,
    controlled_by,
    ebs,
    node_of,
    node_view,
    pod_of,
    pv_of,
    view,
    volume_of,
)

OTHER = "node-2"
DELETED = "2026-11-23T19:50:00Z"
OFF = "kubectl taint node node-2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def other_node(*, ready: str = "True", state: str = "running", **changes: Any) -> NodeView:
    found: Node = node_of(OTHER, provider_id=f"aws:///{ZONE}/{OTHER_INSTANCE}")
    conditions = [NodeCondition(type="Ready", status=ready)]
    usual: dict[str, Any] = {
        "node": structs.replace(found, status=structs.replace(found.status, conditions=conditions)),
        "instance": Instance(OTHER_INSTANCE, ZONE, state, "m5.large"),
    }
    return node_view(**usual | changes, name=OTHER)


def moving(
    *users: WatchedPod, node: NodeView | None = None, free: bool = False, **changes: Any
) -> View:
    """A pod starts on node-1; its volume is still on node-2."""
    volume = volume_of(
        attachments=(attachment_of(OTHER, attached=True),),
        ebs=ebs(on="" if free else OTHER_INSTANCE),
        nodes_of={INSTANCE: "node-1", OTHER_INSTANCE: OTHER},
    )
    usual: dict[str, Any] = {
        "pod": pod_of(phase="Pending"),
        "claims": (claim_view("Bound", volume=volume, users=users),),
        "other_nodes": {OTHER: node or other_node()},
    }
    return view("pod", **usual | changes)


def only(found: View) -> Chain:
    (chain,) = chains(found)
    return chain


def names(chain: Chain) -> list[str]:
    return [str(each.cause) for each in chain.links]


def on_other(**changes: Any) -> WatchedPod:
    return pod_of(**{"name": "old", "node": OTHER, **changes})


def test_a_node_that_is_gone_is_the_cause_and_ec2_says_that_the_volume_is_free():
    young = structs.replace(
        pod_of(phase="Pending"),
        metadata=structs.replace(pod_of().metadata, creation_timestamp=NOW),
    )
    gone = NodeView(OTHER, asked=True)
    chain = only(moving(node=gone, free=True, pod=young))
    assert names(chain)[:2] == ["NodeGone", "VolumeOnOtherNode"]
    assert "six minutes" in chain.links[0].next
    assert "2026-11-23T20:06:00Z" in chain.links[0].next
    assert "EC2 shows it on no instance" in chain.links[1].sentence
    assert "available" in chain.links[1].proof.seen


def test_a_forced_detachment_that_is_overdue_is_not_awaited():
    chain = only(moving(node=NodeView(OTHER, asked=True), free=True))
    assert "--disable-force-detach-on-timeout" in chain.links[0].remedy


def test_a_pod_that_ends_on_a_node_that_does_not_answer_is_not_deleted_again():
    old = on_other(deleted_at=DELETED)
    chain = only(moving(old, node=other_node(ready="Unknown")))
    assert names(chain)[:2] == ["NodeNotReady", "VolumeOnOtherNode"]
    first = chain.links[0]
    assert "delete pod" not in " ".join(f"{e.remedy} {e.command}" for e in chain.links)
    assert first.command == (
        f"aws ec2 describe-instances --instance-ids {OTHER_INSTANCE} "
        "--query 'Reservations[].Instances[].State.Name'"
    )
    assert OFF in first.remedy


def test_a_machine_that_is_off_is_tainted_by_the_command():
    old = on_other(deleted_at=DELETED)
    chain = only(moving(old, node=other_node(ready="Unknown", state="stopped")))
    assert chain.links[0].command == OFF


def test_a_pod_that_ends_on_a_node_that_lives_is_explained_itself():
    chain = only(moving(on_other(deleted_at=DELETED)))
    assert names(chain)[0] == "VolumeOnOtherNode"
    assert chain.links[0].command == "kubectl ebs explain pod shop/old"
    assert not chain.waits


def test_a_pod_that_has_just_begun_to_end_is_awaited():
    assert only(moving(on_other(deleted_at=NOW.isoformat()))).waits


def test_a_broken_node_plugin_keeps_its_own_advice():
    chain = only(moving(on_other(deleted_at=DELETED), node=other_node(csi_node=None)))
    assert names(chain)[0] == "DriverNotRegistered"
    assert "out-of-service" not in chain.links[0].remedy


def test_a_pod_of_nobody_is_deleted():
    assert only(moving(on_other())).links[0].command == "kubectl -n shop delete pod old"


def test_a_rolling_update_that_waits_for_its_own_predecessor():
    """The old ReplicaSet would create the pod again at once."""
    new = pod_of(phase="Pending", owner=controlled_by("ReplicaSet", "web-7c9", "2"))
    old = on_other(owner=controlled_by("ReplicaSet", "web-6d4", "1"))
    hashed = [
        structs.replace(
            pod, metadata=structs.replace(pod.metadata, labels={"pod-template-hash": name})
        )
        for pod, name in ((new, "7c9"), (old, "6d4"))
    ]
    chain = only(moving(hashed[1], pod=hashed[0]))
    first = chain.links[0]
    assert "Deployment shop/web" in first.sentence
    assert "Recreate" in first.remedy
    assert first.command == (
        "kubectl -n shop patch deployment web -p "
        """'{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}'"""
    )


def test_two_replicas_of_one_deployment_cannot_share_the_volume():
    owner = controlled_by("ReplicaSet", "web-6d4", "1")
    labels = {"pod-template-hash": "6d4"}
    both = [
        structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))
        for pod in (pod_of(phase="Pending", owner=owner), on_other(owner=owner))
    ]
    first = only(moving(both[1], pod=both[0])).links[0]
    assert first.command == "kubectl -n shop scale deployment web --replicas=1"


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("StatefulSet", "kubectl -n shop scale statefulset db --replicas=0"),
        ("Job", "kubectl -n shop describe pod old"),
    ],
)
def test_a_pod_that_would_be_created_again_is_not_deleted(kind: str, command: str):
    old = on_other(owner=controlled_by(kind, "db", "1"))
    assert only(moving(old)).links[0].command == command


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "--all"},
        {"name": "-h"},
        {"name": "a b"},
        {"api_version": "example.com/v1"},
    ],
)
def test_an_owner_that_somebody_made_up_gets_into_no_command(changes: dict[str, Any]):
    old = on_other(owner=structs.replace(controlled_by("StatefulSet", "db"), **changes))
    first = only(moving(old)).links[0]
    assert first.command == "kubectl -n shop describe pod old"
    assert changes.get("name", "made up") not in first.remedy


def test_a_deployment_that_somebody_made_up_gets_into_no_command():
    owner, labels = controlled_by("ReplicaSet", "--all-6d4"), {"pod-template-hash": "6d4"}
    old, new = (
        structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))
        for pod in (on_other(owner=owner), pod_of(phase="Pending", owner=owner))
    )
    for pod in (pod_of(phase="Pending"), new):
        assert only(moving(old, pod=pod)).links[0].command == "kubectl -n shop describe pod old"


def test_what_only_refers_to_a_pod_does_not_create_it_again():
    old = on_other(owner=controlled_by("StatefulSet", "db", controller=None))
    assert only(moving(old)).links[0].command == "kubectl -n shop delete pod old"


def test_a_volume_that_is_just_being_unmounted_is_awaited():
    young = pod_of(phase="Pending")
    meta = structs.replace(young.metadata, creation_timestamp=NOW)
    assert only(moving(pod=structs.replace(young, metadata=meta))).waits
    assert not only(moving()).waits


def test_a_released_volume_on_a_lost_node_is_explained_by_the_node():
    held = (attachment_of(OTHER, attached=True),)
    released = volume_of(persistent_volume=pv_of(phase="Released"), attachments=held)
    for node, first in ((other_node(ready="Unknown"), "NodeNotReady"), (other_node(), None)):
        chain = only(view("pv", volume=released, other_nodes={OTHER: node}))
        expected = [first] if first else []
        assert names(chain) == [*expected, "VolumeInUse", "Released"]
