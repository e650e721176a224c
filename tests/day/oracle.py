"""Whether anything was lost, doubled or leaked: what EC2 has against what the API server has.

It asks the account and the objects, never the controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from msgspec import Struct

from tests.day.clocks import NOW
from tests.day.cluster import ATTACHMENTS, CLAIMS, VOLUMES

T = TypeVar("T")

# A volume that nobody names is removed once it is 10 minutes old, by a sweep every 5 minutes that
# takes its time; what is under way may take a while longer after a brown-out (20 minutes of the
# day's, and 10 that it may take after it).
LEAK_GRACE_S = 1800.0
_UNDER_WAY_S = 1800.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A volume in EC2, and the instances on which it is attached."""

    is_going: bool
    attached_to: tuple[str, ...]


class Volumes(Protocol):
    """The account: ``made`` has the ids of all volumes there ever were, by persistent volume."""

    made: dict[str, set[str]]

    def shown(self) -> Mapping[str, Shown]:
        """All volumes by their ids."""


class Meta(Struct, rename="camel", gc=False):
    """``metadata``."""

    name: str
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class Csi(Struct, rename="camel", gc=False):
    """``spec.csi``."""

    volume_handle: str


class ClaimRef(Struct, gc=False):
    """``spec.claimRef``."""

    uid: str


class PersistentVolumeSpec(Struct, rename="camel", gc=False):
    """``spec`` of a persistent volume."""

    csi: Csi
    claim_ref: ClaimRef


class PersistentVolume(Struct, gc=False):
    """What counts of one: to decode only that takes a ninth of the time."""

    metadata: Meta
    spec: PersistentVolumeSpec


class ClaimSpec(Struct, rename="camel", gc=False):
    """``spec`` of a claim."""

    volume_name: str | None = None


class ClaimStatus(Struct, gc=False):
    """``status`` of a claim."""

    phase: str | None = None


class Claim(Struct, gc=False):
    """What counts of one."""

    metadata: Meta
    spec: ClaimSpec
    status: ClaimStatus


class Source(Struct, rename="camel", gc=False):
    """``spec.source``."""

    persistent_volume_name: str | None = None


class AttachmentSpec(Struct, rename="camel", gc=False):
    """``spec`` of a VolumeAttachment."""

    node_name: str
    source: Source


class AttachmentStatus(Struct, gc=False):
    """``status`` of a VolumeAttachment."""

    attached: bool = False


class Attachment(Struct, gc=False):
    """What counts of one."""

    metadata: Meta
    spec: AttachmentSpec
    status: AttachmentStatus


class Objects(Protocol):
    """The API server."""

    def all(self, plural: str, view: type[T]) -> Iterable[T]:
        """All objects of a kind, and of each what the view names."""


class Life(Protocol):
    """A claim that somebody wants, or has asked to be deleted."""

    @property
    def key(self) -> str:
        """Namespace and name."""

    @property
    def uid(self) -> str:
        """Of the claim."""

    @property
    def is_deleting(self) -> bool:
        """Whether it is on its way out."""


class Node(Protocol):
    """A node, and its instance."""

    @property
    def instance_id(self) -> str:
        """In EC2."""


class Inhabited(Protocol):
    """What users have asked for: lives by the claim's UID, and nodes by their names."""

    @property
    def lives(self) -> Mapping[str, Life]:
        """All that have not ended."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All that are there."""


class Oracle:
    """Looks at everything."""

    def __init__(self, api: Objects, account: Volumes, cluster: Inhabited) -> None:
        self._api, self._account, self._cluster = api, account, cluster
        self._there: Mapping[str, Shown] = {}
        self._strange_since_s: dict[str, float] = {}

    def wrong(self, *, at_rest: bool) -> list[str]:
        """Sentences about what is wrong. ``at_rest``: nothing is under way, so nothing is excused."""
        self._there = self._account.shown()
        volumes = {each.metadata.name: each for each in self._api.all(VOLUMES, PersistentVolume)}
        claims = {each.metadata.uid: each for each in self._api.all(CLAIMS, Claim)}
        found = {
            *self._lost(volumes, claims),
            *self._doubled(),
            *self._leaked(volumes),
            *self._misplaced(volumes),
        }
        return self._sure(found, at_rest=at_rest)

    def _sure(self, found: Collection[str], *, at_rest: bool) -> list[str]:
        sure = set(self._doubled())
        for each in list(self._strange_since_s):
            if each not in found:
                del self._strange_since_s[each]
        for each in found:
            since_s = self._strange_since_s.setdefault(each, NOW.s)
            if at_rest or NOW.s - since_s > _UNDER_WAY_S:
                sure.add(each)
        return sorted(sure)

    def _lost(
        self, volumes: Mapping[str, PersistentVolume], claims: Mapping[str, Claim]
    ) -> Iterator[str]:
        for name, each in volumes.items():
            handle = each.spec.csi.volume_handle
            if handle not in self._there and not each.metadata.deletion_timestamp:
                yield f"lost: {name} names {handle}, which EC2 does not have"
        for uid, claim in claims.items():
            key = f"{claim.metadata.namespace}/{claim.metadata.name}"
            wanted = claim.spec.volume_name or ""
            volume = volumes.get(wanted)
            if claim.status.phase == "Bound" and volume is None:
                yield f"lost: {key} is Bound to {wanted}, which is not there"
            elif volume is not None and volume.spec.claim_ref.uid != uid:
                yield f"lost: {wanted} of {key} is of another claim"
        for life in self._cluster.lives.values():
            if life.uid not in claims and not life.is_deleting:
                yield f"lost: claim {life.key} itself"

    def _doubled(self) -> Iterator[str]:
        for name, ids in self._account.made.items():
            if len(ids) > 1:
                yield f"doubled: {name} had {sorted(ids)}"

    def _leaked(self, volumes: Mapping[str, PersistentVolume]) -> Iterator[str]:
        named = {each.spec.csi.volume_handle for each in volumes.values()}
        for volume_id, shown in self._there.items():
            if volume_id not in named and not shown.is_going:
                yield f"leaked: {volume_id}, which no persistent volume names"
        for name, volume in volumes.items():
            if volume.spec.claim_ref.uid not in self._cluster.lives:
                yield f"leaked: {name}, whose claim is gone"

    def _misplaced(self, volumes: Mapping[str, PersistentVolume]) -> Iterator[str]:
        wanted: dict[tuple[str, str], bool] = {}
        for each in self._api.all(ATTACHMENTS, Attachment):
            volume = volumes.get(each.spec.source.persistent_volume_name or "")
            node = self._cluster.nodes.get(each.spec.node_name)
            if volume is None or node is None:
                yield f"misplaced: {each.metadata.name} names what is not there"
                continue
            wanted[volume.spec.csi.volume_handle, node.instance_id] = each.status.attached
        there = {
            (volume_id, instance_id)
            for volume_id, shown in self._there.items()
            for instance_id in shown.attached_to
        }
        for handle, instance_id in sorted(there - wanted.keys()):
            yield f"misplaced: {handle} is on {instance_id}, and nobody wants it there"
        for (handle, instance_id), is_told in wanted.items():
            if is_told and (handle, instance_id) not in there:
                yield f"misplaced: {handle} is said to be on {instance_id}, and is not"
            elif not is_told:
                yield f"misplaced: {handle} is not on {instance_id} yet"
