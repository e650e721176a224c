"""Workloads: what makes pods, and how many of them.

Source: Kubernetes 1.36 API reference, apps/v1 StatefulSet, Deployment, ReplicaSet; meta/v1
OwnerReference; autoscaling/v2 HorizontalPodAutoscaler.
"""

from typing import Any

import msgspec

from provisioner.model.meta import KubeObject, ObjectMeta
from provisioner.model.pod import Pod

_API_VERSION = "apps/v1"
STATEFUL_SET = "StatefulSet"
_SCALED = frozenset({STATEFUL_SET, "Deployment", "ReplicaSet"})


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``metadata.ownerReferences``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def is_scaled(self) -> bool:
        """Whether it is of a kind of Kubernetes whose number of pods can be set."""
        return self.api_version == _API_VERSION and self.kind in _SCALED


class ControlledMeta(ObjectMeta, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` with the owners; ``generation`` counts the changes of ``spec``."""

    owner_references: list[OwnerReference] | None = None
    generation: int = 0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object: there is one at most."""
        found = (each for each in self.owner_references or () if each.controller)
        return next(found, None)


class FieldManager(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``metadata.managedFields``: a program, and the fields that it has set."""

    manager: str = ""
    fields_v1: dict[str, Any] | None = None


class WorkloadMeta(ControlledMeta, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` with those who have set its fields."""

    managed_fields: list[FieldManager] | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a Pod."""

    phase: str = ""


class ControlledPod(Pod, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Pod, who has made it, and whether it has ended."""

    metadata: ControlledMeta = ControlledMeta()
    status: PodStatus = PodStatus()

    @property
    def has_ended(self) -> bool:
        """Whether none of its containers starts again; it is there until somebody deletes it."""
        return self.status.phase in {"Succeeded", "Failed"}


class Ordinals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.ordinals`` of a StatefulSet: the number of its first replica."""

    start: int | None = None


class ClaimRetention(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.persistentVolumeClaimRetentionPolicy`` of a StatefulSet: "Retain" or "Delete"."""

    when_scaled: str | None = None


class WorkloadSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec``, as far as the number of pods goes."""

    replicas: int | None = None
    ordinals: Ordinals | None = None
    persistent_volume_claim_retention_policy: ClaimRetention | None = None


class Workload(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A StatefulSet, a Deployment or a ReplicaSet, or the ``scale`` of one."""

    metadata: WorkloadMeta = WorkloadMeta()
    spec: WorkloadSpec = WorkloadSpec()

    @property
    def replicas(self) -> int:
        """How many pods it is to have; the API server makes a missing number 1."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def first_ordinal(self) -> int:
        """The number in the name of a StatefulSet's first pod."""
        return (self.spec.ordinals and self.spec.ordinals.start) or 0

    @property
    def deletes_claims(self) -> bool:
        """Whether it deletes the claims of the replicas that are scaled away."""
        policy = self.spec.persistent_volume_claim_retention_policy
        return policy is not None and policy.when_scaled == "Delete"


class ScaleTarget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.scaleTargetRef``."""

    kind: str = ""
    name: str = ""


class AutoscalerSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a HorizontalPodAutoscaler."""

    scale_target_ref: ScaleTarget = ScaleTarget()


class Autoscaler(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A HorizontalPodAutoscaler."""

    spec: AutoscalerSpec = AutoscalerSpec()

    @property
    def target(self) -> ScaleTarget:
        """What it scales."""
        return self.spec.scale_target_ref
