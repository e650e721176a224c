"""The steps towards one plan for a volume, each carried out and written down.

What EC2 refuses is sorted: one bad wish never holds the other up.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

import structlog

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import capping, volume_plan
from provisioner.decide.volume_plan import BOTH, Wish
from provisioner.ec2.batches import whole
from provisioner.ec2.ceilings import ceiling_in
from provisioner.edges import Edges
from provisioner.model.budget import asked
from provisioner.model.claim import Claim
from provisioner.model.errors import (
    NEEDS_HUMAN,
    NO_ANSWER,
    Ec2Error,
    KubeError,
    Outcome,
    Reason,
    StorageError,
)
from provisioner.model.ids import is_volume_id
from provisioner.reconcile.modify_memory import (
    Look,
    Next,
    Readings,
    is_under_way,
    loop_s,
    released,
    view_of,
)
from provisioner.reconcile.modify_record import ModifyRecord, utc_now
from provisioner.reconcile.modify_sending import ChangedError, ModifySending, ledger_of

AGAIN_S = 1.0
_WATCHED_AGAIN_S = 60.0  # the watcher wakes us; this is for a wake that got lost
_CHANGED_S = 0.2
_IN_DOUBT_S = 2.0
_LOOK_MOST = timedelta(hours=1)
# A volume may be missing from one description; a bound one hardly for as long as this.
_MISSING_S = 60.0
_MISSING_AGAIN_S = 5.0
# What is not begun any more for a claim that is being deleted.
_NEW = volume_plan.Send | volume_plan.Tag | volume_plan.WaitUntil | volume_plan.Failed
_NO_TIME = (
    "EC2 takes no further modification of the volume for now and does not say until when; it is "
    "tried again every hour"
)

# Nothing that waiting cures: the claim or its class has to change. Tried again all the same, as AWS
# raises its limits.
FOR_GOOD = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.INVALID_CLASS,
        Reason.INVALID_CLAIM,
        Reason.NOT_SUPPORTED,
        Reason.TYPE_NOT_IN_ZONE,
        Reason.VOLUME_NOT_FOUND,
    }
)
# EC2 has looked at what was wanted, and said no to that.
_OF_THE_WISH = FOR_GOOD | {Reason.QUOTA_EXCEEDED, Reason.ZONE_OUT_OF_CAPACITY, Reason.KEY_UNUSABLE}
_PASSES = (Reason.MODIFICATION_RUNNING, Reason.VOLUME_STATE)
# Tags that cannot be written, whenever it is tried.
OF_TAGS = _OF_THE_WISH | {Reason.PERMISSION_DENIED}
FOR_GOOD_AGAIN_S = 1800.0  # as aws-ebs-csi-driver's chart has the stock resizer do it
_AGAIN_S, _AGAIN_MOST_S = 60.0, 600.0
# A modification that fails in EC2 counts all the same: some of the day's are left for who corrects
# his wish.
_FAILED_AGAIN_S = (30.0, 3600.0, 6 * 3600.0)
# Where EC2 does not say when it takes the next one.
_LIMIT_AGAIN = timedelta(hours=1)
_LIMIT_LEAST = timedelta(minutes=1)  # its clock and ours may differ
# Known to pass soon: somebody modifies or tags the volume at this moment.
_SOON_AGAIN_S = 5.0
_LOST_AGAIN_S = 1.0
# Events live for an hour: what lasts is told again before.
TELL_AGAIN_S = 1800.0

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
        self._sending = ModifySending(edges, record, is_same=is_same)
        self._refusals = ModifyRefusals(edges, record)
        self._waiting: set[str] = set()
        edges.metrics.modifications_waiting.set_function(lambda: len(self._waiting))

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
        except Ec2Error as error:
            if error.reason in NEEDS_HUMAN:
                await self._refusals.cannot_look(look, error)
            raise

    async def _take(self, look: Look) -> Next:
        known, now = look.known, utc_now()
        await self._refusals.write(look)
        if not is_volume_id(look.volume_id):
            return await self._refusals.no_volume(look)
        ledger = ledger_of(look.persistent_volume, look.volume_id)
        await self._readings.refresh(look.volume_id, known, ledger)
        change = look.change
        try:
            tags = attribute_rules.tags_of(change, look.claim)
        except ValueError as error:
            if Wish.ATTRIBUTES not in known.refused:
                broken = StorageError(Reason.INVALID_CLASS, str(error))
                return await self._refusals.refuse(look, {Wish.ATTRIBUTES}, broken)
            change, tags = None, {}
        view = view_of(look, change, tags, ledger, now)
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
                return await self._refusals.refuse(look, {wish}, StorageError(reason, message))
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
        if Wish.ATTRIBUTES not in step.wishes:
            self._tell_iops(look, step.fitted, step.request.size_gib or 0)
        together, known.together = known.together, None
        if together is not None and Wish.ATTRIBUTES not in step.wishes:
            return await self._refusals.refuse(look, {Wish.ATTRIBUTES}, together)
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
        known.begun -= step.wishes
        for wish in step.wishes:
            known.refusals.pop(wish, None)
            known.told.pop(wish, None)
        self._tell_iops(look, step.fitted, step.size_gib)
        if change is not None and known.unfollowed is not None:
            self._tell_unfollowed(look, known.unfollowed)
        took_s = loop_s() - known.wished_at_s
        self._metrics.flow_seconds.labels("modify").observe(took_s)
        log.info("volume has what was wanted", wishes=sorted(step.wishes), in_s=round(took_s, 2))
        return True

    def _tell_iops(self, look: Look, fitted: capping.Fitted | None, size_gib: int) -> None:
        """Say so where a volume gets other IOPS than were asked for."""
        volume, change = look.known.volume, look.change
        if fitted is None or volume is None:
            return
        asked_type = change.attributes.volume_type if change is not None else None
        volume_type, claim = asked_type or volume.volume_type, self._now(look)
        if (text := capping.told(fitted, volume_type, size_gib)) is not None:
            text = f"{Reason.IOPS_CAPPED}: {text}"
            self._record.tell(claim, "VolumeModify", text, warning=True)
        elif (text := capping.raised(fitted, volume_type)) is not None:
            self._record.tell(claim, "VolumeModify", f"{Reason.IOPS_RAISED}: {text}")

    def _tell_unfollowed(self, look: Look, error: StorageError) -> None:
        """The volume has its class; only later growth is other than that asks for."""
        text = (
            f"{error.reason}: the volume has the class, but when it grows later, its IOPS stay as "
            f"they are, for the tags that say otherwise could not be written: {error.message}"
        )
        self._record.tell(self._now(look), "VolumeModify", text, warning=True)

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
        is_guess = known.limit_is_guess and step.at == known.limited_until
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
            if step.is_optional and error.reason in OF_TAGS:
                known.unfollowed = error
                return True
            return await self._refusals.of_tags(look, error)
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
        await self._refusals.refuse(look, look.wishes, error)
        return known.held_for_s()

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


class ModifyRefusals:
    """Sorts refusals: about time, about the plan, about one wish, about us."""

    def __init__(self, edges: Edges, record: ModifyRecord) -> None:
        self._caches = edges.caches
        self._metrics = edges.metrics
        self._record = record

    async def after(self, look: Look, step: volume_plan.Send, error: StorageError) -> float | bool:
        """What to do after a ModifyVolume that brought an error; as ``ModifySteps.take``.

        Raises:
            StorageError: the same: nobody has refused; it goes on after a while.
        """
        known = look.known
        if isinstance(error, KubeError):
            raise error  # what is about to be sent could not be noted, so nothing was
        known.read_at_s = None
        if error.outcome is Outcome.UNKNOWN:
            log.warning("the reply to ModifyVolume was lost", error=error.message)
            return _LOST_AGAIN_S
        if error.reason in NO_ANSWER:
            raise error
        if error.reason is Reason.MODIFICATION_LIMIT:
            _limit(look, error)
            return True
        if error.reason is Reason.VOLUME_NOT_FOUND:
            known.volume = None
            return True
        ceiling = ceiling_in(error) if isinstance(error, Ec2Error) else None
        if ceiling is not None and known.ceiling is None and step.request.iops is not None:
            known.ceiling = ceiling
            log.info("learned how many IOPS this region gives", iops=ceiling)
            return True
        if error.reason in _OF_THE_WISH and step.wishes == BOTH:
            known.alone, known.together = True, error
            log.warning("refused together; each goes alone", error=error.message)
            return True
        return await self.refuse(look, step.wishes, error)

    async def of_tags(self, look: Look, error: StorageError) -> bool:
        """What to do after tags could not be written: a size does not wait for them.

        Raises:
            StorageError: the same: nobody has refused; it goes on after a while.
        """
        if error.outcome is Outcome.UNKNOWN or error.reason in NO_ANSWER:
            raise error
        return await self.refuse(look, {Wish.ATTRIBUTES}, error)

    async def cannot_look(self, look: Look, error: StorageError) -> None:
        """EC2 may not be asked about the volume: on the claim, where people have to help."""
        for wish in sorted(look.wishes - look.known.refused):
            await self._say(look, wish, error)

    async def failed(self, look: Look, error: StorageError) -> bool:
        """What was begun has failed in EC2: told, and tried again less and less often."""
        known = look.known
        for wish in look.wishes - known.refused:
            before = known.refusals.get(wish)
            times = before.times if before is not None else 0
            self._set_aside(
                look, wish, error, _FAILED_AGAIN_S[min(times, len(_FAILED_AGAIN_S) - 1)]
            )
        await self.write(look)
        return True

    async def no_volume(self, look: Look) -> float | None:
        """What the stock driver has for a disk of a node, say: EC2 need not be asked."""
        error = StorageError(
            Reason.NOT_SUPPORTED,
            f"persistentvolume {look.persistent_volume.name} names {look.volume_id[:100]!r}, which "
            "is no id of an EBS volume: EC2 can neither grow nor change it",
        )
        await self.refuse(look, look.wishes - look.known.refused, error)
        return look.known.held_for_s()

    async def refuse(self, look: Look, wishes: Iterable[Wish], error: StorageError) -> bool:
        """Set wishes aside, all until one time, and say why; any other one goes on."""
        refusals = look.known.refusals.values()
        times = max(
            (each.times for each in refusals if each.error.reason is error.reason), default=0
        )
        first_s = _SOON_AGAIN_S if error.reason in _PASSES else _AGAIN_S
        again_s = min((error.retry_after_s or first_s) * 2.0 ** min(times, 8), _AGAIN_MOST_S)
        for wish in wishes:
            self._set_aside(
                look, wish, error, FOR_GOOD_AGAIN_S if error.reason in FOR_GOOD else again_s
            )
        await self.write(look)
        return True

    async def write(self, look: Look) -> None:
        """Say why wishes were set aside, where that could not be written down yet."""
        for wish, refusal in list(look.known.refusals.items()):
            if not refusal.is_written and wish in look.wishes:
                await self._say(look, wish, refusal.error)
                refusal.is_written = True

    async def _say(self, look: Look, wish: Wish, error: StorageError) -> None:
        """Write why a wish is not had into the claim's conditions; the event not too often.

        External-resizer sets ModifyVolumeError and ControllerResizeError at every error.
        """
        claim = self._caches.claim(look.claim.uid) or look.claim
        await self._record.refused(
            claim,
            wish,
            error,
            grow=look.grow,
            name=look.change.name if look.change is not None else None,
            for_good=error.reason in FOR_GOOD,
        )
        text = f"{error.reason}: {error.message}"
        self._record.tell_failed(
            claim, look.known.news(text, frozenset({wish}), TELL_AGAIN_S), text
        )

    def _set_aside(self, look: Look, wish: Wish, error: StorageError, again_s: float) -> None:
        look.known.refuse(wish, error, again_s)
        self._metrics.flow_failures.labels("modify", error.reason.value).inc()
        log.warning("refused", wish=wish.value, reason=error.reason.value, error=error.message)


def _limit(look: Look, error: StorageError) -> None:
    """Note when EC2 takes another modification, as far as it says so; else it is tried hourly."""
    known, now = look.known, utc_now()
    at = None
    if isinstance(error, Ec2Error) and error.retry_at is not None:
        at = error.retry_at.astimezone(UTC)
        at = at if at > now else now + _LIMIT_LEAST
    elif error.retry_after_s is not None:
        at = now + timedelta(seconds=error.retry_after_s)
    elif isinstance(error, Ec2Error) and error.between_s is not None:
        began = _began(look)
        at = began + timedelta(seconds=error.between_s) if began is not None else None
    known.limit_is_guess = at is None or at <= now
    known.limited_until = now + _LIMIT_AGAIN if at is None or at <= now else at


def _began(look: Look) -> datetime | None:
    """When the latest modification began: as EC2 says, or as we have noted it."""
    latest = look.known.latest
    if latest is not None and latest.started_at is not None:
        return latest.started_at
    starts = ledger_of(look.persistent_volume, look.volume_id).starts
    return starts[-1].at if starts else None
