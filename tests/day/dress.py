"""Standing objects with all that the product leaves on those that it has made."""

from __future__ import annotations

from provisioner.model.names import INSTANCE_ID, MADE_FROM, PINNED_ZONE
from provisioner.model.node_affinity import region_of
from provisioner.model.persistent_volume import DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE
from tests.day.documents import Json

_IDENTITY = "1795494010535-9436-ebs.csi.aws.com"


def dress(claim: Json, volume: Json, zone: str) -> None:
    """A claim that was pinned to its zone, and its persistent volume; in place.

    Without this, what is old would be smaller than what is new, and a day would look like a leak.
    """
    uid = claim["metadata"]["uid"]
    claim["metadata"]["annotations"][PINNED_ZONE] = f"{zone}/{uid}"
    meta, spec = volume["metadata"], volume["spec"]
    meta["annotations"] |= {DELETION_SECRET_NAME: "", DELETION_SECRET_NAMESPACE: ""}
    meta["labels"] = {
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region_of(zone),
    }
    spec["claimRef"]["resourceVersion"] = "1"
    spec["csi"]["volumeAttributes"] = {"storage.kubernetes.io/csiProvisionerIdentity": _IDENTITY}


def dress_attachment(body: Json, instance_id: str) -> None:
    """A VolumeAttachment that was attached; in place."""
    body["status"]["attachmentMetadata"] |= {INSTANCE_ID: instance_id, MADE_FROM: "blank"}
