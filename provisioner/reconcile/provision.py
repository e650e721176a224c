"""Provision: from a claim to an attempt, and what follows when an attempt fails.

Every look begins with the attempt that is under way, or with the caches; a claim that can be
provisioned gets a plan, and its zone is pinned before EC2 hears of it.
"""

import asyncio
from datetime import UTC, datetime
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.decide import provision as rules
from provisioner.decide import zones
from provisioner.decide.creation import Attempt, GiveUp, inherited
from provisioner.ec2.lookups import NameLookUps
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder
from provisioner.kube.queue import KeyedQueue
from provisioner.metrics import Metrics
from provisioner.model.claim import UNKNOWN_ZONE, Claim, claim_uid_of
from provisioner.model.errors import StorageError
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import zone_of
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.claim_events import ClaimEvents
from provisioner.reconcile.creation import TELL_AFTER_S, Creations
from provisioner.reconcile.live import LiveLists
from provisioner.reconcile.marks import Marks
from provisioner.reconcile.pins import Pins
from provisioner.reconcile.takeover import Takeover
from provisioner.settings import Settings

_CONFLICT_S = 0.2

log = structlog.get_logger(__name__)


class Provisioner:
    """The flow of claims; keys are claim UIDs, so a claim made anew under its name is another."""

    def __init__(
        self,
        *,
        settings: Settings,
        identity: str,
        client: KubeClient,
        caches: Caches,
        volumes: Volumes,
        lookups: NameLookUps,
        watcher: Watcher,
        marks: Marks,
        live: LiveLists,
        events: EventRecorder,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._caches = caches
        self._events = ClaimEvents(events)
        self._without_zone: set[str] = set()
        self._telling: dict[str, asyncio.TimerHandle] = {}
        self._pins = Pins(client, caches)
        self.takeover = Takeover(marks, lookups)
        self.queue = KeyedQueue("provision", self._look, metrics)
        self._looked = asyncio.Event()
        self.creations = Creations(
            settings=settings,
            identity=identity,
            client=client,
            caches=caches,
            volumes=volumes,
            lookups=lookups,
            watcher=watcher,
            marks=marks,
            live=live,
            events=self._events,
            metrics=metrics,
            wake=self.queue.add,
        )

    def subscribe(self) -> None:
        """Have claims looked at when they, their class or their persistent volume change."""
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.classes.subscribe(self._class_changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)
        self._caches.nodes.subscribe(self._node_changed)

    async def reconcile(self, uid: str) -> float | None:
        """Move one claim a step on; seconds until the next look, None once settled."""
        self._name_in_logs(uid)
        if uid not in self.creations.attempts:
            begun = await self._begin(uid)
            if not isinstance(begun, Attempt):
                return begun
            self.creations.begin(uid, begun)
        asked_zone = self.creations.attempts[uid].plan.request.zone
        done = await self.creations.advance(uid)
        if uid not in self.creations.attempts and self._caches.claim(uid) is None:
            self._forget(uid)  # gone while its volume was made: no event of it will come
        if not isinstance(done, GiveUp):
            return done
        self.takeover.settle(uid)
        claim = self._caches.claim(uid)
        if claim is not None and done.choose_again and claim.selected_node:
            if await self._is_elsewhere(claim.selected_node, asked_zone):
                await self._pins.remove(claim)  # the scheduler's newer choice was not tried yet
                return _CONFLICT_S
            return await self._choose_again(claim, done.error)
        if claim is not None:
            await self._pins.remove(claim)
        raise done.error

    async def finish(self) -> None:
        """Begin nothing more, and return once each volume that was made has been saved.

        Whoever leads next need not be of ours, and would make a second volume beside one that no
        persistent volume names: the stock driver sends other tags under the same client token.
        """
        made = self.creations.has_made
        self.queue.narrow(made)
        while self.queue.is_working or any(map(made, self.creations.attempts)):
            self._looked.clear()
            await self._looked.wait()

    async def _look(self, uid: str) -> float | None:
        try:
            return await self.reconcile(uid)
        finally:
            self._looked.set()

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        gone = old is not None and (new is None or new.uid != old.uid)
        if old is not None and gone and old.uid not in self.creations.attempts:
            self._forget(old.uid)
        if new is None:
            return
        if old is not None and old.asks_for_the_same(new):
            return  # our own writing; it must not cut a pause short
        if not new.spec.volume_name and new.is_asked_of(self._settings.driver):
            self.queue.add(new.uid)
        elif new.spec.volume_name:
            self._forget(new.uid)

    def _class_changed(self, _: StorageClass | None, new: StorageClass | None) -> None:
        if new is not None:
            for claim in self._caches.claims.keyed("class", new.name):
                self._claim_changed(None, claim)

    def _persistent_volume_changed(
        self, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> None:
        """The name that a claim's persistent volume will have is free again."""
        uid = claim_uid_of(old.name) if old is not None and new is None else None
        claim = self._caches.claim(uid) if uid is not None else None
        if claim is not None:
            self._claim_changed(None, claim)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        """The node plugin has registered: claims that waited for that can go on."""
        driver = self._settings.driver
        if new is not None and new.driver(driver) and not (old and old.driver(driver)):
            self._look_for_zones_again()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node has got its zone label: the cloud controller may be late, or our cache."""
        zone = zone_of(new.labels) if new is not None else None
        if zone is not None and (old is None or zone != zone_of(old.labels)):
            self._look_for_zones_again()

    def _look_for_zones_again(self) -> None:
        for uid in self._without_zone:
            self.queue.add(uid)

    def _name_in_logs(self, uid: str) -> None:
        attempt = self.creations.attempts.get(uid)
        claim = self._caches.claim(uid) if attempt is None else attempt.plan.claim
        if claim is not None:
            bind_contextvars(claim=claim.key, persistent_volume=claim.persistent_volume_name)
        if attempt is not None and attempt.volume is not None:
            bind_contextvars(volume=attempt.volume.volume_id)

    async def _begin(self, uid: str) -> Attempt | float | None:
        """Plan a claim's volume and pin its zone; nothing is sent yet."""
        claim = self._caches.claim(uid)
        if claim is None:
            self._forget(uid)
            return None
        storage_class = None
        if claim.is_asked_of(self._settings.driver) and not claim.spec.volume_name:
            storage_class = await self._caches.storage_class(claim.class_name)
        decision = rules.examine(
            claim,
            storage_class,
            driver=self._settings.driver,
            persistent_volume=self._caches.persistent_volumes.get(claim.persistent_volume_name),
        )
        match decision:
            case rules.Nothing():
                return None
            case rules.Refuse():
                self._refused(claim, decision)
                return None
            case rules.Provision(storage_class=storage_class):
                self._tell_if_silent(claim)
                return await self._plan(claim, storage_class)
            case _:
                assert_never(decision)

    async def _plan(self, claim: Claim, storage_class: StorageClass) -> Attempt | float | None:
        # Before the first look: EC2 may not answer for long. A pin stays: it may be of one of ours
        # that has searched for a minute already and then begun the volume there.
        if self.takeover.is_in_doubt(claim) and not claim.pinned_zone:
            if not await self._pins.write(claim, UNKNOWN_ZONE):
                return _CONFLICT_S
            claim = self._caches.claim(claim.uid) or claim
        try:
            made = await self.takeover.volume_of(claim)
        except StorageError as error:
            self._events.cannot_look(claim, error)
            raise
        if isinstance(made, float):
            return made
        where = await self._zone(claim, storage_class) if made is None else zones.Chosen(made.zone)
        if isinstance(where, zones.NoZone):
            nowhere = StorageError(where.reason, where.message)
            self._events.failed(claim, nowhere)
            self._without_zone.add(claim.uid)
            if where.choose_again:
                return await self._choose_again(claim, nowhere)
            raise nowhere
        planned = rules.plan(
            claim,
            storage_class,
            zone=where.zone,
            cluster_id=self._settings.cluster_id,
            extra_tags=self._settings.extra_tags,
            default_file_system=self._settings.default_file_system,
        )
        if isinstance(planned, rules.Refuse):
            self._refused(claim, planned)
            return None
        if not await self._pins.write(claim, where.zone):
            return _CONFLICT_S
        attempt = Attempt(planned, started_at_s=asyncio.get_running_loop().time(), volume=made)
        if claim.pinned_zone and self.takeover.may_have_begun(claim.uid):
            return inherited(attempt, _age_s(claim))  # the process before us may have sent it
        return attempt

    async def _zone(self, claim: Claim, storage_class: StorageClass) -> zones.Chosen | zones.NoZone:
        # Anybody can write an annotation; it counts only where something may have been begun.
        begun = self._pins.has_written(claim.uid) or self.takeover.may_have_begun(claim.uid)
        if claim.pinned_zone and begun:
            return zones.Chosen(claim.pinned_zone)
        if not claim.selected_node:
            return zones.for_any_node(storage_class, claim.name, self._caches.registered_zones())
        name = claim.selected_node
        node, csi_node = await self._caches.node(name), await self._caches.csi_node(name)
        return zones.for_selected_node(storage_class, self._settings.driver, name, node, csi_node)

    async def _is_elsewhere(self, node_name: str, zone: str) -> bool:
        node = await self._caches.node(node_name)
        of_node = zone_of(node.labels) if node is not None else None
        return of_node is not None and of_node != zone

    async def _choose_again(self, claim: Claim, why: StorageError) -> float | None:
        if not await self._pins.drop_node(claim):
            return _CONFLICT_S
        self._count(why, "another node is asked for")
        return None

    def _tell_if_silent(self, claim: Claim) -> None:
        """Have its user told if it must wait for what a process before us may have begun."""
        uid = claim.uid
        if uid not in self._telling and self.takeover.may_have_begun(uid):
            in_time = asyncio.get_running_loop().call_later
            self._telling[uid] = in_time(TELL_AFTER_S, self._events.break_silence, claim)

    def _forget(self, uid: str) -> None:
        if uid in self._telling:
            self._telling.pop(uid).cancel()
        self._pins.forget(uid)
        self._without_zone.discard(uid)
        self._events.forget(uid)

    def _refused(self, claim: Claim, refusal: rules.Refuse) -> None:
        error = StorageError(refusal.reason, refusal.message)
        if refusal.normal:
            self._events.note(claim, refusal.message)
        elif self._events.failed(claim, error, once=refusal.settled) and refusal.settled:
            self._count(error, "refused")
        if not refusal.settled:
            raise error

    def _count(self, error: StorageError, what: str) -> None:
        """Log and count what is not tried again; the queue does so for what is."""
        self._metrics.flow_failures.labels("provision", error.reason.value).inc()
        log.warning(what, reason=error.reason.value, error=error.message)


def _age_s(claim: Claim) -> float:
    created_at = claim.metadata.creation_timestamp
    return float("inf") if created_at is None else (datetime.now(UTC) - created_at).total_seconds()
