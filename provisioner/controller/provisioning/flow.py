"""Provision: from a claim to an attempt, and what follows when an attempt fails.

Every look begins with the attempt that is under way, or with the caches; a claim that can be
provisioned gets a plan, and its zone is pinned before EC2 hears of it.
"""

import asyncio
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.claims.zone_annotations import ZoneAnnotations
from provisioner.controller.ownership.takeover import Takeover
from provisioner.controller.placement import zone_rules
from provisioner.controller.placement.zone_choice import ZoneChoice
from provisioner.controller.provisioning import creation_rules, rules
from provisioner.controller.provisioning.creation import TELL_AFTER_S, Creations
from provisioner.controller.provisioning.creation_rules import Attempt, GiveUp
from provisioner.controller.provisioning.planning import Planning
from provisioner.controller.shared.services import Services
from provisioner.controller.sources.origin import Sources
from provisioner.kube.queue import KeyedQueue
from provisioner.model.claim import Claim, claim_uid_of
from provisioner.model.decision import (
    AGAIN,
    SETTLED,
    WHEN_WOKEN,
    Later,
    Next,
    Refuse,
    Settled,
)
from provisioner.model.errors import StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import StorageClass

log = structlog.get_logger(__name__)


class Provisioner:
    """The flow of claims; keys are claim UIDs, so a claim made anew under its name is another."""

    def __init__(self, services: Services, *, identity: str) -> None:
        self._settings = services.settings
        self._metrics = services.metrics
        self._caches = services.caches
        events = self._events = ClaimEvents(services.events)
        self._telling: dict[str, asyncio.TimerHandle] = {}
        annotations = self._annotations = ZoneAnnotations(services.client, services.caches)
        takeover = self.takeover = Takeover(services.unclaimed, services.lookups)
        self.queue = KeyedQueue("provision", self._look, services.metrics)
        wake = self.queue.add
        self._looked = asyncio.Event()
        self._zones = ZoneChoice(
            services,
            annotations=annotations,
            takeover=takeover,
            events=events,
            wake=wake,
            count=self._count,
        )
        refused = self._zones.refused_places
        self.creations = Creations(
            services, identity=identity, events=events, refused_places=refused, wake=wake
        )
        in_flight = self.creations.claims
        self.sources = Sources(
            services, annotations=annotations, events=events, in_flight=in_flight, wake=wake
        )
        self._planning = Planning(
            services,
            annotations=annotations,
            takeover=takeover,
            zones=self._zones,
            sources=self.sources,
            events=events,
            wake=wake,
        )

    def subscribe(self) -> None:
        """Have claims looked at when they, their class or their persistent volume change."""
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.classes.subscribe(self._class_changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)
        self._zones.subscribe()
        self._planning.subscribe()
        self.sources.subscribe()

    async def reconcile(self, uid: str) -> Next:
        """Move one claim a step on."""
        while (following := await self._step(uid)) == AGAIN:
            pass  # it ends: each place refuses once
        return following

    async def _step(self, uid: str) -> Next:
        self._name_in_logs(uid)
        if uid not in self.creations.attempts:
            begun = await self.sources.in_turn(uid, self._begin(uid))
            if not isinstance(begun, Attempt):
                return begun
            self.creations.begin(uid, begun)
        plan = self.creations.attempts[uid].plan
        asked, done = plan.request, await self.creations.advance(uid)
        if uid not in self.creations.attempts:
            self.sources.ended(plan.claim, is_next=creation_rules.is_next(done))
        if uid not in self.creations.attempts and self._caches.claim(uid) is None:
            self._forget(uid)  # gone while its volume was made: no event of it will come
        if not isinstance(done, GiveUp):
            return done
        self._planning.ceilings.learn(asked, done.error)
        self.takeover.settle(uid)
        claim = self._caches.claim(uid)
        self._zones.is_open(uid)
        if claim is not None and done.choose_again:
            return await self._zones.refused(claim, asked, done.error)
        if claim is not None:
            await self._annotations.remove(claim)
        if creation_rules.is_next(done):
            again_s = done.error.retry_after_s
            return WHEN_WOKEN if again_s is None else Later(again_s)
        raise done.error

    async def close(self) -> None:
        """Stop asking EC2 for what no claim waits for any more."""
        await self._planning.ceilings.close()
        await self.sources.close()
        await self.creations.usage.close()

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

    async def _look(self, uid: str) -> Next:
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
        if new.spec.volume_name:
            self._forget(new.uid)
        elif new.is_asked_of(self._settings.driver) or self._zones.node_of(new):
            self.queue.add(new.uid)

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        if new is None and old is not None:
            self._planning.classes.forget(old.name)
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

    def _name_in_logs(self, uid: str) -> None:
        attempt = self.creations.attempts.get(uid)
        claim = self._caches.claim(uid) if attempt is None else attempt.plan.claim
        if claim is not None:
            bind_contextvars(claim=claim.key, persistent_volume=claim.persistent_volume_name)
        if attempt is not None and attempt.volume is not None:
            bind_contextvars(volume=attempt.volume.volume_id)

    async def _begin(self, uid: str) -> Attempt | Next:
        """Plan a claim's volume and pin its zone; nothing is sent yet."""
        claim = self._caches.claim(uid)
        if claim is None:
            self._forget(uid)
            return SETTLED
        storage_class, node = None, self._zones.node_of(claim)
        if (claim.is_asked_of(self._settings.driver) or node) and not claim.spec.volume_name:
            storage_class = await self._caches.storage_class(claim.class_name)
        decision = rules.examine(
            claim,
            storage_class,
            driver=self._settings.driver,
            persistent_volume=self._caches.persistent_volumes.get(claim.persistent_volume_name),
            pod_node=node,
        )
        match decision:
            case rules.Nothing():
                return SETTLED
            case Refuse():
                return self._refused(claim, decision)
            case rules.Provision(storage_class=storage_class):
                self._tell_if_silent(claim)
                planned = await self._planning.plan(claim, storage_class)
            case _:
                assert_never(decision)
        match planned:
            case zone_rules.NoZone():
                return await self._zones.nowhere(claim, planned)
            case Refuse():
                return self._refused(claim, planned)
            case Attempt() | Later():
                return planned
            case _:
                assert_never(planned)

    def _tell_if_silent(self, claim: Claim) -> None:
        """Have its user told if it must wait for what a process before us may have begun."""
        uid = claim.uid
        if uid not in self._telling and self.takeover.may_have_begun(uid):
            in_time = asyncio.get_running_loop().call_later
            self._telling[uid] = in_time(TELL_AFTER_S, self._events.break_silence, claim)

    def _forget(self, uid: str) -> None:
        if uid in self._telling:
            self._telling.pop(uid).cancel()
        self._annotations.forget(uid)
        self._zones.forget(uid)
        self.sources.forget(uid)
        self.creations.forget(uid)
        self._events.forget(uid)

    def _refused(self, claim: Claim, refusal: Refuse) -> Settled:
        error = StorageError(refusal.reason, refusal.message)
        if refusal.normal:
            self._events.note(claim, refusal.message)
        elif self._events.failed(claim, error, once=refusal.settled) and refusal.settled:
            self._count(error, "refused")
        if not refusal.settled:
            raise error
        return SETTLED

    def _count(self, error: StorageError, what: str) -> None:
        """Log and count what is not tried again; the queue does so for what is."""
        self._metrics.flow_failures.labels("provision", error.reason.value).inc()
        log.warning(what, reason=error.reason.value, error=error.message)
