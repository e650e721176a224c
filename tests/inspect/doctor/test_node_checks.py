"""Nodes without the driver or with no room, by evidence that differs in one thing from a sound cluster's."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.reading.setup_kind_rules import (
    SystemNode,
)
from provisioner.model.node import NodeSpec
from provisioner.model.taint import Taint
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import checked, with_cloud, with_cluster


def test_a_node_without_volumes_may_be_away():
    seen = with_cluster(nodes=[e.not_ready()], attachments=[])
    assert checked(seen)["nodes-ready"].verdict is Verdict.OK


def test_a_taint_of_a_new_node_is_patience():
    young = e.NOW.isoformat()
    taint = Taint(key=f"{e.DRIVER}/agent-not-ready", effect="NoSchedule", time_added=young)
    seen = with_cluster(nodes=[e.node(taints=[{"key": taint.key, "timeAdded": young}])])

    assert checked(seen)["startup-taints"].verdict is Verdict.OK


def labelled(name: str, created: str = e.OLD, **labels: str) -> SystemNode:
    document = {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": created},
        "spec": {"providerID": f"aws:///{e.ZONE}/i-0000000000000000a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    return e.read(SystemNode, document)


def on_nodes(*nodes: Any, **changes: Any) -> Check:
    seen = with_cluster(nodes=[e.node(), *nodes], **changes)
    return checked(seen)["driver-on-nodes"]


WINDOWS = {"kubernetes.io/os": "windows"}


AUTO = {"eks.amazonaws.com/compute-type": "auto"}


@pytest.mark.parametrize("labels", [WINDOWS, AUTO], ids=["windows", "auto"])
def test_the_driver_is_expected_only_where_the_node_plugin_may_run(labels: dict[str, str]):
    [(key, value)] = labels.items()
    term = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    other = labelled("other", **labels)

    assert on_nodes(other).verdict is Verdict.OK
    assert on_nodes(other, daemon_sets=[e.plugin(affinity=affinity)]).verdict is Verdict.OK
    assert on_nodes(other, daemon_sets=[e.plugin(nodeSelector=labels)]).verdict is Verdict.FAILED
    assert on_nodes(other, daemon_sets=[e.plugin()]).verdict is Verdict.FAILED


def test_new_nodes_without_the_driver_are_counted_and_fail_nothing():
    found = on_nodes(labelled("new", e.NOW.isoformat()))

    assert found.verdict is Verdict.OK
    assert "1 of 2 ready nodes; 1 without it are younger than 5 minutes" in found.proof


def test_a_pod_of_the_node_plugin_may_start_on_a_new_node():
    old, new = labelled("a"), labelled("b", e.NOW.isoformat())
    started = checked(with_cluster(nodes=[old, new], daemon_sets=[e.plugin()]))
    late = checked(with_cluster(nodes=[old, labelled("b")], daemon_sets=[e.plugin()]))

    assert started["node-plugin-ready"].verdict is Verdict.OK
    assert late["node-plugin-ready"].verdict is Verdict.FAILED


def test_a_full_node_is_no_reason_to_add_nodes_by_itself():
    found = checked(with_cluster(csi_nodes=[e.csi_node(count=1)]))["node-limits"]
    assert found.remedy.startswith("nothing, unless a pod waits for such a node: kubectl ebs exp")
    assert "if none has, add nodes" in found.remedy


def test_a_limit_already_leaves_other_volumes_out():
    instance = e.instance(volume_ids=("vol-root", e.VOLUME, "vol-a", "vol-b"))
    seen = replace(
        with_cloud(instances={e.INSTANCE: instance}),
        cluster=replace(e.CLUSTER, csi_nodes=[e.csi_node(count=2)]),
    )

    assert checked(seen)["node-limits"].verdict is Verdict.OK


def test_a_taint_that_keeps_the_node_plugin_away_is_named():
    other = structs.replace(
        labelled("other"), spec=NodeSpec(taints=[Taint(key="gpu", effect="NoSchedule")])
    )

    found = on_nodes(other, daemon_sets=[e.plugin(tolerations=[])])
    assert found.verdict is Verdict.FAILED
    assert "does not tolerate taint gpu:NoSchedule" in found.proof
    tolerant = on_nodes(other, daemon_sets=[e.plugin(tolerations=[{"operator": "Exists"}])])
    assert "tolerate taint" not in tolerant.proof
