"""Persistent volumes with the node affinity that says where they can be used.

Apart from ``PersistentVolume``: thousands of those are kept, and most questions need no affinity.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from provisioner.model.node_affinity import zones_named
from provisioner.model.persistent_volume import PersistentVolume, PersistentVolumeSpec
from provisioner.model.zone import BETA_ZONE_LABEL, ZONE_LABEL

Json = dict[str, Any]

# Source: Kubernetes 1.36 k8s.io/component-helpers/node/topology (LabelMultiZoneDelimiter).
_ZONES_APART = "__"


class Required(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``required`` of a node affinity; its terms as they are."""

    node_selector_terms: list[Json] | None = None


class Affinity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.nodeAffinity`` of a persistent volume."""

    required: Required | None = None


class PlacedSpec(PersistentVolumeSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a persistent volume, its node affinity included."""

    node_affinity: Affinity | None = None


class PlacedVolume(PersistentVolume, frozen=True, rename="camel", gc=False, kw_only=True):
    """A persistent volume, its node affinity included."""

    spec: PlacedSpec = PlacedSpec()

    @property
    def terms(self) -> Sequence[Json]:
        """The terms of its required node affinity, empty when there is none."""
        affinity = self.spec.node_affinity
        required = affinity.required if affinity else None
        return (required.node_selector_terms if required else None) or ()

    @property
    def labelled_zones(self) -> frozenset[str]:
        """The zones that its label tells, empty without one."""
        label = self.labels.get(ZONE_LABEL) or self.labels.get(BETA_ZONE_LABEL) or ""
        return frozenset(zone for zone in label.split(_ZONES_APART) if zone)

    @property
    def zones(self) -> frozenset[str] | None:
        """The zones of its node affinity, else of its label; None when neither tells any."""
        named = zones_named(self.terms)
        return self.labelled_zones or None if named is None else named
