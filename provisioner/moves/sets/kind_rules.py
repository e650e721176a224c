"""What ``kubectl ebs move`` reads of a StatefulSet, its pods, and budgets for their disruption.

Source: Kubernetes 1.36 API reference, apps/v1 StatefulSet, core/v1 Pod, policy/v1
PodDisruptionBudget.
"""

from datetime import datetime
from typing import Any

import msgspec

from provisioner.model.meta import KubeObject
from provisioner.model.workload import ClaimRetention, Ordinals


class TemplateMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``metadata`` of a template."""

    name: str = ""
    labels: dict[str, str] | None = None


class PodTemplate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.template``."""

    metadata: TemplateMeta = TemplateMeta()


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a template of claims."""

    storage_class_name: str | None = None
    resources: dict[str, Any] = {}


class ClaimTemplate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``spec.volumeClaimTemplates``."""

    metadata: TemplateMeta = TemplateMeta()
    spec: TemplateSpec = TemplateSpec()


class SetSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a StatefulSet."""

    replicas: int | None = None
    ordinals: Ordinals | None = None
    template: PodTemplate = PodTemplate()
    volume_claim_templates: list[ClaimTemplate] = []
    min_ready_seconds: int = 0
    persistent_volume_claim_retention_policy: ClaimRetention | None = None


class SetStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a StatefulSet."""

    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(KubeObject, frozen=True, gc=False, kw_only=True):
    """A StatefulSet."""

    spec: SetSpec = SetSpec()
    status: SetStatus = SetStatus()

    @property
    def replicas(self) -> int:
        """How many pods it is to have; the API server makes a missing number 1."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def first_ordinal(self) -> int:
        """The number in the name of its first pod."""
        return (self.spec.ordinals and self.spec.ordinals.start) or 0


class PodCondition(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``status.conditions`` of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a pod."""

    phase: str = ""
    conditions: list[PodCondition] | None = None


class SetPod(KubeObject, frozen=True, gc=False, kw_only=True):
    """A pod, as far as its readiness goes."""

    status: PodStatus = PodStatus()

    def is_ready(self, now: datetime, least_s: int) -> bool:
        """Whether it is Ready, has been for so long, and is not on its way out."""
        ready = next((e for e in self.status.conditions or () if e.type == "Ready"), None)
        if self.deleting or ready is None or ready.status != "True":
            return False
        since = ready.last_transition_time
        return since is None or (now - since).total_seconds() >= least_s


class Requirement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``matchExpressions`` of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def holds(self, labels: dict[str, str]) -> bool:
        """Whether labels meet it."""
        has, values = labels.get(self.key), self.values or ()
        match self.operator:
            case "In":
                return has in values
            case "NotIn":
                return has not in values
            case "Exists":
                return has is not None
            case _:
                return has is None


class Selector(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A label selector; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    def selects(self, labels: dict[str, str]) -> bool:
        """Whether it selects something with these labels."""
        same = all(labels.get(key) == value for key, value in (self.match_labels or {}).items())
        return same and all(each.holds(labels) for each in self.match_expressions or ())


class BudgetSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec`` of a PodDisruptionBudget; without a selector it is about no pod."""

    selector: Selector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a PodDisruptionBudget."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    expected_pods: int = 0


class DisruptionBudget(KubeObject, frozen=True, gc=False, kw_only=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
