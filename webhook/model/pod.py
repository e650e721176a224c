"""Pods as they come with a review, whose types nobody has looked at yet.

The API server sends nothing of another type; where somebody does, the whole pod says nothing, which
lets it through. What it consists of is in ``provisioner.model.pod``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from provisioner.model.pod import PodSpec, PodVolume, Term
from webhook.model.cluster_view import References
from webhook.model.review import Json, MalformedReviewError, RequestOf, decode


class Owner(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``metadata.ownerReferences``."""

    kind: str | None = None
    controller: bool | None = None


class PodMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` of a pod."""

    name: str | None = None
    generate_name: str | None = None
    annotations: dict[str, str] | None = None
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


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One claim of a pod.

    Attributes:
        title: what messages call it.
        key: ``namespace/name``; "" for a claim to be made for a pod that has no name yet.
        is_made_for_pod: an ephemeral volume: its claim is made after the pod, and goes with it.
        class_name: of an ephemeral volume, "" for the default class.
    """

    title: str
    key: str
    is_made_for_pod: bool = False
    class_name: str = ""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """What a pod uses: claims, each once, and EBS volumes by id with the user's zone or ""."""

    claims: tuple[PodClaim, ...]
    inline: Mapping[str, str]

    @property
    def references(self) -> References:
        """The objects that say where these volumes are."""
        return References(
            claims=tuple(claim.key for claim in self.claims if claim.key),
            classes=tuple(claim.class_name for claim in self.claims if claim.class_name),
            inline=self.inline,
        )


def volumes_of(pod: Pod, namespace: str) -> PodVolumes:
    """Read the volumes of a pod in this namespace."""
    claims: dict[str, PodClaim] = {}
    inline: dict[str, str] = {}
    for volume in pod.volumes:
        claim = _claim(pod, volume, namespace)
        if claim is not None:
            claims.setdefault(claim.title, claim)
        ebs = volume.aws_elastic_block_store
        if ebs is not None and ebs.volume_id is not None:
            inline[ebs.volume_id] = inline.get(ebs.volume_id) or ebs.zone_hint
    return PodVolumes(tuple(claims.values()), inline)


def _claim(pod: Pod, volume: PodVolume, namespace: str) -> PodClaim | None:
    source = volume.persistent_volume_claim
    if source is not None and source.claim_name:
        return PodClaim(f'claim "{source.claim_name}"', f"{namespace}/{source.claim_name}")
    if volume.ephemeral is None or not volume.name:
        return None
    # Source: Kubernetes 1.36 component-helpers storage/ephemeral VolumeClaimName.
    key = f"{namespace}/{pod.name}-{volume.name}" if pod.name else ""
    title = f'ephemeral volume "{volume.name}"'
    return PodClaim(title, key, is_made_for_pod=True, class_name=volume.ephemeral.class_name)


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
