"""Tell whether a node of the new zone could run the pods, by the rules of fail-over."""

from collections.abc import Iterable, Sequence

from msgspec import structs

from provisioner.classes import storage_class_rules
from provisioner.controller.placement import consumer_rules
from provisioner.controller.placement.consumer_rules import Consumers
from provisioner.controller.placement.eligible_node_rules import EligibleNode
from provisioner.model.meta import ObjectMeta
from provisioner.model.node import CsiNode, Node, registered_place
from provisioner.model.pod import Pod
from provisioner.model.sentences import listed
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import zone_of


def notes(
    pods: Sequence[Pod], nodes: Iterable[tuple[Node, CsiNode | None]], zone: str, driver: str
) -> list[str]:
    """One sentence if pods have no node there: room for them, the scheduler alone knows.

    Args:
        pods: those that use the claim, also on the nodes where they are now.
        nodes: all.
        zone: of the new volume.
        driver: which a node needs.
    """
    there = [
        (node, registered_place(node, csi_node, driver))
        for node, csi_node in nodes
        if zone_of(node.labels) == zone
    ]
    eligible = sorted(
        consumer_rules.eligible_nodes(_any_class(driver), there), key=lambda each: each.node.name
    )
    kept_away = [
        (pod.name, why)
        for pod in pods
        if (why := _why_not(_unscheduled(pod), eligible, driver)) is not None
    ]
    if not kept_away:
        return []
    names, (_, why) = [name for name, _ in kept_away], kept_away[0]
    what = "pod" if len(names) == 1 else "pods"
    return [f"no node in zone {zone} could run {what} {listed(names, 'and')} now: {why}"]


def _why_not(pod: Pod, nodes: Sequence[EligibleNode], driver: str) -> str | None:
    alone, first = Consumers((pod,)), None
    for each in nodes:
        obstacle = next(consumer_rules.obstacles(alone, pod, each.place, each.node), None)
        if obstacle is None:
            return None
        first = first or obstacle
    return first or f"driver {driver} runs on none"


def _unscheduled(pod: Pod) -> Pod:
    """The pod that takes its place: without the node that the scheduler has chosen."""
    return structs.replace(pod, spec=structs.replace(pod.spec, node_name=None))


def _any_class(driver: str) -> storage_class_rules.ReadClass:
    """Of a volume that is there, no class says any more where its pods may be."""
    return storage_class_rules.read(StorageClass(metadata=ObjectMeta(), provisioner=driver))
