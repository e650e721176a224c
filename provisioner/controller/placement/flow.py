"""Zone choice: the zone in which a claim's volume is made.

For most claims it is the zone of the node that the scheduler chose. Also considered: the zone that
is written to the claim, the class, EC2's refusals, the source of a clone, and the other volumes of
the waiting pods. Nothing is awaited between the last answer that a choice rests on and the note of
the choice, so that two claims of one pod cannot choose different zones.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT, ZoneAnnotations
from provisioner.controller.ownership.takeover import Takeover
from provisioner.controller.placement import clone_rules, failover_rules, zone_rules
from provisioner.controller.placement.consumer_rules import (
    SiblingVolumes,
    beside_siblings,
    is_surely_beside,
)
from provisioner.controller.placement.refused_places import RefusedPlaces
from provisioner.controller.placement.waiting_pods import WaitingPods
from provisioner.controller.shared.services import Services
from provisioner.model.claim import Claim
from provisioner.model.decision import AGAIN, WHEN_WOKEN, Next
from provisioner.model.errors import Reason, StorageError
from provisioner.model.node import CsiNode, Node
from provisioner.model.pod import Pod
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import CreateRequest, Volume
from provisioner.model.zone import Place, place_of, zone_of

_Found = Place | zone_rules.NoZone | failover_rules.Moved

log = structlog.get_logger(__name__)


class ZoneChoice:
    """Chooses zones; remembers the claims that found none, until a new node could help them.

    ``wake`` queues a claim. ``count`` logs and counts an error that is not retried, with what is
    done instead.

    Attributes:
        refused_places: where EC2 has refused volumes.
    """

    def __init__(
        self,
        services: Services,
        *,
        annotations: ZoneAnnotations,
        takeover: Takeover,
        events: ClaimEvents,
        wake: Callable[[str], None],
        count: Callable[[StorageError, str], None],
    ) -> None:
        self._driver = services.settings.driver
        self._caches = services.caches
        self._zone_names = services.zone_names
        self._annotations = annotations
        self._takeover = takeover
        self._waiting_pods = WaitingPods(
            services.client, services.caches, self._driver, services.volume_reads
        )
        self.refused_places = RefusedPlaces(services.metrics)
        self._events = events
        self._wake = wake
        self._count = count
        self._without_zone: dict[str, frozenset[Place]] = {}  # with where EC2 has refused them
        self._waits_for: dict[str, str] = {}  # the one node that can help a claim, by its UID
        self._chosen: dict[str, Place] = {}
        self._moved: dict[str, failover_rules.Moved] = {}

    def subscribe(self) -> None:
        """Wake claims when a node could help them, or when a pod was created with a node."""
        self._caches.csi_nodes.subscribe(self._registration_changed)
        self._caches.nodes.subscribe(self._node_changed)
        self._caches.pods.subscribe(self._pod_changed)
        self._caches.classes.subscribe(self._class_changed)

    async def choose(
        self, claim: Claim, read_class: ReadClass, made: Volume | None, cloned: Volume | None
    ) -> Place | zone_rules.NoZone:
        """The zone of a claim for which nothing is under way in this process.

        ``made``: what the process before us has made for it; ``cloned``: what it is a copy of.

        Raises:
            Ec2Error: the class names zone ids, and EC2 could not be asked which zones they are.
            KubeError: a volume of the claim's pods could not be read.
        """
        found: _Found
        if made is not None:
            found = made.place
        else:
            try:
                found = await self._choose(claim, read_class, cloned)
            except StorageError as error:
                self._events.lookup_failed(claim, error)
                raise
        self.release(claim.uid)
        if isinstance(found, zone_rules.NoZone):
            self._without_zone[claim.uid] = self.refused_places.of(claim.uid).places
            return self._with_pause(claim, found)
        if isinstance(found, failover_rules.Moved):
            self._moved[claim.uid] = found
            found = found.where
        self._without_zone.pop(claim.uid, None)
        self._chosen[claim.uid] = found
        return found

    def written(self, claim: Claim) -> None:
        """The choice is written to the claim; report it if the volume was moved."""
        moved = self._moved.pop(claim.uid, None)
        if moved is not None:
            self._events.note(claim, moved.why)
            log.warning("creating the volume in another zone", zone=moved.where.zone, why=moved.why)

    async def refused(self, claim: Claim, asked: CreateRequest, error: StorageError) -> Next:
        """EC2 has refused a zone, and it is certain that nothing was made there.

        Another node is asked for, or another zone: ``AGAIN``.

        Raises:
            KubeError: what was written to the claim cannot be taken back.
        """
        siblings = {each.uid for each in self._waiting_pods.siblings(claim)}
        refusals = self.refused_places.refused(claim.uid, asked, error, siblings)
        if claim.selected_node and not refusals.exclude(asked.place):
            if await self._is_elsewhere(claim.selected_node, asked.zone):
                # The scheduler's newer choice was not tried yet.
                await self._annotations.remove(claim)
                return AFTER_CONFLICT
            return await self._choose_again(claim, error)
        self._annotations.settle(claim.uid)
        self._count(error, "trying another zone")
        return AGAIN

    async def no_zone(self, claim: Claim, where: zone_rules.NoZone) -> Next:
        """There is no zone for a claim now; returns as ``refused`` does.

        Raises:
            StorageError: it has to wait.
        """
        again_s = where.retry_after_s
        error = StorageError(where.reason, where.message, retry_after_s=again_s)
        self._events.failed(claim, error, once=again_s is not None)
        if where.choose_again:
            return await self._choose_again(claim, error)
        if again_s is not None:  # it was refused wherever it was started
            await self._annotations.remove(claim)
        raise error

    async def _choose_again(self, claim: Claim, why: StorageError) -> Next:
        if not await self._annotations.drop_node(claim):
            return AFTER_CONFLICT
        self._count(why, "asking the scheduler for another node")
        return WHEN_WOKEN

    def node_of(self, claim: Claim) -> str:
        """The node on which a pod is that needs the claim, "" if the scheduler has to choose."""
        return zone_rules.node_of(self._caches.pods_of(claim))

    def release(self, uid: str) -> None:
        """The choice for a claim no longer holds: nothing was made there."""
        self._chosen.pop(uid, None)
        self._moved.pop(uid, None)

    async def _is_elsewhere(self, node_name: str, zone: str) -> bool:
        """Whether a node is known to be in another zone."""
        node = await self._caches.node(node_name)
        of_node = zone_of(node.labels) if node is not None else None
        return of_node is not None and of_node != zone

    def forget(self, uid: str) -> None:
        """A claim is bound or gone."""
        self._without_zone.pop(uid, None)
        self._waits_for.pop(uid, None)
        self.release(uid)
        self.refused_places.reset(uid)

    async def _choose(self, claim: Claim, read_class: ReadClass, cloned: Volume | None) -> _Found:
        self._waits_for.pop(claim.uid, None)  # until it is known, any node may help
        pinned = await self._pinned(claim, read_class)
        if pinned is not None:
            return pinned
        given = zone_rules.deciding_node(claim, read_class, self._caches.pods_of(claim))
        if cloned is not None:
            found = await self._beside_source(claim, read_class, cloned, given)
            if isinstance(found, Place) or not read_class.storage_class.clones_across_zones:
                return found  # else it comes to any other place by a snapshot
        if given is None:
            return await self._for_any_node(claim, read_class)
        node, where = await self._place_for(claim, read_class, given.name)
        if node is None or isinstance(where, zone_rules.NoZone):
            return where
        if claim.uid in self.refused_places.claims:
            refusals = self.refused_places.of(claim.uid)
            if refusals.exclude(where):
                return await self._instead_of_node(claim, read_class, refusals, given)
        pods = self._caches.pods_of(claim)
        if given.is_settled or not zone_rules.have_other_claims(pods, claim):
            return where
        return await self._beside_siblings(claim, read_class, where, node)

    async def _place_for(
        self, claim: Claim, read_class: ReadClass, name: str
    ) -> tuple[Node | None, Place | zone_rules.NoZone]:
        """A node, and where it wants the volume; while it wants it nowhere, no other can help."""
        node, csi_node = await self._caches.node(name), await self._caches.csi_node(name)
        where = zone_rules.for_selected_node(read_class, self._driver, name, node, csi_node)
        if isinstance(where, zone_rules.NoZone):
            self._waits_for[claim.uid] = name
        return node, where

    async def _pinned(self, claim: Claim, read_class: ReadClass) -> Place | None:
        """The place that is written to a claim, if it counts.

        Anybody who may edit the claim can write it, so only where something may have been started,
        and never where the class lets no volume be. Something may have been started there all the
        same, if the class was another one then: our next call has its client token, so EC2 refuses
        it, and the volume is found.
        """
        if not claim.pinned_zone or not self.may_have_started(claim):
            return None
        pin = claim.pinned_place
        if zone_rules.allows(read_class, pin, await self._names(read_class)):
            return pin
        log.warning("ignoring the zone written to the claim: its class forbids it", zone=pin.zone)
        return None

    async def _for_any_node(self, claim: Claim, read_class: ReadClass) -> _Found:
        names = await self._names(read_class)
        sibling_volumes = await self._sibling_volumes(claim)
        found = zone_rules.candidates(read_class, self._caches.registered.places, names)
        if isinstance(found, zone_rules.NoZone):
            return found
        consumers = self._waiting_pods.consumers(claim, sibling_volumes)
        if consumers.are_constrained:
            consumers = self._waiting_pods.consumers(claim, sibling_volumes, read_class)
        candidates = beside_siblings(found, consumers)
        refusals = self.refused_places.of(claim.uid)
        return failover_rules.for_any_node(
            candidates, claim.name, refusals, self._to_avoid(read_class)
        )

    async def _instead_of_node(
        self,
        claim: Claim,
        read_class: ReadClass,
        refusals: failover_rules.Refusals,
        given: zone_rules.DecidingNode,
    ) -> _Found:
        if given.is_settled:
            return failover_rules.on_that_node(given.name, refusals)
        consumers = self._waiting_pods.consumers(
            claim, await self._sibling_volumes(claim), read_class
        )
        return failover_rules.instead_of_node(consumers, refusals, self._to_avoid(read_class))

    async def _beside_siblings(
        self, claim: Claim, read_class: ReadClass, place: Place, node: Node
    ) -> _Found:
        """The place of the chosen node, unless the pods' other volumes are elsewhere by now.

        Volumes that are known to be there are not read: most are, unless one was moved.
        """
        siblings = self._waiting_pods.siblings(claim)
        known = all(is_surely_beside(each, claim, place) for each in siblings)
        sibling_volumes = await self._sibling_volumes(claim, volumes=not known)
        pods = self._caches.pods_of(claim)
        held = [pod for pod in pods if sibling_volumes.exclude(pod, place, node)]
        if not held:
            return place
        consumers = self._waiting_pods.consumers(claim, sibling_volumes, read_class)
        refusals, avoid = (
            self.refused_places.of(claim.uid),
            self._to_avoid(read_class),
        )
        found = failover_rules.beside_siblings(node.name, consumers, refusals, avoid)
        # Where no place suits all pods, the scheduler has chosen the node for one that can run.
        is_for_another = isinstance(found, zone_rules.NoZone) and len(held) < len(pods)
        return place if is_for_another else found

    async def may_use_pinned_zone(
        self, claim: Claim, read_class: ReadClass, cloned: Volume
    ) -> bool:
        """Whether a clone of a volume may be made in the place that is written to its claim.

        Raises:
            Ec2Error: the class names zone ids, and EC2 could not be asked which zones they are.
        """
        names = await self._names(read_class)
        return clone_rules.may_use_pinned_zone(read_class, claim.pinned_place, cloned.place, names)

    async def _beside_source(
        self,
        claim: Claim,
        read_class: ReadClass,
        cloned: Volume,
        given: zone_rules.DecidingNode | None,
    ) -> _Found:
        """The place of a clone of a volume; ``given``: the node that decides."""
        refusals = self.refused_places.of(claim.uid)
        if given is None:
            names = await self._names(read_class)
            found = zone_rules.candidates(read_class, self._caches.registered.places, names)
            return clone_rules.at_once(read_class, cloned.place, found, refusals)
        node, where = await self._place_for(claim, read_class, given.name)
        if node is None or isinstance(where, zone_rules.NoZone):
            return where
        # Of two clones that can only be beside their sources, neither waits for the other.
        crosses = read_class.storage_class.clones_across_zones
        sibling_volumes = await self._sibling_volumes(claim, clones=crosses)
        consumers = self._waiting_pods.consumers(claim, sibling_volumes, read_class)
        held = [sibling_volumes.exclude(pod, cloned.place, node) for pod in consumers.pods]
        # The scheduler may have chosen the node for one of several pods; there is no other place.
        is_held = any(held) if crosses else bool(held) and all(held)
        return clone_rules.for_node(
            given.name,
            where,
            cloned.place,
            consumers,
            refusals,
            is_settled=given.is_settled,
            is_held=is_held,
        )

    async def _names(self, read_class: ReadClass) -> Mapping[str, str] | None:
        """The names of zones by id, where the class names ids."""
        return await self._zone_names.by_id() if zone_rules.needs_zone_names(read_class) else None

    def _with_pause(self, claim: Claim, where: zone_rules.NoZone) -> zone_rules.NoZone:
        """A refused request is not repeated before its time, even if an event wakes the claim."""
        if where.retry_after_s is None or not self.refused_places.of(claim.uid).places:
            return where
        pause_left_s = self.refused_places.pause_left_s(claim.uid)
        return replace(where, retry_after_s=min(where.retry_after_s, pause_left_s))

    def _to_avoid(self, read_class: ReadClass) -> dict[Place, Reason]:
        return self.refused_places.recent(read_class.parameters.volume_type)

    async def _sibling_volumes(
        self, claim: Claim, *, volumes: bool = True, clones: bool = True
    ) -> SiblingVolumes:
        """Where the pods' other volumes are, or will be. What is chosen here is read last."""
        beside_sources = await self._waiting_pods.clones(claim) if clones else {}
        there = await self._waiting_pods.volumes(claim) if volumes else {}
        return SiblingVolumes(there, beside_sources | self._in_creation(claim))

    def _in_creation(self, claim: Claim) -> dict[str, Place]:
        """Where volumes of the other claims of its pods are being made, or may be, by their key."""
        siblings = self._waiting_pods.siblings(claim)
        found = {each.key: self._made_in(each) for each in siblings if not each.spec.volume_name}
        return {key: place for key, place in found.items() if place is not None}

    def _made_in(self, claim: Claim) -> Place | None:
        chosen = self._chosen.get(claim.uid)
        if chosen is not None:
            return chosen
        if claim.pinned_zone and self.may_have_started(claim):
            return claim.pinned_place
        if claim.is_asked_of(self._driver):
            return None
        # Another driver makes its volume for the node that the scheduler chose, and nowhere else.
        node = self._caches.nodes.get(claim.selected_node)
        return place_of(node.labels) if node is not None else None

    def may_have_started(self, claim: Claim) -> bool:
        """Whether the pin of a claim counts: something may have been made there."""
        return self._annotations.has_written(claim.uid) or claim.uid in self._takeover.claims

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod was created with a node: no scheduler will ask for its claims."""
        if new is None or not new.node_name or (old is not None and old.node_name):
            return
        for key in new.claim_keys:
            claim = self._caches.claims.get(key)
            if claim is not None and not claim.spec.volume_name:
                self._wake(claim.uid)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        """The node plugin has registered: claims that waited for that can go on."""
        driver = self._driver
        if new is not None and new.driver(driver) and not (old and old.driver(driver)):
            node = self._caches.nodes.get(new.name)
            self._look_again(new.name, place_of(node.labels) if node is not None else None)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node has got its zone label: the cloud controller may be late, or our cache."""
        zone = zone_of(new.labels) if new is not None else None
        if new is not None and zone is not None and (old is None or zone != zone_of(old.labels)):
            self._look_again(new.name, place_of(new.labels))

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """A changed class may work now: do not make its claims wait."""
        if old is not None and new is not None:
            for claim in self._caches.claims.keyed("class", new.name):
                self.refused_places.reset(claim.uid)

    def _look_again(self, name: str, place: Place | None) -> None:
        """Look at the claims without a zone that this node could help.

        Not at those that wait for another node: 400 that wait for 400 would be looked at 160,000
        times. Nor at those that were refused in its place: new nodes do not give EC2 room, and
        those that wait for that know when to ask again.
        """
        for uid, refused in self._without_zone.items():
            if self._waits_for.get(uid, name) != name:
                continue
            if not refused or (place is not None and place not in refused):
                self._wake(uid)
