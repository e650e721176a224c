"""Decide in which zone a claim's volume is made.

A claim that waits for its first consumer gets the zone of the node that the scheduler chose; any
other one gets a zone that its class allows, spread by the claim's name so that the volumes of a
StatefulSet lie side by side (``data-web-1`` and ``logs-web-1`` share a zone).
Source: external-provisioner 6.3 pkg/controller/topology.go.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from provisioner.model import zone as zones
from provisioner.model.errors import Reason
from provisioner.model.node import CsiNode, Node
from provisioner.model.storage_class import StorageClass

_FNV_OFFSET, _FNV_PRIME, _UINT32 = 2166136261, 16777619, 2**32
_ORDINAL = re.compile(r"(?P<base>.*)-(?P<ordinal>[0-9]+)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The volume is made in this zone."""

    zone: str


@dataclass(frozen=True, slots=True)
class NoZone:
    """No zone can be chosen now.

    ``choose_again``: the chosen node is of no use, the scheduler has to pick another one.
    """

    reason: Reason
    message: str
    choose_again: bool = False


def for_selected_node(
    storage_class: StorageClass,
    driver: str,
    node_name: str,
    node: Node | None,
    csi_node: CsiNode | None,
) -> Chosen | NoZone:
    """The zone of the node that the scheduler chose.

    ``node`` and ``csi_node`` are None only when the API server itself has none of that name.
    """
    if node is None or csi_node is None:
        return NoZone(
            Reason.NO_ZONE,
            f"node {node_name!r}, chosen for the claim's pod, is gone; asking for another node",
            choose_again=True,
        )
    if csi_node.driver(driver) is None:
        return NoZone(
            Reason.NO_ZONE,
            f"driver {driver} is not registered on node {node_name!r} (CSINode has no entry); "
            "is the node plugin running there?",
        )
    zone = zones.zone_of(node.labels)
    if zone is None:
        return NoZone(
            Reason.NO_ZONE,
            f"node {node_name!r} has no label {zones.ZONE_LABEL}; the cloud controller or the "
            "node plugin sets it",
        )
    allowed = zones.allowed_zones(storage_class.allowed_topologies or ())
    if allowed is not None and zone not in allowed:
        return NoZone(
            Reason.NO_ZONE,
            f"node {node_name!r} is in zone {zone}, but class {storage_class.name!r} allows "
            f"{_listed(allowed)}",
        )
    return Chosen(zone)


def for_any_node(
    storage_class: StorageClass, claim_name: str, registered_zones: Collection[str]
) -> Chosen | NoZone:
    """A zone for a claim that binds at once.

    ``registered_zones``: the zones of all nodes on which the driver is registered.
    """
    terms = storage_class.allowed_topologies or ()
    allowed = zones.allowed_zones(terms)
    if allowed is not None and not allowed:
        return NoZone(
            Reason.NO_ZONE,
            f"allowedTopologies of class {storage_class.name!r} leave no zone at all",
        )
    # The scheduler checks other keys for a claim that waits; here nobody would, and the volume
    # could come to lie where the class forbids it.
    foreign = zones.foreign_keys(terms)
    if allowed is None and foreign:
        return NoZone(
            Reason.INVALID_CLASS,
            f"allowedTopologies of class {storage_class.name!r} narrow down {', '.join(foreign)} "
            f"but name no zone; add the key {zones.ZONE_LABEL} to each term, or use "
            "volumeBindingMode WaitForFirstConsumer",
        )
    candidates = sorted(allowed if allowed is not None else set(registered_zones))
    if not candidates:
        return NoZone(
            Reason.NO_ZONE,
            "no node has the driver registered and a zone label yet, and class "
            f"{storage_class.name!r} names no zone in allowedTopologies",
        )
    return Chosen(candidates[spread(claim_name) % len(candidates)])


def spread(claim_name: str) -> int:
    """A number for a claim's name: equal names with successive ordinals give successive numbers.

    Source: external-provisioner ``getPVCNameHashAndIndexOffset``: FNV-1, 32 bits; for ``X-N`` the
    hash of X without its last ``-`` part, plus N, so that all claims of one pod agree.
    """
    found = _ORDINAL.fullmatch(claim_name)
    if found is None or int(found["ordinal"]) >= _UINT32:
        return _fnv1(claim_name)
    base = found["base"]
    return (_fnv1(base.rpartition("-")[2]) + int(found["ordinal"])) % _UINT32


def _fnv1(text: str) -> int:
    value = _FNV_OFFSET
    for byte in text.encode():
        value = value * _FNV_PRIME % _UINT32 ^ byte
    return value


def _listed(zones_: Collection[str]) -> str:
    return " or ".join(sorted(zones_)) or "none"
