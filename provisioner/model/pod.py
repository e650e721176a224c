"""Pods, as far as their volumes and their choice of a node go.

Every part may be missing or null.
Source: Kubernetes 1.36 API reference, core/v1 Pod, Volume, NodeAffinity, Toleration.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from provisioner.model.ids import is_volume_id
from provisioner.model.meta import KubeObject, ObjectMeta
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.taint import Toleration
from provisioner.model.volume import normalised_handle

Json = dict[str, Any]

_IN_TREE = "aws://"


class Expression(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A ``NodeSelectorRequirement``."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    @property
    def as_json(self) -> Json:
        """As rules about node selectors read it."""
        return {"key": self.key, "operator": self.operator, "values": self.values}


class Term(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A ``NodeSelectorTerm``."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None

    @property
    def as_json(self) -> Json:
        """As rules about node selectors read it."""
        return {
            "matchExpressions": [each.as_json for each in self.match_expressions or ()],
            "matchFields": [each.as_json for each in self.match_fields or ()],
        }


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


class SchedulingGate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``spec.schedulingGates``: while there is any, the scheduler leaves the pod alone."""

    name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a pod."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[PodVolume] | None = None
    scheduling_gates: list[SchedulingGate] | None = None

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of its scheduling gates."""
        return tuple(gate.name or "" for gate in self.scheduling_gates or ())

    @property
    def selections(self) -> tuple[Sequence[Json], ...]:
        """Groups of node selector terms: of each group, one term must hold.

        One group for the node selector, one for the required node affinity.
        """
        groups: list[Sequence[Json]] = []
        if self.node_selector:
            pairs = self.node_selector.items()
            same = [Expression(key=key, operator="In", values=[value]) for key, value in pairs]
            groups.append([Term(match_expressions=same).as_json])
        if self.required_terms:
            groups.append([term.as_json for term in self.required_terms])
        return tuple(groups)

    @property
    def inline_zones(self) -> frozenset[str]:
        """The zones that the handles of inline EBS volumes name; a bare volume id names none."""
        inline = (volume.aws_elastic_block_store for volume in self.volumes or ())
        return frozenset(each.zone_hint for each in inline if each and each.zone_hint)

    @property
    def required_terms(self) -> list[Term]:
        """The terms of its required node affinity, [] when there is none."""
        affinity = self.affinity and self.affinity.node_affinity
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        return (required and required.node_selector_terms) or []


class Pod(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Pod."""

    spec: PodSpec = PodSpec()

    @property
    def node_name(self) -> str:
        """``spec.nodeName``, "" while the scheduler has to choose."""
        return self.spec.node_name or ""

    @property
    def tolerations(self) -> list[Toleration]:
        """``spec.tolerations``, never None."""
        return self.spec.tolerations or []

    @property
    def inline_volumes(self) -> frozenset[str]:
        """The ids of the EBS volumes that it names without a claim."""
        inline = (each.aws_elastic_block_store for each in self.spec.volumes or ())
        return frozenset(each.volume_id for each in inline if each and each.volume_id)

    @property
    def claim_keys(self) -> tuple[str, ...]:
        """``namespace/name`` of its claims, those of its ephemeral volumes included.

        Source: Kubernetes 1.36 component-helpers storage/ephemeral VolumeClaimName.
        """
        names = []
        for volume in self.spec.volumes or ():
            source = volume.persistent_volume_claim
            if source is not None and source.claim_name:
                names.append(source.claim_name)
            elif volume.ephemeral is not None and volume.name:
                names.append(f"{self.name}-{volume.name}")
        return tuple(f"{self.metadata.namespace}/{name}" for name in dict.fromkeys(names))

    @property
    def ephemeral_claim_keys(self) -> frozenset[str]:
        """Those of ``claim_keys`` that Kubernetes makes for it, and deletes with it."""
        return frozenset(
            f"{self.metadata.namespace}/{self.name}-{volume.name}"
            for volume in self.spec.volumes or ()
            if volume.ephemeral is not None and volume.name
        )


def naming_volumes(pod: Pod) -> Pod | None:
    """What is looked at of a pod for the EBS volumes that it names itself; nothing without any."""
    return pod if pod.inline_volumes else None


def using_claims(pod: Pod) -> Pod | None:
    """What a cache keeps of a pod: nothing without claims, no labels with them.

    Of its annotations there is only that of a move that holds it back.
    """
    if not pod.claim_keys:
        return None
    meta, held_for = pod.metadata, pod.annotations.get(HELD_FOR_MOVE)
    small = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        annotations={HELD_FOR_MOVE: held_for} if held_for else None,
    )
    return msgspec.structs.replace(pod, metadata=small)
