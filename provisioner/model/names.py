"""The keys that we write: annotations on Kubernetes objects, and tags on volumes and snapshots.

Each comment says on what, who writes the key and who reads it. docs/reference/options.md lists
those for users. Elsewhere: topology keys in ``model/zone.py``, and annotations that Kubernetes or
its sidecars define beside the type of the object that has them.
"""

from collections.abc import Mapping

from provisioner.model.driver import EBS_DRIVER

OUR_PREFIX = "ebs-provisioner.io/"
DRIVER_PREFIX = f"{EBS_DRIVER}/"

# -- annotations that a user writes

# StorageClass; read by the controller and the webhook. "true": clones may come to other zones than
# their source's, by a snapshot.
CLONE_ACROSS_ZONES = f"{OUR_PREFIX}clone-across-zones"
# PersistentVolume; read by the node plugin. What is on the volume may be erased.
FORMAT_CONSENT = f"{OUR_PREFIX}format"

# -- annotations that the controller writes, for itself unless another reader is named

# Claim: "ZONE/UID" or "ZONE,OUTPOST-ARN/UID", written before CreateVolume is sent: where its volume
# is being made. The next leader sends the same zone, so that the client token finds the same
# volume. The UID, because annotations travel: with backups, with `kubectl get -o yaml`.
PINNED_ZONE = f"{OUR_PREFIX}zone"
# Claim: "SOURCE/UID", beside the zone: what its volume is being made from, so that the next leader
# asks for the same although the claim's source has gone since.
PINNED_SOURCE = f"{OUR_PREFIX}source"
# Claim: "VOLUME/UID", written before CreateSnapshot is sent for a clone to another zone. That call
# has no client token, so the next leader has to look for a snapshot of this volume first.
CROSS_ZONE_VOLUME = f"{OUR_PREFIX}crossing"
# PersistentVolume: a JSON object (``budget.Ledger``): the modifications that were sent.
MODIFICATIONS = f"{OUR_PREFIX}modifications"
# VolumeSnapshotContent: a JSON object of its class's parameters on fast restores and the lock, for
# as long as EC2 has not carried out all of them.
PENDING_SETTINGS = f"{OUR_PREFIX}snapshot-wishes"
# PersistentVolume: the VolumeMove for which it is attached to no node; read by the controller.
HELD_FOR_MOVE = f"{OUR_PREFIX}held-for-move"
# On one whose hold has taken the attacher's finalizer away: a node may have had its volume.
ATTACHED_BEFORE_MOVE = f"{OUR_PREFIX}attached-before-move"
# On one that a move has set to Retain before its claim is exchanged: the policy that it had.
POLICY_BEFORE_MOVE = f"{OUR_PREFIX}policy-before-move"
# Claim: the VolumeMove that turned back just before it would have deleted it. PersistentVolume: one
# that was undone before it held it.
LEFT_BY_MOVE = f"{OUR_PREFIX}left-by-move"
# PersistentVolume, claim and pod of a copy of files: the VolumeMove that it is made for. On a
# PersistentVolume as annotation "from NAMESPACE/NAME" or "to …", on the others as label, its UID.
COPY_OF = f"{OUR_PREFIX}copy-of"
# The VolumeMoves of a StatefulSet's claims, as a label: its name.
MOVED_SET = f"{OUR_PREFIX}moved-set"
# VolumeAttachment: the volume's id, so that a detach works when its PersistentVolume is gone.
VOLUME_ID = f"{OUR_PREFIX}volume-id"
# Node: "z9.large 28 shared", if the instance type is not in our table; read by the node plugin.
ATTACHMENT_LIMIT = f"{OUR_PREFIX}attachment-limit"
# Node: the ids of terminated instances, with commas: the taint out-of-service on it is ours.
OUT_OF_SERVICE_FOR = f"{OUR_PREFIX}out-of-service-for"
# Lease: "SINCE HOLDER RENEWED": only our controllers have led since then, if the lease's holder and
# renewal are these.
LED_SINCE = f"{OUR_PREFIX}led-since"

# -- ``status.attachmentMetadata`` of a VolumeAttachment: written by the controller; the kubelet
#    hands it to the node plugin as publish context

# "snap-…", "vol-…" or "blank": what the volume was made from. Only a blank one may be formatted.
MADE_FROM = f"{OUR_PREFIX}made-from"
# "true": other instances can have the volume attached at the same time.
MULTI_ATTACH = f"{OUR_PREFIX}multi-attach"
# "true": nobody may write to it, whatever a pod asks for: a VolumeMove has it copied or checked.
READ_ONLY = f"{OUR_PREFIX}read-only"
# The instance on which the device's name is valid.
INSTANCE_ID = f"{OUR_PREFIX}instance-id"

# -- the webhook's

# Secret: what was last done to its certificates. For people: no program reads it.
CERTIFICATES = f"{OUR_PREFIX}certificates"

# -- tags, all written by the controller

# Volume: written by CreateVolume, removed once a PersistentVolume names the volume. Only a volume
# that still has it may be swept: it cannot hold data that was written through us.
UNCLAIMED = f"{OUR_PREFIX}unclaimed"
# Snapshot taken for a clone to another zone: the cluster's id (by which a sweep finds all of them)
# and the UID of the claim that it was taken for (by which one is found after a lost reply).
CROSS_ZONE_CLUSTER = f"{OUR_PREFIX}crossing"
CROSS_ZONE_CLAIM = f"{OUR_PREFIX}crossing-for"

# Snapshot taken for a VolumeMove: the UID of that, by which it is found after a lost reply; of one
# that was taken while pods ran, UID.NUMBER.
MOVE_SNAPSHOT = f"{OUR_PREFIX}move"

# -- a tag that `ebs-provisioner conformance` writes

# Volume, snapshot, instance: the id of the run that made it. Its sweep deletes what has it. On a
# namespace or a class, the label of the run that made it.
CONFORMANCE_RUN = f"{OUR_PREFIX}conformance-run"
# Volume, snapshot: the id of the run in whose namespace it was claimed. The controller writes it
# because the run's classes ask for it; they could not ask for a tag with our prefix.
CLUSTER_RUN_TAG = "ebs-provisioner-conformance-run"

# -- tags of aws-ebs-csi-driver, which we write and read as it does

# Volume and snapshot: "true"; the IAM policies of both drivers allow changes by this tag.
MADE_BY_DRIVER = f"{DRIVER_PREFIX}cluster"
CLUSTER_NAME = f"{DRIVER_PREFIX}cluster-name"
# Volume: the IOPS of one that grows; the stock driver reads them when it expands the volume.
IOPS_PER_GIB = f"{DRIVER_PREFIX}IOPSPerGb"
IOPS_FOLLOW_GROWTH = f"{DRIVER_PREFIX}AllowAutoIOPSIncreaseOnModify"
# Volume: the PersistentVolume's name; by it one is found whose CreateVolume had no reply. Snapshot:
# the same.
VOLUME_NAME = "CSIVolumeName"
SNAPSHOT_NAME = "CSIVolumeSnapshotName"
# Volume and snapshot: of which cluster they are; with the cluster's id behind it, "owned".
CLUSTER_PREFIX = "kubernetes.io/cluster/"
LEGACY_CLUSTER = "KubernetesCluster"
# Volume and snapshot: what the AWS console shows.
DISPLAY_NAME = "Name"
# Volume: whose it is, for people and bills; read again when extra tags name the claim.
CLAIM_NAME = "kubernetes.io/created-for/pvc/name"
CLAIM_NAMESPACE = "kubernetes.io/created-for/pvc/namespace"
PERSISTENT_VOLUME_NAME = "kubernetes.io/created-for/pv/name"


# Annotations of claims and persistent volumes that Kubernetes and its sidecars define.
_OF_KUBERNETES = (
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "volume.alpha.kubernetes.io/",
)


def asked_annotations(annotations: Mapping[str, str], driver: str) -> dict[str, str]:
    """Those of a bound claim or a persistent volume that the controller may ask for."""
    begin = (OUR_PREFIX, f"{driver}/", *_OF_KUBERNETES)
    return {key: text for key, text in annotations.items() if key.startswith(begin)}
