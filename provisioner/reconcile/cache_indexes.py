"""By what the caches are asked besides names."""

from collections.abc import Iterable, Mapping

from provisioner.kube.store import Indexer
from provisioner.model.attachment import VOLUME_ID, Attachment
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import normalised_handle
from provisioner.model.volume_snapshot import VolumeSnapshotContent


def _volume_of(persistent_volume: PersistentVolume) -> Iterable[str]:
    volume_id = persistent_volume.named_volume
    return (volume_id,) if volume_id else ()


CLAIMS_BY: Mapping[str, Indexer[Claim]] = {
    "uid": lambda claim: (claim.uid,),
    "class": lambda claim: (claim.class_name,),
    "attributes_class": lambda claim: (claim.attributes_class_name,),
    "source": lambda claim: (claim.source_key,),
}
ATTACHMENTS_BY: Mapping[str, Indexer[Attachment]] = {
    "persistent_volume": lambda each: (each.spec.source.persistent_volume_name or "",),
    "node": lambda each: (each.spec.node_name,),
    "volume": lambda each: (each.annotations.get(VOLUME_ID, ""),),
}
CONTENTS_BY: Mapping[str, Indexer[VolumeSnapshotContent]] = {
    "snapshot_uid": lambda each: (each.snapshot_uid,),
    "snapshot": lambda each: (each.snapshot_id,),
    "volume": lambda each: (normalised_handle(each.volume_id),),
    "class": lambda each: (each.class_name,),
}
PERSISTENT_VOLUMES_BY: Mapping[str, Indexer[PersistentVolume]] = {"volume": _volume_of}
