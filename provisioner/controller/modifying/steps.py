"""Carry out the steps that ``rules`` decides, and write them down.

ModifyVolume has no client token. So what is about to be sent is noted on the persistent volume,
once the limiter has granted the call and right before it goes. A process that finds such a note,
of which EC2 shows nothing, waits until EC2 would show it (see ``model/budget.py``).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

import structlog

from provisioner import clock
from provisioner.classes import iops_rules
from provisioner.controller.modifying import class_rules, rules
from provisioner.controller.modifying.record import ModifyRecord, utc_now
from provisioner.controller.modifying.rules import BOTH, Answers, Part, is_under_way, limit_of
from provisioner.controller.modifying.state import ClaimState, Observed, Observer, Pass
from provisioner.controller.shared.services import Services
from provisioner.ec2.batches import whole
from provisioner.ec2.ceilings import ceiling_in
from provisioner.model.backoff import Backoff
from provisioner.model.budget import Ledger, Start, summary
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S
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
from provisioner.model.volume import CreateRequest
from provisioner.tell_once import EVENT_AGAIN_S

# The watcher wakes us; this is for a wake that got lost.
_WATCHED = Later(60.0)
CHANGED = Later(0.2)
_IN_DOUBT_S = 2.0
_WAIT_LEAST_S, _WAIT_MOST = 1.0, timedelta(hours=1)
_MISSING_AGAIN = Later(5.0)
# What is no longer started for a claim that is being deleted.
_NEW = rules.Send | rules.Tag | rules.WaitUntil | rules.Failed
# Waiting does not help: the claim or its class has to change. It is tried again rarely, because
# AWS raises its limits.
_PERMANENT = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.INVALID_CLASS,
        Reason.INVALID_CLAIM,
        Reason.NOT_SUPPORTED,
        Reason.TYPE_NOT_IN_ZONE,
        Reason.VOLUME_NOT_FOUND,
    }
)
# EC2 has examined the request and refused it.
_OF_THE_REQUEST = _PERMANENT | {
    Reason.QUOTA_EXCEEDED,
    Reason.ZONE_OUT_OF_CAPACITY,
    Reason.KEY_UNUSABLE,
}
_PASSES = (Reason.MODIFICATION_RUNNING, Reason.VOLUME_STATE)
# Tags that cannot be written, whenever it is tried.
_OF_TAGS = _OF_THE_REQUEST | {Reason.PERMISSION_DENIED}
_PERMANENT_AGAIN_S = 1800.0  # as aws-ebs-csi-driver's chart has the stock resizer do it
_AGAIN_S, _AGAIN_MOST_S = 60.0, 600.0
# A modification that fails in EC2 counts towards the four of a day: some are left for a corrected
# request.
_FAILED_AGAIN_S = (30.0, 3600.0, 6 * 3600.0)
# Passes soon: somebody is modifying or tagging the volume right now.
_SOON_AGAIN_S = 5.0
_LOST_AGAIN = Later(1.0)
# An older note is written again before a call that was throttled is sent again: the next process
# waits for a minute after the note.
_NOTE_HOLDS = timedelta(seconds=5)

_SIZE = frozenset({Part.SIZE})

log = structlog.get_logger(__name__)


class ChangedError(Exception):
    """The request has changed, or the persistent volume is gone; nothing was sent."""


class ModifySteps:
    """Carries out what ``rules`` decides."""

    def __init__(
        self,
        services: Services,
        observer: Observer,
        record: ModifyRecord,
        *,
        is_same: Callable[[Claim], bool],
        wake: Callable[[str], None],
    ) -> None:
        """Take no step yet; ``is_same``: whether a claim still requests what it did when seen."""
        self._caches = services.caches
        self._volumes = services.volumes
        self._ceilings = services.ceilings
        self._modifications = services.modifications
        self._metrics = services.metrics
        self._observer = observer
        self._record = record
        self._is_same = is_same
        self._wake = wake

    async def take(self, current: Pass) -> Next:
        """Take one step; ``AGAIN``: another one follows at once.

        Raises:
            StorageError: to be retried later.
        """
        try:
            return await self._take(current)
        except Ec2Error as error:
            if error.reason in NEEDS_HUMAN:
                for part in sorted(current.parts):
                    await self._report(current, part, error)
            raise

    async def _take(self, current: Pass) -> Next:
        state = current.state
        # Only what is still requested: a size may pause for its node after it was refused.
        for part in sorted(current.requested.parts):
            refusal = state.parts[part].refusal
            if refusal is not None and not refusal.is_reported:
                await self._report(current, part, refusal.error)
                refusal.is_reported = True
        if not is_volume_id(state.volume_id):
            return self._not_of_ebs(current)
        ledger = ledger_of(current.persistent_volume, state.volume_id)
        observed = await self._observer.refresh(state, ledger)
        requested = current.requested
        try:
            tags = class_rules.tags_of(requested.change, current.claim)
        except ValueError as error:
            if Part.ATTRIBUTES in current.parts:
                broken = StorageError(Reason.INVALID_CLASS, str(error))
                return self._refuse(current, {Part.ATTRIBUTES}, broken)
            requested, tags = requested.only(_SIZE), {}
        view = await self._with_ceiling(
            state, current.view(observed, requested, tags, ledger, utc_now())
        )
        step = rules.decide(view)
        if current.superseded and not is_under_way(view, step):
            return state.release()
        if current.claim.deleting and isinstance(step, _NEW):
            self._observer.unwatch(current.claim.uid, state.volume_id)
            return SETTLED
        state.waits_for_limit = isinstance(step, rules.WaitUntil)
        if not isinstance(step, rules.Gone):
            state.missing_since_s = None
        return await self._carry_out(current, step, observed)

    async def _with_ceiling(self, state: ClaimState, view: rules.View) -> rules.View:
        """With the region's ceiling, where only that explains why a volume has too few IOPS.

        Of a class that was never sent, ModifyVolume says more: the ceiling is hours old.
        """
        has, volume = rules.at_ceiling(view), view.volume
        if has is None or volume is None or state.is_free(Part.ATTRIBUTES):
            return view
        tried = CreateRequest(
            client_token="",
            zone=volume.zone,
            outpost_arn=volume.outpost_arn or None,
            size_gib=has.size_gib,
            volume_type=has.volume_type,
        )
        try:
            ceiling = await self._ceilings.of(tried)
        except Ec2Error as error:
            log.info("cannot ask how many IOPS this region gives", error=error.message)
            return view  # a full disk does not wait for that
        if ceiling != has.iops:
            return view  # it may be that of another zone: ModifyVolume's own refusal counts more
        state.answers = replace(state.answers, iops_ceiling=ceiling)
        return replace(view, answers=state.answers)

    async def _carry_out(self, current: Pass, step: rules.Step, observed: Observed) -> Next:
        state = current.state
        match step:
            case rules.Gone():
                return self._gone(current)
            case rules.InDoubt(for_s=for_s):
                state.observed = None
                log.info("looking whether a modification was started", for_s=round(for_s))
                return Later(min(for_s, _IN_DOUBT_S))
            case rules.Done():
                return await self._done(current, step, observed)
            case rules.Await(message=message):
                return await self._await(current, message)
            case rules.Failed(name=name, message=message):
                state.reported_failure, state.observed = name, None
                return self._failed(current, StorageError(Reason.VOLUME_STATE, message))
            case rules.Impossible(part=part, message=message):
                is_size = part is Part.SIZE
                reason = Reason.INVALID_CLAIM if is_size else Reason.INVALID_CLASS
                return self._refuse(current, {part}, StorageError(reason, message))
            case rules.Tag():
                return await self._tag(current, step, observed)
            case rules.WaitUntil():
                return await self._wait_until(current, step)
            case rules.Send():
                return await self._send(current, step, observed)
            case rules.AllRefused():
                self._observer.unwatch(current.claim.uid, state.volume_id)
                return state.next_try()
            case _:
                assert_never(step)

    async def _send(self, current: Pass, step: rules.Send, observed: Observed) -> Next:
        state, claim = current.state, current.claim
        await self._record.begin(claim, current.requested.only(step.parts))
        try:
            begun = await self._modify(current, step, observed.latest)
        except ChangedError:
            return CHANGED
        except StorageError as error:
            answer = self._after_error(current, step, error, observed)
            if state.observed is None:
                self._watch(current, is_new=True)
            return answer
        state.sent(begun, step.parts)
        self._watch(current, is_new=True)
        log.info("volume modified", asked=summary(step.request), state=begun.state.value)
        if Part.ATTRIBUTES not in step.parts:
            self._report_iops(current, step, step.request.size_gib or 0, observed)
            self._report_iops_refused(current)
            together = state.answers.refused_together
            if together is not None:
                return self._refuse(current, {Part.ATTRIBUTES}, together)
        return AGAIN

    async def _done(self, current: Pass, step: rules.Done, observed: Observed) -> Next:
        state, done = current.state, current.requested.only(step.parts)
        await self._record.finish(current.claim, current.persistent_volume, done, step.size_gib)
        state.done(step.parts)
        self._report_iops(current, step, step.size_gib, observed)
        if Part.SIZE in step.parts:
            self._report_iops_refused(current)  # the reply may have been lost
        if done.change is not None and state.answers.tags_refused is not None:
            self._report_tags_refused(current, state.answers.tags_refused, observed)
        took_s = clock.now_s() - state.requested_at_s
        self._metrics.flow_seconds.labels("modify").observe(took_s)
        log.info("volume has what was requested", parts=sorted(step.parts), in_s=round(took_s, 2))
        return AGAIN

    def _report_iops(
        self, current: Pass, step: rules.Send | rules.Done, size_gib: int, observed: Observed
    ) -> None:
        """Say so where a volume gets other IOPS than its class asks for."""
        fitted, volume = step.fitted, observed.volume
        change = current.requested.only(step.parts).change
        if fitted is None or volume is None:
            return
        asked_type = change.attributes.volume_type if change is not None else None
        volume_type, claim = asked_type or volume.volume_type, self._newest(current)
        if (text := iops_rules.lowered_message(fitted, volume_type, size_gib)) is not None:
            text = f"{Reason.IOPS_CAPPED}: {text}"
            self._record.event(claim, "VolumeModify", text, warning=True)
        elif (text := iops_rules.raised_message(fitted, volume_type)) is not None:
            self._record.event(claim, "VolumeModify", f"{Reason.IOPS_RAISED}: {text}")

    def _report_iops_refused(self, current: Pass) -> None:
        """It grows, but has no more IOPS than before; each refusal is told once."""
        error = current.state.answers.iops_refused
        if error is None or not current.state.reported.is_news(error):
            return
        text = (
            f"{error.reason}: the volume grows, but its IOPS stay as they are, because EC2 refused "
            f"more of them: {error.message}; to request them again, give the claim a "
            "VolumeAttributesClass of another name with these IOPS"
        )
        self._record.event(self._newest(current), "VolumeModify", text, warning=True)

    def _report_tags_refused(self, current: Pass, error: StorageError, observed: Observed) -> None:
        """The volume has its class; only its growth will not be as the class asks."""
        outdated = class_rules.outdated_of(current.requested.change)
        if observed.volume is not None and observed.volume.tags.keys() & set(outdated):
            text = (
                f"{error.reason}: the class was applied, but the IOPS may change when the volume "
                f"grows, because tags of an earlier class could not be removed: {error.message}"
            )
        else:
            text = (
                f"{error.reason}: the class was applied, but the IOPS will not change when the "
                f"volume grows, because the tags for that could not be written: {error.message}"
            )
        self._record.event(self._newest(current), "VolumeModify", text, warning=True)

    async def _await(self, current: Pass, message: str) -> Next:
        await self._record.begin(current.claim, current.requested.only(current.parts), message)
        if message:
            parts = current.state.to_report(message, current.parts)
            if parts:
                self._record.report_waiting(current.claim, parts, message)
        self._watch(current)
        return _WATCHED

    async def _wait_until(self, current: Pass, step: rules.WaitUntil) -> Next:
        state, message = current.state, step.message
        await self._record.begin(current.claim, current.requested.only(current.parts), message)
        parts = state.to_report(message, current.parts)
        if parts:
            text = f"{Reason.MODIFICATION_LIMIT}: {message}"
            self._record.report_failure(current.claim, parts, text)
            log.warning("waiting until EC2 accepts another modification", until=str(step.at))
        self._observer.unwatch(current.claim.uid, state.volume_id)
        state.observed = None
        return Later(max(_WAIT_LEAST_S, min(step.at - utc_now(), _WAIT_MOST).total_seconds()))

    async def _tag(self, current: Pass, step: rules.Tag, observed: Observed) -> Next:
        """Write and remove tags; repeating either is harmless.

        Raises:
            StorageError: there was no answer; to be retried later.
        """
        state, volume = current.state, observed.volume
        await self._record.begin(current.claim, current.requested.only(current.parts))
        try:
            for key in step.remove:
                whole(await self._volumes.untag([state.volume_id], key))
            if step.add:
                whole(await self._volumes.tag([state.volume_id], step.add))
        except StorageError as error:
            if step.is_optional and error.reason in _OF_TAGS:
                state.answers = replace(state.answers, tags_refused=error)
                return AGAIN
            if error.outcome is Outcome.UNKNOWN or error.reason in NO_ANSWER:
                raise
            return self._refuse(current, {Part.ATTRIBUTES}, error)  # a size does not wait for them
        if volume is not None:
            has = {key: value for key, value in volume.tags.items() if key not in step.remove}
            volume = replace(volume, tags=has | dict(step.add))
            state.observed = replace(observed, volume=volume)
        return AGAIN

    def _gone(self, current: Pass) -> Next:
        state = current.state
        if not current.parts:
            return state.next_try()
        if state.missing_since_s is None:
            state.missing_since_s = clock.now_s()
        if clock.now_s() - state.missing_since_s < CONSISTENCY_S:
            state.observed = None
            return _MISSING_AGAIN
        error = StorageError(
            Reason.VOLUME_NOT_FOUND,
            f"volume {state.volume_id} of PersistentVolume {current.persistent_volume.name} does "
            "not exist in EC2; it was deleted: restore it from a snapshot",
        )
        return self._refuse(current, current.parts, error)

    def _not_of_ebs(self, current: Pass) -> Next:
        """Such as a node-local disk of the stock driver; EC2 need not be asked."""
        if not current.parts:
            return current.state.next_try()
        error = StorageError(
            Reason.NOT_SUPPORTED,
            f"PersistentVolume {current.persistent_volume.name} has the volume handle "
            f"{current.state.volume_id[:100]!r}, which is not the ID of an EBS volume; EC2 can "
            "neither grow nor modify it",
        )
        return self._refuse(current, current.parts, error)

    def _watch(self, current: Pass, *, is_new: bool = False) -> None:
        """Wake the claim when its modification has changed, unless the claim is gone."""
        uid = current.claim.uid
        if self._caches.claim(uid) is not None:
            self._observer.watch(
                uid, current.state.volume_id, lambda: self._wake(uid), is_new=is_new
            )

    def _newest(self, current: Pass) -> Claim:
        """The claim with what we have written to it since it was read."""
        return self._caches.claim(current.claim.uid) or current.claim

    async def _modify(
        self, current: Pass, step: rules.Send, latest: Modification | None
    ) -> Modification:
        """Send one ModifyVolume; ``latest``: the modification before.

        Raises:
            ChangedError: nothing was sent.
            KubeError: it could not be noted, so nothing was sent.
            StorageError: refused; or, with ``outcome`` UNKNOWN, the reply was lost.
        """
        noted: Start | None = None

        async def before_sending() -> None:
            nonlocal noted
            noted = await self._before_sending(current, step, latest, noted)
            if not self._is_same(current.claim):  # while that was written
                raise ChangedError

        try:
            return await self._modifications.modify(step.request, gate=before_sending)
        except ChangedError:
            await self._take_back(current, noted)
            raise
        except StorageError as error:
            if error.outcome is Outcome.NOTHING:
                await self._take_back(current, noted)
            raise

    async def _before_sending(
        self,
        current: Pass,
        step: rules.Send,
        latest: Modification | None,
        noted: Start | None,
    ) -> Start:
        """Note the call, once the limiter has granted it, after minutes perhaps."""
        persistent_volume = self._caches.persistent_volumes.get(current.persistent_volume.name)
        if persistent_volume is None or not self._is_same(current.claim):
            raise ChangedError
        now = utc_now()
        ledger = ledger_of(persistent_volume, step.request.volume_id)
        if noted is None:
            ledger = ledger.with_next(step.request, latest, now)
        elif ledger.starts[-1:] != (noted,):
            raise ChangedError
        elif now - noted.at < _NOTE_HOLDS:
            return noted  # EC2 has throttled it, and it goes again
        else:
            ledger = ledger.with_last_at(now)
        # If this is written but its reply is lost, nothing is sent, and that costs a minute.
        await self._note(persistent_volume, current.state, ledger)
        current.state.set_in_flight(step.parts)
        return ledger.starts[-1]

    async def _take_back(self, current: Pass, noted: Start | None) -> None:
        """Remove the note: nothing was carried out. One that stays only costs a minute."""
        if noted is None:
            return
        state = current.state
        state.clear_in_flight()
        persistent_volume = self._caches.persistent_volumes.get(current.persistent_volume.name)
        if persistent_volume is None:
            return
        ledger = ledger_of(persistent_volume, state.volume_id)
        if ledger.starts[-1:] != (noted,):
            return
        try:
            await self._note(persistent_volume, state, ledger.without_last())
        except KubeError as error:
            log.info("cannot remove the note of a request that was refused", error=error.message)

    async def _note(
        self, persistent_volume: PersistentVolume, state: ClaimState, ledger: Ledger
    ) -> None:
        uid, volume_id = persistent_volume.uid, state.volume_id
        text = ledger.text(persistent_volume_uid=uid, volume_id=volume_id)
        value = text if ledger.starts else None
        await self._record.patch_persistent_volume(
            persistent_volume, {MODIFICATIONS: value}, {}, guarded=True
        )

    def _after_error(
        self, current: Pass, step: rules.Send, error: StorageError, observed: Observed
    ) -> Next:
        """What to do after a failed ModifyVolume.

        The error is about time, about both parts together, about one part, or about us.

        Raises:
            StorageError: the same one, if there was no answer; to be retried later.
        """
        state = current.state
        if isinstance(error, KubeError):
            raise error  # what is about to be sent could not be noted, so nothing was
        state.observed = None
        if error.outcome is Outcome.UNKNOWN:
            log.warning("the reply to ModifyVolume was lost", error=error.message)
            return _LOST_AGAIN
        if error.reason in NO_ANSWER:
            raise error
        if error.reason is Reason.MODIFICATION_LIMIT:
            state.limit = limit_of(error, _started_at(current, observed.latest), utc_now())
            return AGAIN
        if error.reason is Reason.VOLUME_NOT_FOUND:
            return AGAIN  # it is described, and waited for, before that is believed
        learned = _learned(state.answers, step, error)
        if learned is None:
            state.answers = replace(state.answers, iops_refused=None)  # it was not about the IOPS
            return self._refuse(current, step.parts, error)
        state.answers = learned
        return AGAIN

    def _failed(self, current: Pass, error: StorageError) -> Next:
        """A modification has failed in EC2: reported, and tried again less and less often."""
        for part in current.parts:
            before = current.state.parts[part].refusal
            times = before.times if before is not None else 0
            pause_s = _FAILED_AGAIN_S[min(times, len(_FAILED_AGAIN_S) - 1)]
            self._set_aside(current, part, error, pause_s)
        return AGAIN

    def _refuse(self, current: Pass, parts: Iterable[Part], error: StorageError) -> Next:
        """Set parts aside until the same time; the next step reports why."""
        refusals = [each.refusal for each in current.state.parts.values() if each.refusal]
        times = max(
            (each.times for each in refusals if each.error.reason is error.reason), default=0
        )
        first_s = _SOON_AGAIN_S if error.reason in _PASSES else _AGAIN_S
        again_s = Backoff(error.retry_after_s or first_s, _AGAIN_MOST_S).pause_s(times)
        if error.reason in _PERMANENT:
            again_s = _PERMANENT_AGAIN_S
        for part in parts:
            self._set_aside(current, part, error, again_s)
        return AGAIN

    async def _report(self, current: Pass, part: Part, error: StorageError) -> None:
        """Write why a part was refused into the claim's conditions; the event not too often.

        External-resizer sets ModifyVolumeError and ControllerResizeError at every error.
        """
        claim, for_good = self._newest(current), error.reason in _PERMANENT
        await self._record.refused(claim, part, current.requested, error, for_good=for_good)
        text = f"{error.reason}: {error.message}"
        parts = current.state.to_report(text, frozenset({part}), EVENT_AGAIN_S)
        self._record.report_failure(claim, parts, text)

    def _set_aside(self, current: Pass, part: Part, error: StorageError, again_s: float) -> None:
        current.state.refuse(part, error, again_s)
        self._metrics.flow_failures.labels("modify", error.reason.value).inc()
        log.warning(
            "part of a request was refused",
            part=part.value,
            reason=error.reason.value,
            error=error.message,
        )


def _learned(answers: Answers, step: rules.Send, error: StorageError) -> Answers | None:
    """What a refusal says about how to ask for less at once; None: nothing, it is final."""
    ceiling = ceiling_in(error) if isinstance(error, Ec2Error) else None
    asks_iops = step.request.iops is not None
    if ceiling is not None and answers.iops_ceiling is None and asks_iops:
        log.info("learned how many IOPS this region gives", iops=ceiling)
        return replace(answers, iops_ceiling=ceiling)
    if error.reason not in _OF_THE_REQUEST:
        return None
    if step.parts == BOTH:
        log.warning(
            "EC2 refused size and class together; sending them one by one", error=error.message
        )
        return replace(answers, refused_together=error)
    if step.parts == _SIZE and asks_iops:
        log.warning("EC2 refused more IOPS with the size; sending the size", error=error.message)
        return replace(answers, iops_refused=error)
    return None


def ledger_of(persistent_volume: PersistentVolume, volume_id: str) -> Ledger:
    """What is noted on a persistent volume about the modifications of its volume."""
    ledger = Ledger.read(
        persistent_volume.annotations.get(MODIFICATIONS),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    return ledger.plausible(utc_now())


def _started_at(current: Pass, latest: Modification | None) -> datetime | None:
    """When the latest modification began: as EC2 says, or as we have noted it."""
    if latest is not None and latest.started_at is not None:
        return latest.started_at
    starts = ledger_of(current.persistent_volume, current.state.volume_id).starts
    return starts[-1].at if starts else None
