"""Modify: what is wanted of a bound claim's volume, its size and its attributes, as one plan.

Level-triggered: a look reads what the claim wants and what EC2 has, takes the next step and ends;
the claim, its class or the watcher wakes it. So a crash, an hour-old cache or a lost reply only
mean another look.
"""

from dataclasses import dataclass
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import expand
from provisioner.decide.volume_plan import Wish
from provisioner.edges import Edges
from provisioner.kube.queue import KeyedQueue
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.meta import KubeObject
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import VolumeAttributesClass
from provisioner.reconcile.modify_memory import Known, Look, NodePauses, Readings, loop_s
from provisioner.reconcile.modify_record import ModifyRecord
from provisioner.reconcile.modify_steps import AGAIN_S, TELL_AGAIN_S, ModifySteps

_CONFLICT_S = (0.2, 5.0)
_MOST_STEPS = 12

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """``cancel``: a change that was never begun is wanted no more; ``is_bound``: as of ``Look``."""

    grow: expand.Grow | None
    change: attribute_rules.Change | None
    found: attribute_rules.Missing | attribute_rules.Broken | None
    cancel: bool = False
    is_bound: bool = False


class Modifier:
    """The flow of bound claims; keys are their UIDs."""

    def __init__(self, edges: Edges) -> None:
        self._caches = edges.caches
        self._driver = edges.settings.driver
        self._heeds_annotations = edges.settings.modify_annotations
        self._known: dict[str, Known] = {}
        self._volumes: dict[str, str] = {}  # by claim: whose modification may be watched
        self._readings = Readings(edges)
        self._pauses = NodePauses()
        self._record = ModifyRecord(edges)
        self.queue = KeyedQueue("modify", self.reconcile, edges.metrics)
        self._steps = ModifySteps(
            edges, self._readings, self._record, is_same=self._is_same, wake=self.queue.add
        )

    def subscribe(self) -> None:
        """Have claims looked at when they, their class or their persistent volume change."""
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.attributes_classes.subscribe(self._class_changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)

    async def reconcile(self, uid: str) -> float | None:
        """Move one claim a step on; seconds until the next look, None once settled."""
        claim = self._caches.claim(uid)
        if claim is None or not claim.spec.volume_name:
            self._forget(uid)
            return None
        persistent_volume = await self._caches.persistent_volume(claim.spec.volume_name)
        if persistent_volume is None or not expand.is_ours(
            claim, persistent_volume, driver=self._driver
        ):
            self._forget(uid)
            return None
        volume_id = persistent_volume.volume_id(self._driver) or ""
        bind_contextvars(
            claim=claim.key, persistent_volume=persistent_volume.name, volume=volume_id
        )
        self._caches.persistent_volumes.observe(persistent_volume)
        self._volumes[uid] = volume_id
        known = self._known.get(uid) or Known.of(claim)
        self._known[uid] = known
        try:
            waits_s = await self._advance(uid, volume_id, known)
        except KubeError as error:
            if error.reason not in (Reason.CONFLICT, Reason.OBJECT_NOT_FOUND):
                self._tell_forbidden(claim, known, error)
                raise
            known.conflicts += 1  # it has changed since it was seen: nobody need hear of that
            least_s, most_s = _CONFLICT_S
            return float(min(least_s * 2.0 ** min(known.conflicts, 16), most_s))
        known.conflicts = 0
        return waits_s

    async def _advance(self, uid: str, volume_id: str, known: Known) -> float | None:
        """Take steps until one has to wait."""
        for _ in range(_MOST_STEPS):
            claim = self._caches.claim(uid)
            if claim is None:
                self._forget(uid)
                return None
            persistent_volume = self._caches.persistent_volumes.get(claim.spec.volume_name)
            if persistent_volume is None:
                return AGAIN_S
            wishes = await self._wishes(claim, persistent_volume, known)
            if wishes.cancel:
                await self._record.cancel(claim)
                return _CONFLICT_S[0]
            if wishes.found is not None:
                await self._tell_found(claim, wishes.found, known)
                claim = self._caches.claim(uid) or claim
            pause_s = self._pauses.left_s(claim)
            grow = wishes.grow if not pause_s else None
            if grow is None and wishes.change is None:
                await self._record.tidy(claim, persistent_volume)
                self._forget(uid, keep=wishes.found is not None)
                return pause_s or None
            waits_s = known.gather_until_s - loop_s()
            if waits_s > 0:
                return waits_s
            change, is_bound = wishes.change, wishes.is_bound
            look = Look(claim, persistent_volume, volume_id, known, grow, change, is_bound)
            done = await self._steps.take(look)
            if done is not True:
                return _sooner(done, pause_s)
        return AGAIN_S  # what was written was taken out again, by a webhook perhaps

    async def _wishes(
        self, claim: Claim, persistent_volume: PersistentVolume, known: Known
    ) -> _Wishes:
        grow = expand.decide(claim, persistent_volume, is_free=known.is_free(Wish.SIZE))
        size = grow if isinstance(grow, expand.Grow) else None
        found: (
            attribute_rules.Nothing
            | attribute_rules.Missing
            | attribute_rules.Broken
            | attribute_rules.Change
        )
        target = attribute_rules.target_of(claim, is_free=known.is_free(Wish.ATTRIBUTES))
        is_bound = (grow, target) != (
            expand.decide(claim, persistent_volume, is_free=True),
            attribute_rules.target_of(claim, is_free=True),
        )
        match target:
            case attribute_rules.Cancel():
                return _Wishes(size, None, None, cancel=True)
            case attribute_rules.Target(name=name):
                found = attribute_rules.read(
                    name,
                    await self._caches.attributes_class(name),
                    driver=self._driver,
                    is_csi=persistent_volume.spec.csi is not None,
                )
            case attribute_rules.Nothing() if not self._heeds_annotations:
                found = target
            case attribute_rules.Nothing():
                found = attribute_rules.annotated(
                    claim, persistent_volume.annotations, driver=self._driver
                )
            case _:
                assert_never(target)
        if isinstance(found, attribute_rules.Change):
            known.aim(size.target if size else "", found.name or str(found.attributes))
            return _Wishes(size, found, None, is_bound=is_bound)
        known.aim(size.target if size else "", "")
        wrong = None if isinstance(found, attribute_rules.Nothing) else found
        return _Wishes(size, None, wrong, is_bound=is_bound)

    async def _tell_found(
        self,
        claim: Claim,
        found: attribute_rules.Missing | attribute_rules.Broken,
        known: Known,
    ) -> None:
        """What is wrong with the class; what is wanted besides goes on without it."""
        if isinstance(found, attribute_rules.Missing):
            await self._record.class_missing(claim, found.name)
            return
        known.begun -= {Wish.ATTRIBUTES}
        is_news = await self._record.class_broken(claim, found)
        if is_news and known.told_found != found.message:
            known.told_found = found.message
            error = StorageError(Reason.INVALID_CLASS, found.message)
            self._record.tell(
                claim, "VolumeModifyFailed", f"{error.reason}: {error.message}", warning=True
            )
            log.warning("cannot change the volume", error=error.message)

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
        volume_id = self._volumes.pop(uid, None)
        if volume_id is not None:
            self._readings.leave(uid, volume_id)
        self._steps.forget(uid)
        if not keep:
            self._known.pop(uid, None)

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


def _sooner(waits_s: float | None, pause_s: float) -> float | None:
    """``waits_s`` None: until woken; ``pause_s`` 0.0: there is none."""
    if not pause_s:
        return waits_s
    return pause_s if waits_s is None else min(waits_s, pause_s)


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
        *(claim.uid, claim.status, claim.annotations.get(expand.RESIZER)),
        *_wanted(claim, driver),
    )
