"""What the webhook knows of the cluster: a view of each object, and those that one rule needs.

10,000 persistent volumes and claims must fit beside the imports in 35 MiB, so a view holds only
what reviews read of an object.

A rule names its ``References``, ``collect`` looks them up, and the rule judges the ``ClusterView``.
A denial is proved a second time: its handler reads the objects of its ``Evidence`` from the API
server, puts only those into a new ``ClusterView``, and judges again. What was not read is unknown,
and nothing is refused because of something unknown.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from provisioner.model.zone import ZONE_KEYS
from webhook.model.review import Answer

Zones = frozenset[str]


class ClaimView(msgspec.Struct, frozen=True, gc=False):
    """A claim: which persistent volume it is bound to, else which class will make one.

    One that is being deleted has neither.

    Attributes:
        volume_name: ``spec.volumeName`` once it is bound (``bind-completed``), else "".
        class_name: its StorageClass, "" for none.
        uid: its own, by which a persistent volume names it.
    """

    volume_name: str
    class_name: str
    uid: str = ""


class VolumeView(msgspec.Struct, frozen=True, gc=False):
    """A persistent volume on EBS.

    Attributes:
        volume_id: the EBS volume, bare.
        zones: the zones in which its node affinity lets pods run, or for lack of one the label of
            an in-tree one; None when nothing that counts is said about zones.
        claim_namespace: where its claim is, or was (``claimRef``), "" for none.
        claim_uid: of that claim, "" for none, or while it is only reserved for one.
        placement: for the repairs, its labels of zone and Region and its node affinity as JSON; ""
            of one that is being deleted, or that is not our driver's.
    """

    volume_id: str
    zones: Zones | None
    claim_namespace: str = ""
    claim_uid: str = ""
    placement: bytes = b""


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node: where it is, and whether pods can come to it.

    Attributes:
        labels: its topology labels only.
        zone: of those, None if they tell none, or more than one.
        schedulable: not cordoned.
        has_driver: our driver is registered on it (CSINode).
    """

    labels: tuple[tuple[str, str], ...]
    zone: str | None
    schedulable: bool
    has_driver: bool

    def may_be_in(self, zones: Zones) -> bool:
        """Whether one of its labels says that it is in one of the zones."""
        if self.zone is not None:
            return self.zone in zones
        return any(key in ZONE_KEYS and value in zones for key, value in self.labels)


class ClassView(msgspec.Struct, frozen=True, gc=False):
    """A StorageClass of our driver or of the in-tree one.

    Attributes:
        waits: ``WaitForFirstConsumer``.
        zones: what ``allowedTopologies`` names; None for no limit.
        goes_across: clones may be made in another zone than their source's.
    """

    waits: bool
    zones: Zones | None
    goes_across: bool = False


@dataclass(frozen=True, slots=True)
class References:
    """The objects that a rule needs by name; more follow from them (``collect``).

    Attributes:
        claims: keys, ``namespace/name``.
        classes: names of StorageClasses.
        inline: EBS volumes that are named without a persistent volume: id to the zone that the
            user says it is in, "" for none. Only EC2 knows the truth.
    """

    claims: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    inline: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is known of the cluster. A missing key and None are the same: not known, or not ours.

    Attributes:
        claims: by ``namespace/name``.
        volumes: persistent volumes on EBS, by name; those of other drivers are left out.
        classes: StorageClasses for EBS, by name; those of other drivers are left out.
        nodes: by name.
        node_views: of all nodes, those that are alike once: of 10,000 nodes there are a few.
        zones: of EBS volumes named inline, id to zone, as EC2 has told it; never a user's hint.
    """

    claims: Mapping[str, ClaimView | None] = field(default_factory=dict)
    volumes: Mapping[str, VolumeView | None] = field(default_factory=dict)
    classes: Mapping[str, ClassView | None] = field(default_factory=dict)
    nodes: Mapping[str, NodeView | None] = field(default_factory=dict)
    node_views: Collection[NodeView] = ()
    zones: Mapping[str, str] = field(default_factory=dict)

    def volume_of(self, claim_key: str) -> tuple[str, VolumeView | None]:
        """The persistent volume that a claim is bound to: its name ("" for none) and view.

        Only where both name each other: the author of a claim can write into it that it is bound,
        to a persistent volume of another tenant.
        Source: Kubernetes 1.36 pkg/controller/volume/persistentvolume ``syncUnboundClaim``: a bound
        persistent volume has the uid of its claim.
        """
        claim = self.claims.get(claim_key)
        name = claim.volume_name if claim is not None else ""
        if claim is None or not name:
            return "", None
        volume = self.volumes.get(name)
        if volume is not None and (not claim.uid or volume.claim_uid != claim.uid):
            return "", None
        return name, volume

    def held_outside(self, namespace: str) -> dict[str, str]:
        """The EBS volumes that back claims of other namespaces, with a persistent volume of each.

        Claims that are gone count: what they wrote is still on the volume.
        """
        return {
            view.volume_id: name
            for name, view in self.volumes.items()
            if view is not None and view.claim_namespace not in ("", namespace)
        }

    def zone_of(self, node_name: str) -> str | None:
        """The zone of a node, None if nothing tells."""
        node = self.nodes.get(node_name)
        return node.zone if node is not None else None

    def has_room_in(self, zones: frozenset[str]) -> bool:
        """Whether pods can come to a node of one of the zones; also true if no zone is known."""
        if any(node.schedulable and node.may_be_in(zones) for node in self.node_views):
            return True
        return not any(node.zone for node in self.node_views)

    def only(self, evidence: "Evidence") -> "ClusterView":
        """This view without all that a denial does not rest on.

        What EC2 has said stays: a volume never changes its zone.
        """
        return ClusterView(
            claims={key: self.claims.get(key) for key in evidence.claims},
            volumes={name: self.volumes.get(name) for name in evidence.volumes},
            nodes={name: self.nodes.get(name) for name in evidence.nodes},
            zones=self.zones,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The objects that prove a denial; they are read again before it is given.

    Attributes:
        claims: keys, ``namespace/name``.
        volumes: names of persistent volumes.
        nodes: names.
    """

    claims: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def __or__(self, other: "Evidence") -> "Evidence":
        return Evidence(
            self.claims | other.claims, self.volumes | other.volumes, self.nodes | other.nodes
        )


NO_EVIDENCE = Evidence()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule answers, and the objects that prove it if that is a denial."""

    answer: Answer
    evidence: Evidence = NO_EVIDENCE


def collect(
    references: References,
    *,
    claim: Callable[[str], ClaimView | None],
    volume: Callable[[str], VolumeView | None],
    backed_by: Callable[[str], Sequence[str]],
    storage_class: Callable[[str], ClassView | None],
    nodes: Mapping[str, NodeView | None],
    node_views: Collection[NodeView],
    zones: Mapping[str, str] | None = None,
) -> ClusterView:
    """Look up the references, then what follows from them.

    That is the persistent volumes of bound claims and of inline volumes (``backed_by``: their names
    by EBS volume), and the classes of other claims. The nodes are handed on as they are; ``zones``
    are those of ``references.inline`` that EC2 told.
    """
    claims = {key: claim(key) for key in references.claims}
    found = [view for view in claims.values() if view is not None]
    volumes = {view.volume_name for view in found if view.volume_name}
    volumes.update(name for volume_id in references.inline for name in backed_by(volume_id))
    classes = {view.class_name for view in found if view.class_name and not view.volume_name}
    return ClusterView(
        claims=claims,
        volumes={name: volume(name) for name in volumes},
        classes={name: storage_class(name) for name in classes.union(references.classes)},
        nodes=nodes,
        node_views=node_views,
        zones=zones or {},
    )
