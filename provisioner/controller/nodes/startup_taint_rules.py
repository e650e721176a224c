"""Decide when a node that waits for the node plugin may take pods with volumes.

A node can be created with the taint ``ebs.csi.aws.com/agent-not-ready``: before the driver is
registered, the scheduler knows no volume limit, and places pods whose volumes may not fit.
Source: aws-ebs-csi-driver v1.64 docs/install.md; there the node plugin removes the taint itself,
so every node may change every node.
"""

from provisioner.controller.shared.node_patch_rules import Operation, without_taints
from provisioner.model.node import CsiNode, Node


def taint_key(driver: str) -> str:
    """The key of the taint, for a driver."""
    return f"{driver}/agent-not-ready"


def is_waiting(node: Node, driver: str) -> bool:
    """Whether the node has the taint, with whatever effect."""
    key = taint_key(driver)
    return any(taint.key == key for taint in node.spec.taints or ())


def operations(node: Node, csi_node: CsiNode | None, driver: str) -> list[Operation]:
    """Remove the taint once the driver is registered on this very node, with its limit.

    A CSINode outlives its Node for a moment: one that belongs to an earlier node of the name says
    nothing about a new machine.
    """
    if csi_node is None or not csi_node.is_of(node):
        return []
    registered = csi_node.driver(driver)
    if registered is None or not registered.is_complete:
        return []
    return without_taints(node, taint_key(driver))
