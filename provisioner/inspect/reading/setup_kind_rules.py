"""Kinds that say how a cluster is set up, cut down to what ``doctor`` looks at."""

from datetime import datetime
from typing import Any

import msgspec

from provisioner.model.meta import KubeObject
from provisioner.model.node import Node, NodeStatus
from provisioner.model.taint import Toleration


class LeaseTerm(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class SeenLease(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A coordination.k8s.io Lease."""

    spec: LeaseTerm = LeaseTerm()


class CsiDriverOptions(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a CSIDriver; the defaults are the API server's."""

    attach_required: bool | None = None
    fs_group_policy: str | None = None
    volume_lifecycle_modes: list[str] | None = None


class CsiDriverSetup(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A CSIDriver with what is set in it."""

    spec: CsiDriverOptions = CsiDriverOptions()


class ServiceReference(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``clientConfig.service`` of a webhook."""

    namespace: str = ""
    name: str = ""


class WebhookClient(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``clientConfig`` of a webhook; ``ca_bundle`` is PEM in base64."""

    service: ServiceReference | None = None
    ca_bundle: str | None = None


class Webhook(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of the webhooks of a configuration."""

    name: str = ""
    client_config: WebhookClient = WebhookClient()
    failure_policy: str | None = None


class WebhookConfiguration(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    webhooks: list[Webhook] | None = None


class CrdVersion(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``spec.versions`` of a CustomResourceDefinition."""

    name: str = ""
    served: bool = False


class CrdSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a CustomResourceDefinition."""

    versions: list[CrdVersion] | None = None


class CrdStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a CustomResourceDefinition."""

    stored_versions: list[str] | None = None


class CustomResource(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A CustomResourceDefinition."""

    spec: CrdSpec = CrdSpec()
    status: CrdStatus = CrdStatus()


class Source(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ConfigMap or Secret that a container's environment comes from, or one variable: ``key``."""

    name: str = ""
    key: str = ""


class EnvironmentSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``envFrom`` of a container."""

    prefix: str = ""
    config_map_ref: Source | None = None
    secret_ref: Source | None = None


class VariableSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``valueFrom`` of a variable."""

    config_map_key_ref: Source | None = None


class Variable(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``env`` of a container."""

    name: str = ""
    value: str = ""
    value_from: VariableSource | None = None


class Container(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A container of a workload."""

    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None
    env_from: list[EnvironmentSource] | None = None


class PodTemplateSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a workload's pods."""

    service_account_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[Toleration] | None = None
    host_network: bool = False
    containers: list[Container] | None = None

    @property
    def required_node_affinity(self) -> dict[str, Any]:
        """A NodeSelector, {} for none."""
        affinity = (self.affinity or {}).get("nodeAffinity") or {}
        return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}


class PodTemplate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.template`` of a workload."""

    spec: PodTemplateSpec = PodTemplateSpec()


class WorkloadSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a Deployment or a DaemonSet."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a Deployment or a DaemonSet."""

    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


class Workload(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Deployment or a DaemonSet."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def containers(self) -> list[Container]:
        """Those of its pods."""
        return self.spec.template.spec.containers or []

    @property
    def account_name(self) -> str:
        """The ServiceAccount of its pods."""
        return self.spec.template.spec.service_account_name or "default"


class EndpointConditions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``conditions`` of an endpoint."""

    ready: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``endpoints`` of an EndpointSlice."""

    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A discovery.k8s.io EndpointSlice."""

    endpoints: list[Endpoint] | None = None


class DataObject(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A ConfigMap, or a Secret with its values in base64."""

    data: dict[str, str] | None = None


class NodeSystem(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status.nodeInfo`` of a Node."""

    kubelet_version: str = ""


class SystemStatus(NodeStatus, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a Node with what runs on it."""

    node_info: NodeSystem = NodeSystem()


class SystemNode(Node, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Node with what runs on it."""

    status: SystemStatus = SystemStatus()


class TokenReplyStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a TokenRequest."""

    token: str = ""


class TokenReply(KubeObject, frozen=True, gc=False, kw_only=True):
    """The answer to a TokenRequest."""

    status: TokenReplyStatus = TokenReplyStatus()
