"""Modify: what is wanted of a bound claim's volume, its size and its attributes, as one plan.

Level-triggered: a look reads what the claim wants and what EC2 has, takes the next step and ends;
the claim, its class or the watcher wakes it. So a crash, an hour-old cache or a lost reply only
mean another look.
"""

from dataclasses import dataclass, replace
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.controller.modifying import class_rules as attribute_rules
from provisioner.controller.modifying import growth_rules
from provisioner.controller.modifying.record import ModifyRecord
from provisioner.controller.modifying.rules import Wish
from provisioner.controller.modifying.state import Known, Look, NodePauses, Readings, Wanted
from provisioner.controller.modifying.steps import (
    CHANGED,
    TELL_AGAIN_S,
    ModifySteps,
)
from provisioner.controller.shared.services import Services
from provisioner.kube.queue import KeyedQueue
from provisioner.model.backoff import Backoff
from provisioner.model.claim import Claim
from provisioner.model.decision import AGAIN, SETTLED, Later, Next, Settled, WhenWoken
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import VolumeAttributesClass

_CONFLICT = Backoff(0.2, 5.0)
_SOON = Later(1.0)
_MOST_STEPS = 12
_ATTRIBUTES = frozenset({Wish.ATTRIBUTES})
_Wrong = attribute_rules.Missing | attribute_rules.Broken

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the claim asks for.

    Attributes:
        wanted: of that, what can be had.
        wrong: why its class, or its annotations, cannot.
        cancel: a change that was never begun is wanted no more.
        superseded: as of ``Look``.
    """

    wanted: Wanted
    wrong: _Wrong | None = None
    cancel: bool = False
    superseded: bool = False


class Modifier:
    """The flow of bound claims; keys are their UIDs."""

    def __init__(self, services: Services) -> None:
        self._caches = services.caches
        self._driver = services.settings.driver
        self._heeds_annotations = services.settings.modify_annotations
        self._known: dict[str, Known] = {}
        self._readings = Readings(services)
        self._pauses = NodePauses()
        self._record = ModifyRecord(services)
        self.queue = KeyedQueue("modify", self.reconcile, services.metrics)
        self._steps = ModifySteps(
            services, self._readings, self._record, is_same=self._is_same, wake=self.queue.add
        )
        services.metrics.modifications_waiting.set_function(
            lambda: sum(known.waits_for_limit for known in self._known.values())
        )

    def subscribe(self) -> None:
        """Have claims looked at when they, their class or their persistent volume change."""
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.attributes_classes.subscribe(self._class_changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)

    async def reconcile(self, uid: str) -> Next:
        """Move one claim a step on."""
        claim = self._caches.claim(uid)
        if claim is None or not claim.spec.volume_name:
            self._forget(uid)
            return SETTLED
        persistent_volume = await self._caches.persistent_volume(claim.spec.volume_name)
        if persistent_volume is None or not growth_rules.is_ours(
            claim, persistent_volume, driver=self._driver
        ):
            self._forget(uid)
            return SETTLED
        volume_id = persistent_volume.volume_id(self._driver) or ""
        bind_contextvars(
            claim=claim.key, persistent_volume=persistent_volume.name, volume=volume_id
        )
        self._caches.persistent_volumes.observe(persistent_volume)
        known = self._known[uid] = self._known.get(uid) or Known.of(claim)
        known.volume_id = volume_id
        try:
            answer = await self._advance(uid, known)
        except KubeError as error:
            if error.reason not in CHANGED_MEANWHILE:
                self._tell_forbidden(claim, known, error)
                raise
            known.conflicts += 1  # it has changed since it was seen: nobody need hear of that
            return Later(_CONFLICT.pause_s(known.conflicts))
        known.conflicts = 0
        return answer

    async def _advance(self, uid: str, known: Known) -> Next:
        """Take steps until one has to wait."""
        for _ in range(_MOST_STEPS):
            claim = self._caches.claim(uid)
            if claim is None:
                self._forget(uid)
                return SETTLED
            persistent_volume = self._caches.persistent_volumes.get(claim.spec.volume_name)
            if persistent_volume is None:
                return _SOON
            found = await self._found(claim, persistent_volume, known)
            if found.cancel:
                await self._record.cancel(claim)
                return CHANGED
            if found.wrong is not None:
                await self._tell_wrong(claim, found.wrong, known)
                claim = self._caches.claim(uid) or claim
            pause_s, wanted = self._pauses.left_s(claim), found.wanted
            if pause_s:
                wanted = replace(wanted, grow=None)
            if not wanted.wishes:
                await self._record.tidy(claim, persistent_volume)
                self._forget(uid, keep=found.wrong is not None)
                return Later(pause_s) if pause_s else SETTLED
            gathers_s = known.gather_until_s - clock.now_s()
            if gathers_s > 0:
                return Later(gathers_s)
            look = Look(claim, persistent_volume, known, wanted, found.superseded)
            answer = await self._steps.take(look)
            if answer != AGAIN:
                return _sooner(answer, pause_s)
        return _SOON  # what was written was taken out again, by a webhook perhaps

    async def _found(
        self, claim: Claim, persistent_volume: PersistentVolume, known: Known
    ) -> _Found:
        grow = growth_rules.decide(claim, persistent_volume, is_free=known.is_free(Wish.SIZE))
        target = attribute_rules.target_of(claim, is_free=known.is_free(Wish.ATTRIBUTES))
        superseded = (grow, target) != (
            growth_rules.decide(claim, persistent_volume, is_free=True),
            attribute_rules.target_of(claim, is_free=True),
        )
        wanted = Wanted(grow if isinstance(grow, growth_rules.Grow) else None)
        if isinstance(target, attribute_rules.Cancel):
            return _Found(wanted, cancel=True)
        change = await self._change(claim, persistent_volume, target)
        if isinstance(change, attribute_rules.Change):
            wanted = replace(wanted, change=change)
        known.aim_at(wanted)
        wrong = change if isinstance(change, _Wrong) else None
        return _Found(wanted, wrong, superseded=superseded)

    async def _change(
        self,
        claim: Claim,
        persistent_volume: PersistentVolume,
        target: Settled | attribute_rules.Target,
    ) -> Settled | attribute_rules.Change | _Wrong:
        if isinstance(target, attribute_rules.Target):
            return attribute_rules.read(
                target.name,
                await self._caches.attributes_class(target.name),
                driver=self._driver,
                is_csi=persistent_volume.spec.csi is not None,
            )
        if not self._heeds_annotations:
            return target
        return attribute_rules.annotated(claim, persistent_volume.annotations, driver=self._driver)

    async def _tell_wrong(self, claim: Claim, wrong: _Wrong, known: Known) -> None:
        """What is wrong with the class; what is wanted besides goes on without it."""
        if isinstance(wrong, attribute_rules.Missing):
            await self._record.class_missing(claim, wrong.name)
            return
        known.begun -= {Wish.ATTRIBUTES}
        is_news = await self._record.class_broken(claim, wrong)
        text = f"{Reason.INVALID_CLASS}: {wrong.message}"
        if is_news and known.news(text, _ATTRIBUTES):
            self._record.tell_failed(claim, _ATTRIBUTES, text)
            log.warning("cannot change the volume", error=wrong.message)

    def _tell_forbidden(self, claim: Claim, known: Known, error: KubeError) -> None:
        """No way on without people, and the claim itself cannot say so."""
        if error.reason in (Reason.FORBIDDEN, Reason.REJECTED):
            is_class = claim.attributes_class_name or claim.modify_status is not None
            wishes = frozenset({Wish.ATTRIBUTES if is_class else Wish.SIZE})
            text = f"{error.reason}: {error.message}"
            self._record.tell_failed(claim, known.news(text, wishes, TELL_AGAIN_S), text)

    def _is_same(self, claim: Claim) -> bool:
        """Whether the claim still wants what it wanted when it was seen."""
        now = self._caches.claim(claim.uid)
        return now is not None and _wanted(now, self._driver) == _wanted(claim, self._driver)

    def _forget(self, uid: str, *, keep: bool = False) -> None:
        known = self._known.get(uid)
        if known is None:
            return
        self._readings.leave(uid, known.volume_id)
        known.waits_for_limit = False
        if not keep:
            del self._known[uid]

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._forget(old.uid)
            self._pauses.forget(old.uid)
        if new is None or not new.spec.volume_name:
            return
        if old is None or _told(old, self._driver) != _told(new, self._driver):
            self.queue.add(new.uid)

    def _class_changed(
        self, old: VolumeAttributesClass | None, new: VolumeAttributesClass | None
    ) -> None:
        """A class that was missing is there, or one was made anew under its name."""
        is_other = old is None or new is None or old.uid != new.uid
        for claim in self._caches.claims.keyed("attributes_class", _name(new or old)):
            known = self._known.get(claim.uid)
            if known is not None and is_other:
                known.forget_class()
            if claim.spec.volume_name:
                self.queue.add(claim.uid)

    def _persistent_volume_changed(
        self, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> None:
        holder = new.spec.claim_ref if new is not None else None
        is_news = old is None or new is None or _held(old) != _held(new)
        if holder is not None and is_news and self._caches.claim(holder.uid) is not None:
            self.queue.add(holder.uid)


def _sooner(answer: Next, pause_s: float) -> Next:
    """When the claim is next, if its node also pauses for so long; 0.0: it does not."""
    if not pause_s:
        return answer
    match answer:
        case Later(seconds):
            return Later(min(seconds, pause_s))
        case WhenWoken() | Settled():
            return Later(pause_s)
        case _:
            assert_never(answer)


def _name(obj: KubeObject | None) -> str:
    return obj.name if obj is not None else ""


def _held(persistent_volume: PersistentVolume) -> tuple[object, ...]:
    """Whose volume it names; a cache may be behind a claim that is bound to it already."""
    spec = persistent_volume.spec
    holder = spec.claim_ref
    return (holder and (holder.uid, holder.namespace), spec.csi, spec.aws_elastic_block_store)


def _wanted(claim: Claim, driver: str) -> tuple[object, ...]:
    legacy = attribute_rules.annotated(claim, {}, driver=driver)
    return claim.requested_storage, claim.attributes_class_name, legacy


def _told(claim: Claim, driver: str) -> tuple[object, ...]:
    """All of a claim that this flow acts upon."""
    return (
        *(claim.uid, claim.status, claim.annotations.get(growth_rules.RESIZER)),
        *_wanted(claim, driver),
    )
