"""Which Region and account of AWS the cluster is in, as its own objects tell.

EC2 answers NotFound for whatever is in another Region or account: who looks there with the wrong
settings finds everything deleted and detached.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from provisioner.model.ids import is_instance_id, is_volume_id
from provisioner.model.meta import KubeObject
from provisioner.model.node import CsiNode, Node
from provisioner.model.node_affinity import REGION_LABEL, names_region, region_of
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.zone import ZONE_KEYS

# Any one of so many, the newest: of older ones EC2 may know none any more.
_ENOUGH = 100
_PROVIDER_ZONE = re.compile(r"aws:/*([a-z0-9-]+)/i-[0-9a-z]+$")
_HANDLE_ZONE = re.compile(r"aws:/*([a-z0-9-]+)/vol-[0-9a-z]+$")
_EVER = datetime(1, 1, 1, tzinfo=UTC)


def regions_of(nodes: Iterable[Node]) -> dict[str, str]:
    """The Regions of AWS that Nodes are in, each with one that says so; words of one's own not."""
    found: dict[str, str] = {}
    for node in nodes:
        zone = _zone_of_node(node)
        region = region_of(zone) if zone else node.labels.get(REGION_LABEL, "")
        if names_region(region):
            found.setdefault(region, f"Node {node.name} is in {zone or region}")
    return found


def regions_of_volumes(volumes: Iterable[PersistentVolume]) -> dict[str, str]:
    """The Regions that persistent volumes are in, each with one that says so."""
    found: dict[str, str] = {}
    for each in volumes:
        zone = _zone_of_volume(each)
        if zone:
            found.setdefault(region_of(zone), f"PersistentVolume {each.name} is in {zone}")
    return found


def instance_ids(
    nodes: Iterable[Node], registered: Callable[[str], CsiNode | None], driver: str
) -> list[str]:
    """Instances of the newest nodes; by the registration where a Node names none."""
    named = (
        (node, found)
        for node in nodes
        if is_instance_id(found := _instance_id(node, registered(node.name), driver))
    )
    return [found for _, found in heapq.nlargest(_ENOUGH, named, key=lambda each: _born(each[0]))]


def newest_volumes(volumes: Iterable[PersistentVolume], driver: str) -> list[PersistentVolume]:
    """Of the persistent volumes that name a volume's id, the newest.

    Those of many are the newest of the newest of each part.
    """
    named = (each for each in volumes if is_volume_id(each.volume_id(driver) or ""))
    return heapq.nlargest(_ENOUGH, named, key=_born)


def wrong_region(region: str, told: Mapping[str, str]) -> str:
    """Why a client of this Region, which is none of these, does not see what the cluster has."""
    says = next(iter(told.values()))
    return (
        f"EC2 would be asked in {region}, but {says}: correct --region or AWS_REGION, or set "
        "neither, so that the Region is taken from the Nodes"
    )


def wrong_account(region: str, ids: Sequence[str]) -> str:
    """What is wrong where EC2 has found none of these, which the cluster knows."""
    return (
        f"with these AWS credentials, EC2 in {region} knows none of this cluster's instances and "
        f"volumes ({len(ids)} looked up, such as {ids[0]}): give the controller an IAM role in the "
        "account of the cluster's instances"
    )


def _born(each: KubeObject) -> datetime:
    return each.metadata.creation_timestamp or _EVER


def _instance_id(node: Node, registered: CsiNode | None, driver: str) -> str:
    registration = registered.driver(driver) if registered is not None else None
    return node.instance_id or (registration.node_id if registration is not None else "")


def _zone_of_node(node: Node) -> str:
    told = _PROVIDER_ZONE.match(node.spec.provider_id)
    return _real(told[1]) if told else _labelled(node)


def _zone_of_volume(volume: PersistentVolume) -> str:
    in_tree = volume.spec.aws_elastic_block_store
    told = _HANDLE_ZONE.match(in_tree.volume_id) if in_tree is not None else None
    return _real(told[1]) if told else _labelled(volume)


def _labelled(each: KubeObject) -> str:
    return next((zone for key in ZONE_KEYS if (zone := _real(each.labels.get(key, "")))), "")


def _real(zone: str) -> str:
    """The zone, "" for a word that AWS does not use for one."""
    return zone if names_region(region_of(zone)) else ""
