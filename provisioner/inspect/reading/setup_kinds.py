"""Where the kinds that say how a cluster is set up are in the API."""

from provisioner.inspect.reading.setup_kind_rules import (
    CsiDriverSetup,
    CustomResource,
    DataObject,
    EndpointSlice,
    SeenLease,
    SystemNode,
    TokenReply,
    WebhookConfiguration,
    Workload,
)
from provisioner.kube.resources import Resource
from provisioner.model.meta import KubeObject

_ADMISSION = "admissionregistration.k8s.io"
_MUTATING, _VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"

SEEN_LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", SeenLease)
CSI_DRIVER_SETUPS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", CsiDriverSetup)
MUTATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", _MUTATING, "MutatingWebhookConfiguration", WebhookConfiguration
)
VALIDATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", _VALIDATING, "ValidatingWebhookConfiguration", WebhookConfiguration
)
CUSTOM_RESOURCES = Resource(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    "CustomResourceDefinition",
    CustomResource,
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Workload)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", Workload)
ENDPOINT_SLICES = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", DataObject)
SECRETS = Resource("", "v1", "secrets", "Secret", DataObject)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", KubeObject)
SYSTEM_NODES = Resource("", "v1", "nodes", "Node", SystemNode)
# Its subresource "token" answers with a TokenRequest.
TOKENS = Resource("", "v1", "serviceaccounts", "ServiceAccount", TokenReply)
NAMED_PODS = Resource("", "v1", "pods", "Pod", KubeObject)
