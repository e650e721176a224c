"""Builders of what says where pods can run: pods, nodes and volumes with an affinity."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.placement.failover_rules import NO_REFUSALS, Moved, for_any_node
from provisioner.controller.placement.zone_rules import NoZone, candidates
from provisioner.model.meta import ObjectMeta
from provisioner.model.node import Node
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.pod import Pod
from provisioner.model.zone import ZONE_LABEL, Place
from tests.builders import DELETED_AT, ZONE


def a_pod(
    name: str = "web",
    *claims: str,
    node: str = "",
    selector: dict[str, str] | None = None,
    required: list[dict[str, Any]] | None = None,
    tolerations: list[dict[str, str]] | None = None,
    deleting: bool = False,
) -> Pod:
    """A pending pod of namespace "shop" that uses claims, "data" if none are named."""
    terms = {"nodeSelectorTerms": required}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    uses = [{"persistentVolumeClaim": {"claimName": claim}} for claim in claims or ("data",)]
    document = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-of-{name}",
            "resourceVersion": "5",
            "deletionTimestamp": DELETED_AT if deleting else None,
        },
        "spec": {
            "nodeName": node or None,
            "nodeSelector": selector,
            "affinity": affinity if required else None,
            "tolerations": tolerations,
            "volumes": uses,
        },
    }
    return msgspec.convert(document, Pod)


def labelled(node: Node, **labels: str) -> Node:
    """The node with more labels."""
    metadata = msgspec.structs.replace(node.metadata, labels={**node.labels, **labels})
    return msgspec.structs.replace(node, metadata=metadata)


def tainted(node: Node, key: str, *, cordoned: bool = False) -> Node:
    """The node with a taint (NoSchedule), or cordoned."""
    spec = {"unschedulable": cordoned, "taints": [{"key": key, "effect": "NoSchedule"}]}
    return msgspec.structs.replace(node, spec=msgspec.convert(spec, type(node.spec)))


def a_placed_volume(name: str = "pv-of-logs", zone: str = ZONE) -> PlacedVolume:
    """A persistent volume that can only be used in a zone."""
    term = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    found = msgspec.convert({"spec": spec}, PlacedVolume)
    return msgspec.structs.replace(found, metadata=ObjectMeta(name=name))


def zone_at_once(
    read_class: ReadClass,
    claim_name: str,
    registered: Collection[Place],
    zone_names: Mapping[str, str] | None = None,
) -> Place | NoZone:
    """The zone of a claim that binds at once, which no pod uses and no zone has refused."""
    found = candidates(read_class, registered, zone_names)
    where = found if isinstance(found, NoZone) else for_any_node(found, claim_name, NO_REFUSALS, {})
    assert not isinstance(where, Moved)
    return where
