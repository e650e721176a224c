"""Provision: from a claim to an attempt, and what follows when an attempt fails.

Each pass goes on with the attempt that is under way, or starts at the caches. A claim that can be
provisioned gets a plan that nothing can change any more, and its zone is written to it before EC2
is asked.
"""

import asyncio
from datetime import UTC, datetime
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.classes import iops_rules
from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT, ZoneAnnotations
from provisioner.controller.modifying import class_rules
from provisioner.controller.ownership.takeover import Takeover
from provisioner.controller.placement.flow import ZoneChoice
from provisioner.controller.placement.zone_rules import NoZone
from provisioner.controller.provisioning import creation_rules, plan_rules
from provisioner.controller.provisioning.creation import REPORT_AFTER_S, Creations, of_claims
from provisioner.controller.provisioning.creation_rules import Attempt, GiveUp
from provisioner.controller.shared.services import Services
from provisioner.controller.sources.origin import Origin, Sources
from provisioner.kube.queue import KeyedQueue
from provisioner.model.claim import UNKNOWN_ZONE, Claim, claim_uid_of
from provisioner.model.data_source import Source
from provisioner.model.decision import (
    AGAIN,
    SETTLED,
    WHEN_WOKEN,
    Later,
    Next,
    Refuse,
    Settled,
)
from provisioner.model.errors import Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import StorageClass, VolumeAttributesClass
from provisioner.model.volume import CreateRequest, Volume
from provisioner.model.zone import Place

_EMPTY = Origin()

log = structlog.get_logger(__name__)


class Provisioner:
    """The flow of claims. Keys are UIDs: a claim recreated under its name is another one."""

    def __init__(self, services: Services, *, identity: str) -> None:
        self._settings = services.settings
        self._metrics = services.metrics
        self._caches = services.caches
        self.queue = KeyedQueue("provision", self._pass, services.metrics)
        wake = self.queue.add
        self._passed = asyncio.Event()
        self._silent: dict[str, asyncio.TimerHandle] = {}
        events = self._events = ClaimEvents(services.events)
        annotations = self._annotations = ZoneAnnotations(services.client, services.caches)
        takeover = self.takeover = Takeover(services.unclaimed, services.lookups)
        zones = self._zones = ZoneChoice(
            services,
            annotations=annotations,
            takeover=takeover,
            events=events,
            wake=wake,
            count=self._count,
        )
        self.creations = Creations(
            services,
            objects=of_claims(services, identity),
            events=events,
            refused_places=zones.refused_places,
            wake=wake,
        )
        self.sources = Sources(
            services,
            annotations=annotations,
            takeover=takeover,
            zones=zones,
            events=events,
            in_flight=self.creations.attempts.keys,
            is_in_use=self.creations.attempts.are_made_from,
            wake=wake,
        )
        self._classes = Classes()
        self._ceilings = services.ceilings

    def subscribe(self) -> None:
        """Queue claims when they, their class or their persistent volume change."""
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.classes.subscribe(self._class_changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)
        self._zones.subscribe()
        self._caches.attributes_classes.subscribe(self._attributes_class_changed)
        self.sources.subscribe()

    async def reconcile(self, uid: str) -> Next:
        """Move one claim a step on."""
        while (following := await self._step(uid)) is AGAIN:
            pass  # it ends: each place refuses once
        return following

    async def _step(self, uid: str) -> Next:
        self._name_in_logs(uid)
        if uid not in self.creations.attempts:
            started = await self._begin_in_turn(uid)
            if not isinstance(started, Attempt):
                return started
            self.creations.begin(uid, started)
        plan = self.creations.attempts[uid].plan
        asked, done = plan.request, await self.creations.advance(uid)
        if uid not in self.creations.attempts:
            self.sources.ended(plan.claim, keeps_its_turn=creation_rules.keeps_its_turn(done))
        if uid not in self.creations.attempts and self._caches.claim(uid) is None:
            self._forget(uid)  # gone while its volume was made: no event of it will come
        if isinstance(done, GiveUp):
            return await self._given_up(uid, asked, done)
        return done

    async def _given_up(self, uid: str, asked: CreateRequest, done: GiveUp) -> Next:
        """No volume exists, and none will be made by the request that was sent.

        Raises:
            StorageError: why, if the claim has to be planned again.
        """
        self._ceilings.learn(asked, done.error)
        self.takeover.settle(uid)
        claim = self._caches.claim(uid)
        self._zones.release(uid)
        if claim is not None and done.choose_again:
            return await self._zones.refused(claim, asked, done.error)
        if claim is not None:
            await self._annotations.remove(claim)
        if creation_rules.keeps_its_turn(done):
            again_s = done.error.retry_after_s
            return WHEN_WOKEN if again_s is None else Later(again_s)
        raise done.error

    async def close(self) -> None:
        """Stop asking EC2 for what no claim waits for any more."""
        await self.sources.close()
        await self.creations.usage.close()

    async def finish(self) -> None:
        """Begin nothing more, and return once each volume that was made has been saved.

        The next leader may be the stock driver, which sends other tags under the same client token
        and so would make a second volume beside one that no PersistentVolume names.
        """
        made = self.creations.has_made
        self.queue.narrow(made)
        while self.queue.is_working or any(map(made, self.creations.attempts)):
            self._passed.clear()
            await self._passed.wait()

    async def _pass(self, uid: str) -> Next:
        try:
            return await self.reconcile(uid)
        finally:
            self._passed.set()

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
            self._classes.forget(old.name)
        if new is not None:
            for claim in self._caches.claims.keyed("class", new.name):
                self._claim_changed(None, claim)

    def _attributes_class_changed(
        self, _: VolumeAttributesClass | None, new: VolumeAttributesClass | None
    ) -> None:
        if new is not None:
            for claim in self._caches.claims.keyed("attributes_class", new.name):
                self.queue.add(claim.uid)

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

    async def _begin_in_turn(self, uid: str) -> Attempt | Next:
        claim = self._caches.claim(uid)
        if claim is None or claim.source is None:
            return await self._begin(uid)
        return await self.sources.in_turn(uid, self._begin(uid))

    async def _begin(self, uid: str) -> Attempt | Next:
        """Plan a claim's volume and write its zone down; EC2 is not asked for the volume yet."""
        claim = self._caches.claim(uid)
        if claim is None:
            self._forget(uid)
            return SETTLED
        storage_class, is_asked = None, claim.is_asked_of(self._settings.driver)
        # If we are asked and the scheduler has chosen, no pod need be searched for a node.
        node = "" if is_asked and claim.selected_node else self._zones.node_of(claim)
        if (is_asked or node) and not claim.spec.volume_name:
            storage_class = await self._caches.storage_class(claim.class_name)
        decision = plan_rules.examine(
            claim,
            storage_class,
            driver=self._settings.driver,
            persistent_volume=self._caches.persistent_volumes.get(claim.persistent_volume_name),
            pod_node=node,
        )
        match decision:
            case Settled():
                return SETTLED
            case Refuse():
                return self._refused(claim, decision)
            case plan_rules.Provision(storage_class=storage_class):
                self._report_if_silent(claim)
                planned = await self._plan(claim, storage_class)
            case _:
                assert_never(decision)
        match planned:
            case NoZone():
                return await self._zones.no_zone(claim, planned)
            case Refuse():
                return self._refused(claim, planned)
            case Attempt() | Later():
                return planned
            case _:
                assert_never(planned)

    async def _plan(
        self, claim: Claim, storage_class: StorageClass
    ) -> Attempt | NoZone | Refuse | Later:
        """An attempt to begin, or why there is none now.

        Raises:
            StorageError: the class cannot be read, or nothing can be told or written now.
        """
        read_class = self._read(claim, storage_class)
        if claim.attributes_class_name:
            changed = await self._with_attributes_class(claim, read_class)
            if isinstance(changed, Refuse):
                return changed
            read_class = changed
        made = await self._made_before_us(claim) if claim.uid in self.takeover.claims else None
        if isinstance(made, Later):
            return made
        claim = self._caches.claim(claim.uid) or claim  # a doubt may have been written to it
        origin: Origin | Refuse | Later = _EMPTY
        if claim.source is not None:
            origin = await self.sources.origin_of(claim, claim.source, read_class, made)
        if isinstance(origin, Refuse | Later):
            return origin
        made = made or origin.made
        where = await self._zones.choose(claim, read_class, made, origin.cloned)
        if isinstance(where, NoZone):
            return where
        started = None
        try:
            started = await self._planned_in(claim, read_class, where, made, origin)
        finally:
            if not isinstance(started, Attempt):
                self._zones.release(claim.uid)
        return started

    async def _planned_in(
        self,
        claim: Claim,
        read_class: ReadClass,
        where: Place,
        made: Volume | None,
        origin: Origin,
    ) -> Attempt | Refuse | Later:
        source = origin.source
        planned = await self._frozen(claim, read_class, where, source)
        if isinstance(planned, Refuse):
            return planned  # before a snapshot is taken for it, or its turn to be copied
        if source is not None:
            tags = planned.request.tags
            held = await self.sources.source_in(claim, read_class, origin, where, tags)
            if isinstance(held, Refuse | Later):
                return held
            if held is not source:
                planned = await self._frozen(claim, read_class, where, held)
            if isinstance(planned, Refuse):
                return planned
            source = held
        claim = self._caches.claim(claim.uid) or claim  # its source may be written to it
        if not await self._annotations.write(claim, where.zone, where.outpost_arn, source):
            return AFTER_CONFLICT
        self._zones.written(claim)
        attempt = Attempt(planned, started_at_s=clock.now_s())
        if made is not None:
            attempt = creation_rules.with_volume(attempt, made, is_shown=True)
        if claim.pinned_zone and claim.uid in self.takeover.claims:
            # The process before us may have sent the same request.
            return creation_rules.inherited(attempt, _age_s(claim))
        return attempt

    async def _frozen(
        self, claim: Claim, read_class: ReadClass, where: Place, source: Source | None
    ) -> plan_rules.Plan | Refuse:
        """The plan, with no more IOPS than the region gives: EC2 is asked for that if need be.

        Raises:
            Ec2Error: EC2 could not be asked, so nothing may be frozen.
        """

        def freeze(iops_ceiling: int | None = None) -> plan_rules.Plan | Refuse:
            return plan_rules.plan(
                claim,
                read_class,
                zone=where.zone,
                outpost_arn=where.outpost_arn,
                cluster_id=self._settings.cluster_id,
                extra_tags=self._settings.extra_tags,
                default_file_system=self._settings.default_file_system,
                iops_ceiling=iops_ceiling,
                source=source,
            )

        planned = freeze()
        if isinstance(planned, Refuse) or planned.iops is None:
            return planned
        request = planned.request
        if not iops_rules.depends_on_region(request.volume_type, request.iops):
            return planned
        with self._events.reporting(claim):
            ceiling = await self._ceilings.of(request)
        return planned if ceiling is None else freeze(ceiling)

    async def _with_attributes_class(
        self, claim: Claim, read_class: ReadClass
    ) -> ReadClass | Refuse:
        """The class with what the claim's VolumeAttributesClass says, which counts more."""
        found = await self._caches.attributes_class(claim.attributes_class_name)
        return class_rules.with_class(
            claim,
            read_class,
            found,
            is_served=self._caches.has_attributes_classes,
            driver=self._settings.driver,
        )

    async def _made_before_us(self, claim: Claim) -> Volume | Later | None:
        """As ``Takeover.volume_of``, with the doubt written to the claim.

        The doubt is written first, as EC2 may not answer for long. A zone that is there stays: the
        leader before us may have searched for a minute already and then started the volume.
        """
        if self.takeover.is_in_doubt(claim) and not claim.pinned_zone:
            if not await self._annotations.write(claim, UNKNOWN_ZONE):
                return AFTER_CONFLICT
            claim = self._caches.claim(claim.uid) or claim
        with self._events.reporting(claim):
            return await self.takeover.volume_of(claim)

    def _read(self, claim: Claim, storage_class: StorageClass) -> ReadClass:
        try:
            return self._classes.read(storage_class)
        except StorageError as error:
            self._events.failed(claim, error)
            raise

    def _report_if_silent(self, claim: Claim) -> None:
        """Report it if a claim must wait for what a process before us may have started."""
        uid = claim.uid
        if uid not in self._silent and uid in self.takeover.claims:
            in_time = asyncio.get_running_loop().call_later
            self._silent[uid] = in_time(REPORT_AFTER_S, self._events.in_progress_if_silent, claim)

    def _forget(self, uid: str) -> None:
        if uid in self._silent:
            self._silent.pop(uid).cancel()
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


class Classes:
    """Each revision of a class is read once, however many claims name it; the newest is kept."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[str, str], ReadClass | str]] = {}

    def read(self, storage_class: StorageClass) -> ReadClass:
        """The class as it is used.

        Raises:
            StorageError: INVALID_CLASS, with one sentence.
        """
        meta = storage_class.metadata
        revision = (meta.uid, meta.resource_version)
        known = self._read.get(storage_class.name)
        if known is None or known[0] != revision:
            known = (revision, _read(storage_class))
            self._read[storage_class.name] = known
        if isinstance(known[1], str):
            raise StorageError(Reason.INVALID_CLASS, f"class {storage_class.name!r}: {known[1]}")
        return known[1]

    def forget(self, name: str) -> None:
        """The class is gone."""
        self._read.pop(name, None)


def _read(storage_class: StorageClass) -> ReadClass | str:
    try:
        return read(storage_class)
    except ValueError as error:
        return str(error)


def _age_s(claim: Claim) -> float:
    created_at = claim.metadata.creation_timestamp
    return float("inf") if created_at is None else (datetime.now(UTC) - created_at).total_seconds()
