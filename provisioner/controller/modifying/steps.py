"""The steps towards one plan for a volume, each carried out and written down.

What EC2 refuses is sorted: one bad wish never holds the other up. ModifyVolume has no client token.
What is about to be sent is noted on the persistent volume, once the limiter has granted the call
and right before it goes; whoever finds such a note of which EC2 shows nothing waits until EC2 would
show it (see ``model/budget.py``).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

import structlog

from provisioner import clock
from provisioner.classes import iops_rules
from provisioner.controller.modifying import class_rules as attribute_rules
from provisioner.controller.modifying import rules
from provisioner.controller.modifying.record import ModifyRecord, utc_now
from provisioner.controller.modifying.rules import BOTH, Wish
from provisioner.controller.modifying.state import (
    Known,
    Look,
    Reading,
    Readings,
    is_under_way,
)
from provisioner.controller.shared.services import Services
from provisioner.ec2.batches import whole
from provisioner.ec2.ceilings import ceiling_in
from provisioner.model.backoff import Backoff
from provisioner.model.budget import Ledger, Start, asked
from provisioner.model.claim import Claim
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
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
from provisioner.model.modification import Modification
from provisioner.model.names import MODIFICATIONS
from provisioner.model.persistent_volume import PersistentVolume

# The watcher wakes us; this is for a wake that got lost.
_WATCHED = Later(60.0)
CHANGED = Later(0.2)
_IN_DOUBT_S = 2.0
_WAIT_LEAST_S, _LOOK_MOST = 1.0, timedelta(hours=1)
# A volume may be missing from one description; a bound one hardly for as long as this.
_MISSING_S = 60.0
_MISSING_AGAIN = Later(5.0)
# What is not begun any more for a claim that is being deleted.
_NEW = rules.Send | rules.Tag | rules.WaitUntil | rules.Failed
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
_LOST_AGAIN = Later(1.0)
# Events live for an hour: what lasts is told again before.
TELL_AGAIN_S = 1800.0
# A note as old as this is written anew before a call that was throttled goes again: who comes after
# us doubts it for a minute.
_NOTE_HOLDS = timedelta(seconds=5)

log = structlog.get_logger(__name__)


class ChangedError(Exception):
    """Something else is wanted by now, or the persistent volume is gone; nothing was sent."""


class ModifySteps:
    """Carries out what ``volume_plan`` decides."""

    def __init__(
        self,
        services: Services,
        readings: Readings,
        record: ModifyRecord,
        *,
        is_same: Callable[[Claim], bool],
        wake: Callable[[str], None],
    ) -> None:
        """Take no step yet; ``is_same``: whether a claim still wants what it was seen to want."""
        self._caches = services.caches
        self._volumes = services.volumes
        self._modifications = services.modifications
        self._metrics = services.metrics
        self._readings = readings
        self._record = record
        self._is_same = is_same
        self._wake = wake

    async def take(self, look: Look) -> Next:
        """Take one step; ``AGAIN``: another one follows at once.

        Raises:
            StorageError: it goes on after a while.
        """
        try:
            return await self._take(look)
        except Ec2Error as error:
            if error.reason in NEEDS_HUMAN:
                for wish in sorted(look.wishes):
                    await self._say(look, wish, error)
            raise

    async def _take(self, look: Look) -> Next:
        known, change = look.known, look.wanted.change
        for wish, refusal in list(known.refusals.items()):
            if not refusal.is_written and wish in look.wanted.wishes:
                await self._say(look, wish, refusal.error)
                refusal.is_written = True
        if not is_volume_id(known.volume_id):
            return self._no_volume(look)
        ledger = ledger_of(look.persistent_volume, known.volume_id)
        reading = await self._readings.refreshed(known, ledger)
        try:
            tags = attribute_rules.tags_of(change, look.claim)
        except ValueError as error:
            if Wish.ATTRIBUTES in look.wishes:
                broken = StorageError(Reason.INVALID_CLASS, str(error))
                return self._refuse(look, {Wish.ATTRIBUTES}, broken)
            change, tags = None, {}
        view = look.view(reading, change, tags, ledger, utc_now())
        step = rules.decide(view)
        if look.superseded and not is_under_way(view, step):
            return known.released()
        if look.claim.deleting and isinstance(step, _NEW):
            self._readings.leave(look.claim.uid, known.volume_id)
            return SETTLED
        known.waits_for_limit = isinstance(step, rules.WaitUntil)
        if not isinstance(step, rules.Gone):
            known.missing_since_s = None
        return await self._carry_out(look, step, reading)

    async def _carry_out(self, look: Look, step: rules.Step, reading: Reading) -> Next:
        known = look.known
        match step:
            case rules.Gone():
                return self._gone(look)
            case rules.InDoubt(for_s=for_s):
                known.reading = None
                log.info("looking whether a modification was begun", for_s=round(for_s))
                return Later(min(for_s, _IN_DOUBT_S))
            case rules.Done():
                return await self._done(look, step, reading)
            case rules.Await(message=message):
                return await self._await(look, message)
            case rules.Failed(name=name, message=message):
                known.told_failed, known.begun, known.reading = name, frozenset(), None
                return self._failed(look, StorageError(Reason.VOLUME_STATE, message))
            case rules.Impossible(wish=wish, message=message):
                is_size = wish is Wish.SIZE
                reason = Reason.INVALID_CLAIM if is_size else Reason.INVALID_CLASS
                return self._refuse(look, {wish}, StorageError(reason, message))
            case rules.Tag():
                return await self._tag(look, step, reading)
            case rules.WaitUntil():
                return await self._wait_until(look, step)
            case rules.Send():
                return await self._send(look, step, reading)
            case rules.Held():
                self._readings.leave(look.claim.uid, known.volume_id)
                return known.held()
            case _:
                assert_never(step)

    async def _send(self, look: Look, step: rules.Send, reading: Reading) -> Next:
        known, claim = look.known, look.claim
        await self._record.begin(claim, look.wanted.only(step.wishes))
        try:
            begun = await self._modify(look, step, reading.latest)
        except ChangedError:
            return CHANGED
        except StorageError as error:
            answer = self._after(look, step, error, reading)
            if known.reading is None:
                self._watch(look, anew=True)
            return answer
        known.sent(begun)
        self._watch(look, anew=True)
        log.info("volume modified", asked=asked(step.request), state=begun.state.value)
        if Wish.ATTRIBUTES not in step.wishes:
            self._tell_iops(look, step.fitted, step.request.size_gib or 0, reading)
            if known.aim.apart is not None:
                return self._refuse(look, {Wish.ATTRIBUTES}, known.aim.apart)
        return AGAIN

    async def _done(self, look: Look, step: rules.Done, reading: Reading) -> Next:
        known, done = look.known, look.wanted.only(step.wishes)
        await self._record.finish(look.claim, look.persistent_volume, done, step.size_gib)
        known.begun -= step.wishes
        for wish in step.wishes:
            known.refusals.pop(wish, None)
            known.told.forget(wish)
        self._tell_iops(look, step.fitted, step.size_gib, reading)
        if done.change is not None and known.aim.unfollowed is not None:
            self._tell_unfollowed(look, known.aim.unfollowed)
        took_s = clock.now_s() - known.wished_at_s
        self._metrics.flow_seconds.labels("modify").observe(took_s)
        log.info("volume has what was wanted", wishes=sorted(step.wishes), in_s=round(took_s, 2))
        return AGAIN

    def _tell_iops(
        self, look: Look, fitted: iops_rules.Fitted | None, size_gib: int, reading: Reading
    ) -> None:
        """Say so where a volume gets other IOPS than were asked for."""
        volume, change = reading.volume, look.wanted.change
        if fitted is None or volume is None:
            return
        asked_type = change.attributes.volume_type if change is not None else None
        volume_type, claim = asked_type or volume.volume_type, self._now(look)
        if (text := iops_rules.told(fitted, volume_type, size_gib)) is not None:
            text = f"{Reason.IOPS_CAPPED}: {text}"
            self._record.tell(claim, "VolumeModify", text, warning=True)
        elif (text := iops_rules.raised(fitted, volume_type)) is not None:
            self._record.tell(claim, "VolumeModify", f"{Reason.IOPS_RAISED}: {text}")

    def _tell_unfollowed(self, look: Look, error: StorageError) -> None:
        """The volume has its class; only later growth is other than that asks for."""
        text = (
            f"{error.reason}: the volume has the class, but when it grows later, its IOPS stay as "
            f"they are, for the tags that say otherwise could not be written: {error.message}"
        )
        self._record.tell(self._now(look), "VolumeModify", text, warning=True)

    async def _await(self, look: Look, message: str) -> Next:
        await self._record.begin(look.claim, look.wanted.only(look.wishes), message)
        news = look.known.news(message, look.wishes) if message else None
        if news:
            self._record.tell_waiting(look.claim, news, message)
        self._watch(look)
        return _WATCHED

    async def _wait_until(self, look: Look, step: rules.WaitUntil) -> Next:
        known = look.known
        is_guess = known.limit_is_guess and step.at == known.limited_until
        message = _NO_TIME if is_guess else step.message
        await self._record.begin(look.claim, look.wanted.only(look.wishes), message)
        news = known.news(message, look.wishes)
        if news:
            self._record.tell_failed(look.claim, news, f"{Reason.MODIFICATION_LIMIT}: {message}")
            log.warning("waiting until EC2 takes another modification", until=str(step.at))
        self._readings.leave(look.claim.uid, known.volume_id)
        known.reading = None
        return Later(max(_WAIT_LEAST_S, min(step.at - utc_now(), _LOOK_MOST).total_seconds()))

    async def _tag(self, look: Look, step: rules.Tag, reading: Reading) -> Next:
        """Write and remove tags; both again are harmless.

        Raises:
            StorageError: nobody has refused; it goes on after a while.
        """
        known, volume = look.known, reading.volume
        await self._record.begin(look.claim, look.wanted.only(look.wishes))
        try:
            for key in step.remove:
                whole(await self._volumes.untag([known.volume_id], key))
            if step.add:
                whole(await self._volumes.tag([known.volume_id], step.add))
        except StorageError as error:
            if step.is_optional and error.reason in OF_TAGS:
                known.aim.unfollowed = error
                return AGAIN
            if error.outcome is Outcome.UNKNOWN or error.reason in NO_ANSWER:
                raise
            return self._refuse(look, {Wish.ATTRIBUTES}, error)  # a size does not wait for them
        if volume is not None:
            has = {key: value for key, value in volume.tags.items() if key not in step.remove}
            volume = replace(volume, tags=has | dict(step.add))
            known.reading = replace(reading, volume=volume)
        return AGAIN

    def _gone(self, look: Look) -> Next:
        known = look.known
        if not look.wishes:
            return known.held()
        if known.missing_since_s is None:
            known.missing_since_s = clock.now_s()
        if clock.now_s() - known.missing_since_s < _MISSING_S:
            known.reading = None
            return _MISSING_AGAIN
        error = StorageError(
            Reason.VOLUME_NOT_FOUND,
            f"EC2 does not know volume {known.volume_id} of persistentvolume "
            f"{look.persistent_volume.name}; somebody has deleted it: restore a snapshot",
        )
        return self._refuse(look, look.wishes, error)

    def _no_volume(self, look: Look) -> Next:
        """What the stock driver has for a disk of a node, say: EC2 need not be asked."""
        if not look.wishes:
            return look.known.held()
        error = StorageError(
            Reason.NOT_SUPPORTED,
            f"persistentvolume {look.persistent_volume.name} names "
            f"{look.known.volume_id[:100]!r}, which is no id of an EBS volume: EC2 can neither "
            "grow nor change it",
        )
        return self._refuse(look, look.wishes, error)

    def _watch(self, look: Look, *, anew: bool = False) -> None:
        """Have the claim looked at when its modification has changed; not one that is gone."""
        uid = look.claim.uid
        if self._caches.claim(uid) is not None:
            self._readings.watch(uid, look.known.volume_id, lambda: self._wake(uid), anew=anew)

    def _now(self, look: Look) -> Claim:
        """The claim as it is by now: we have written to it since it was seen."""
        return self._caches.claim(look.claim.uid) or look.claim

    async def _modify(
        self, look: Look, step: rules.Send, latest: Modification | None
    ) -> Modification:
        """Send one ModifyVolume; ``latest``: the modification before.

        Raises:
            ChangedError: nothing was sent: look again.
            KubeError: it could not be noted, so nothing was sent.
            StorageError: refused; or, with ``outcome`` UNKNOWN, the reply was lost.
        """
        noted: Start | None = None

        async def last_look() -> None:
            nonlocal noted
            noted = await self._last_look(look, step, latest, noted)
            if not self._is_same(look.claim):  # while that was written
                raise ChangedError

        try:
            return await self._modifications.modify(step.request, gate=last_look)
        except ChangedError:
            await self._take_back(look, noted)
            raise
        except StorageError as error:
            if error.outcome is Outcome.NOTHING:
                await self._take_back(look, noted)
            raise

    async def _last_look(
        self,
        look: Look,
        step: rules.Send,
        latest: Modification | None,
        noted: Start | None,
    ) -> Start:
        """Once the limiter has granted the call, after minutes perhaps: what is noted by then."""
        persistent_volume = self._caches.persistent_volumes.get(look.persistent_volume.name)
        if persistent_volume is None or not self._is_same(look.claim):
            raise ChangedError
        now = utc_now()
        ledger = ledger_of(persistent_volume, step.request.volume_id)
        if noted is None:
            begun = ledger.begun(step.request, latest, now)
        elif ledger.starts[-1:] != (noted,):
            raise ChangedError
        elif now - noted.at < _NOTE_HOLDS:
            return noted  # EC2 has throttled it, and it goes again
        else:
            begun = ledger.again(now)
        # Should it be written though that fails, somebody waits for a minute; nothing is sent.
        await self._note(persistent_volume, look.known, begun)
        look.known.begun |= step.wishes
        return begun.starts[-1]

    async def _take_back(self, look: Look, noted: Start | None) -> None:
        """It was surely not carried out; a note that stays only costs a minute of doubt."""
        if noted is None:
            return
        known = look.known
        known.begun = frozenset()
        persistent_volume = self._caches.persistent_volumes.get(look.persistent_volume.name)
        if persistent_volume is None:
            return
        ledger = ledger_of(persistent_volume, known.volume_id)
        if ledger.starts[-1:] != (noted,):
            return
        try:
            await self._note(persistent_volume, known, ledger.taken_back())
        except KubeError as error:
            log.info("a note of what was refused stays", error=error.message)

    async def _note(
        self, persistent_volume: PersistentVolume, known: Known, ledger: Ledger
    ) -> None:
        uid, volume_id = persistent_volume.uid, known.volume_id
        text = ledger.text(persistent_volume_uid=uid, volume_id=volume_id)
        value = text if ledger.starts else None
        await self._record.patch_persistent_volume(
            persistent_volume, {MODIFICATIONS: value}, {}, guarded=True
        )

    def _after(self, look: Look, step: rules.Send, error: StorageError, reading: Reading) -> Next:
        """What to do after a ModifyVolume that brought an error, by what it is about.

        Time, the plan, one wish, or us.

        Raises:
            StorageError: the same: nobody has refused; it goes on after a while.
        """
        known = look.known
        if isinstance(error, KubeError):
            raise error  # what is about to be sent could not be noted, so nothing was
        known.reading = None
        if error.outcome is Outcome.UNKNOWN:
            log.warning("the reply to ModifyVolume was lost", error=error.message)
            return _LOST_AGAIN
        if error.reason in NO_ANSWER:
            raise error
        if error.reason is Reason.MODIFICATION_LIMIT:
            _limit(look, error, reading.latest)
            return AGAIN
        if error.reason is Reason.VOLUME_NOT_FOUND:
            return AGAIN
        aim, ceiling = known.aim, ceiling_in(error) if isinstance(error, Ec2Error) else None
        if ceiling is not None and aim.ceiling is None and step.request.iops is not None:
            aim.ceiling = ceiling
            log.info("learned how many IOPS this region gives", iops=ceiling)
            return AGAIN
        if error.reason in _OF_THE_WISH and step.wishes == BOTH:
            aim.apart = error
            log.warning("refused together; each goes alone", error=error.message)
            return AGAIN
        return self._refuse(look, step.wishes, error)

    def _failed(self, look: Look, error: StorageError) -> Next:
        """What was begun has failed in EC2: told, and tried again less and less often."""
        for wish in look.wishes:
            before = look.known.refusals.get(wish)
            times = before.times if before is not None else 0
            pause_s = _FAILED_AGAIN_S[min(times, len(_FAILED_AGAIN_S) - 1)]
            self._set_aside(look, wish, error, pause_s)
        return AGAIN

    def _refuse(self, look: Look, wishes: Iterable[Wish], error: StorageError) -> Next:
        """Set wishes aside, all until one time; any other one goes on. Why is said next."""
        refusals = look.known.refusals.values()
        times = max(
            (each.times for each in refusals if each.error.reason is error.reason), default=0
        )
        first_s = _SOON_AGAIN_S if error.reason in _PASSES else _AGAIN_S
        again_s = Backoff(error.retry_after_s or first_s, _AGAIN_MOST_S).pause_s(times)
        if error.reason in FOR_GOOD:
            again_s = FOR_GOOD_AGAIN_S
        for wish in wishes:
            self._set_aside(look, wish, error, again_s)
        return AGAIN

    async def _say(self, look: Look, wish: Wish, error: StorageError) -> None:
        """Write why a wish is not had into the claim's conditions; the event not too often.

        External-resizer sets ModifyVolumeError and ControllerResizeError at every error.
        """
        claim, for_good = self._now(look), error.reason in FOR_GOOD
        await self._record.refused(claim, wish, look.wanted, error, for_good=for_good)
        text = f"{error.reason}: {error.message}"
        news = look.known.news(text, frozenset({wish}), TELL_AGAIN_S)
        self._record.tell_failed(claim, news, text)

    def _set_aside(self, look: Look, wish: Wish, error: StorageError, again_s: float) -> None:
        look.known.refuse(wish, error, again_s)
        self._metrics.flow_failures.labels("modify", error.reason.value).inc()
        log.warning("refused", wish=wish.value, reason=error.reason.value, error=error.message)


def ledger_of(persistent_volume: PersistentVolume, volume_id: str) -> Ledger:
    """What is noted on a persistent volume about the modifications of its volume."""
    ledger = Ledger.read(
        persistent_volume.annotations.get(MODIFICATIONS),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    return ledger.believed(utc_now())


def _limit(look: Look, error: StorageError, latest: Modification | None) -> None:
    """Note when EC2 takes another modification, as far as it says so; else it is tried hourly."""
    known, now = look.known, utc_now()
    at = None
    if isinstance(error, Ec2Error) and error.retry_at is not None:
        at = error.retry_at.astimezone(UTC)
        at = at if at > now else now + _LIMIT_LEAST
    elif error.retry_after_s is not None:
        at = now + timedelta(seconds=error.retry_after_s)
    elif isinstance(error, Ec2Error) and error.between_s is not None:
        began = _began(look, latest)
        at = began + timedelta(seconds=error.between_s) if began is not None else None
    known.limit_is_guess = at is None or at <= now
    known.limited_until = now + _LIMIT_AGAIN if at is None or at <= now else at


def _began(look: Look, latest: Modification | None) -> datetime | None:
    """When the latest modification began: as EC2 says, or as we have noted it."""
    if latest is not None and latest.started_at is not None:
        return latest.started_at
    starts = ledger_of(look.persistent_volume, look.known.volume_id).starts
    return starts[-1].at if starts else None
