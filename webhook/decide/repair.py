"""What a persistent volume that already exists lacks.

The rule is the one of creation, as far as Kubernetes still allows it: labels can be written at any
time, a node affinity only while there is none, and a wrong one only be told about.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from provisioner.model.zone import ZONE_LABEL
from webhook.decide import affinity, labels
from webhook.decide.documents import inside
from webhook.decide.nodes import unmet
from webhook.decide.persistent_volume import labels_of
from webhook.model.review import Json
from webhook.model.views import NodeView


@dataclass(frozen=True, slots=True)
class Repair:
    """What is to be done about one persistent volume; false when that is nothing.

    Attributes:
        labels: to write, the missing ones and those that were wrong; None takes one away.
        node_affinity: to set as ``spec.nodeAffinity``; None to leave it as it is.
        warning: the message of a Warning event; "" for none.
        resource_version: of the object that was looked at.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    node_affinity: Json | None = None
    warning: str = ""
    resource_version: str = ""

    def __bool__(self) -> bool:
        return bool(self.labels or self.node_affinity or self.warning)

    @property
    def merge_patch(self) -> Json | None:
        """The body of a merge patch; None when there is nothing to write.

        It is refused as a conflict when the object has changed or is another of the same name.
        """
        if not self.labels and self.node_affinity is None:
            return None
        body: Json = {"metadata": {"resourceVersion": self.resource_version}}
        if self.labels:
            body["metadata"]["labels"] = dict(self.labels)
        if self.node_affinity is not None:
            body["spec"] = {"nodeAffinity": self.node_affinity}
        return body


def lacking(
    persistent_volume: Json,
    volume_id: str,
    zone: str,
    writable: Mapping[str, str],
    key: str = ZONE_LABEL,
    *,
    nodes: Collection[NodeView] = (),
) -> Repair:
    """What it takes until a persistent volume says where its volume is.

    Args:
        persistent_volume: as the API server has it, one for which ``source_of`` found something.
        volume_id: that volume.
        zone: where EC2 has it.
        writable: ``labels.writable`` of that zone.
        key: ``labels.zone_key`` of that zone.
        nodes: ``nodes.running_driver_in`` that zone.
    """
    if inside(persistent_volume, "metadata", "deletionTimestamp") is not None:
        return Repair()
    written = labels_of(persistent_volume)
    bare = inside(persistent_volume, "spec", "nodeAffinity") is None
    return Repair(
        labels={
            **labels.missing(written, writable),
            **labels.corrected(written, zone, writable, nodes),
        },
        node_affinity=affinity.affinity_of(zone, key) if bare else None,
        warning=_warning(persistent_volume, volume_id, zone, nodes),
        resource_version=inside(persistent_volume, "metadata", "resourceVersion") or "",
    )


def fought_over(keys: Iterable[str], zone: str) -> str:
    """The message of a Warning event about labels that somebody else undoes."""
    return (
        f"the volume is in {zone}, and something else keeps changing {' and '.join(sorted(keys))}, "
        "which ebs-webhook has corrected before: find it by metadata.managedFields and have it "
        "leave these labels out; they are corrected more and more seldom, at last once an hour"
    )


def _warning(
    persistent_volume: Json, volume_id: str, zone: str, nodes: Collection[NodeView]
) -> str:
    terms = affinity.terms_in(persistent_volume)
    others = affinity.elsewhere(terms, zone, nodes)
    if affinity.excludes(terms, zone, nodes):
        wrong = f"{affinity.verdict(terms, zone)}, so no pod can mount it"
    elif others:
        wrong = f"also allows {affinity.listed(others)}, where no pod can mount it"
    elif why := unmet(terms, nodes):
        wrong = f"{why}, so no pod can mount it"
    else:
        return ""
    return (
        f"volume {volume_id} is in {zone}, but spec.nodeAffinity {wrong}, and Kubernetes never lets"
        " it be changed: set persistentVolumeReclaimPolicy to Retain, delete the claim and this "
        f"persistentvolume, and create both again with zone {zone} or without nodeAffinity"
    )
