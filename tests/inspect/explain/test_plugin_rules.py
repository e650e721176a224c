"""Why no node plugin runs on a node: the DaemonSet, and which label, affinity or taint it is."""

from __future__ import annotations

import json
import shlex
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from provisioner.inspect.explain.chain_rules import Link
from provisioner.inspect.explain.gathering.node import node_view as read_node
from provisioner.inspect.explain.view_rules import View
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kinds import WATCHED_PODS
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.inspect.reading.setup_kinds import DAEMON_SETS
from provisioner.kube.resources import CSI_NODES, NODES, Resource
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from provisioner.model.node import Node
from provisioner.model.taint import CORDONED, Taint
from tests.builders import DRIVER
from tests.inspect.explain.views import (
    NODE,
    causes,
    chains,
    csi_node_of,
    node_of,
    node_view,
    pod_of,
    view,
)

DATABASE = Taint(key="dedicated", value="database", effect="NoSchedule")
KEY = "eks.amazonaws.com/compute-type"
NOT_AUTO = [{"matchExpressions": [{"key": KEY, "operator": "NotIn", "values": ["auto"]}]}]
NAMES = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "node"}


def plugin(name: str = "ebs-csi-node", *, labels: Any = None, **pods: Any) -> Workload:
    document = {
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels or {}},
        "spec": {"template": {"spec": pods}},
    }
    return msgspec.convert(document, Workload)


def affinity(terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def labelled(**labels: str) -> Node:
    found = node_of()
    metadata = msgspec.structs.replace(found.metadata, labels={**found.labels, **labels})
    return msgspec.structs.replace(found, metadata=metadata)


def without_driver(*plugins: Workload, node: Node | None = None, kind: str = "pod") -> View:
    about = node_view(csi_node=None, daemon_sets=plugins, node=node or node_of())
    return view("node", node=about) if kind == "node" else starting(about)


def starting(about: Any) -> View:
    return view("pod", pod=pod_of(phase="Pending"), node=about)


def first(found: View) -> Link:
    return chains(found)[0].links[0]


def test_a_label_that_the_daemon_set_selects_is_named():
    link = first(without_driver(plugin(nodeSelector={"storage": "ebs", "tier": "a"})))

    assert str(link.cause) == "NodePluginAbsent"
    assert "DaemonSet kube-system/ebs-csi-node does not select node node-1" in link.sentence
    assert "nodeSelector" in link.proof.where
    assert link.proof.seen == "wants storage=ebs, tier=a; has none of these"


def test_the_label_that_a_node_has_instead_is_named_too():
    selects = plugin(nodeSelector={"kubernetes.io/os": "linux"})
    link = first(without_driver(selects, node=labelled(**{"kubernetes.io/os": "windows"})))

    assert link.proof.seen == "wants kubernetes.io/os=linux; has kubernetes.io/os=windows"


def test_an_affinity_that_leaves_the_node_out_is_named():
    selects = plugin(affinity=affinity(NOT_AUTO))
    link = first(without_driver(selects, node=labelled(**{KEY: "auto"})))

    assert link.proof.seen == f"wants {KEY} NotIn auto; not matched"
    assert "affinity" in link.proof.where


def test_a_taint_that_is_not_tolerated_is_named_and_the_command_tolerates_it():
    tolerates = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
    found = without_driver(plugin(tolerations=tolerates), node=node_of(taints=[DATABASE]))
    link = first(found)

    assert causes(found) == [["NodePluginAbsent", "DriverNotRegistered", "PodWaitsForVolume"]]
    assert "does not tolerate taint dedicated=database:NoSchedule" in link.sentence
    patch = json.loads(shlex.split(link.command)[-1])
    tolerating = msgspec.convert({"metadata": {}, **patch}, Workload)
    assert msgspec.to_builtins(tolerating.spec.template.spec.tolerations)[0]["operator"] == "Exists"


@pytest.mark.parametrize(
    ("taint", "pods"),
    [
        (CORDONED, {}),
        (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), {}),
        (
            Taint(key="node.kubernetes.io/network-unavailable", effect="NoSchedule"),
            {"hostNetwork": True},
        ),
        (DATABASE, {"tolerations": [{"operator": "Exists"}]}),
    ],
    ids=lambda each: getattr(each, "key", ""),
)
def test_a_taint_that_its_pods_tolerate_keeps_no_plugin_away(taint: Taint, pods: Any):
    found = without_driver(plugin(**pods), node=node_of(taints=[taint]))

    assert causes(found)[0][0] == "DriverNotRegistered"
    assert first(found).command == "kubectl -n kube-system describe daemonset ebs-csi-node"


def test_one_of_several_daemon_sets_is_enough():
    windows = plugin("ebs-csi-node-windows", nodeSelector={"kubernetes.io/os": "windows"})

    assert causes(without_driver(windows, plugin()))[0][0] == "DriverNotRegistered"


def test_of_several_the_one_that_is_meant_for_the_node_is_named():
    windows = plugin("ebs-csi-node-windows", nodeSelector={"kubernetes.io/os": "windows"})
    selects = plugin(nodeSelector={"storage": "ebs"})
    tainted = plugin("ebs-csi-node-tainted")

    assert "/ebs-csi-node does not select" in first(without_driver(windows, selects)).sentence
    found = without_driver(windows, selects, tainted, node=node_of(taints=[DATABASE]))
    assert "/ebs-csi-node-tainted does not tolerate" in first(found).sentence


def test_a_cluster_without_any_node_plugin_is_told_to_install_one():
    link = first(without_driver())

    assert str(link.cause) == "NodePluginAbsent"
    assert link.remedy.startswith("Install the node plugin")


def test_a_node_that_the_daemon_set_leaves_out_is_wrong_only_for_its_pods():
    selects = plugin(nodeSelector={"storage": "ebs"})

    (of_node,) = chains(without_driver(selects, kind="node"))
    assert of_node.waits
    (tainted,) = chains(without_driver(plugin(), node=node_of(taints=[DATABASE]), kind="node"))
    assert not tainted.waits
    assert not chains(without_driver(selects))[0].waits


def test_a_startup_taint_that_waits_for_a_plugin_that_never_comes_is_wrong():
    taint = Taint(key=f"{DRIVER}/agent-not-ready", effect="NoExecute")
    selects = plugin(nodeSelector={"storage": "ebs"}, tolerations=[{"operator": "Exists"}])
    found = without_driver(selects, node=node_of(taints=[taint]), kind="node")

    assert causes(found) == [["NodePluginAbsent", "DriverNotRegistered", "StartupTaintLeft"]]
    assert not chains(found)[0].waits


def test_nothing_is_said_of_plugins_that_nobody_has_looked_for():
    """A pod without a node: only the Nodes were read."""
    taint = Taint(key=f"{DRIVER}/agent-not-ready", effect="NoExecute")
    pod = pod_of(node="", message="0/1 nodes are available")
    found = view("pod", pod=pod, node=None, nodes=(node_of(taints=[taint]),))

    assert "no node plugin runs" not in first(found).sentence
    assert first(found).command == f"kubectl ebs explain node {NODE}"


class Api:
    """One node, and what else there is."""

    def __init__(self, *, registered: bool, refuses: Resource[Any] | None = None) -> None:
        self.registered = registered
        self.refuses = refuses
        self.listed: list[Resource[Any]] = []

    async def get(self, resource: Resource[Any], _name: str, _namespace: str = "") -> Any:
        if resource is NODES:
            return node_of(provider_id="")
        if resource is CSI_NODES and self.registered:
            return csi_node_of()
        raise KubeError(Reason.OBJECT_NOT_FOUND, "none")

    async def list(self, resource: Resource[Any], **_: str) -> Any:
        self.listed.append(resource)
        if resource is self.refuses:
            raise KubeError(Reason.FORBIDDEN, "forbidden")
        found = [plugin(), plugin("fluent-bit"), plugin("node", labels=NAMES)]
        return SimpleNamespace(items=found if resource is DAEMON_SETS else [])

    async def read(self) -> Any:
        cluster = Cluster(cast("Any", self))
        return await read_node(cluster, Cloud(None, Metrics()), DRIVER, NODE)


async def test_daemon_sets_are_read_only_where_driver_and_plugin_are_missing():
    api = Api(registered=True)
    assert (await api.read()).daemon_sets is None
    assert DAEMON_SETS not in api.listed

    found = await Api(registered=False).read()
    assert [each.name for each in found.daemon_sets] == ["node", "ebs-csi-node"]


@pytest.mark.parametrize("refused", [DAEMON_SETS, WATCHED_PODS], ids=["daemonsets", "pods"])
async def test_what_may_not_be_read_is_no_missing_plugin(refused: Resource[Any]):
    about = await Api(registered=False, refuses=refused).read()
    found = view("pod", pod=pod_of(phase="Pending"), node=about)

    assert causes(found)[0][0] == "DriverNotRegistered"
