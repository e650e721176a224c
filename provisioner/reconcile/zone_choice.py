"""Zone choice: the zone in which a claim's volume is made, and who has a say in it.

The pin, the chosen node or the class; what EC2 has refused; and the pods that wait for the claim,
with their other volumes. Between the last answer that a choice rests on and the note of the choice
nothing is awaited, so that two claims of one pod never choose past each other.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from provisioner.decide import failover, zones
from provisioner.decide.consumers import InMaking, beside_siblings
from provisioner.decide.storage_class import ReadClass
from provisioner.ec2.zones import ZoneNames
from provisioner.model.claim import Claim
from provisioner.model.errors import StorageError
from provisioner.model.node import CsiNode, Node
from provisioner.model.pod import Pod
from provisioner.model.volume import Volume
from provisioner.model.zone import Place, zone_of
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.claim_events import ClaimEvents
from provisioner.reconcile.consumers import WaitingPods
from provisioner.reconcile.failover import FailOver
from provisioner.reconcile.pins import Pins
from provisioner.reconcile.takeover import Takeover

log = structlog.get_logger(__name__)


class ZoneChoice:
    """Chooses zones; remembers the claims that found none, until a node could help them.

    ``wake`` has a claim looked at again.
    """

    def __init__(
        self,
        *,
        driver: str,
        caches: Caches,
        zone_names: ZoneNames,
        pins: Pins,
        takeover: Takeover,
        waiting_pods: WaitingPods,
        fail_over: FailOver,
        events: ClaimEvents,
        wake: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._caches = caches
        self._zone_names = zone_names
        self._pins = pins
        self._takeover = takeover
        self._waiting_pods = waiting_pods
        self._fail_over = fail_over
        self._events = events
        self._wake = wake
        self._without_zone: set[str] = set()
        self._chosen: dict[str, Place] = {}

    def subscribe(self) -> None:
        """Have claims looked at when a node could help them, or a pod needs them where it is."""
        self._caches.csi_nodes.subscribe(self._registration_changed)
        self._caches.nodes.subscribe(self._node_changed)
        self._caches.pods.subscribe(self._pod_changed)

    async def choose(
        self, claim: Claim, read_class: ReadClass, made: Volume | None
    ) -> zones.Chosen | zones.NoZone:
        """The zone of a claim for which nothing is under way in this process.

        ``made``: what the process before us has made for it.

        Raises:
            Ec2Error: the class names zone ids, and EC2 could not be asked which zones they are.
            KubeError: a volume of the claim's pods could not be read.
        """
        where: zones.Chosen | zones.NoZone
        try:
            where = (
                await self._choose(claim, read_class)
                if made is None
                else zones.Chosen(made.zone, made.outpost_arn)
            )
        except StorageError as error:
            self._events.cannot_look(claim, error)
            raise
        if isinstance(where, zones.NoZone):
            self._without_zone.add(claim.uid)
            self._chosen.pop(claim.uid, None)
        else:
            self._without_zone.discard(claim.uid)
            self._chosen[claim.uid] = Place(where.zone, where.outpost_arn)
        return where

    def node_of(self, claim: Claim) -> str:
        """The node on which a pod is that needs the claim, "" if the scheduler has to choose."""
        return self._waiting_pods.node_of(claim)

    def is_open(self, uid: str) -> None:
        """Nothing is made for a claim where it was going to be made; nothing is left there."""
        self._chosen.pop(uid, None)

    async def is_elsewhere(self, node_name: str, zone: str) -> bool:
        """Whether a node is surely in another zone."""
        node = await self._caches.node(node_name)
        of_node = zone_of(node.labels) if node is not None else None
        return of_node is not None and of_node != zone

    def forget(self, uid: str) -> None:
        """A claim is bound or gone."""
        self._without_zone.discard(uid)
        self._chosen.pop(uid, None)
        self._fail_over.begin_anew(uid)

    async def _choose(self, claim: Claim, read_class: ReadClass) -> zones.Chosen | zones.NoZone:
        # Anybody can write an annotation; it counts only where something may have been begun.
        begun = self._pins.has_written(claim.uid) or self._takeover.may_have_begun(claim.uid)
        if claim.pinned_zone and begun:
            return zones.Chosen(claim.pinned_zone, claim.pinned_outpost_arn)
        name = claim.selected_node
        if not name and read_class.storage_class.waits_for_consumer:
            name = self.node_of(claim)
        if not name:
            return await self._for_any_node(claim, read_class)
        node, csi_node = await self._caches.node(name), await self._caches.csi_node(name)
        where = zones.for_selected_node(read_class, self._driver, name, node, csi_node)
        refusals = self._fail_over.of(claim.uid)
        if isinstance(where, zones.NoZone) or not refusals.exclude(
            Place(where.zone, where.outpost_arn)
        ):
            return where
        if claim.selected_node:
            return await self._instead_of_node(claim, read_class, refusals)
        self._fail_over.begin_anew(claim.uid)
        return failover.on_that_node(name, refusals)

    async def _for_any_node(
        self, claim: Claim, read_class: ReadClass
    ) -> zones.Chosen | zones.NoZone:
        needs_names = zones.needs_zone_names(read_class)
        names = await self._zone_names.by_id() if needs_names else None
        volumes = await self._waiting_pods.volumes(claim)
        found = zones.candidates(read_class, self._caches.registered_places(), names)
        if isinstance(found, zones.NoZone):
            return found
        consumers = self._waiting_pods.consumers(claim, volumes, self._in_making(claim))
        if consumers.are_tied:
            consumers = replace(consumers, homes=self._waiting_pods.homes(read_class))
        refusals = self._fail_over.of(claim.uid)
        doubtful = self._fail_over.doubtful(read_class.parameters.volume_type)
        candidates = beside_siblings(found, consumers)
        where = failover.for_any_node(candidates, claim.name, refusals, doubtful)
        if isinstance(where, zones.NoZone):
            self._fail_over.begin_anew(claim.uid)
        return self._told(claim, where)

    async def _instead_of_node(
        self, claim: Claim, read_class: ReadClass, refusals: failover.Refusals
    ) -> zones.Chosen | zones.NoZone:
        volumes = await self._waiting_pods.volumes(claim)
        consumers = self._waiting_pods.consumers(claim, volumes, self._in_making(claim))
        consumers = replace(consumers, homes=self._waiting_pods.homes(read_class))
        doubtful = self._fail_over.doubtful(read_class.parameters.volume_type)
        where = failover.instead_of_node(consumers, refusals, doubtful)
        if isinstance(where, zones.NoZone) and not consumers.in_making:
            self._fail_over.begin_anew(claim.uid)
        return self._told(claim, where)

    def _told(
        self, claim: Claim, where: zones.Chosen | zones.NoZone | failover.Moved
    ) -> zones.Chosen | zones.NoZone:
        if not isinstance(where, failover.Moved):
            return where
        self._events.note(claim, where.why)
        log.warning("made in another zone", zone=where.where.zone, why=where.why)
        return where.where

    def _in_making(self, claim: Claim) -> InMaking:
        """Where volumes of the other claims of its pods are being made, or may be."""
        siblings = (each for each in self._waiting_pods.siblings(claim))
        found = [self._made_in(each) for each in siblings if not each.spec.volume_name]
        return frozenset(place for place in found if place is not None)

    def _made_in(self, claim: Claim) -> Place | None:
        chosen = self._chosen.get(claim.uid)
        if chosen is None and claim.pinned_zone and self._takeover.may_have_begun(claim.uid):
            return Place(claim.pinned_zone, claim.pinned_outpost_arn)
        return chosen

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod is on a node without the scheduler: nobody else asks for its claims."""
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
            self._look_again()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node has got its zone label: the cloud controller may be late, or our cache."""
        zone = zone_of(new.labels) if new is not None else None
        if zone is not None and (old is None or zone != zone_of(old.labels)):
            self._look_again()

    def _look_again(self) -> None:
        for uid in self._without_zone:
            self._wake(uid)
