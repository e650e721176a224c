"""Pods, as far as their volumes and their choice of a node go.

Every part may be missing or null. The API server sends nothing of another type; where somebody
does, the whole pod says nothing, which lets it through.
Source: Kubernetes 1.36 API reference, core/v1 Pod, Volume, NodeAffinity.
"""

import msgspec

from provisioner.model.volume import is_volume_id, normalised_handle
from webhook.model.review import Json

_IN_TREE = "aws://"


class Expression(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ``NodeSelectorRequirement``."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class Term(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A ``NodeSelectorTerm``."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A ``NodeSelector``: terms of which one must hold."""

    node_selector_terms: list[Term] | None = None


class NodeAffinity(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.affinity.nodeAffinity``; what is only preferred is left out."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None


class ClaimSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``persistentVolumeClaim`` of a pod's volume."""

    claim_name: str | None = None


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a claim to be made."""

    storage_class_name: str | None = None


class Template(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``volumeClaimTemplate``."""

    spec: TemplateSpec | None = None


class EphemeralSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``ephemeral`` of a pod's volume: a claim that lives as long as the pod."""

    volume_claim_template: Template | None = None

    @property
    def class_name(self) -> str:
        """The class that the claim will name, "" for the default one or none."""
        spec = self.volume_claim_template and self.volume_claim_template.spec
        return (spec and spec.storage_class_name) or ""


class InlineEbs(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``awsElasticBlockStore`` of a pod's volume."""

    handle: str | None = msgspec.field(default=None, name="volumeID")

    @property
    def volume_id(self) -> str | None:
        """The EBS volume, bare; None if it has no such form."""
        found = normalised_handle(self.handle or "")
        return found if is_volume_id(found) else None

    @property
    def zone_hint(self) -> str:
        """The zone of ``aws://ZONE/vol-…``, else "".

        It proves nothing: attaching looks at the volume id alone.
        Source: Kubernetes csi-translation-lib plugins/aws_ebs.go (read 2026-11-21).
        """
        handle = self.handle or ""
        if not handle.startswith(_IN_TREE):
            return ""
        return handle.removeprefix(_IN_TREE).partition("/")[0]


class PodVolume(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``spec.volumes``; the sources that cannot be EBS volumes are left out."""

    name: str | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    aws_elastic_block_store: InlineEbs | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a pod."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    volumes: list[PodVolume] | None = None


class Owner(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``metadata.ownerReferences``."""

    kind: str | None = None


class PodMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` of a pod."""

    name: str | None = None
    generate_name: str | None = None
    owner_references: list[Owner] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A Pod."""

    metadata: PodMeta | None = None
    spec: PodSpec | None = None

    @property
    def name(self) -> str:
        """Its name, "" while the API server has not made one up."""
        return (self.metadata and self.metadata.name) or ""

    @property
    def title(self) -> str:
        """What messages call it."""
        begin = (self.metadata and self.metadata.generate_name) or ""
        return f'pod "{self.name or f"{begin}…"}"'

    @property
    def node_name(self) -> str:
        """``spec.nodeName``, "" while the scheduler has to choose."""
        return (self.spec and self.spec.node_name) or ""

    @property
    def node_selector(self) -> dict[str, str]:
        """``spec.nodeSelector``, never None."""
        return (self.spec and self.spec.node_selector) or {}

    @property
    def required_terms(self) -> list[Term]:
        """The terms of its required node affinity, [] when there is none."""
        affinity = self.spec and self.spec.affinity and self.spec.affinity.node_affinity
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        return (required and required.node_selector_terms) or []

    @property
    def pinned_to(self) -> str:
        """The one node that all terms of its required node affinity name, "" if they do not.

        Also "" for a pod of a DaemonSet, though each is pinned so: its controller makes pods in
        batches and gives the rest of a batch up when one is refused, so that a pod on a node
        elsewhere, which only stays Pending, would keep those away that can run.
        Source: Kubernetes 1.36 pkg/controller/daemon/daemon_controller.go (syncNodes).
        """
        owners = (self.metadata and self.metadata.owner_references) or ()
        if any(owner.kind == "DaemonSet" for owner in owners):
            return ""
        names = {_node_of(term) for term in self.required_terms}
        return names.pop() if len(names) == 1 else ""

    @property
    def volumes(self) -> list[PodVolume]:
        """``spec.volumes``, never None."""
        return (self.spec and self.spec.volumes) or []


def _node_of(term: Term) -> str:
    for each in term.match_fields or ():
        values = each.values or []
        if (each.key, each.operator, len(values)) == ("metadata.name", "In", 1):
            return values[0]
    return ""


def read(pod: Json) -> Pod:
    """Read a decoded pod; one with a part of a wrong type is taken for an empty one."""
    try:
        return msgspec.convert(pod, Pod)
    except msgspec.ValidationError:
        return Pod()
