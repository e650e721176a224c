"""What the controller does about nodes: each part is a flow of its own, or runs beside them."""

from provisioner.edges import Edges
from provisioner.reconcile.agent_taint import AgentTaint
from provisioner.reconcile.attachment_limit import AttachmentLimits
from provisioner.reconcile.dead_node import DeadNodes
from provisioner.reconcile.flow import Flow, Lasting
from provisioner.reconcile.initialize_node import NodeInitializer


class NodeCare:
    """All of it, made once."""

    def __init__(self, edges: Edges) -> None:
        self.flows: list[Flow] = [AgentTaint(edges), AttachmentLimits(edges)]
        self.flows.append(NodeInitializer(edges))
        self.lasting: list[Lasting] = [DeadNodes(edges)]
