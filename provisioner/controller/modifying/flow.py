"""Modify: bring the volume of a bound claim to the size and the class that the claim requests.

Level-triggered: a pass reads what the claim requests and what EC2 has, takes the next step and
ends. The claim, its class or the watcher wakes the next one. So a crash, an hour-old cache or a
lost reply only mean another pass.
"""

from dataclasses import dataclass, replace
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying import class_rules, growth_rules
from provisioner.controller.modifying.record import ModifyRecord
from provisioner.controller.modifying.rules import Part, Requested, has_all
from provisioner.controller.modifying.state import ClaimState, NodePauses, Observer, Pass
from provisioner.controller.modifying.steps import (
    CHANGED,
    ModifySteps,
)
from provisioner.controller.shared.services import Services
from provisioner.kube.queue import KeyedQueue
from provisioner.model.backoff import Backoff
from provisioner.model.claim import Claim
from provisioner.model.decision import AGAIN, SETTLED, Later, Next, Settled, WhenWoken
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import VolumeAttributesClass
from provisioner.tell_once import EVENT_AGAIN_S

_CONFLICT = Backoff(0.2, 5.0)
_SOON = Later(1.0)
_MOST_STEPS = 12
_ATTRIBUTES = frozenset({Part.ATTRIBUTES})
_BadClass = class_rules.Missing | class_rules.Broken

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Request:
    """What a claim requests.

    Attributes:
        requested: of that, what is possible.
        bad_class: why its class, or its annotations, are not.
        superseded: as of ``Pass``.
    """

    requested: Requested
    bad_class: _BadClass | None = None
    superseded: bool = False


class Modifier:
    """The flow of bound claims; keys are their UIDs."""

    def __init__(self, services: Services) -> None:
        self._caches = services.caches
        self._driver = services.settings.driver
        self._reads_annotations = services.settings.modify_annotations
        self._states: dict[str, ClaimState] = {}
        self._observer = Observer(services)
        self._pauses = NodePauses()
        self._record = ModifyRecord(services)
        self.queue = KeyedQueue("modify", self.reconcile, services.metrics)
        self._steps = ModifySteps(
            services, self._observer, self._record, is_same=self._is_same, wake=self.queue.add
        )
        services.metrics.modifications_waiting.set_function(
            lambda: sum(state.waits_for_limit for state in self._states.values())
        )

    def subscribe(self) -> None:
        """Wake claims when they, their class or their persistent volume change."""
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
        if (
            persistent_volume is None
            or not growth_rules.is_ours(claim, persistent_volume, driver=self._driver)
            or growth_rules.waits_for_move(claim, persistent_volume)
        ):
            self._forget(uid)
            return SETTLED
        volume_id = persistent_volume.volume_id(self._driver) or ""
        bind_contextvars(
            claim=claim.key, persistent_volume=persistent_volume.name, volume=volume_id
        )
        self._caches.persistent_volumes.observe(persistent_volume)
        state = self._states[uid] = self._states.get(uid) or ClaimState.of(claim)
        state.volume_id = volume_id
        try:
            answer = await self._advance(uid, state)
        except KubeError as error:
            if error.reason not in CHANGED_MEANWHILE:
                self._report_forbidden(claim, state, error)
                raise
            state.conflicts += 1  # it has changed since it was read: that is no news
            return Later(_CONFLICT.pause_s(state.conflicts))
        state.conflicts = 0
        return answer

    async def _advance(self, uid: str, state: ClaimState) -> Next:
        """Take steps until one has to wait."""
        for _ in range(_MOST_STEPS):
            claim = self._caches.claim(uid)
            if claim is None:
                self._forget(uid)
                return SETTLED
            persistent_volume = self._caches.persistent_volumes.get(claim.spec.volume_name)
            if persistent_volume is None:
                return _SOON
            request = await self._request(claim, persistent_volume, state)
            if isinstance(request, class_rules.Cancel):
                await self._record.cancel(claim)
                return CHANGED
            if request.bad_class is not None:
                await self._report_bad_class(claim, request.bad_class, state)
                claim = self._caches.claim(uid) or claim
            pause_s, requested = self._pauses.left_s(claim), request.requested
            if pause_s:
                requested = replace(requested, grow=None)
            again_s = _again_s(pause_s, request.bad_class)
            if not requested.parts:
                await self._record.tidy(claim, persistent_volume)
                self._forget(uid, keep=request.bad_class is not None)
                return _sooner(SETTLED, again_s)
            gathers_s = state.gather_until_s - clock.now_s()
            if gathers_s > 0:
                return Later(gathers_s)
            answer = await self._steps.take(
                Pass(claim, persistent_volume, state, requested, request.superseded)
            )
            if answer != AGAIN:
                return _sooner(answer, again_s)
        return _SOON  # what was written was taken out again, by a webhook perhaps

    async def _request(
        self, claim: Claim, persistent_volume: PersistentVolume, state: ClaimState
    ) -> _Request | class_rules.Cancel:
        grow = growth_rules.decide(claim, persistent_volume, is_free=state.is_free(Part.SIZE))
        target = class_rules.target_of(claim, is_free=state.is_free(Part.ATTRIBUTES))
        superseded = (grow, target) != (
            growth_rules.decide(claim, persistent_volume, is_free=True),
            class_rules.target_of(claim, is_free=True),
        )
        if isinstance(target, class_rules.Cancel):
            return target
        change = await self._change(claim, persistent_volume, target)
        requested = Requested(
            grow if isinstance(grow, growth_rules.Grow) else None,
            change if isinstance(change, class_rules.Change) else None,
        )
        if requested.grow is not None:
            requested = replace(requested, current=await self._current(claim, persistent_volume))
        state.note_request(requested)
        bad_class = change if isinstance(change, _BadClass) else None
        return _Request(requested, bad_class, superseded)

    async def _change(
        self,
        claim: Claim,
        persistent_volume: PersistentVolume,
        target: Settled | class_rules.Target,
    ) -> Settled | class_rules.Change | _BadClass:
        if isinstance(target, class_rules.Target):
            return await self._read_class(target.name, persistent_volume)
        if not self._reads_annotations:
            return target
        return class_rules.annotated(claim, persistent_volume.annotations, driver=self._driver)

    async def _read_class(
        self, name: str, persistent_volume: PersistentVolume
    ) -> class_rules.Change | _BadClass:
        return class_rules.read(
            name,
            await self._caches.attributes_class(name),
            is_served=self._caches.has_attributes_classes,
            driver=self._driver,
            is_csi=persistent_volume.spec.csi is not None,
        )

    async def _current(
        self, claim: Claim, persistent_volume: PersistentVolume
    ) -> Attributes | None:
        """What the class asks for that the volume has; None without one that can be read."""
        name = claim.current_attributes_class_name
        found = await self._read_class(name, persistent_volume) if name else None
        return found.attributes if isinstance(found, class_rules.Change) else None

    async def _report_bad_class(
        self, claim: Claim, bad_class: _BadClass, state: ClaimState
    ) -> None:
        """Say what is wrong with the class; a requested size is not held up."""
        if isinstance(bad_class, class_rules.Missing):
            await self._record.class_missing(claim, bad_class.name)
            text = f'VAC "{bad_class.name}" does not exist.'
        else:
            state.clear_in_flight(_ATTRIBUTES)
            await self._record.class_broken(claim, bad_class)
            text = f"{Reason.INVALID_CLASS}: {bad_class.message}"
        if parts := state.to_report(text, _ATTRIBUTES, EVENT_AGAIN_S):
            self._record.report_failure(claim, parts, text)
            log.warning("cannot modify the volume", error=text)

    def _report_forbidden(self, claim: Claim, state: ClaimState, error: KubeError) -> None:
        """Only people can help, and the claim's status cannot be written to say so."""
        if error.reason in (Reason.FORBIDDEN, Reason.REJECTED):
            is_class = claim.attributes_class_name or claim.modify_status is not None
            parts = frozenset({Part.ATTRIBUTES if is_class else Part.SIZE})
            text = f"{error.reason}: {error.message}"
            parts = state.to_report(text, parts, EVENT_AGAIN_S)
            self._record.report_failure(claim, parts, text)

    def _is_same(self, claim: Claim) -> bool:
        """Whether the claim still requests what it did when it was read."""
        now = self._caches.claim(claim.uid)
        return now is not None and _spec(now, self._driver) == _spec(claim, self._driver)

    def _forget(self, uid: str, *, keep: bool = False) -> None:
        state = self._states.get(uid)
        if state is None:
            return
        self._observer.unwatch(uid, state.volume_id)
        state.waits_for_limit = False
        if not keep:
            del self._states[uid]

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._forget(old.uid)
            self._pauses.forget(old.uid)
        if new is None or not new.spec.volume_name:
            return
        if old is None:
            if not self._has_all(new):
                self.queue.add(new.uid)
        elif _relevant(old, self._driver) != _relevant(new, self._driver):
            self.queue.add(new.uid)

    def _class_changed(
        self, old: VolumeAttributesClass | None, new: VolumeAttributesClass | None
    ) -> None:
        """A class that was missing is there, or another one has its name.

        Its driver and parameters never change (Kubernetes 1.37 pkg/apis/storage/validation). Who
        waits for it was looked at, and has a state.
        """
        if old is not None and new is not None and old.uid == new.uid:
            return
        name = _name(new or old)
        for uid, state in self._states.items():
            claim = self._caches.claim(uid)
            if claim is not None and claim.attributes_class_name == name:
                state.forget_class()
                self.queue.add(uid)

    def _has_all(self, claim: Claim) -> bool:
        found = self._caches.persistent_volumes.get(claim.spec.volume_name)
        return found is not None and has_all(claim, found, driver=self._driver)

    def _persistent_volume_changed(
        self, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> None:
        holder = new.spec.claim_ref if new is not None else None
        is_news = old is None or new is None or _held(old) != _held(new)
        claim = self._caches.claim(holder.uid) if holder is not None and is_news else None
        if new is None or claim is None:
            return
        if old is not None or not has_all(claim, new, driver=self._driver):
            self.queue.add(claim.uid)


def _again_s(pause_s: float, bad_class: _BadClass | None) -> float:
    """When a pause of the node is over, or a bad class is reported again; 0.0: neither."""
    if bad_class is None:
        return pause_s
    return min(pause_s or EVENT_AGAIN_S, EVENT_AGAIN_S)


def _sooner(answer: Next, again_s: float) -> Next:
    """When the claim is next, if it also is after so long; 0.0: it is not."""
    if not again_s:
        return answer
    match answer:
        case Later(seconds):
            return Later(min(seconds, again_s))
        case WhenWoken() | Settled():
            return Later(again_s)
        case _:
            assert_never(answer)


def _name(obj: KubeObject | None) -> str:
    return obj.name if obj is not None else ""


def _held(persistent_volume: PersistentVolume) -> tuple[object, ...]:
    """Whose volume it names, and for which move it is held.

    A cache may be behind a claim that is bound to it already.
    """
    spec, held_for = persistent_volume.spec, persistent_volume.annotations.get(HELD_FOR_MOVE)
    holder = spec.claim_ref and (spec.claim_ref.uid, spec.claim_ref.namespace)
    return holder, spec.csi, spec.aws_elastic_block_store, held_for


def _spec(claim: Claim, driver: str) -> tuple[object, ...]:
    legacy = class_rules.annotated(claim, {}, driver=driver)
    return claim.requested_storage, claim.attributes_class_name, legacy


def _relevant(claim: Claim, driver: str) -> tuple[object, ...]:
    """All of a claim that this flow acts upon."""
    return (
        *(claim.uid, claim.status, claim.annotations.get(growth_rules.RESIZER)),
        *_spec(claim, driver),
    )
