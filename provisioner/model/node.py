"""Nodes, and the driver's registration on them (CSINode)."""

import msgspec

from provisioner.model.meta import KubeObject
from provisioner.model.taint import CORDONED, Taint


class NodeSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class Node(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Node."""

    spec: NodeSpec = NodeSpec()

    @property
    def taints(self) -> list[Taint]:
        """``spec.taints``, and that of a cordoned node, which may be late."""
        return [*(self.spec.taints or ()), *((CORDONED,) if self.spec.unschedulable else ())]


class CsiNodeDriver(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One driver of a CSINode."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")


class CsiNodeSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a CSINode."""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A CSINode: what kubelet knows of the drivers on its node."""

    spec: CsiNodeSpec = CsiNodeSpec()

    def driver(self, name: str) -> CsiNodeDriver | None:
        """The registration of one driver, None when it is not registered."""
        for driver in self.spec.drivers or ():
            if driver.name == name:
                return driver
        return None
