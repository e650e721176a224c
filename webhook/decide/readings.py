"""What a rule asks of the cluster, and what a denial rests on.

``Wanted`` names the objects, ``gathered`` looks them up, a rule judges the ``Readings``. A denial
is proved a second time: the handler reads the objects of its ``Basis`` from the API server, puts
only them into new ``Readings`` and judges again. What was not read is unknown, and nothing is
refused for what is unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from webhook.model.views import ClaimView, ClassView, NodeView, VolumeView


@dataclass(frozen=True, slots=True)
class Wanted:
    """The objects that a rule asks for by name; more follow from them (``gathered``).

    Attributes:
        claims: keys, ``namespace/name``.
        volumes: names of persistent volumes.
        classes: names of StorageClasses.
        inline: EBS volumes that are named without a persistent volume: id to the zone that the
            user says it is in, "" for none. Only EC2 knows the truth.
    """

    claims: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    inline: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readings:
    """What is known of the cluster. A missing key and None are the same: not known, or not ours.

    Attributes:
        claims: by ``namespace/name``.
        volumes: persistent volumes on EBS, by name; those of other drivers are left out.
        classes: StorageClasses for EBS, by name; those of other drivers are left out.
        nodes: by name.
        zones: of EBS volumes named inline, id to zone, as EC2 has told it; never a user's hint.
        bystanders: nodes, by name, for which something may be let through, but nothing refused;
            None for ``nodes``.
    """

    claims: Mapping[str, ClaimView | None] = field(default_factory=dict)
    volumes: Mapping[str, VolumeView | None] = field(default_factory=dict)
    classes: Mapping[str, ClassView | None] = field(default_factory=dict)
    nodes: Mapping[str, NodeView | None] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    bystanders: Mapping[str, NodeView | None] | None = None

    @property
    def allowing(self) -> Mapping[str, NodeView | None]:
        """The nodes for which something may be let through."""
        return self.nodes if self.bystanders is None else self.bystanders

    def volume_of(self, claim_key: str) -> tuple[str, VolumeView | None]:
        """The persistent volume that a claim is bound to: its name ("" for none) and view."""
        claim = self.claims.get(claim_key)
        name = claim.volume_name if claim is not None else ""
        return name, self.volumes.get(name) if name else None

    def zone_of(self, node_name: str) -> str | None:
        """The zone of a node, None if nothing tells."""
        node = self.nodes.get(node_name)
        return node.zone if node is not None else None

    def has_room_in(self, zones: frozenset[str]) -> bool:
        """Whether pods can come to a node of one of the zones; also true if no zone is known."""
        nodes = self.nodes.values()
        if any(node is not None and node.schedulable and node.may_be_in(zones) for node in nodes):
            return True
        return not any(node is not None and node.zone for node in nodes)

    def only(self, basis: "Basis") -> "Readings":
        """These readings without all that a denial does not rest on.

        What EC2 has told stays: a volume never changes its zone. So do the nodes for which another
        reason was none.
        """
        return Readings(
            claims={key: self.claims.get(key) for key in basis.claims},
            volumes={name: self.volumes.get(name) for name in basis.volumes},
            nodes={name: self.nodes.get(name) for name in basis.nodes},
            zones=self.zones,
            bystanders=self.allowing,
        )


@dataclass(frozen=True, slots=True)
class Basis:
    """The objects that prove a denial, to be read anew before it is spoken.

    Attributes:
        claims: keys, ``namespace/name``.
        volumes: names of persistent volumes.
        nodes: names.
    """

    claims: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def __or__(self, other: "Basis") -> "Basis":
        return Basis(
            self.claims | other.claims, self.volumes | other.volumes, self.nodes | other.nodes
        )


NO_OBJECT = Basis()


def gathered(
    wanted: Wanted,
    *,
    claim: Callable[[str], ClaimView | None],
    volume: Callable[[str], VolumeView | None],
    storage_class: Callable[[str], ClassView | None],
    nodes: Mapping[str, NodeView | None],
    zones: Mapping[str, str] | None = None,
) -> Readings:
    """Look up what is wanted, then what the claims found name: volumes of bound, classes of others.

    The nodes are handed on as they are; ``zones`` are those of ``wanted.inline`` that EC2 told.
    """
    claims = {key: claim(key) for key in wanted.claims}
    found = [view for view in claims.values() if view is not None]
    volumes = {view.volume_name for view in found if view.volume_name}
    classes = {view.class_name for view in found if view.class_name and not view.volume_name}
    return Readings(
        claims=claims,
        volumes={name: volume(name) for name in volumes.union(wanted.volumes)},
        classes={name: storage_class(name) for name in classes.union(wanted.classes)},
        nodes=nodes,
        zones=zones or {},
    )
