"""Provision: from a claim to an attempt, and what follows when an attempt fails.

Every look begins with the attempt that is under way, or with the caches; a claim that can be
provisioned gets a plan, and its zone is pinned before EC2 hears of it.
"""

import asyncio
from collections.abc import Mapping
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.decide import provision as rules
from provisioner.decide import zones
from provisioner.decide.creation import Attempt, GiveUp
from provisioner.ec2.lookups import NameLookUps
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.events import EventRecorder
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import CLAIMS
from provisioner.metrics import Metrics
from provisioner.model.claim import (
    PINNED_ZONE,
    SELECTED_NODE,
    UNKNOWN_ZONE,
    Claim,
    claim_uid_of,
)
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import zone_of
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.claim_events import ClaimEvents
from provisioner.reconcile.creation import Creations
from provisioner.reconcile.live import LiveLists
from provisioner.reconcile.marks import Marks
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
        self._client = client
        self._caches = caches
        self._events = ClaimEvents(events)
        self._without_zone: set[str] = set()
        self.takeover = Takeover(marks, lookups)
        self.queue = KeyedQueue("provision", self.reconcile, metrics)
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
        done = await self.creations.advance(uid)
        if uid not in self.creations.attempts and self._caches.claim(uid) is None:
            self._forget(uid)  # gone while its volume was made: no event of it will come
        if not isinstance(done, GiveUp):
            return done
        self.takeover.settle(uid)
        claim = self._caches.claim(uid)
        if done.choose_again and claim is not None and claim.selected_node:
            return await self._choose_again(claim, done.error)
        raise done.error

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        gone = old is not None and (new is None or new.uid != old.uid)
        if old is not None and gone and old.uid not in self.creations.attempts:
            self._forget(old.uid)
        if new is None:
            return
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
        """A node has got its zone label (the cloud controller may be late)."""
        if new is not None and old is not None:
            zone = zone_of(new.labels)
            if zone is not None and zone != zone_of(old.labels):
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
                return await self._plan(claim, storage_class)
            case _:
                assert_never(decision)

    async def _plan(self, claim: Claim, storage_class: StorageClass) -> Attempt | float | None:
        where = await self._zone(claim, storage_class)
        if isinstance(where, zones.NoZone):
            error = StorageError(where.reason, where.message)
            self._events.failed(claim, error)
            self._without_zone.add(claim.uid)
            if where.choose_again:
                return await self._choose_again(claim, error)
            raise error
        try:
            made = await self.takeover.volume_of(claim)
        except StorageError as error:
            self._events.cannot_look(claim, error)
            raise
        if isinstance(made, float):
            return made if await self._pin(claim, UNKNOWN_ZONE) else _CONFLICT_S
        zone = where.zone if made is None else made.zone
        planned = rules.plan(
            claim,
            storage_class,
            zone=zone,
            cluster_id=self._settings.cluster_id,
            extra_tags=self._settings.extra_tags,
            default_file_system=self._settings.default_file_system,
        )
        if isinstance(planned, rules.Refuse):
            self._refused(claim, planned)
            return None
        if not await self._pin(claim, zone):
            return _CONFLICT_S
        return Attempt(planned, started_at_s=asyncio.get_running_loop().time(), volume=made)

    async def _pin(self, claim: Claim, zone: str) -> bool:
        """Persist the zone before EC2 hears of it: whoever comes after us asks for the same one."""
        if claim.annotations.get(PINNED_ZONE) == zone:
            return True
        return await self._patch_claim(claim, {PINNED_ZONE: zone})

    async def _zone(self, claim: Claim, storage_class: StorageClass) -> zones.Chosen | zones.NoZone:
        if claim.pinned_zone and claim.uid not in self.creations.certain:
            return zones.Chosen(claim.pinned_zone)
        if not claim.selected_node:
            return zones.for_any_node(storage_class, claim.name, self._caches.registered_zones())
        name = claim.selected_node
        node, csi_node = await self._caches.node(name), await self._caches.csi_node(name)
        return zones.for_selected_node(storage_class, self._settings.driver, name, node, csi_node)

    async def _choose_again(self, claim: Claim, error: StorageError) -> float | None:
        """Ask the scheduler for another node; only when surely nothing is being made."""
        unset: dict[str, str | None] = {SELECTED_NODE: None, PINNED_ZONE: None}
        if not await self._patch_claim(claim, unset):
            return _CONFLICT_S
        self._count(error, "another node is asked for")
        return None

    async def _patch_claim(self, claim: Claim, annotations: Mapping[str, str | None]) -> bool:
        """Annotate a claim as it was seen; False when it has changed since or is gone."""
        version = claim.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
        try:
            changed = await self._client.patch(
                CLAIMS, claim.name, patch, kind=Patch.MERGE, namespace=claim.metadata.namespace
            )
        except KubeError as error:
            if error.reason in (Reason.CONFLICT, Reason.OBJECT_NOT_FOUND):
                return False
            raise
        self._caches.claims.observe(changed)
        return True

    def _forget(self, uid: str) -> None:
        self.creations.certain.discard(uid)
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
