"""Decide who would interfere with a move: autoscalers, GitOps programs, quotas of the namespace.

A quota is a refusal, not a warning: once the old claim is deleted, only a claim that the quota lets
in can take its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.controller.moving.pods.consumer_rules import Consumer, to_scale
from provisioner.model.claim import BETA_STORAGE_CLASS, Claim, LabelledClaim
from provisioner.model.meta import ObjectMeta
from provisioner.model.quantity import parse_bytes
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.volume import GIB
from provisioner.model.workload import Autoscaler, Workload

# Source: Argo CD 3 "Resource Tracking"; Flux 2 kustomize-controller and helm-controller, "Labels"
# and "origin" (read 2026-11-24).
_MARKS: Mapping[str, str] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
_MANAGERS: Mapping[str, str] = {
    "argocd-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}
_OF_CLASS = "storageclass.storage.k8s.io"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a claim asks for, as a quota counts it."""

    class_name: str
    size_bytes: int

    @property
    def uses(self) -> Mapping[str, int]:
        """How much it takes of each resource (Kubernetes 1.36 quota/v1/evaluator/core)."""
        size = {"requests.storage": self.size_bytes}
        number = {"persistentvolumeclaims": 1}
        of_class = {
            f"{self.class_name}.{_OF_CLASS}/{key}": value for key, value in (size | number).items()
        }
        return size | number | {"count/persistentvolumeclaims": 1} | of_class


# What a claim takes of quotas now, None if it is not there, and what it is to take.
Change = tuple[Asked | None, Asked]


def asked(claim: Claim, class_name: str, size: str) -> Asked:
    """What a claim asks for, of a class and with at least a size ("" for its own)."""
    own, wanted = _number(claim.requested_storage), _number(size)
    return Asked(class_name, max(own, -(-wanted // GIB) * GIB))


def asked_by(manifest: Mapping[str, Any]) -> Asked:
    """What a claim asks for, by its manifest."""
    spec, notes = manifest["spec"], manifest["metadata"].get("annotations") or {}
    class_name = notes.get(BETA_STORAGE_CLASS) or spec.get("storageClassName") or ""
    requests = (spec.get("resources") or {}).get("requests") or {}
    return Asked(class_name, _number(str(requests.get("storage", ""))))


def _added(changes: Iterable[Change]) -> dict[str, int]:
    """How much more than now claims are to take of each resource; 0 where it is as much."""
    more: dict[str, int] = {}
    for old, new in changes:
        before = old.uses if old is not None else {}
        for key, value in new.uses.items():
            more[key] = more.get(key, 0) + value - before.get(key, 0)
    return more


def take_more(changes: Iterable[Change], quotas: Iterable[ResourceQuota]) -> bool:
    """Whether claims take more than now of anything that a quota limits."""
    limited = {key for quota in quotas for key in quota.hard}
    return any(value > 0 for key, value in _added(changes).items() if key in limited)


def no_room(
    quotas: Sequence[ResourceQuota], *changes: Change, others: Sequence[Change] = ()
) -> str | None:
    """Why a quota would not let claims be created again, in one sentence.

    Args:
        quotas: of the namespace.
        changes: of the claims that are moved together.
        others: of claims to which room is left, as their moves go first.
    """
    number = len(changes)
    what = "the claim" if number == 1 else f"the {number} claims that are moved at the same time"
    first = "that of another move" if len(others) == 1 else f"those of {len(others)} others"
    beside = f" and {first}" if others else ""
    if short := _short(quotas, _added([*changes, *others])):
        name, taken = short
        return (
            f"ResourceQuota {name} does not let {what}{beside} be created again ({taken}): raise "
            "it first"
        )
    return None


def no_room_beside(quotas: Sequence[ResourceQuota], sizes_gib: Sequence[int]) -> str | None:
    """Why a quota would not let the claims of the move's own pod in, in one sentence.

    Args:
        quotas: of the namespace.
        sizes_gib: of these claims, which name no class, and are there beside the claim.
    """
    number = len(sizes_gib)
    more = {
        "requests.storage": sum(sizes_gib) * GIB,
        "persistentvolumeclaims": number,
        "count/persistentvolumeclaims": number,
    }
    if short := _short(quotas, more) if sizes_gib else None:
        name, taken = short
        return (
            f"ResourceQuota {name} does not let the move's own pod have its claims ({taken}): "
            "raise it for the time of the move"
        )
    return None


def _short(quotas: Sequence[ResourceQuota], more: Mapping[str, int]) -> tuple[str, str] | None:
    """The first quota without room for so much more, by its name, and what is taken of it."""
    for quota in quotas:
        for key, hard in sorted(quota.hard.items()):
            used = quota.used.get(key, "0")
            if key in more and _number(used) + more[key] > _number(hard):
                return quota.name, f"{key}: {used} of {hard} are used"
    return None


def _number(text: str) -> int:
    try:
        return parse_bytes(text) if text else 0
    except ValueError:
        return 0


def notes(
    consumers: Sequence[Consumer], claim: LabelledClaim, autoscalers: Sequence[Autoscaler]
) -> list[str]:
    """Who may scale up what the move needs scaled down, or create the claim first."""
    said = []
    workloads = {each.owner.uid: each.workload for each in consumers if each.owner is not None}
    rest = {each.uid: each.scale_to for each in to_scale(consumers)}
    for uid, workload in workloads.items():
        kind = next(each.owner.kind for each in consumers if each.owner and each.owner.uid == uid)
        if workload is not None:
            said += _of_owner(kind, workload, autoscalers, rest.get(uid, 0))
    whose = _marked(claim.metadata)
    if whose:
        said.append(
            f"{whose} manages the claim: it may create it during the swap, and report it as changed"
        )
    return said


def _of_owner(
    kind: str, workload: Workload, autoscalers: Sequence[Autoscaler], rest: int
) -> list[str]:
    """An autoscaler leaves alone what has no replicas (Kubernetes 1.36 podautoscaler)."""
    who = f"{kind} {workload.name}"
    said = [
        f"HorizontalPodAutoscaler {each.name} scales {who}, and may scale it up during the move: "
        "delete it for that time"
        for each in autoscalers
        if rest > 0 and (each.target.kind, each.target.name) == (kind, workload.name)
    ]
    whose = _marked(workload.metadata) or _setter_of_replicas(workload)
    if whose:
        said.append(
            f"{whose} manages {who}, and may scale it up during the move: suspend it for that time"
        )
    return said


def _marked(meta: ObjectMeta) -> str:
    keys = (meta.labels or {}).keys() | (meta.annotations or {}).keys()
    return next((whose for key, whose in _MARKS.items() if key in keys), "")


def _setter_of_replicas(workload: Workload) -> str:
    found = (
        _MANAGERS.get(each.manager, "")
        for each in workload.metadata.managed_fields or ()
        if "f:replicas" in ((each.fields_v1 or {}).get("f:spec") or {})
    )
    return next(filter(None, found), "")
