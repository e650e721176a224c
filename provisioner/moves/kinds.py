"""Where the kinds that only ``kubectl ebs move`` reads are in the API, and what is kept of them."""

from provisioner.kube.resources import Resource
from provisioner.model.document import Document

OWNED_PODS = Resource("", "v1", "pods", "Pod", Document)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", Document)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Document)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", Document)
