"""Which volumes a pod uses, where it can be by them, its node and its choice of nodes, and why not.

A zone is only ruled out when no node of it could take the pod, whatever other labels it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from provisioner.model import node_affinity
from provisioner.model.pod import PodVolume
from provisioner.model.sentences import MOST_LISTED, listed
from webhook.model.cluster_view import Zones
from webhook.model.pod import Pod
from webhook.model.review import Json
from webhook.reviews.readings import NO_OBJECT, Basis, Readings, Wanted

_ANEW = "create one of them anew in the other's zone from a snapshot"
_WAIT = "a class with volumeBindingMode WaitForFirstConsumer keeps a pod's new volumes together"


@dataclass(frozen=True, slots=True)
class Placed:
    """A volume of a pod whose zones are known.

    Attributes:
        what: it, with the verb: ``the volume of claim "data" is``.
        zones: those it can be used in, at least one.
        basis: the objects that say so; none for an inline volume, of which EC2 has told.
    """

    what: str
    zones: Zones
    basis: Basis = NO_OBJECT

    def __str__(self) -> str:
        return f"{self.what} in {listed(self.zones)}"


@dataclass(frozen=True, slots=True)
class Use:
    """One claim of a pod.

    Attributes:
        title: what messages call it.
        claim_key: ``namespace/name``; "" for a claim to be made for a pod that has no name yet.
        is_made_for_pod: an ephemeral volume: its claim is made after the pod, and goes with it.
        class_name: of an ephemeral volume, "" for the default class.
    """

    title: str
    claim_key: str
    is_made_for_pod: bool = False
    class_name: str = ""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """What a pod uses: claims, each once, and EBS volumes by id with the user's zone or ""."""

    uses: tuple[Use, ...]
    inline: Mapping[str, str]

    @property
    def wanted(self) -> Wanted:
        """The objects that say where these volumes are."""
        return Wanted(
            claims=tuple(use.claim_key for use in self.uses if use.claim_key),
            classes=tuple(use.class_name for use in self.uses if use.class_name),
            inline=self.inline,
        )


def volumes_of(pod: Pod, namespace: str) -> PodVolumes:
    """Read the volumes of a pod in this namespace."""
    uses: dict[str, Use] = {}
    inline: dict[str, str] = {}
    for volume in pod.volumes:
        use = _use(pod, volume, namespace)
        if use is not None:
            uses.setdefault(use.title, use)
        ebs = volume.aws_elastic_block_store
        if ebs is not None and ebs.volume_id is not None:
            inline[ebs.volume_id] = inline.get(ebs.volume_id) or ebs.zone_hint
    return PodVolumes(tuple(uses.values()), inline)


def _use(pod: Pod, volume: PodVolume, namespace: str) -> Use | None:
    source = volume.persistent_volume_claim
    if source is not None and source.claim_name:
        return Use(f'claim "{source.claim_name}"', f"{namespace}/{source.claim_name}")
    if volume.ephemeral is None or not volume.name:
        return None
    # Source: Kubernetes 1.36 component-helpers storage/ephemeral VolumeClaimName.
    key = f"{namespace}/{pod.name}-{volume.name}" if pod.name else ""
    title = f'ephemeral volume "{volume.name}"'
    return Use(title, key, is_made_for_pod=True, class_name=volume.ephemeral.class_name)


def placed(volumes: PodVolumes, readings: Readings, *, pod_is_there: bool) -> list[Placed]:
    """The volumes whose zones are known.

    While a pod is being created, a claim with the name of its ephemeral volume's is that of an
    earlier pod and on its way out: it says nothing.
    """
    found = [
        each
        for use in volumes.uses
        if pod_is_there or not use.is_made_for_pod
        if (each := _bound(use, readings)) is not None
    ]
    for volume_id in volumes.inline:
        zone = readings.zones.get(volume_id)
        if zone:
            found.append(Placed(f"its inline volume {volume_id} is", frozenset({zone})))
    return found


def _bound(use: Use, readings: Readings) -> Placed | None:
    # No volume id and no name of a persistent volume: who may make a pod may not read those, and
    # an id is all that it takes to use the volume.
    name, volume = readings.volume_of(use.claim_key)
    if volume is None or not volume.zones:
        return None
    return Placed(
        f"{use.title} is bound to a volume",
        volume.zones,
        Basis(claims=frozenset({use.claim_key}), volumes=frozenset({name})),
    )


@dataclass(frozen=True, slots=True)
class Objection:
    """Why the pod cannot be in some zones.

    Attributes:
        why: a word for metrics.
        clause: for the user, to stand behind "but".
        fix: what would help.
        basis: the objects that say so.
    """

    why: str
    clause: str
    fix: str
    basis: Basis = NO_OBJECT


@dataclass(frozen=True)
class Demand:
    """A pod's ``nodeSelector`` and required node affinity: of each group, one term must hold.

    Each zone is looked at once: both the terms and the volumes of a pod may be hundreds.
    """

    groups: tuple[Sequence[Json], ...] = ()

    def allows(self, zone: str) -> bool:
        """Whether some node of this zone could be meant."""
        known = self._allowed.get(zone)
        if known is None:
            known = all(node_affinity.allows(terms, zone) for terms in self.groups)
            self._allowed[zone] = known
        return known

    def excludes(self, zones: Iterable[str]) -> bool:
        """Whether no node of any of the zones could be meant."""
        return not any(map(self.allows, zones))

    def left_of(self, zones: Zones) -> Zones:
        """Those of the zones that are not excluded."""
        return frozenset(filter(self.allows, zones))

    @cached_property
    def _allowed(self) -> dict[str, bool]:
        return {}

    @cached_property
    def named(self) -> Zones:
        """The zones that it leaves, as far as it names any; empty if it does not."""
        named = [node_affinity.zones_named(terms) for terms in self.groups]
        left = [zones for zones in named if zones is not None]
        return frozenset.intersection(*left) if left else frozenset()


@dataclass(frozen=True)
class Placement:
    """Where a pod is held: by volumes that lie somewhere, by its node, by its demands.

    Attributes:
        placed: its volumes of known zones.
        node_name: the one node that it may run on, "" for any.
        node_field: what says so.
        node_zone: that node's zone, None if it is not known.
        demand: on the labels of its node.
        common: the zones that all of ``placed`` share; None when there are none placed.
    """

    placed: tuple[Placed, ...]
    node_name: str
    node_field: str
    node_zone: str | None
    demand: Demand
    common: Zones | None

    def objection(self, zones: Zones) -> Objection | None:
        """Why the pod cannot be in any of these zones, the first reason of several."""
        return self._volume_elsewhere(zones) or self._node_elsewhere(zones) or self._unwanted(zones)

    def _volume_elsewhere(self, zones: Zones) -> Objection | None:
        if self.common is None or not zones.isdisjoint(self.common):
            return None
        for other in self.placed:
            if zones.isdisjoint(other.zones):
                return Objection("VolumesApart", str(other), f"{_ANEW}; {_WAIT}", other.basis)
        return None

    def _node_elsewhere(self, zones: Zones) -> Objection | None:
        if self.node_zone is None or self.node_zone in zones:
            return None
        return Objection(
            "NodeElsewhere",
            f'{self.node_field} is "{self.node_name}", a node in {self.node_zone}',
            f"leave {self.node_field} out, or name a node in {listed(zones)}",
            Basis(nodes=frozenset({self.node_name})),
        )

    def _unwanted(self, zones: Zones) -> Objection | None:
        if not self.demand.excludes(zones):
            return None
        left = self.demand.named
        selection = "the pod's nodeSelector or required node affinity"
        copied = f", or create the volume from a snapshot in {listed(left)}" if left else ""
        return Objection(
            "SelectorElsewhere",
            f"{selection} {f'leaves only {listed(left)}' if left else f'excludes {listed(zones)}'}",
            f"let the pod run in {listed(zones)}{copied}",
        )

    def conflict(self) -> tuple[Placed, Objection] | None:
        """A volume and why the pod cannot be where it is; None if some zone suits them all."""
        for each in self.placed:
            objection = self.objection(each.zones)
            if objection is not None:
                return each, objection
        if self.common is None:
            return None
        everything = NO_OBJECT
        for each in self.placed:
            everything |= each.basis
        if not self.common:
            return self.placed[0], self._nothing_common(everything)
        all_of_them = Placed("its volumes can only be used together", self.common, everything)
        objection = self.objection(self.common)
        return None if objection is None else (all_of_them, objection)

    def _nothing_common(self, everything: Basis) -> Objection:
        others = " and ".join(str(each) for each in self.placed[1:MOST_LISTED])
        clause = f"{others}, which have no zone in common"
        return Objection("VolumesApart", clause, f"{_ANEW}; {_WAIT}", everything)


def placement_of(
    pod: Pod, placed: Sequence[Placed], readings: Readings, *, selections: bool = True
) -> Placement:
    """Put together what holds a pod somewhere; ``selections``: also its choice of nodes."""
    common = frozenset.intersection(*(each.zones for each in placed)) if placed else None
    node_name, field = pod.node_name, "spec.nodeName"
    if not node_name and selections:
        node_name, field = pod.pinned_to, "matchFields metadata.name"
    demand = Demand(pod.selections if selections else ())
    node_zone = readings.zone_of(node_name)
    return Placement(tuple(placed), node_name, field, node_zone, demand, common)
