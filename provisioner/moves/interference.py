"""Read who makes the pods of a claim, and the quotas of its namespace."""

from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.inspect.reading.cluster import Cluster
from provisioner.model.volume_move import VolumeMove
from provisioner.moves import interference_rules as rules
from provisioner.moves.interference_rules import Owner
from provisioner.moves.kinds import (
    DEPLOYMENTS,
    OWNED_PODS,
    QUOTAS,
    REPLICA_SETS,
    STATEFUL_SETS,
)


@dataclass(frozen=True, slots=True)
class Around:
    """What is around a claim: how its pods are stopped, and who would interfere."""

    stops: Sequence[str] = ()
    interferes: Sequence[str] = ()


async def look_around(cluster: Cluster, move: VolumeMove) -> Around:
    """What a plan does not know. What may not be read is a gap of the cluster, and left out."""
    plan, namespace = move.told.plan, move.metadata.namespace
    if plan is None:
        return Around()
    owners: dict[tuple[str, str], Owner] = {}
    for name in plan.pods:
        found = await _owner(cluster, name, namespace)
        if found is not None:
            owners[found.kind, found.name] = found
    quotas = await cluster.every(QUOTAS, namespace=namespace)
    return Around(
        stops=list(rules.how_to_stop(owners.values(), namespace)),
        interferes=[*rules.of_owners(owners.values()), *rules.of_quotas(quotas, plan)],
    )


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
