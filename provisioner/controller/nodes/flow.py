"""Flows of nodes: removal of the startup taint, and limits of new instance types.

Limits are those of instance types that are newer than our table. The node plugin has no rights in
AWS; it reads the annotation that this flow writes. Without the right to ask EC2, nodes of such
types use the limit that most types have.
"""

from functools import partial

import structlog

from provisioner import clock
from provisioner.controller.nodes import instance_type_limit_rules, startup_taint_rules
from provisioner.controller.shared.node_patch_rules import Operation
from provisioner.controller.shared.services import Services
from provisioner.kube.queue import KeyedQueue
from provisioner.model.decision import SETTLED, Later, Next
from provisioner.model.errors import NEEDS_HUMAN, Ec2Error
from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import CsiNode, Node
from provisioner.tell_once import TellOnce

REFUSED_AGAIN_S = 600.0
UNKNOWN_AGAIN_S = 3600.0
_TELL_AGAIN_S = 3600.0
_FLOW = "attachment limit"

log = structlog.get_logger(__name__)


class AgentTaint:
    """The flow of nodes with the startup taint; keys are their names.

    It is removed whenever the node plugin is registered, also if it is added again later. So the
    node plugin itself needs no right to change nodes.
    """

    def __init__(self, services: Services) -> None:
        self._driver = services.settings.driver
        self._caches = services.caches
        self._writes = services.node_writes
        self.queue = KeyedQueue("agent taint", self.reconcile, services.metrics)

    def subscribe(self) -> None:
        """Have nodes examined when they change, or the drivers registered on them."""
        self._caches.nodes.subscribe(self._node_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)

    async def reconcile(self, name: str) -> Next:
        """Remove the taint if the driver is registered; else an event tells when it is."""
        if await self._writes.change(name, self._plan):
            log.info("removed the startup taint: the node plugin is registered", node=name)
        return SETTLED

    def _plan(self, node: Node) -> list[Operation]:
        return startup_taint_rules.operations(
            node, self._caches.csi_nodes.get(node.name), self._driver
        )

    def _node_changed(self, _: Node | None, new: Node | None) -> None:
        if new is not None and startup_taint_rules.is_waiting(new, self._driver):
            self.queue.add(new.name)

    def _registration_changed(self, _: CsiNode | None, new: CsiNode | None) -> None:
        if new is not None:
            self._node_changed(None, self._caches.nodes.get(new.name))


class AttachmentLimits:
    """The flow of nodes whose instance type is not in our table; keys are their names."""

    def __init__(self, services: Services) -> None:
        self._driver = services.settings.driver
        self._caches = services.caches
        self._writes = services.node_writes
        self._types = services.instance_types
        self._metrics = services.metrics
        self._refused_until_s = float("-inf")
        self._told = TellOnce()
        self.queue = KeyedQueue(_FLOW, self.reconcile, services.metrics)

    def subscribe(self) -> None:
        """Have nodes examined when they change, or the drivers registered on them."""
        self._caches.nodes.subscribe(self._node_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)

    async def reconcile(self, name: str) -> Next:
        """Write to a node what EC2 says about its instance type."""
        node = self._caches.nodes.get(name)
        instance_type = self._unknown_type(node) if node is not None else ""
        if not instance_type:
            return SETTLED
        now_s = clock.now_s()
        if now_s < self._refused_until_s:  # one refusal is one for all
            return Later(self._refused_until_s - now_s)
        try:
            family = await self._types.family(instance_type.partition(".")[0])
        except Ec2Error as error:
            if error.reason not in NEEDS_HUMAN:
                raise
            return self._refused(error)
        limit = instance_type_limit_rules.limits_of(family).get(instance_type)
        if limit is None:
            self._tell(f"EC2 reports no attachment limit for instance type {instance_type}")
            return Later(UNKNOWN_AGAIN_S)
        note = partial(instance_type_limit_rules.noted, instance_type=instance_type, limit=limit)
        if await self._writes.change(name, note):
            log.info("noted an attachment limit", node=name, type=instance_type, limit=str(limit))
        return SETTLED

    def _unknown_type(self, node: Node) -> str:
        return instance_type_limit_rules.unknown_type(
            node, self._caches.csi_nodes.get(node.name), self._driver
        )

    def _refused(self, error: Ec2Error) -> Later:
        """Log it once an hour: everything else works, and the right may never be granted."""
        now_s = clock.now_s()
        if now_s >= self._refused_until_s:
            self._refused_until_s = now_s + REFUSED_AGAIN_S
            self._metrics.flow_failures.labels(_FLOW, error.reason.value).inc()
            self._tell("cannot ask EC2 for the attachment limits of instance types", error.message)
        return Later(self._refused_until_s - now_s)

    def _tell(self, what: str, error: str = "") -> None:
        if self._told.is_news(what, again_s=_TELL_AGAIN_S):
            meanwhile = "their nodes use the limit that most types have"
            log.warning(what, error=error, meanwhile=meanwhile)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # Nodes change all the time; only these facts matter.
        if new is not None and (old is None or _facts(old) != _facts(new)):
            self._examine(new)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        if new is not None and (old is None or old.driver(self._driver) is None):
            node = self._caches.nodes.get(new.name)
            if node is not None:
                self._examine(node)

    def _examine(self, node: Node) -> None:
        if self._unknown_type(node):
            self.queue.add(node.name)


def _facts(node: Node) -> tuple[str, ...]:
    noted = node.annotations.get(ATTACHMENT_LIMIT, "")
    return node.uid, node.spec.provider_id, instance_type_limit_rules.type_of(node), noted
