"""The startup taint: taken off a node once the node plugin is registered there.

Whenever it is there, also if somebody puts it on again later. The node plugin itself needs no right
to change nodes for this.
"""

import structlog

from provisioner.decide import agent_taint as rules
from provisioner.decide.node_patch import Operation
from provisioner.edges import Edges
from provisioner.kube.queue import KeyedQueue
from provisioner.model.node import CsiNode, Node

log = structlog.get_logger(__name__)


class AgentTaint:
    """The flow of nodes with the taint; keys are their names."""

    def __init__(self, edges: Edges) -> None:
        self._driver = edges.settings.driver
        self._caches = edges.caches
        self._writes = edges.node_writes
        self.queue = KeyedQueue("agent taint", self.reconcile, edges.metrics)

    def subscribe(self) -> None:
        """Have nodes looked at when they or what is registered on them change."""
        self._caches.nodes.subscribe(self._node_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)

    async def reconcile(self, name: str) -> float | None:
        """Take the taint off if it is time; else an event tells when it is."""
        if await self._writes.change(name, self._plan):
            log.info("the node plugin is there: its startup taint is removed", node=name)
        return None

    def _plan(self, node: Node) -> list[Operation]:
        return rules.operations(node, self._caches.csi_nodes.get(node.name), self._driver)

    def _node_changed(self, _: Node | None, new: Node | None) -> None:
        if new is not None and rules.is_waiting(new, self._driver):
            self.queue.add(new.name)

    def _registration_changed(self, _: CsiNode | None, new: CsiNode | None) -> None:
        if new is not None:
            self._node_changed(None, self._caches.nodes.get(new.name))
