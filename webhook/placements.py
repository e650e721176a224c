"""All that says where a persistent volume's pods may run, and little else of it.

Thousands of persistent volumes have the same few placements, so each is kept once, as the document
that the rules judge: whether something is to be done about 10,000 of them is told without asking
the API server for one.
"""

from functools import lru_cache
from typing import Any

import msgspec

from provisioner.kube.resources import Projection, Resource
from provisioner.model.meta import KubeObject, ObjectMeta
from provisioner.model.node_affinity import labels_in, zones_named
from webhook.decide import repair
from webhook.decide.affinity import terms_in
from webhook.decide.persistent_volume import Found, source_of
from webhook.model.review import Json

# The keys that tell a zone or a Region; which zone they are asked for does not matter.
_KEYS = frozenset(labels_in("us-east-1a"))
_KNOWN = 4096
_encode = msgspec.json.Encoder(order="deterministic").encode


class Whole(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A persistent volume with all of its ``spec``, as the rules take it."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def document(self) -> Json:
        """What the rules look at."""
        meta = self.metadata
        return {
            "metadata": {
                "name": meta.name,
                "labels": meta.labels,
                "resourceVersion": meta.resource_version,
                "deletionTimestamp": meta.deletion_timestamp,
            },
            "spec": self.spec,
        }


WHOLE = Resource("", "v1", "persistentvolumes", "PersistentVolume", Whole)


class Placed(KubeObject, frozen=True, gc=False, kw_only=True):
    """What is kept of a persistent volume on EBS.

    Attributes:
        volume_id: the volume.
        placement: its labels of zone and Region and its node affinity, as JSON.
    """

    volume_id: str
    placement: bytes


def placements(driver: str) -> Projection[Placed]:
    """The persistent volumes on EBS that are not being deleted."""

    def keep(found: Whole) -> Placed | None:
        source = source_of(found.document, driver)
        if source is None or not source.well_formed or found.deleting:
            return None
        labels = {key: value for key, value in found.labels.items() if key in _KEYS}
        placement = {
            "metadata": {"labels": labels},
            "spec": {"nodeAffinity": found.spec.get("nodeAffinity")},
        }
        return Placed(
            metadata=ObjectMeta(name=found.name, resource_version=found.metadata.resource_version),
            volume_id=source.volume_id,
            placement=_same(_encode(placement)),
        )

    return Projection(WHOLE, keep)


@lru_cache(maxsize=_KNOWN)
def needs_repair(
    placement: bytes, place: Found, writable: tuple[tuple[str, str], ...], keys: tuple[str, ...]
) -> bool:
    """Whether anything is to be done about volumes there that are placed so.

    Args:
        placement: of a ``Placed``.
        place: where EC2 has them.
        writable: ``labels.writable`` of that zone, as items.
        keys: ``labels.zone_keys`` of that zone.
    """
    return bool(repair.lacking(msgspec.json.decode(placement), "", place, dict(writable), keys))


@lru_cache(maxsize=_KNOWN)
def own_place(placement: bytes) -> Found | None:
    """The one zone that the affinity names; None if it is not one."""
    zones = list(zones_named(terms_in(msgspec.json.decode(placement))) or ())
    return Found(zones[0]) if len(zones) == 1 and zones[0] else None


@lru_cache(maxsize=_KNOWN)
def _same(placement: bytes) -> bytes:
    return placement
