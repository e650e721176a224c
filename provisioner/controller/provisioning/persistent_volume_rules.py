"""The persistent volume of a new volume, field by field as external-provisioner writes it."""

from typing import Any

from provisioner.classes import in_tree_rules
from provisioner.controller.provisioning.plan_rules import Plan
from provisioner.model.errors import Reason, StorageError
from provisioner.model.node_affinity import REGION_LABEL, region_of
from provisioner.model.persistent_volume import (
    DELETION_SECRET_NAME,
    DELETION_SECRET_NAMESPACE,
    PROVISIONED_BY,
    PROVISIONER_FINALIZER,
    PersistentVolume,
)
from provisioner.model.volume import Volume
from provisioner.model.zone import ZONE_LABEL, outpost_segments

Json = dict[str, Any]


def manifest(
    plan: Plan, volume: Volume, *, driver: str, identity: str, labels_region: bool = False
) -> Json:
    """The object to POST. Neither status nor ``bound-by-controller``: the binder writes those.

    The zone is the volume's own, not the one that was asked for: it is what the scheduler has to
    believe. Backups and people look for it in labels, as the plugin PersistentVolumeLabel wrote
    them. That of the zone keeps no node away that the affinity lets in; that of the Region would
    keep away each node without it, so it is only written if ``labels_region`` says that all have
    it (Kubernetes 1.36 pkg/scheduler/framework/plugins/volumezone).
    Source: external-provisioner 6.3 ``Provision``, sig-storage-lib v13 ``provisionClaim``.
    """
    claim, storage_class = plan.claim, plan.storage_class
    spec: Json = {
        "accessModes": claim.spec.access_modes or [],
        "capacity": {"storage": f"{volume.size_gib}Gi"},
        "claimRef": {
            **reference_to_claim(claim.metadata.namespace, claim.name, claim.uid),
            "resourceVersion": claim.metadata.resource_version,
        },
        "storageClassName": storage_class.name,
        "csi": _source(plan, volume, driver=driver, identity=identity),
        "nodeAffinity": zone_affinity(volume),
    }
    if storage_class.mount_options:
        spec["mountOptions"] = storage_class.mount_options
    if storage_class.reclaim_policy:
        spec["persistentVolumeReclaimPolicy"] = storage_class.reclaim_policy
    if claim.spec.volume_mode:
        spec["volumeMode"] = claim.spec.volume_mode
    if claim.attributes_class_name:  # else the binder would never match the two
        spec["volumeAttributesClassName"] = claim.attributes_class_name
    body: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": _metadata(plan) | {"labels": _labels(volume, labels_region=labels_region)},
        "spec": spec,
    }
    return in_tree_rules.persistent_volume(body) if plan.read_class.is_in_tree else body


def _labels(volume: Volume, *, labels_region: bool) -> dict[str, str]:
    region = region_of(volume.zone) if labels_region else ""
    return {ZONE_LABEL: volume.zone} | ({REGION_LABEL: region} if region else {})


def _metadata(plan: Plan) -> Json:
    return {
        "name": plan.persistent_volume_name,
        "annotations": {
            PROVISIONED_BY: plan.storage_class.provisioner,
            DELETION_SECRET_NAME: "",
            DELETION_SECRET_NAMESPACE: "",
        },
        "finalizers": [PROVISIONER_FINALIZER],
    }


def conflict(
    found: PersistentVolume, plan: Plan, volume: Volume, *, driver: str
) -> StorageError | None:
    """What is wrong with an object that already has the name; None when it is the one we meant."""
    holder = found.spec.claim_ref
    same_claim = holder is not None and holder.uid == plan.claim.uid
    named = found.volume_id(driver)
    if same_claim and named == volume.volume_id:
        return None
    if same_claim and named is not None:
        # Never advise to delete this one: it may hold the claim's data.
        return StorageError(
            Reason.CONFLICT,
            f"PersistentVolume {found.name} already gives the claim volume {named}; volume "
            f"{volume.volume_id} was created as well and is not needed: delete it in EC2",
        )
    return StorageError(
        Reason.CONFLICT,
        f"PersistentVolume {found.name} already exists, but does not give this claim volume "
        f"{volume.volume_id}; delete it so that it can be created again",
    )


def reference_to_claim(namespace: str, name: str, uid: str) -> Json:
    """``spec.claimRef`` without a version."""
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": namespace,
        "name": name,
        "uid": uid,
    }


def zone_affinity(volume: Volume) -> Json:
    """``spec.nodeAffinity`` of a volume: its zone, and the Outpost that it is on.

    Source: aws-ebs-csi-driver v1.64 ``newCreateVolumeResponse``: the GA zone key alone, and the
    four of an Outpost in the same term.
    """
    segments = {ZONE_LABEL: volume.zone, **outpost_segments(volume.outpost_arn)}
    expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in segments.items()]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def _source(plan: Plan, volume: Volume, *, driver: str, identity: str) -> Json:
    source: Json = {
        "driver": driver,
        "volumeHandle": volume.volume_id,
        "volumeAttributes": {
            **plan.read_class.parameters.attributes(),
            "storage.kubernetes.io/csiProvisionerIdentity": identity,
        },
    }
    if plan.file_system:
        source["fsType"] = plan.file_system
    return source
