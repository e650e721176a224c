"""A look at the cluster that the user names, before anything is made in it."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.conformance.cluster import steps
from provisioner.conformance.cluster.kinds import (
    CLAIMS,
    CLASSES,
    CONTENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    SNAPSHOT_CLASSES,
    SNAPSHOTS,
)
from provisioner.conformance.journal import InCluster
from provisioner.conformance.probe import CannotRunError
from provisioner.kube.client import KubeClient
from provisioner.kube.lease import LEASES
from provisioner.kube.resources import (
    ACCESS_REVIEWS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    Resource,
)
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import KubeError
from provisioner.model.node import Node
from provisioner.model.persistent_volume import sanitised
from provisioner.model.zone import ZONE_LABEL

_HOST = "kubernetes.io/hostname"
_LEASE = f"external-attacher-leader-{sanitised(EBS_DRIVER)}"
_OURS = "ebs-provisioner_"
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_UID_OF = "kube-system"
USED = "2 volumes of 1 GiB, one of which grows to 2 GiB before the other is made, and a snapshot"

Right = tuple[str, Resource[Any], bool]
"""A verb, a kind, and whether it is needed within the run's namespace."""

_RIGHTS: Sequence[Right] = (
    *(("create", kind, False) for kind in (NAMESPACES, CLASSES)),
    *((verb, kind, False) for verb in ("delete", "get") for kind in (NAMESPACES, CLASSES)),
    *(("list", kind, False) for kind in (NAMESPACES, PERSISTENT_VOLUMES)),
    *((verb, PODS, True) for verb in ("create", "get", "list", "delete")),
    *((verb, CLAIMS, True) for verb in ("create", "get", "patch", "delete")),
    ("list", EVENTS, True),
)
_SNAPSHOT_RIGHTS: Sequence[Right] = (
    *((verb, SNAPSHOT_CLASSES, False) for verb in ("create", "delete", "get")),
    ("list", CONTENTS, False),
    *((verb, SNAPSHOTS, True) for verb in ("create", "get", "delete")),
)


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is.

    Attributes:
        uid: of the namespace kube-system, which tells clusters apart.
        nodes: one or two of one zone, that take pods and have the driver.
        zone: of them.
        why_not: the steps that cannot be done here, with the reason.
        snapshots: whether snapshots are served, and may be made.
    """

    uid: str
    nodes: tuple[Node, ...]
    zone: str
    why_not: Mapping[str, str]
    snapshots: bool

    @property
    def here(self) -> Mapping[str, str]:
        """The label of the first node."""
        return _label(self.nodes[0])

    @property
    def there(self) -> Mapping[str, str]:
        """That of the other one, or of the only one."""
        return _label(self.nodes[-1])


def _label(node: Node) -> Mapping[str, str]:
    return {_HOST: node.labels.get(_HOST, node.name)}


def lines(cluster: InCluster, seen: Survey, namespace: str) -> list[str]:
    """What is going to be done in the cluster, as the plan prints it."""
    nodes = " and ".join(node.name for node in seen.nodes)
    made = (
        f"In the cluster of the context {cluster.context} ({cluster.kubeconfig}): the namespace "
        f"{namespace} and classes of that name, pods of the image {cluster.image} on {nodes} in "
        f"{seen.zone}, {USED}."
    )
    return [made] + [f"Not done there: {name}: {why}." for name, why in seen.why_not.items()]


async def survey(client: KubeClient, namespace: str) -> Survey:
    """Look; makes nothing.

    Raises:
        CannotRunError: the steps cannot be done in this cluster; one sentence.
    """
    try:
        return await _survey(client, namespace)
    except KubeError as failure:
        raise CannotRunError(f"the cluster: {failure.message}") from failure


async def uid_of(client: KubeClient) -> str:
    """What tells a cluster from all others.

    Raises:
        CannotRunError: it does not say.
    """
    try:
        return (await client.get(NAMESPACES, _UID_OF)).uid
    except KubeError as failure:
        raise CannotRunError(f"the cluster: {failure.message}") from failure


async def _survey(client: KubeClient, namespace: str) -> Survey:
    served = await client.served()
    if missing := await _missing(client, _RIGHTS, namespace):
        raise CannotRunError(f"the steps in the cluster need more rights: {missing}")
    await _is_ours(client)
    zone, nodes = _chosen(await _usable(client))
    why_not: dict[str, str] = {}
    if len(nodes) == 1:
        why_not[steps.MOVE.name] = (
            f"it needs two nodes in one zone that take pods and have the driver: there is only "
            f"{nodes[0].name} in {zone}"
        )
    if why := await _no_snapshots(client, served, namespace):
        why_not |= dict.fromkeys((steps.SNAPSHOT.name, steps.RESTORE.name), why)
    return Survey(await uid_of(client), nodes, zone, why_not, not why)


async def _is_ours(client: KubeClient) -> None:
    """Whether our controller leads: the stock driver's leases have the same names.

    Raises:
        CannotRunError: it does not.
    """
    found = await client.list(LEASES, field_selector=f"metadata.name={_LEASE}")
    holders = {each.key: each.spec.holder_identity or "" for each in found.items}
    if not any(holder.startswith(_OURS) for holder in holders.values()):
        others = ", ".join(f"{key} is held by {who or 'nobody'}" for key, who in holders.items())
        said = others or f"there is no lease {_LEASE}"
        raise CannotRunError(
            f"no controller of ours leads in this cluster ({said}): install it first, or wait "
            "until it leads"
        )


async def _usable(client: KubeClient) -> list[Node]:
    """Nodes that take pods and have the driver.

    Raises:
        CannotRunError: there is none.
    """
    drivers = {
        each.name
        for each in (await client.list(CSI_NODES)).items
        if each.driver(EBS_DRIVER) is not None
    }
    nodes = [node for node in (await client.list(NODES)).items if node.name in drivers]
    if not nodes:
        raise CannotRunError(
            f"no node of this cluster has the driver {EBS_DRIVER} (by its CSINode): install the "
            "node plugin first"
        )
    usable = [node for node in nodes if _takes_pods(node)]
    if not usable:
        raise CannotRunError(
            f"no node with the driver {EBS_DRIVER} takes pods: each is not ready, is cordoned, or "
            "has a taint"
        )
    return usable


def _takes_pods(node: Node) -> bool:
    tainted = any(taint.effect in _KEEPS_AWAY for taint in node.taints)
    return node.ready == "True" and not tainted and not node.deleting


def _chosen(nodes: Iterable[Node]) -> tuple[str, tuple[Node, ...]]:
    """A zone with two of the nodes if there is one, and these."""
    by_zone: dict[str, list[Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda each: each.name):
        by_zone[node.labels.get(ZONE_LABEL, "")].append(node)
    zone = min(by_zone, key=lambda each: (-min(len(by_zone[each]), 2), each))
    return zone, tuple(by_zone[zone][:2])


async def _no_snapshots(
    client: KubeClient, served: frozenset[tuple[str, str]], namespace: str
) -> str:
    """Why no snapshots can be made, "" if they can."""
    wanted = (SNAPSHOTS, CONTENTS, SNAPSHOT_CLASSES)
    if any((each.api_version, each.plural) not in served for each in wanted):
        return "this cluster does not serve VolumeSnapshots: their CRDs are not installed"
    if missing := await _missing(client, _SNAPSHOT_RIGHTS, namespace):
        return f"it needs more rights in the cluster: {missing}"
    return ""


async def _missing(client: KubeClient, rights: Iterable[Right], namespace: str) -> str:
    async def lacks(right: Right) -> str:
        verb, kind, inside = right
        asked = {
            "verb": verb,
            "group": kind.group,
            "resource": kind.plural,
            "namespace": namespace if inside else "",
        }
        body = {"spec": {"resourceAttributes": asked}}
        review = await client.create(ACCESS_REVIEWS, body)
        return "" if review.status.allowed else f"{verb} {kind.plural}"

    found = await asyncio.gather(*map(lacks, rights))
    return ", ".join(each for each in found if each)
