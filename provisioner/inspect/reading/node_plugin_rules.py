"""DaemonSets of a node plugin, and what keeps one away from a node."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from provisioner.inspect.reading.controller_rules import ours
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.model.node import Node
from provisioner.model.node_affinity import matches, terms_of, unmet
from provisioner.model.taint import Taint, Toleration, keeps_away

_STOCK = "ebs-csi-node"  # also those that its chart adds: ebs-csi-node-windows, …
_OS_LABEL = "kubernetes.io/os"
# What the DaemonSet's controller lets all of its pods tolerate.
# Source: Kubernetes documentation, "DaemonSet", taints and tolerations (read 2026-11-24).
_ALWAYS = (
    *(Toleration(key=f"node.kubernetes.io/{each}", operator="Exists", effect="NoExecute")
      for each in ("not-ready", "unreachable")),
    *(Toleration(key=f"node.kubernetes.io/{each}", operator="Exists", effect="NoSchedule")
      for each in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")),
)  # fmt: skip
_ON_THE_HOST = Toleration(
    key="node.kubernetes.io/network-unavailable", operator="Exists", effect="NoSchedule"
)


@dataclass(frozen=True, slots=True)
class KeptAway:
    """Why a DaemonSet has no pod on a node; the first of these that holds.

    Attributes:
        plugin: the DaemonSet.
        labels: of its nodeSelector that the node does not have.
        affinity: what its required node affinity asks for and the node does not have, in words.
        taint: of the node, which it does not tolerate.
    """

    plugin: Workload
    labels: dict[str, str] = field(default_factory=dict)
    affinity: str = ""
    taint: Taint | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether the DaemonSet itself leaves the node out, by its labels."""
        return self.taint is None


def node_plugins(workloads: Iterable[Workload]) -> list[Workload]:
    """Those of this project, then those of aws-ebs-csi-driver."""
    every = [*workloads]
    mine = ours(every, "node")
    return [*mine, *(each for each in every if each.name.startswith(_STOCK) and each not in mine)]


def kept_away(plugins: Iterable[Workload], node: Node) -> KeptAway | None:
    """What keeps all of them from a node; None if there are none, or one of them may run there.

    Of several, one that is left out by a taint alone is nearest to running there, and one for
    another operating system is not meant for the node.
    """
    found = [_kept_away(each, node) for each in plugins]
    if not found or None in found:
        return None
    reasons = [each for each in found if each is not None]
    return min(reasons, key=lambda each: (each.is_chosen, _OS_LABEL in each.labels))


def _kept_away(plugin: Workload, node: Node) -> KeptAway | None:
    pods = plugin.spec.template.spec
    selected = (pods.node_selector or {}).items()
    absent = {key: value for key, value in selected if node.labels.get(key) != value}
    if absent:
        return KeptAway(plugin, labels=absent)
    terms = terms_of(pods.required_node_affinity) if pods.required_node_affinity else None
    if terms is not None and not matches(terms, node.labels, node.name):
        return KeptAway(plugin, affinity=unmet(terms, node.labels, node.name))
    tolerated = [*(pods.tolerations or ()), *_ALWAYS, *([_ON_THE_HOST] * pods.host_network)]
    taint = keeps_away(node.taints, tolerated)
    return KeptAway(plugin, taint=taint) if taint is not None else None
