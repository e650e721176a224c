"""Initialization of nodes (``--initialize-nodes``): labels and providerID from EC2.

Everything goes into one change of the Node, so that a crash leaves all of it or none, and the zone
is there before the taint is gone. What is uncertain is reported in an event, and tried again at a
steady pace.
"""

import asyncio
from datetime import UTC, datetime

import structlog

from provisioner import clock
from provisioner.controller.nodes import initialize_rules as rules
from provisioner.controller.nodes.initialize_rules import Question, Refusal
from provisioner.controller.shared.node_patch_rules import Operation
from provisioner.controller.shared.services import Services
from provisioner.kube.client import KubeClient
from provisioner.kube.events import Regarding
from provisioner.kube.lease import HeldLease, boot_clock
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import NODES
from provisioner.model.decision import SETTLED, Later, Next
from provisioner.model.errors import Reason, StorageError
from provisioner.model.node import Node
from provisioner.model.volume import Instance
from provisioner.tell_once import TellOnce

AGAIN_S = 60.0
# The default of k8s.io/cloud-provider, which AWS's uses, and what k3s and RKE2 call theirs.
LEASES = (
    "cloud-controller-manager",
    "k3s-cloud-controller-manager",
    "rke2-cloud-controller-manager",
)
NAMESPACE = "kube-system"
_DURATION_S = 15  # for a record without one
_HELD_AGAIN_S = 15.0  # a lease may be given up or deleted long before it expires

log = structlog.get_logger(__name__)


class NodeInitializer:
    """The flow of nodes that lack something; keys are their names."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings
        self._caches = services.caches
        self._writes = services.node_writes
        self._instances = services.instances
        self._lookups = services.instance_lookups
        self._events = services.events
        self._cloud = CloudControllers(services.client)
        self._writing = asyncio.Lock()  # two nodes must not be given one instance
        self._told = TellOnce()
        self._told_of_lease = False
        self.queue = KeyedQueue("initialize node", self.reconcile, services.metrics, cap_s=AGAIN_S)

    def subscribe(self) -> None:
        """Have nodes examined when they change, if the option is set."""
        if self._settings.initialize_nodes:
            self._caches.nodes.subscribe(self._node_changed)

    async def reconcile(self, name: str) -> Next:
        """Initialize a node, or report why not."""
        node = self._caches.nodes.get(name)
        if node is None or not rules.is_lacking(node):
            self._told.forget(name)
            return SETTLED
        wait_s = rules.wait_s(node, datetime.now(UTC))
        if wait_s > 0:
            return Later(wait_s)
        if await self._is_left_to_others():
            return Later(_HELD_AGAIN_S)
        found: Instance | Refusal | None = await self._find(node)
        if isinstance(found, Instance):
            if await self._is_left_to_others():  # it may have started while EC2 was asked
                return Later(_HELD_AGAIN_S)
            found = await self._fill(node, found)
        if isinstance(found, Refusal):
            self._tell(node, found)
            return Later(AGAIN_S)
        return SETTLED

    async def _is_left_to_others(self) -> bool:
        """Whether a cloud controller manager initializes nodes."""
        is_held = await self._cloud.held_for_s() > 0
        if is_held and not self._told_of_lease:
            log.info("a cloud controller manager holds its lease: nodes are left to it")
        self._told_of_lease = is_held
        return is_held

    async def _find(self, node: Node) -> Instance | Refusal:
        asked = rules.question(node)
        if isinstance(asked, Refusal):
            return asked
        if not asked.instance_id:
            return await self._look_up(asked)
        try:
            return await self._instances.instance(asked.instance_id)
        except StorageError as error:
            if error.reason is Reason.INSTANCE_NOT_FOUND:
                return Refusal(error.message)
            raise

    async def _look_up(self, asked: Question) -> Instance | Refusal:
        found = await asyncio.gather(
            *map(self._lookups.named, asked.names),
            *map(self._lookups.addressed, asked.addresses),
        )
        candidates = (instance for some in found for instance in some)
        return rules.the_only(candidates, asked, self._settings.cluster_id)

    async def _fill(self, node: Node, instance: Instance) -> Refusal | None:
        refusal: Refusal | None = None
        region = self._lookups.region

        def plan(now: Node) -> list[Operation]:
            nonlocal refusal
            refusal = None
            if now.uid != node.uid or not rules.is_lacking(now):
                return []
            nodes = self._rivals(instance.instance_id)
            registered = self._registered(now, instance.instance_id)
            refusal = rules.contradiction(now, instance, region, nodes, registered)
            return [] if refusal else rules.operations(now, instance, region)

        async with self._writing:
            changed = await self._writes.change(node.name, plan)
        if changed is not None:
            self._told.forget(node.name)
            log.info("initialized a node", node=node.name, instance=instance.instance_id)
            self._record(
                changed,
                "Initialized",
                f"filled in what was missing, from EC2: instance {instance.instance_id}, "
                f"{instance.instance_type} in {instance.zone}",
            )
        return refusal

    def _rivals(self, instance_id: str) -> list[Node]:
        """The nodes that name an instance, and those that name none: they may be any."""
        nodes = self._caches.nodes
        return [*nodes.keyed("instance", instance_id), *nodes.keyed("instance", "")]

    def _registered(self, node: Node, instance_id: str) -> dict[str, str]:
        """As which instance a node's plugin is registered, and which ones are as this instance.

        A registration of an earlier Node of the same name does not count.
        """
        csi_nodes = self._caches.csi_nodes
        told = {each.name: instance_id for each in csi_nodes.keyed("instance", instance_id)}
        own = csi_nodes.get(node.name)
        told.pop(node.name, None)
        if own is not None and own.is_of(node):
            told.update((node.name, each) for each in own.instances(self._settings.driver))
        return told

    def _tell(self, node: Node, refusal: Refusal) -> None:
        message = f"not initialized: {refusal.message}"
        if self._told.is_news(node.name, message):
            log.warning("a node is not initialized", node=node.name, why=refusal.message)
        self._record(node, "NotInitialized", message, warning=True)

    def _record(self, node: Node, reason: str, message: str, *, warning: bool = False) -> None:
        about = Regarding.of(node, NODES.kind)
        self._events.record(about, warning=warning, reason=reason, message=message)

    def _node_changed(self, _: Node | None, new: Node | None) -> None:
        if new is not None and rules.is_lacking(new):
            self.queue.add(new.name)


class CloudControllers:
    """Whether a cloud controller manager initializes nodes, by its lease.

    As with our own leases, the clock here counts and not the times in the record: a lease is held
    until it has not changed for its own duration as seen from here. Concurrent callers share one
    read, which is never older than their question.
    """

    def __init__(self, client: KubeClient) -> None:
        self._leases = [
            HeldLease(
                client,
                namespace=NAMESPACE,
                name=name,
                identity="",
                duration_s=_DURATION_S,
                clock=boot_clock,
            )
            for name in LEASES
        ]
        self._reading = asyncio.Lock()
        self._read_since_s = float("-inf")  # when the last read began

    async def held_for_s(self) -> float:
        """Seconds until all leases have expired if nobody renews them; 0 when none is held.

        A lease that has a holder when it is first read counts as just renewed: whether the holder
        is dead shows once the duration is over.

        Raises:
            KubeError: a lease could not be read, so that it may be held.
        """
        asked_at_s = clock.now_s()
        async with self._reading:
            # A read that began after we asked, for another caller, is good for us too.
            if self._read_since_s < asked_at_s:
                began_at_s = clock.now_s()
                for lease in self._leases:
                    await lease.read()
                self._read_since_s = began_at_s
            return max(lease.expires_in_s for lease in self._leases)
