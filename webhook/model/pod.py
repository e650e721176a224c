"""Pods as they come with a review, whose types nobody has looked at yet.

The API server sends nothing of another type; where somebody does, the whole pod says nothing, which
lets it through. What it consists of is in ``provisioner.model.pod``.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from provisioner.model.pod import PodSpec, PodVolume, Term
from webhook.model.review import Json, MalformedReviewError, RequestOf, decode


class Owner(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``metadata.ownerReferences``."""

    kind: str | None = None
    controller: bool | None = None


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
    def selections(self) -> tuple[Sequence[Json], ...]:
        """What it demands of its node: of each group of terms, one must hold."""
        return self.spec.selections if self.spec else ()

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
        names = {_node_of(term) for term in self.spec.required_terms} if self.spec else set()
        return names.pop() if len(names) == 1 else ""

    @property
    def is_controlled(self) -> bool:
        """Whether a controller made it, and will make another one if this is refused."""
        owners = (self.metadata and self.metadata.owner_references) or ()
        return any(owner.controller for owner in owners)

    @property
    def parts(self) -> int:
        """How many labels and values it asks of its node."""
        if self.spec is None:
            return 0
        expressions = (
            each
            for term in self.spec.required_terms
            for each in (*(term.match_expressions or ()), *(term.match_fields or ()))
        )
        selected = len(self.spec.node_selector or ())
        terms = len(self.spec.required_terms)
        return selected + terms + sum(1 + len(each.values or ()) for each in expressions)

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


def reviewed(body: bytes) -> RequestOf[Pod]:
    """Read a review of a pod; one with a part of a wrong type is taken for an empty one.

    Raises:
        MalformedReviewError: it is no review of an object.
    """
    try:
        return decode(body, Pod)
    except MalformedReviewError:
        found = decode(body, dict[str, Any])
        empty = None if found.object is None else Pod()
        return RequestOf(**{**msgspec.structs.asdict(found), "object": empty})


def read(pod: Json) -> Pod:
    """Read a decoded pod; one with a part of a wrong type is taken for an empty one."""
    try:
        return msgspec.convert(pod, Pod)
    except msgspec.ValidationError:
        return Pod()
