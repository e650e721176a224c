"""The steps towards one plan for a volume, each carried out and written down."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import assert_never

import structlog

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import volume_plan
from provisioner.decide.volume_plan import Wish
from provisioner.ec2.batches import whole
from provisioner.edges import Edges
from provisioner.model.budget import Ledger, asked
from provisioner.model.claim import Claim
from provisioner.model.errors import NEEDS_HUMAN, Reason, StorageError
from provisioner.model.ids import is_volume_id
from provisioner.reconcile.modify_ceiling import ModifyCeiling
from provisioner.reconcile.modify_look import Look, Next, is_under_way, released, view_of
from provisioner.reconcile.modify_memory import Readings, loop_s
from provisioner.reconcile.modify_record import ModifyRecord, utc_now
from provisioner.reconcile.modify_refusals import ModifyRefusals
from provisioner.reconcile.modify_sending import ChangedError, ModifySending, ledger_of

AGAIN_S = 1.0
_WATCHED_AGAIN_S = 60.0  # the watcher wakes us; this is for a wake that got lost
_CHANGED_S = 0.2
_IN_DOUBT_S = 2.0
_LOOK_MOST = timedelta(hours=1)
# A volume may be missing from one description; a bound one hardly for as long as this.
_MISSING_S = 60.0
_MISSING_AGAIN_S = 5.0
# No way on without people: told though nothing was refused yet.
_FOR_PEOPLE = NEEDS_HUMAN | {Reason.FORBIDDEN, Reason.REJECTED}
# What is not begun any more for a claim that is being deleted.
_NEW = volume_plan.Send | volume_plan.Tag | volume_plan.WaitUntil | volume_plan.Failed
_NO_TIME = (
    "EC2 takes no further modification of the volume for now and does not say until when; it is "
    "tried again every few hours"
)

log = structlog.get_logger(__name__)


class ModifySteps:
    """Carries out what ``volume_plan`` decides."""

    def __init__(
        self,
        edges: Edges,
        readings: Readings,
        record: ModifyRecord,
        *,
        is_same: Callable[[Claim], bool],
        wake: Callable[[str], None],
    ) -> None:
        self._caches = edges.caches
        self._volumes = edges.volumes
        self._metrics = edges.metrics
        self._readings = readings
        self._record = record
        self._wake = wake
        self._ceiling = ModifyCeiling(edges, record)
        self._sending = ModifySending(edges, record, is_same=is_same)
        self._refusals = ModifyRefusals(edges, record)
        self._waiting: set[str] = set()
        edges.metrics.modifications_waiting.set_function(lambda: len(self._waiting))

    async def close(self) -> None:
        """Stop asking EC2 for what nobody waits for any more."""
        await self._ceiling.close()

    def forget(self, uid: str) -> None:
        """Nothing is wanted of the claim's volume any more."""
        self._waiting.discard(uid)

    async def take(self, look: Look) -> Next:
        """Take one step.

        Raises:
            StorageError: it goes on after a while.
        """
        try:
            return await self._take(look)
        except StorageError as error:
            if error.reason in _FOR_PEOPLE:
                self._refusals.tell(look, look.wishes - look.known.refused, error)
            raise

    async def _take(self, look: Look) -> Next:
        known, now = look.known, utc_now()
        await self._refusals.write(look)
        if not is_volume_id(look.volume_id):
            return await self._refusals.no_volume(look)
        ledger = ledger_of(look.persistent_volume, look.volume_id)
        await self._read(look, ledger)
        change = look.change
        try:
            tags = attribute_rules.tags_of(change, look.claim)
        except ValueError as error:
            if Wish.ATTRIBUTES not in known.refused:
                broken = StorageError(Reason.INVALID_CLASS, str(error))
                return await self._refusals.refuse(look, Wish.ATTRIBUTES, broken)
            change, tags = None, {}
        view = view_of(look, change, tags, ledger, now)
        view = await self._ceiling.looked_up(look.claim, view)
        step = volume_plan.decide(view)
        if look.is_bound and not is_under_way(view, step):
            return released(known)
        if look.claim.deleting and isinstance(step, _NEW):
            self._readings.leave(look.claim.uid, look.volume_id)
            return None
        if not isinstance(step, volume_plan.WaitUntil):
            self._waiting.discard(look.claim.uid)
        if not isinstance(step, volume_plan.Gone):
            known.missing_since_s = None
        return await self._carry_out(look, step)

    async def _carry_out(self, look: Look, step: volume_plan.Step) -> Next:
        known = look.known
        match step:
            case volume_plan.Gone():
                return await self._gone(look)
            case volume_plan.InDoubt(for_s=for_s):
                known.read_at_s = None
                log.info("looking whether a modification was begun", for_s=round(for_s))
                return min(for_s, _IN_DOUBT_S)
            case volume_plan.Done():
                return await self._done(look, step)
            case volume_plan.Await(message=message):
                return await self._await(look, message)
            case volume_plan.Failed(name=name, message=message):
                known.told_failed, known.begun, known.read_at_s = name, frozenset(), None
                return await self._refusals.failed(look, StorageError(Reason.VOLUME_STATE, message))
            case volume_plan.Impossible(wish=wish, message=message):
                is_size = wish is Wish.SIZE
                reason = Reason.INVALID_CLAIM if is_size else Reason.INVALID_CLASS
                return await self._refusals.refuse(look, wish, StorageError(reason, message))
            case volume_plan.Tag():
                return await self._tag(look, step)
            case volume_plan.WaitUntil():
                return await self._wait_until(look, step)
            case volume_plan.Send():
                return await self._send(look, step)
            case volume_plan.Held():
                self._readings.leave(look.claim.uid, look.volume_id)
                return known.held_for_s()
            case _:
                assert_never(step)

    async def _send(self, look: Look, step: volume_plan.Send) -> Next:
        known, claim = look.known, look.claim
        await self._begin(look, step.wishes)
        try:
            begun = await self._sending.send(claim, look.persistent_volume.name, known, step)
        except ChangedError:
            return _CHANGED_S
        except StorageError as error:
            done = await self._refusals.after(look, step, error)
            if known.read_at_s is None:
                self._watch(look, anew=True)
            return done
        known.sent(begun, loop_s())
        self._watch(look, anew=True)
        log.info("volume modified", asked=asked(step.request), state=begun.state.value)
        self._ceiling.tell(self._now(look), known, step)
        together, known.together = known.together, None
        if together is not None and Wish.ATTRIBUTES not in step.wishes:
            return await self._refusals.refuse(look, Wish.ATTRIBUTES, together)
        return True

    async def _done(self, look: Look, step: volume_plan.Done) -> Next:
        known = look.known
        change = look.change if Wish.ATTRIBUTES in step.wishes else None
        await self._record.finish(
            look.claim,
            look.persistent_volume,
            grow=look.grow if Wish.SIZE in step.wishes else None,
            name=change.name if change is not None else None,
            size_gib=step.size_gib,
        )
        known.begun, known.told = known.begun - step.wishes, ""
        for wish in step.wishes:
            known.refusals.pop(wish, None)
        took_s = loop_s() - known.wished_at_s
        self._metrics.flow_seconds.labels("modify").observe(took_s)
        log.info("volume has what was wanted", wishes=sorted(step.wishes), in_s=round(took_s, 2))
        return True

    async def _await(self, look: Look, message: str) -> Next:
        wishes = look.wishes - look.known.refused
        await self._begin(look, wishes, message)
        news = look.known.news(message, wishes) if message else None
        if news:
            self._record.tell_waiting(look.claim, news, message)
        self._watch(look)
        return _WATCHED_AGAIN_S

    async def _wait_until(self, look: Look, step: volume_plan.WaitUntil) -> Next:
        known = look.known
        wishes = look.wishes - known.refused
        is_guess = known.limit_guesses > 0 and step.at == known.limited_until
        message = _NO_TIME if is_guess else step.message
        await self._begin(look, wishes, message)
        news = known.news(message, wishes)
        if news:
            self._record.tell_failed(look.claim, news, f"{Reason.MODIFICATION_LIMIT}: {message}")
            log.warning("waiting until EC2 takes another modification", until=str(step.at))
        self._waiting.add(look.claim.uid)
        self._readings.leave(look.claim.uid, look.volume_id)
        known.read_at_s = None
        return max(AGAIN_S, min(step.at - utc_now(), _LOOK_MOST).total_seconds())

    async def _tag(self, look: Look, step: volume_plan.Tag) -> Next:
        """Write and remove tags; both again are harmless."""
        known, volume = look.known, look.known.volume
        await self._begin(look, look.wishes - known.refused)
        try:
            for key in step.remove:
                whole(await self._volumes.untag([look.volume_id], key))
            if step.add:
                whole(await self._volumes.tag([look.volume_id], step.add))
        except StorageError as error:
            return await self._refusals.of_tags(look, error)
        known.disputes = 0
        if volume is not None:
            has = {key: value for key, value in volume.tags.items() if key not in step.remove}
            known.volume = replace(volume, tags=has | dict(step.add))
        return True

    async def _gone(self, look: Look) -> Next:
        known = look.known
        if look.wishes <= known.refused:
            return known.held_for_s()
        known.read_at_s = None
        if known.missing_since_s is None:
            known.missing_since_s = loop_s()
        if loop_s() - known.missing_since_s < _MISSING_S:
            return _MISSING_AGAIN_S
        error = StorageError(
            Reason.VOLUME_NOT_FOUND,
            f"EC2 does not know volume {look.volume_id} of persistentvolume "
            f"{look.persistent_volume.name}; somebody has deleted it: restore a snapshot",
        )
        for wish in sorted(look.wishes):
            await self._refusals.refuse(look, wish, error)
        return known.held_for_s()

    async def _read(self, look: Look, ledger: Ledger) -> None:
        """What EC2 has; why it cannot be told is on the claim, where only people can help."""
        try:
            await self._readings.refresh(look.volume_id, look.known, ledger)
        except StorageError as error:
            if error.reason in NEEDS_HUMAN:
                wishes = look.wishes - look.known.refused
                await self._begin(look, wishes, f"{error.reason}: {error.message}")
            raise

    def _watch(self, look: Look, *, anew: bool = False) -> None:
        """Have the claim looked at when its modification has changed; not one that is gone."""
        uid = look.claim.uid
        if self._caches.claim(uid) is not None:
            self._readings.watch(uid, look.volume_id, lambda: self._wake(uid), anew=anew)

    async def _begin(self, look: Look, wishes: frozenset[Wish], message: str = "") -> None:
        change = look.change if Wish.ATTRIBUTES in wishes else None
        await self._record.begin(
            look.claim,
            look.grow if Wish.SIZE in wishes else None,
            change.name if change is not None else None,
            message,
        )

    def _now(self, look: Look) -> Claim:
        """The claim as it is by now: we have written to it since it was seen."""
        return self._caches.claim(look.claim.uid) or look.claim
