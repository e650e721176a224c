"""The kinds of objects that are read or written: where they live and what they decode into."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from provisioner.model import volume_move
from provisioner.model.access_review import AccessReview
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim, LabelledClaim
from provisioner.model.copy_pod import CopyPod
from provisioner.model.meta import KubeObject, UnlabelledObject
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume, PlacedVolume
from provisioner.model.pod import Pod
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.storage_class import StorageClass, VolumeAttributesClass
from provisioner.model.volume_move import VolumeMove
from provisioner.model.volume_snapshot import (
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)
from provisioner.model.webhook_configuration import WebhookConfiguration
from provisioner.model.workload import Autoscaler, ControlledPod, Workload

T = TypeVar("T", bound=UnlabelledObject)

_SAFE = ":"  # in names of roles


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of the Kubernetes API.

    Attributes:
        group: API group, "" for core.
        version: API version.
        plural: name in URLs and RBAC rules.
        kind: name in objects, log lines and metrics.
        type: what its objects decode into.
    """

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects: "v1" or "group/version"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """URL path of one object, or of the collection without a name.

        A namespaced kind without a namespace is the collection over all namespaces. Names are
        quoted: a pod may name any claim that it likes, "data?watch=true" too.
        """
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe=_SAFE)]
        parts += [part for part in (self.plural, quote(name, safe=_SAFE), subresource) if part]
        return "/".join(parts)


def whole(obj: T) -> T | None:
    """Keep all of a decoded object."""
    return obj


@dataclass(frozen=True, slots=True)
class Projection(Generic[T]):
    """One kind, of whose objects a cache keeps less than they are decoded into.

    Attributes:
        resource: the kind.
        keep: what is kept of a decoded object, None for nothing at all. It must not raise, and
            what it returns must still tell name, namespace and resourceVersion.
        trim: what an object is without the parts that nobody asks for, before its parts are shared
            with others (``wire.share``). It must not raise.
    """

    resource: Resource[Any]
    keep: Callable[[Any], T | None]
    trim: Callable[[Any], Any] = whole


CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Claim)
# The same objects with their labels, which are read of single claims, and by kubectl ebs cost.
LABELLED_CLAIMS = Resource("", "v1", CLAIMS.plural, CLAIMS.kind, LabelledClaim)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", PersistentVolume)
# The same objects with their node affinity, which few questions need.
PLACED_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", PlacedVolume)
PODS = Resource("", "v1", "pods", "Pod", Pod)
# The same objects with their owners.
CONTROLLED_PODS = Resource("", "v1", "pods", "Pod", ControlledPod)
# The same objects with the states of their containers.
COPY_PODS = Resource("", "v1", PODS.plural, PODS.kind, CopyPod)
# Posted to the subresource ``eviction`` of a pod, in the version policy/v1; answered by a Status.
EVICTIONS = Resource("", "v1", "pods", "Eviction", KubeObject)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", Workload)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Workload)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", Workload)
AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Autoscaler
)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", ResourceQuota)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", StorageClass)
ATTRIBUTES_CLASSES = Resource(
    "storage.k8s.io",
    "v1",
    "volumeattributesclasses",
    "VolumeAttributesClass",
    VolumeAttributesClass,
)
ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", Attachment)
NODES = Resource("", "v1", "nodes", "Node", Node)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", CsiNode)
_SNAPSHOT = "snapshot.storage.k8s.io"
VOLUME_SNAPSHOTS = Resource(_SNAPSHOT, "v1", "volumesnapshots", "VolumeSnapshot", VolumeSnapshot)
SNAPSHOT_CONTENTS = Resource(
    _SNAPSHOT, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", VolumeSnapshotContent
)
SNAPSHOT_CLASSES = Resource(
    _SNAPSHOT, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", VolumeSnapshotClass
)
VOLUME_MOVES = Resource(
    volume_move.GROUP, volume_move.VERSION, "volumemoves", volume_move.KIND, VolumeMove
)
_ADMISSION = "admissionregistration.k8s.io"
MUTATING_CONFIGURATIONS = Resource(
    _ADMISSION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    WebhookConfiguration,
)
VALIDATING_CONFIGURATIONS = Resource(
    _ADMISSION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    WebhookConfiguration,
)
EVENTS = Resource("", "v1", "events", "Event", KubeObject)
# Everybody who has logged in may ask: ClusterRole system:basic-user (Kubernetes 1.36 RBAC guide).
ACCESS_REVIEWS = Resource(
    *("authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
    "SelfSubjectAccessReview",
    AccessReview,
)


def key_of(obj: UnlabelledObject) -> str:
    """``namespace/name``, or the name alone of a cluster-wide object."""
    return obj.key
