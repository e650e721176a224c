import msgspec
import pytest

from provisioner.node.instance.documents import NodeView
from provisioner.node.instance.drain_rules import why_going


def a_node(**parts: object) -> NodeView:
    return msgspec.convert({"metadata": {"name": "node-1"}, **parts}, NodeView)


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unschedulable",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.kubernetes.io/out-of-service",
    ],
)
def test_a_node_with_such_a_taint_goes_away(key: str):
    taints = [{"key": "dedicated", "effect": "NoSchedule"}, {"key": key, "effect": "NoSchedule"}]

    assert why_going(a_node(spec={"taints": taints})) == f"it has the taint {key}"


def test_a_node_goes_away_whose_object_is_gone_or_going_or_cordoned():
    deleted = {"name": "node-1", "deletionTimestamp": "2026-11-22T05:00:00Z"}

    assert why_going(None) == "its Node is gone"
    assert why_going(a_node(metadata=deleted)) == "its Node is being deleted"
    assert why_going(a_node(spec={"unschedulable": True})) == "it is cordoned"


def ready(status: str, message: str) -> dict[str, object]:
    other = {"type": "DiskPressure", "status": "False", "message": "node is shutting down"}
    return {"conditions": [other, {"type": "Ready", "status": status, "message": message}]}


@pytest.mark.parametrize(
    "message",
    ["node is shutting down", "[PLEG is not healthy: 3m, node is shutting down]"],
)
def test_a_node_goes_away_whose_kubelet_was_told_of_the_shutdown(message: str):
    assert why_going(a_node(status=ready("False", message))) == "its machine is shut down"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"conditions": None},
        ready("False", "container runtime network not ready: cni plugin not initialized"),
        ready("True", "kubelet is posting ready status"),
        # The machine was shut down, and nobody has written here since it is back.
        ready("Unknown", "node is shutting down"),
    ],
)
def test_a_node_that_is_only_not_ready_stays(status: dict[str, object]):
    assert why_going(a_node(status=status)) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"taints": None},
        # Pods leave it for other reasons, and may come back.
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
        {"taints": [{"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}]},
    ],
)
def test_any_other_node_stays(spec: dict[str, object]):
    assert why_going(a_node(spec=spec)) == ""
