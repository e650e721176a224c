"""Who would interfere with a move, and how the pods are stopped: read from the pods' owners.

The controller has no right to read owners; whoever runs the command has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from provisioner.inspect.shell_words import shell
from provisioner.model.document import Document
from provisioner.model.meta import KubeObject
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB
from provisioner.model.volume_move import MovePlan

POD = "Pod"
# Kinds that ``kubectl scale`` takes, by the word that it takes for them.
SCALED = {"StatefulSet": "statefulset", "Deployment": "deployment"}
# What says that an object is kept as a repository has it. Sources: Argo CD "Resource Tracking",
# Flux "Kustomization" and "HelmRelease" (read 2026-11-24).
_KEEPERS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


class QuotaStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a ResourceQuota."""

    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class ResourceQuota(KubeObject, frozen=True, gc=False, kw_only=True):
    """A ResourceQuota, as far as claims count."""

    status: QuotaStatus = QuotaStatus()


@dataclass(frozen=True, slots=True)
class Owner:
    """What makes the pods of a claim, or a pod that nothing makes.

    ``keeper``: the program that keeps it as it is, "" for none that is known.
    """

    kind: str
    name: str
    replicas: int = 1
    keeper: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def controller_of(found: Document) -> Mapping[str, Any]:
    """The owner reference of its controller; {} for none."""
    references = found.metadata.owner_references or ()
    return next((each for each in references if each.get("controller")), {})


def owner(found: Document, kind: str) -> Owner:
    """A StatefulSet or a Deployment, as an owner of pods."""
    marks = {**found.labels, **found.annotations}
    keepers = [keeper for mark, keeper in _KEEPERS.items() if mark in marks]
    replicas = found.spec.get("replicas")
    return Owner(kind, found.name, 1 if replicas is None else replicas, (keepers or [""])[0])


def how_to_stop(owners: Iterable[Owner], namespace: str) -> Iterator[str]:
    """How the pods are stopped, and started again; a sentence for each owner."""
    for each in owners:
        word = SCALED.get(each.kind)
        if each.kind == POD:
            yield f"nobody makes pod {each.name} again: delete it, and create it afterwards"
        elif word is None:
            yield f"{each} has pods that use the claim: stop it, or delete it"
        else:
            scale = "kubectl -n {} scale " + word + " {} --replicas={}"
            yield (
                f"to stop: {shell(scale, namespace, each.name, '0')}; afterwards: "
                f"{shell(scale, namespace, each.name, str(max(each.replicas, 1)))}"
            )


def of_owners(owners: Iterable[Owner]) -> Iterator[str]:
    """Who would start pods again while the volume is moved."""
    for each in owners:
        if each.keeper:
            yield (
                f"{each.keeper} keeps {each}: it may scale it up again during the move; the move "
                "then waits, so stop its synchronization first"
            )
        if each.kind == "DaemonSet":
            yield f"{each} starts its pods again at once, as long as it exists"


def of_quotas(quotas: Iterable[ResourceQuota], plan: MovePlan) -> Iterator[str]:
    """Which quotas have no room for the claim as it is to be.

    The old claim is deleted first, so what it has counts as room where it counts at all.
    """
    class_name, grown = plan.target.storage_class_name, plan.target.size_gib * GIB
    is_same_class = class_name == plan.source.storage_class_name
    by_class = f"{class_name}.storageclass.storage.k8s.io/"
    given = plan.source.size_gib * GIB
    wanted = {
        "requests.storage": grown - given,
        f"{by_class}requests.storage": grown - (given if is_same_class else 0),
        f"{by_class}persistentvolumeclaims": 0 if is_same_class else 1,
    }
    for quota in quotas:
        hard, used = quota.status.hard or {}, quota.status.used or {}
        for resource, more in wanted.items():
            if more > 0 and resource in hard and _room(hard, used, resource) < more:
                yield (
                    f"ResourceQuota {quota.name} allows {hard[resource]} of {resource}, which is "
                    "too little for the new claim: raise it first, or the move stays in the phase "
                    "Swapping until you do"
                )


def _room(hard: Mapping[str, str], used: Mapping[str, str], resource: str) -> int:
    try:
        return parse_bytes(hard[resource]) - parse_bytes(used.get(resource, "0"))
    except ValueError:
        return 0
