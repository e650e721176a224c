"""What is read of the cluster's objects, and how little of it is kept.

The decoded structs live as long as a page of a list or a line of a watch; what stays is a view of
``webhook.model.views`` with the object's name and version. Views that many objects share are kept
once.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

from provisioner.decide.storage_class import read
from provisioner.kube.resources import (
    CLAIMS,
    CSI_NODES,
    NODES,
    PLACED_VOLUMES,
    STORAGE_CLASSES,
    Projection,
    Resource,
)
from provisioner.model.claim import Claim
from provisioner.model.driver import AUTO_MODE_DRIVER
from provisioner.model.meta import KubeObject, ObjectMeta
from provisioner.model.node import CsiNode, Node
from provisioner.model.node_affinity import names_zone, zones_named
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import ZONE_KEYS, allowed_zones
from webhook.model.views import ClaimView, ClassView, NodeView, VolumeView, Zones

V = TypeVar("V")

_TOPOLOGY = ("topology.", "failure-domain.beta.kubernetes.io/")


class Kept(KubeObject, Generic[V], frozen=True, gc=False, kw_only=True):
    """A view, under its object's name and version."""

    view: V


def claims() -> Projection[Kept[ClaimView]]:
    """Every claim."""
    return _projection(CLAIMS, claim_view)


def volumes(driver: str) -> Projection[Kept[VolumeView]]:
    """The persistent volumes on EBS, nothing of others."""
    return _projection(PLACED_VOLUMES, lambda volume: volume_view(volume, driver))


def classes(driver: str) -> Projection[Kept[ClassView]]:
    """The classes of EBS volumes, nothing of others."""
    return _projection(STORAGE_CLASSES, lambda found: class_view(found, driver))


def nodes() -> Projection[Kept[NodeView]]:
    """Every node, as if it lacked the driver: that is told by CSINodes."""
    return _projection(NODES, lambda node: node_view(node, has_driver=False))


def registrations(driver: str) -> Projection[Kept[bool]]:
    """The nodes on which the driver is registered."""
    return _projection(CSI_NODES, lambda found: has_driver(found, driver) or None)


def claim_view(claim: Claim) -> ClaimView:
    """What counts of a claim.

    Nothing of one that is being deleted, a new one may take its name; and nothing of one that only
    asks for a persistent volume by name: that may be another claim's, or another tenant's. That it
    is bound anybody can write: ``Readings.volume_of`` holds it against the persistent volume.
    """
    if claim.deleting or (claim.spec.volume_name and not claim.is_bound):
        return ClaimView("", "")
    # Only a bound one is held against a persistent volume.
    return ClaimView(
        claim.spec.volume_name, claim.class_name, claim.uid if claim.spec.volume_name else ""
    )


def volume_view(volume: PlacedVolume, driver: str) -> VolumeView | None:
    """What counts of a persistent volume; None if it is not on EBS.

    One that is being deleted says nothing of zones: another may take its name.
    """
    # Of Auto Mode's it is only read where they are, for pods that use both.
    volume_id = volume.volume_id(driver) or volume.volume_id(AUTO_MODE_DRIVER)
    if not volume_id:
        return None
    holder = volume.spec.claim_ref
    return VolumeView(
        volume_id,
        _shared(_proved_zones(volume)),
        sys.intern(holder.namespace) if holder else "",
        holder.uid if holder else "",
    )


def class_view(found: StorageClass, driver: str) -> ClassView | None:
    """What counts of a class; None if its volumes are not on EBS."""
    if not found.is_of(driver):
        return None
    try:
        terms = read(found).allowed_topologies  # an in-tree class may say them in parameters
    except ValueError:
        terms = tuple(found.allowed_topologies or ())
    zones = allowed_zones(terms)
    known = None if zones is None else _same_zones(zones)
    return ClassView(found.waits_for_consumer, known, found.clones_across_zones)


def node_view(node: Node, *, has_driver: bool) -> NodeView:
    """What counts of a node."""
    labels = {key: value for key, value in node.labels.items() if key.startswith(_TOPOLOGY)}
    return same_node(
        NodeView(
            labels=tuple(sorted(labels.items())),
            zone=_zone_of_node(labels),
            schedulable=not node.spec.unschedulable,
            has_driver=has_driver,
        )
    )


def has_driver(found: CsiNode, driver: str) -> bool:
    """Whether a driver is registered on a node."""
    return found.driver(driver) is not None


@lru_cache(maxsize=1024)
def same_node(view: NodeView) -> NodeView:
    """An equal view that is kept already, if there is one: nodes of one zone hardly differ."""
    return view


def _shared(zones: Zones | None) -> Zones | None:
    return None if zones is None else _same_zones(zones)


@lru_cache(maxsize=1024)
def _same_zones(zones: Zones) -> Zones:
    return zones


def _proved_zones(volume: PlacedVolume) -> Zones | None:
    # An in-tree one's label becomes its affinity (csi-translation-lib). Of a CSI one nothing is
    # proved by a label: VolumeZone lets nodes without zone labels pass, and so does a nodeName.
    is_labelled_only = volume.spec.csi is not None and zones_named(volume.terms) is None
    zones = None if volume.deleting or is_labelled_only else volume.zones
    return zones if zones is None or all(map(names_zone, zones)) else None


def _zone_of_node(labels: Mapping[str, str]) -> str | None:
    """The zone that a node's zone keys tell, as far as they name zones of AWS, and agree.

    A rack or a word of somebody's own under one of them says nothing.
    """
    told = {labels[key] for key in ZONE_KEYS if names_zone(labels.get(key, ""))}
    return told.pop() if len(told) == 1 else None


def _projection(resource: Resource[Any], view_of: Callable[[Any], V | None]) -> Projection[Kept[V]]:
    def keep(obj: KubeObject) -> Kept[V] | None:
        view = view_of(obj)
        if view is None:
            return None
        meta = obj.metadata
        small = ObjectMeta(
            name=meta.name, namespace=meta.namespace, resource_version=meta.resource_version
        )
        return Kept(metadata=small, view=view)

    return Projection(resource, keep)
