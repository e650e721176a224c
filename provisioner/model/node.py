"""Nodes, and the driver's registration on them (CSINode)."""

import re

import msgspec
from msgspec import structs

from provisioner.model.meta import KubeObject, ObjectMeta
from provisioner.model.names import OUR_PREFIX
from provisioner.model.taint import CORDONED, Taint
from provisioner.model.zone import Place, place_of

TYPE_LABEL = "node.kubernetes.io/instance-type"
HOSTNAME_LABEL = "kubernetes.io/hostname"
_READY = "Ready"
_NODE_KIND = "Node"
# aws:///us-east-1a/i-0123 of a cloud controller; some leave out the zone or the cloud.
_INSTANCE_ID = re.compile(r"(?:^|/)(i-[0-9a-f]+)$")


class NodeSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None
    provider_id: str = msgspec.field(default="", name="providerID")

    @property
    def instance_id(self) -> str:
        """The EC2 instance that ``providerID`` names, "" if it names none."""
        found = _INSTANCE_ID.search(self.provider_id)
        return found[1] if found else ""


class NodeCondition(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``status.conditions``; ``status`` is True, False or Unknown."""

    type: str = ""
    status: str = ""


class NodeAddress(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``status.addresses``, such as InternalIP 10.0.0.1."""

    type: str = ""
    address: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a node."""

    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None


class NodeMeta(ObjectMeta, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` of a node, whose UID its CSINode names."""


class Node(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Node."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def as_cached(self) -> "Node":
        """The node without what nobody asks for.

        Of its annotations ours are left, of its conditions Ready. Its addresses are asked for while
        it does not name its instance. All of its labels stay: a pod may select nodes by any, and so
        may the node affinity of a persistent volume.
        """
        annotations = self.metadata.annotations
        if annotations:
            # Empty where others had some: a patch must not take their place (``node_patch_rules``).
            annotations = {k: text for k, text in annotations.items() if k.startswith(OUR_PREFIX)}
        conditions = [each for each in self.status.conditions or () if each.type == _READY]
        addresses = None if self.instance_id else self.status.addresses
        return structs.replace(
            self,
            metadata=structs.replace(self.metadata, annotations=annotations),
            status=NodeStatus(conditions=conditions, addresses=addresses),
        )

    @property
    def ready(self) -> str:
        """``status`` of its condition Ready: True, False, or Unknown; "" while it has none."""
        conditions = self.status.conditions or ()
        return next((each.status for each in conditions if each.type == _READY), "")

    @property
    def instance_id(self) -> str:
        """The EC2 instance that ``spec.providerID`` names, "" if it names none."""
        return self.spec.instance_id

    @property
    def taints(self) -> list[Taint]:
        """``spec.taints``, and that of a cordoned node, which may be late."""
        return [*(self.spec.taints or ()), *((CORDONED,) if self.spec.unschedulable else ())]


class Allocatable(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``allocatable`` of a driver: how many of its volumes fit, if that is known."""

    count: int | None = None


class CsiNodeDriver(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One driver of a CSINode."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    allocatable: Allocatable | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it says how many volumes fit; until then the scheduler sets no limit."""
        return self.allocatable is not None and self.allocatable.count is not None


class Owner(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``metadata.ownerReferences``: of any kind, and with any name that is not empty."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class OwnedMeta(ObjectMeta, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` with the owners, which few questions need."""

    owner_references: list[Owner] | None = None


class CsiNodeSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a CSINode."""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A CSINode: what kubelet knows of the drivers on its node.

    Attributes:
        kept_node_uid: as of ``as_cached``; the API server stores no such field.
    """

    metadata: OwnedMeta = OwnedMeta()
    spec: CsiNodeSpec = CsiNodeSpec()
    kept_node_uid: str = ""

    def as_cached(self, driver: str) -> "CsiNode":
        """The CSINode without what nobody asks for: its node's UID and our driver are left."""
        owners = [each for each in self.metadata.owner_references or () if each.kind == _NODE_KIND]
        is_one = len(owners) == 1  # kubelet writes no other
        own = self.driver(driver)
        return CsiNode(
            metadata=OwnedMeta(
                name=self.name,
                resource_version=self.metadata.resource_version,
                deletion_timestamp=self.metadata.deletion_timestamp,
                owner_references=None if is_one else owners,
            ),
            spec=CsiNodeSpec(drivers=[own] if own is not None else None),
            kept_node_uid=owners[0].uid if is_one else self.kept_node_uid,
        )

    def is_of(self, node: Node) -> bool:
        """Whether kubelet wrote it for this very node, and not for one that had its name before."""
        if self.kept_node_uid:
            return self.kept_node_uid == node.uid
        owners = self.metadata.owner_references or ()
        return any(each.kind == _NODE_KIND and each.uid == node.uid for each in owners)

    def driver(self, name: str) -> CsiNodeDriver | None:
        """The registration of one driver, None when it is not registered."""
        for driver in self.spec.drivers or ():
            if driver.name == name:
                return driver
        return None

    def instances(self, name: str) -> tuple[str, ...]:
        """The instance as which one driver is registered; none when it is not registered."""
        driver = self.driver(name)
        return (driver.node_id,) if driver is not None else ()


def registered_place(node: Node | None, csi_node: CsiNode | None, driver: str) -> Place | None:
    """Where volumes for a node have to be; None without its zone, or without the driver on it."""
    if node is None or csi_node is None or csi_node.driver(driver) is None:
        return None
    return place_of(node.labels)
