"""A cluster of nodes for ``controller/nodes/dead_node.py``: an API server with versions, and an EC2."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from provisioner.controller.nodes.dead_node import DeadNodes
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.node_writes import NodeWrites
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.events import Regarding
from provisioner.kube.resources import ATTACHMENTS, CSI_NODES, NODES, PODS
from provisioner.kube.wire import Listing
from provisioner.metrics import Metrics
from provisioner.model.attachment import NODE_ID
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.node import Node
from provisioner.model.pod import Pod
from provisioner.model.taint import Taint
from provisioner.model.volume import Instance
from tests.builders import DRIVER, INSTANCE, an_attachment, owned_csi_node
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.json_patch import MismatchError, applied

T = TypeVar("T")

UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute", time_added="then")


@dataclass
class Ec2:
    """``states``: of the instances that it knows; ``failure``: of every look; ``refuses``: of one."""

    states: dict[str, str] = field(default_factory=dict)
    failure: Ec2Error | None = None
    refuses: dict[str, Ec2Error] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def instance(self, instance_id: str) -> Instance:
        self.asked.append(instance_id)
        if self.failure is not None:
            raise self.failure
        if instance_id in self.refuses:
            raise self.refuses[instance_id]
        if instance_id not in self.states:
            raise Ec2Error(Reason.INSTANCE_NOT_FOUND, "unknown", action="DescribeInstances")
        return Instance(instance_id, "us-east-1a", self.states[instance_id], "m5.large")


@dataclass
class Told:
    """Events, as (warning, reason, message)."""

    events: list[tuple[bool, str, str]] = field(default_factory=list)

    def record(self, _: Regarding, *, warning: bool, reason: str, message: str) -> None:
        self.events.append((warning, reason, message))


class DeadWorld:
    """``live``: what the API server has, by plural and name; caches see it after ``sync``."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._versions = itertools.count(1)
        self.live: dict[tuple[str, str], Any] = {}
        self.pods: dict[str, list[Pod]] = {}
        self.sent: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.lists: list[str] = []
        self.dies_after_a_write = False
        self.loses_replies = False
        self.refused: set[str] = set()  # names of what cannot be written
        self.ec2, self.told = Ec2(), Told()
        client = cast("KubeClient", self)
        self.caches = Caches(client, Metrics(), DRIVER)
        services: Any = EdgesOf(
            settings=Settings(release_dead_nodes=enabled),
            client=client,
            caches=self.caches,
            instances=self.ec2,
            events=self.told,
            node_writes=NodeWrites(client, self.caches.nodes),
        )
        self.services = cast("Services", services)
        self.restart()

    def restart(self) -> None:
        """The next leader: it has caches as they are, and nothing else."""
        self.dead_nodes = DeadNodes(self.services)

    def has_node(
        self,
        name: str = "node-1",
        *,
        ready: str = "Unknown",
        instance: str = INSTANCE,
        uid: str = "",
        taints: tuple[Taint, ...] = (UNREACHABLE,),
        annotations: Mapping[str, str] | None = None,
        cached: bool = True,
    ) -> None:
        document = {
            "metadata": {"name": name, "uid": uid or name, "annotations": annotations},
            "spec": {
                "providerID": f"aws:///us-east-1a/{instance}",
                "taints": msgspec.to_builtins(list(taints)),
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
        self._put(NODES, msgspec.convert(document, Node))
        self._put(CSI_NODES, owned_csi_node(name, uid=uid, instance=instance))
        if cached:
            self.sync()

    def registers(self, name: str, instance: str | None, *, cached: bool = True) -> None:
        """The driver's registration, that of no instance where it is not there."""
        driver = DRIVER if instance else None
        self._put(CSI_NODES, owned_csi_node(name, instance=instance or "", driver=driver))
        if cached:
            self.sync()

    def has_attachment(self, name: str, node: str, instance: str = INSTANCE) -> None:
        recorded = {NODE_ID: instance}
        found = an_attachment(name, node=node, annotations=recorded, attached=True)
        self._put(ATTACHMENTS, found)
        self.sync()

    def has_pods(self, node: str, *names: str) -> None:
        self.pods[node] = [Pod(metadata=ObjectMeta(name=name)) for name in names]

    def becomes(self, name: str, ready: str) -> None:
        """Word of a node's condition, which the caches have."""
        node = self.node(name)
        conditions = [{"type": "Ready", "status": ready}]
        status = msgspec.convert({"conditions": conditions}, type(node.status))
        self._put(NODES, msgspec.structs.replace(node, status=status))
        self.sync()

    def goes(self, name: str) -> None:
        """The Node is deleted, and its CSINode with it."""
        for resource in (NODES, CSI_NODES):
            del self.live[resource.plural, name]
        self.sync()

    def sync(self) -> None:
        """The caches have all that the API server has."""
        kinds: Any = {
            NODES.plural: self.caches.nodes,
            CSI_NODES.plural: self.caches.csi_nodes,
            ATTACHMENTS.plural: self.caches.attachments,
        }
        for plural, informer in kinds.items():
            here = {name: found for (kind, name), found in self.live.items() if kind == plural}
            for name in {each.name for each in informer.values()} - here.keys():
                informer._store.remove(name, str(next(self._versions)))
            for found in here.values():
                informer._store.apply(found)

    def changes(self, attachment: str) -> None:
        """Somebody writes to an attachment, which the caches do not have yet."""
        self._put(ATTACHMENTS, self.live[ATTACHMENTS.plural, attachment])

    def node(self, name: str = "node-1") -> Node:
        return cast("Node", self.live[NODES.plural, name])

    def attachments(self) -> set[str]:
        return {name for kind, name in self.live if kind == ATTACHMENTS.plural}

    # -- the API server

    async def get(self, resource: Any, name: str, _: str = "") -> Any:
        if (resource.plural, name) not in self.live:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return self.live[resource.plural, name]

    async def list(self, resource: Any, *, field_selector: str) -> Listing[Any]:
        assert resource is PODS
        self.lists.append(field_selector)
        found = self.pods.get(field_selector.removeprefix("spec.nodeName="), [])
        return Listing(items=list(found), resource_version="1", unreadable_keys=())

    async def patch(self, resource: Any, name: str, body: Any, *, kind: Patch) -> Any:
        assert (resource, kind) == (NODES, Patch.JSON)
        self.sent.append(("patch", name))
        self.bodies.append(body)
        if name in self.refused:
            raise KubeError(Reason.REJECTED, f"an admission webhook says no to {name}", status=400)
        found = await self.get(resource, name)
        try:
            changed = applied(msgspec.to_builtins(found), body)
        except MismatchError as error:
            raise KubeError(Reason.REJECTED, f"the patch failed: {error}", status=422) from error
        written = self._put(resource, msgspec.convert(changed, Node))
        if self.dies_after_a_write:
            raise SystemExit
        if self.loses_replies:
            raise KubeError(Reason.REPLY_LOST, "lost", outcome=Outcome.UNKNOWN)
        return written

    async def delete(self, resource: Any, name: str, *, uid: str, resource_version: str) -> None:
        self.sent.append(("delete", name))
        if name in self.refused:
            raise KubeError(Reason.PERMISSION_DENIED, f"no right to delete {name}", status=403)
        metadata = (await self.get(resource, name)).metadata
        if (uid, resource_version) != (metadata.uid, metadata.resource_version):
            raise KubeError(Reason.CONFLICT, f"{name} is another one")
        del self.live[resource.plural, name]

    def _put(self, resource: Any, found: Any) -> Any:
        version = str(next(self._versions))
        metadata = msgspec.structs.replace(found.metadata, resource_version=version)
        written = msgspec.structs.replace(found, metadata=metadata)
        self.live[resource.plural, found.name] = written
        return written


@dataclass
class EdgesOf:
    """Those services that dead nodes are looked after through."""

    settings: Settings
    client: Any
    caches: Caches
    instances: Any
    events: Any
    node_writes: NodeWrites


def told(story: Callable[[DeadWorld], Awaitable[T]], *, enabled: bool = True) -> T:
    """Run a story in virtual time with somebody who looks after dead nodes."""

    async def whole(_: Clock) -> T:
        world = DeadWorld(enabled=enabled)
        running = asyncio.create_task(world.dead_nodes.run())
        try:
            return await story(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return in_virtual_time(whole)
