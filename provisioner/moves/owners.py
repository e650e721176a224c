"""Read who makes the pods of a claim, for those who stop them by hand."""

from provisioner.inspect.reading.cluster import Cluster
from provisioner.model.volume_move import VolumeMove
from provisioner.moves import owner_rules as rules
from provisioner.moves.kinds import DEPLOYMENTS, OWNED_PODS, REPLICA_SETS, STATEFUL_SETS
from provisioner.moves.owner_rules import Owner


async def how_to_stop(cluster: Cluster, move: VolumeMove) -> list[str]:
    """Commands for the pods of a plan; none if the move stops them itself.

    What may not be read is a gap of the cluster, and left out.
    """
    plan, namespace = move.told.plan, move.metadata.namespace
    if plan is None or move.stops_pods:
        return []
    owners: dict[tuple[str, str], Owner] = {}
    for name in plan.pods:
        found = await _owner(cluster, name, namespace)
        if found is not None:
            owners[found.kind, found.name] = found
    return list(rules.how_to_stop(owners.values(), namespace))


async def _owner(cluster: Cluster, pod: str, namespace: str) -> Owner | None:
    """What makes a pod, or the pod itself; None if it is gone, or cannot be read."""
    found = await cluster.one(OWNED_PODS, pod, namespace)
    if found is None:
        return None
    by = rules.controller_of(found)
    if by.get("kind") == "ReplicaSet":
        between = await cluster.one(REPLICA_SETS, str(by["name"]), namespace)
        by = (rules.controller_of(between) if between is not None else {}) or by
    if not by:
        return Owner(rules.POD, pod)
    kind, name = str(by["kind"]), str(by["name"])
    resource = {"StatefulSet": STATEFUL_SETS, "Deployment": DEPLOYMENTS}.get(kind)
    whole = await cluster.one(resource, name, namespace) if resource is not None else None
    return rules.owner(whole, kind) if whole is not None else Owner(kind, name)
