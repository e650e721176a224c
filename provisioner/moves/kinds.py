"""Where the kinds that only ``kubectl ebs move`` reads are in the API, and what is kept of them."""

import msgspec

from provisioner.kube.resources import Resource
from provisioner.model.document import Document
from provisioner.model.meta import KubeObject


class ReviewStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a review of access."""

    allowed: bool = False


class AccessReview(KubeObject, frozen=True, gc=False, kw_only=True):
    """What the API server answers to the question whether one may do something."""

    status: ReviewStatus = ReviewStatus()


# Everybody who has logged in may ask: ClusterRole system:basic-user (Kubernetes 1.36 RBAC guide).
ACCESS_REVIEWS = Resource(
    *("authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
    "SelfSubjectAccessReview",
    AccessReview,
)
OWNED_PODS = Resource("", "v1", "pods", "Pod", Document)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", Document)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Document)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", Document)
