"""Nodes that are no EC2 instances of one's own, or have a driver of their own."""

from collections.abc import Mapping

_COMPUTE_LABEL, _OS_LABEL = "eks.amazonaws.com/compute-type", "kubernetes.io/os"
_NOT_YOUR_INSTANCES = frozenset({"fargate", "auto", "hybrid"})  # manifests/node/daemonset.yaml


def takes_the_driver(labels: Mapping[str, str], instance_id: str) -> bool:
    """Whether the node plugin of the manifests is for a node.

    Args:
        labels: of the node.
        instance_id: that its providerID names, "" for none: Fargate's and hybrid nodes name others.
    """
    if labels.get(_COMPUTE_LABEL) in _NOT_YOUR_INSTANCES:
        return False
    return bool(instance_id) and labels.get(_OS_LABEL, "linux") == "linux"
