"""Decide whether a new pod could ever be where its volumes are, and may have them.

It is refused when the objects prove that it could not: volumes in different zones, a node in
another zone, demands on its node that exclude every zone of a volume. What is only likely is a
warning. What is not known, like a claim that does not exist yet or one of another driver, is let
through.

A controller's pod is refused only where the scheduler would let it start: a refusal makes a
ReplicaSet wait up to 1,000 s before it tries again, where a pod that is Pending runs within a
second of the correction (measured on Kubernetes 1.36.3).
Source: Kubernetes 1.36 scheduler plugins VolumeBinding and VolumeZone, which leave such a pod
pending forever; a pod with ``nodeName`` passes neither, and an inline volume is nothing to them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from provisioner.model import node_affinity
from provisioner.model.sentences import MOST_LISTED, listed
from webhook.model.cluster_view import (
    NO_EVIDENCE,
    ClassView,
    ClusterView,
    Evidence,
    References,
    Verdict,
    VolumeView,
    Zones,
)
from webhook.model.pod import Pod, PodClaim, PodVolumes, volumes_of
from webhook.model.review import Answer, Json, allow, deny

# A pod may name thousands of volumes; nobody reads as many warnings, and the API server cuts them
# off at 4 KiB in all. Each hint is another zone to hold against all terms of the pod.
_MOST_WARNINGS = 8
_MOST_LOOKED_AT = 64
_MOST_HINTS = 8
# Labels and values that a pod asks of its node. Nobody writes as many; each is gone through for
# every zone of a volume, three times before a denial.
MOST_PARTS = 1_000
_BACKOFF = "; its controller retries within 16 minutes, or at once after kubectl rollout restart"
_ANEW = "recreate one of them from a snapshot in the other's zone"
_WAIT = "a class with volumeBindingMode WaitForFirstConsumer keeps a pod's new volumes together"


def references(pod: Pod, namespace: str) -> References:
    """The objects that say where a pod's volumes are; also for a pod that is being bound.

    Claims of ephemeral volumes are among them, once the pod has a name. ``namespace`` is the
    request's: the pod may leave its own out.
    """
    return volumes_of(pod, namespace).references


@dataclass(frozen=True, slots=True)
class Placed:
    """A volume of a pod whose zones are known.

    Attributes:
        what: it, with the verb: ``the volume of claim "data" is``.
        zones: those it can be used in, at least one.
        evidence: the objects that say so; none for an inline volume, of which EC2 has told.
    """

    what: str
    zones: Zones
    evidence: Evidence = NO_EVIDENCE

    def __str__(self) -> str:
        return f"{self.what} in {listed(self.zones)}"


def placed(volumes: PodVolumes, cluster: ClusterView, *, pod_is_there: bool) -> list[Placed]:
    """The volumes whose zones are known.

    While a pod is being created, a claim with the name of its ephemeral volume's is that of an
    earlier pod and on its way out: it says nothing.
    """
    found = [
        each
        for claim in volumes.claims
        if pod_is_there or not claim.is_made_for_pod
        if (each := _bound(claim, cluster)) is not None
    ]
    for volume_id in volumes.inline:
        zone = cluster.zones.get(volume_id)
        if zone:
            found.append(Placed(f"its inline volume {volume_id} is", frozenset({zone})))
    return found


def _bound(claim: PodClaim, cluster: ClusterView) -> Placed | None:
    # No volume id and no name of a persistent volume: who may make a pod may not read those, and
    # an id is all that it takes to use the volume.
    name, volume = cluster.volume_of(claim.key)
    if volume is None or not volume.zones:
        return None
    return Placed(
        f"{claim.title} is bound to a volume",
        volume.zones,
        Evidence(claims=frozenset({claim.key}), volumes=frozenset({name})),
    )


@dataclass(frozen=True, slots=True)
class Objection:
    """Why the pod cannot be in some zones.

    Attributes:
        why: a word for metrics.
        clause: for the user, to stand behind "but".
        fix: what would help.
        evidence: the objects that say so.
    """

    why: str
    clause: str
    fix: str
    evidence: Evidence = NO_EVIDENCE


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
                return Objection("VolumesApart", str(other), f"{_ANEW}; {_WAIT}", other.evidence)
        return None

    def _node_elsewhere(self, zones: Zones) -> Objection | None:
        if self.node_zone is None or self.node_zone in zones:
            return None
        return Objection(
            "NodeElsewhere",
            f'{self.node_field} is "{self.node_name}", a node in {self.node_zone}',
            f"remove {self.node_field}, or name a node in {listed(zones)}",
            Evidence(nodes=frozenset({self.node_name})),
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
        everything = NO_EVIDENCE
        for each in self.placed:
            everything |= each.evidence
        if not self.common:
            return self.placed[0], self._nothing_common(everything)
        all_of_them = Placed("its volumes can only be used together", self.common, everything)
        objection = self.objection(self.common)
        return None if objection is None else (all_of_them, objection)

    def _nothing_common(self, everything: Evidence) -> Objection:
        others = " and ".join(str(each) for each in self.placed[1:MOST_LISTED])
        clause = f"{others}, which have no zone in common"
        return Objection("VolumesApart", clause, f"{_ANEW}; {_WAIT}", everything)


def placement_of(
    pod: Pod, placed: Sequence[Placed], cluster: ClusterView, *, selections: bool = True
) -> Placement:
    """Put together what holds a pod somewhere; ``selections``: also its choice of nodes."""
    common = frozenset.intersection(*(each.zones for each in placed)) if placed else None
    node_name, field = pod.node_name, "spec.nodeName"
    if not node_name and selections:
        node_name, field = pod.pinned_to, "matchFields metadata.name"
    demand = Demand(pod.selections if selections else ())
    node_zone = cluster.zone_of(node_name)
    return Placement(tuple(placed), node_name, field, node_zone, demand, common)


def judge(pod: Pod, cluster: ClusterView, *, namespace: str, strict: bool = False) -> Verdict:
    """Refuse a pod that could never run where its volumes are, warn if it is not likely to run.

    ``strict``: one that asks more of its node than is read is refused too.
    """
    volumes = volumes_of(pod, namespace)
    if not volumes.claims and not volumes.inline:
        return Verdict(allow("NothingToDo"))
    taken = _anothers(pod, volumes, cluster, namespace)
    if taken is not None:
        return taken
    is_readable = pod.parts <= MOST_PARTS
    found_volumes = placed(volumes, cluster, pod_is_there=False)
    placement = placement_of(pod, found_volumes, cluster, selections=is_readable)
    found = placement.conflict()
    if found is not None:
        return _conflicting(pod, placement, *found)
    if not is_readable:
        return Verdict(_too_many_parts(pod, strict=strict))
    doubts = islice(_doubts(volumes, placement, cluster), _MOST_WARNINGS)
    warnings = [f"{pod.title}: {each}" for each in doubts]
    if warnings:
        return Verdict(allow("ZonesInDoubt", warnings=warnings))
    return Verdict(allow("ZonesAgree" if placement.placed else "NothingToDo"))


def _anothers(
    pod: Pod, volumes: PodVolumes, cluster: ClusterView, namespace: str
) -> Verdict | None:
    """Whose claim it is, is not told: the id may be guessed."""
    held = cluster.held_outside(namespace) if volumes.inline else {}
    volume_id = next((each for each in volumes.inline if each in held), None)
    if volume_id is None:
        return None
    sentence = (
        f"{pod.title}: its inline volume {volume_id} belongs to a claim in another namespace; only "
        "pods of that namespace may use it: use a claim and a volume of your own"
    )
    evidence = Evidence(volumes=frozenset({held[volume_id]}))
    return Verdict(deny("VolumeOfAnotherNamespace", sentence, code=403), evidence)


def _conflicting(pod: Pod, placement: Placement, volume: Placed, objection: Objection) -> Verdict:
    evidence = volume.evidence | objection.evidence
    sentence = f"{pod.title}: {volume}, but {objection.clause}"
    is_held_back = not pod.node_name and all(each.evidence.volumes for each in placement.placed)
    if not pod.is_controlled:
        return Verdict(deny(objection.why, f"{sentence}; {objection.fix}", code=403), evidence)
    if is_held_back:
        warning = f"{sentence}; it stays Pending until that changes: {objection.fix}"
        return Verdict(allow(f"{objection.why}HeldByScheduler", warnings=[warning]))
    return Verdict(
        deny(objection.why, f"{sentence}; {objection.fix}{_BACKOFF}", code=403), evidence
    )


def _too_many_parts(pod: Pod, *, strict: bool) -> Answer:
    what = (
        f"{pod.title}: its nodeSelector and required node affinity have more than {MOST_PARTS:,} "
        "labels and values"
    )
    if strict:
        return deny("TooManyParts", f"{what}, which is more than ebs-webhook reads; use fewer")
    return allow(
        "TooManyParts", warnings=[f"{what}, so they were not compared with its volumes' zones"]
    )


def _doubts(volumes: PodVolumes, placement: Placement, cluster: ClusterView) -> Iterator[str]:
    for claim in volumes.claims[:_MOST_LOOKED_AT]:
        yield from _doubts_about_claim(claim, placement, cluster)
    for volume_id, hint in islice(volumes.inline.items(), _MOST_HINTS):
        if hint and volume_id not in cluster.zones:
            yield from _doubts_about_hint(volume_id, hint, placement)
    if placement.common and not placement.node_name:
        zones = placement.demand.left_of(placement.common)
        if not cluster.has_room_in(zones):
            yield (
                f"{placement.placed[0]}, but no node in {listed(zones)} accepts pods now; it stays "
                "Pending until one does"
            )


def _doubts_about_claim(
    claim: PodClaim, placement: Placement, cluster: ClusterView
) -> Iterator[str]:
    class_name = claim.class_name
    what = f'{claim.title} of class "{class_name}"'
    if not claim.is_made_for_pod:
        name, volume = cluster.volume_of(claim.key)
        if name:
            if volume is not None and volume.zones == frozenset():
                yield (
                    f"{claim.title} is bound to a PersistentVolume whose nodeAffinity contradicts "
                    "itself, so no node can use it; have it recreated"
                )
            return
        known = cluster.claims.get(claim.key)
        class_name = known.class_name if known is not None else ""
        # Without the class: the pod does not name it, and its author may not read the claim.
        what = claim.title
    storage_class = cluster.classes.get(class_name)
    if storage_class is not None and storage_class.zones:
        yield from _doubts_about_class(what, storage_class, placement, cluster)


def _doubts_about_class(
    what: str, storage_class: ClassView, placement: Placement, cluster: ClusterView
) -> Iterator[str]:
    zones = storage_class.zones or frozenset()
    objection = placement.objection(zones)
    if objection is not None:
        yield (
            f"{what} can only get a volume in {listed(zones)} (allowedTopologies), but "
            f"{objection.clause}; use a class for that zone, or it stays Pending"
        )
        return
    zones = placement.demand.left_of(zones)
    if not placement.node_name and not cluster.has_room_in(zones):
        yield (
            f"{what} can only get a volume in {listed(zones)} here, but no node there accepts pods "
            "now; it stays Pending until one does"
        )


def _doubts_about_hint(volume_id: str, hint: str, placement: Placement) -> Iterator[str]:
    objection = placement.objection(frozenset({hint}))
    if objection is not None:
        yield (
            f"its inline volume {volume_id} is in {hint} according to its volumeID, but "
            f"{objection.clause}; if so, it can never be attached there"
        )


def explained(
    answer: Answer, volumes: Mapping[str, VolumeView | None], seen: Callable[[str], str]
) -> Answer:
    """A denial, and beside it what EC2 has said of a persistent volume that led to it.

    One that was made during an outage may be wrong about its zone: then following the denial's
    advice would only lead to the next trouble.

    Args:
        answer: of a rule.
        volumes: the persistent volumes that it rests on, by name.
        seen: the zone that EC2 has told of a volume, "" if it was not asked.
    """
    wrong = [
        f"EC2 has that volume in {zone}: its PersistentVolume wrongly allows "
        f"{' or '.join(sorted(view.zones))} only, and must be recreated with the right "
        "nodeAffinity"
        for view in volumes.values()
        if view is not None and view.zones
        if (zone := seen(view.volume_id)) and zone not in view.zones
    ]
    if answer.allowed or not wrong:
        return answer
    return replace(answer, message="; but ".join([answer.message, *wrong]))
