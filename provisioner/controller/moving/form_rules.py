"""Decide about the form of a PersistentVolume: the in-tree plugin's, or that of a CSI driver.

The volume is the same in both forms, and so are its data. Kubernetes has the plugin's form used by
the driver under its own name only; what it translates at each use is written down here once.
Source: Kubernetes 1.36 csi-translation-lib, plugins/aws_ebs.go and in_tree_volume.go.
"""

from typing import Any

from msgspec import structs

from provisioner.model.document import Document
from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.names import MODIFICATIONS, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PROVISIONED_BY, PersistentVolume
from provisioner.model.volume import normalised_handle
from provisioner.model.volume_move import MoveSource, VolumeMove

Json = dict[str, Any]


def driver_of(found: PersistentVolume) -> str:
    """The driver whose controller may move a PersistentVolume, "" if it is of no EBS volume."""
    if found.spec.csi is not None:
        return found.spec.csi.driver
    return EBS_DRIVER if found.spec.aws_elastic_block_store is not None else ""


def refused(move: VolumeMove, found: PersistentVolume, driver: str) -> str | None:
    """Why the form of a PersistentVolume does not allow the move, in one sentence."""
    whose, wish = driver_of(found), move.spec.to.form
    if not whose:
        return f"PersistentVolume {found.name} is not an EBS volume"
    if whose != driver:
        return f"PersistentVolume {found.name} belongs to the driver {whose}"
    if wish and not found.spec.is_file_system:
        return (
            f"claim {move.claim_key} has a raw block volume (volumeMode Block), and form is only "
            "for file systems; restore a snapshot of it into a new claim"
        )
    if found.spec.csi is None and not wish:
        return (
            f"PersistentVolume {found.name} has the form of the in-tree plugin, and a moved one "
            "has that of CSI: add form: csi in another VolumeMove"
        )
    return None


def in_csi_form(old: Document, driver: str) -> Document:
    """A PersistentVolume as Kubernetes translates it; one in CSI form stays as it is."""
    if "csi" in old.spec:
        return old
    spec = {key: value for key, value in old.spec.items() if key != "awsElasticBlockStore"}
    annotations = dict(old.annotations)
    if annotations.get(PROVISIONED_BY) == IN_TREE_DRIVER:
        annotations[PROVISIONED_BY] = driver
    source = _csi(old.spec.get("awsElasticBlockStore") or {}, driver)
    metadata = structs.replace(old.metadata, annotations=annotations)
    return structs.replace(old, metadata=metadata, spec=spec | {"csi": source})


def _csi(in_tree: Json, driver: str) -> Json:
    """``spec.csi``. Of the attributes, a missing partition and "0" mean the same: no partition."""
    source: Json = {
        "driver": driver,
        "volumeHandle": normalised_handle(str(in_tree.get("volumeID", ""))),
    }
    kept = {key: in_tree[key] for key in ("fsType", "readOnly") if in_tree.get(key)}
    if in_tree.get("partition"):
        kept["volumeAttributes"] = {"partition": str(in_tree["partition"])}
    return source | kept


def of_same_volume(body: Json, old: Document) -> Json:
    """The new PersistentVolume with what the old one tells of the volume that both name.

    The capacity is not EC2's: if the volume was grown and its file system not yet, the claim asks
    for more than it has, and that is made up for.
    """
    meta, spec = body["metadata"], body["spec"]
    sent = old.annotations.get(MODIFICATIONS)
    notes = meta["annotations"] | ({MODIFICATIONS: sent} if sent else {})
    capacity = old.spec.get("capacity") or spec["capacity"]
    return body | {
        "metadata": meta | {"annotations": notes},
        "spec": spec | {"capacity": capacity},
    }


def with_policy_of(move: VolumeMove, body: Json, old: PersistentVolume) -> Json:
    """The new PersistentVolume with the policy that the old one has at the swap.

    A class that is asked for may say Retain as well; but what has Retain keeps it.
    """
    key, before = "persistentVolumeReclaimPolicy", policy_before(old)
    is_kept = bool(move.spec.to.storage_class_name) and body["spec"].get(key) == "Retain"
    return body | {"spec": body["spec"] | {key: "Retain" if is_kept else before}}


def is_to_be_retained(move: VolumeMove, body: Json, old: PersistentVolume) -> bool:
    """Whether the new PersistentVolume of a copy was to have another policy than Retain by now."""
    has_own = not move.copies or bool(move.spec.to.storage_class_name)
    is_known = body.get("spec", {}).get("persistentVolumeReclaimPolicy") == "Retain"
    return not has_own and not is_known and policy_before(old) == "Retain"


def policy_before(old: PersistentVolume) -> str:
    """The policy that a PersistentVolume has without the move, which sets Retain for a while."""
    if old.reclaim_policy == "Retain":
        return old.annotations.get(POLICY_BEFORE_MOVE, "Retain")
    return old.reclaim_policy


def may_remove(source: MoveSource, old: PersistentVolume, new: PersistentVolume | None) -> bool:
    """Whether the old PersistentVolume of a volume that stays may be deleted: as an object only.

    With Retain, nobody deletes the volume with it; and the new one has to name it still, or nothing
    in the cluster would.
    """
    holder = old.spec.claim_ref
    return (
        new is not None
        and not new.deleting
        and new.named_volume == source.volume_id
        and old.phase == "Released"
        and old.reclaim_policy == "Retain"
        and holder is not None
        and holder.uid == source.claim_uid
    )
