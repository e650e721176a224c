"""Taints of nodes and what pods tolerate.

Source: Kubernetes 1.36 API reference, core/v1 Taint and Toleration; component-helpers
scheduling/corev1.
"""

from collections.abc import Iterable

import msgspec

# Effects that keep a pod away; PreferNoSchedule only makes a node less liked.
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_EQUAL = ("", "Equal")


class Taint(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True
):
    """One of ``spec.taints`` of a node.

    ``time_added`` as the API server has it: NoExecute counts tolerationSeconds from then on,
    so it must be kept when the list is written back.
    """

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None

    @property
    def words(self) -> str:
        """As kubectl writes it: ``dedicated=database:NoSchedule``."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


class Toleration(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``spec.tolerations`` of a pod."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def covers(self, taint: Taint) -> bool:
        """Whether a pod with it may come to a node with this taint.

        Comparing numbers (operators Gt and Lt) counts as no: it is behind a gate, and no volume is
        made where its pod may not come.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        same = (self.value or "") == taint.value
        return bool(self.key) and (self.operator or "") in _EQUAL and same


# What kubelet and the node lifecycle controller say of a cordoned node; its taint may be late.
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

# Who adds it says that nothing runs on the node any more: its pods are removed and its volumes
# detached without waiting for its kubelet. Source: Kubernetes documentation, "Node Shutdowns".
OUT_OF_SERVICE = Taint(
    key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute"
)


def keeps_away(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint because of which a pod cannot come to a node, None if it can."""
    tolerated = list(tolerations)
    for taint in taints:
        if taint.effect in _KEEPS_AWAY and not any(each.covers(taint) for each in tolerated):
            return taint
    return None
