"""What follows when EC2 refuses a modification: one bad wish never holds the other up."""

from datetime import UTC, datetime, timedelta

import structlog

from provisioner.decide.volume_plan import BOTH, Send, Wish
from provisioner.ec2.ceilings import ceiling_in
from provisioner.edges import Edges
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason, StorageError
from provisioner.reconcile.modify_look import Look
from provisioner.reconcile.modify_record import ModifyRecord, utc_now
from provisioner.reconcile.modify_sending import ledger_of

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
_DISPUTE_S = 5.0
_DISPUTES = 3
_LOST_AGAIN_S = 1.0
_UNWRITTEN = 3  # an API server that restarts is nothing to tell the user of a claim

log = structlog.get_logger(__name__)


class ModifyRefusals:
    """Sorts refusals: about time, about the plan, about one wish, about us."""

    def __init__(self, edges: Edges, record: ModifyRecord) -> None:
        self._caches = edges.caches
        self._metrics = edges.metrics
        self._record = record

    async def after(self, look: Look, step: Send, error: StorageError) -> float | bool:
        """What to do after a ModifyVolume that brought an error; as ``ModifySteps.take``.

        Raises:
            StorageError: the same, told; it goes on after a while.
        """
        known = look.known
        if isinstance(error, KubeError):
            self._unwritten(look, step, error)
            raise error
        known.read_at_s, known.unwritten = None, 0
        if error.outcome is Outcome.UNKNOWN:
            log.warning("the reply to ModifyVolume was lost", error=error.message)
            return _LOST_AGAIN_S
        if error.reason is Reason.MODIFICATION_LIMIT:
            _limit(look, error)
            return True
        if error.reason in (Reason.MODIFICATION_RUNNING, Reason.VOLUME_STATE):
            known.disputes += 1
            if known.disputes <= _DISPUTES:
                return _DISPUTE_S
        elif error.reason is Reason.VOLUME_NOT_FOUND:
            known.volume = None
            return True
        elif error.reason in _OF_THE_WISH:
            ceiling = ceiling_in(error) if isinstance(error, Ec2Error) else None
            if ceiling is not None and known.ceiling is None and step.request.iops is not None:
                known.ceiling = ceiling
                log.info("learned how many IOPS this region gives", iops=ceiling)
                return True
            if step.wishes == BOTH:
                known.alone, known.together = True, error
                log.warning("refused together; each goes alone", error=error.message)
                return True
            return await self.refuse(look, next(iter(step.wishes)), error)
        self.tell(look, step.wishes, error)
        raise error

    async def of_tags(self, look: Look, error: StorageError) -> float | bool:
        """What to do after tags could not be written; a size never waits for them long.

        Raises:
            StorageError: the same, told; it goes on after a while.
        """
        known, wish = look.known, Wish.ATTRIBUTES
        if error.reason is Reason.VOLUME_STATE and known.disputes < _DISPUTES:
            known.disputes += 1  # somebody writes tags at this moment
            return error.retry_after_s or _LOST_AGAIN_S
        about_us = error.reason in (Reason.PERMISSION_DENIED, Reason.VOLUME_STATE)
        if error.reason in _OF_THE_WISH or (about_us and look.grow is not None):
            return await self.refuse(look, wish, error)
        self.tell(look, frozenset({wish}), error)
        raise error

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
        for wish in sorted(look.wishes - look.known.refused):
            await self.refuse(look, wish, error)
        return look.known.held_for_s()

    async def refuse(self, look: Look, wish: Wish, error: StorageError) -> bool:
        """Set a wish aside and say why; the other one goes on."""
        before = look.known.refusals.get(wish)
        times = before.times if before is not None else 0
        again_s = max(error.retry_after_s or 0.0, _AGAIN_S) * 2.0 ** min(times, 8)
        for_good = error.reason in FOR_GOOD
        again_s = FOR_GOOD_AGAIN_S if for_good else min(again_s, _AGAIN_MOST_S)
        self._set_aside(look, wish, error, again_s)
        await self.write(look)
        return True

    async def write(self, look: Look) -> None:
        """Say why wishes were set aside, where that could not be written down yet."""
        for wish, refusal in list(look.known.refusals.items()):
            if refusal.is_written or wish not in look.wishes:
                continue
            await self._record.refused(
                self._caches.claim(look.claim.uid) or look.claim,
                wish,
                refusal.error,
                grow=look.grow,
                name=look.change.name if look.change is not None else None,
                for_good=refusal.error.reason in FOR_GOOD,
            )
            refusal.is_written = True

    def tell(self, look: Look, wishes: frozenset[Wish], error: StorageError) -> None:
        """A Warning, once for as long as nothing else is told."""
        known, text = look.known, f"{error.reason}: {error.message}"
        if error.reason is not Reason.NOT_LEADING and known.told != text:
            known.told = text
            self._record.tell_failed(look.claim, wishes, text)

    def _set_aside(self, look: Look, wish: Wish, error: StorageError, again_s: float) -> None:
        look.known.refuse(wish, error, again_s)
        self._metrics.flow_failures.labels("modify", error.reason.value).inc()
        log.warning("refused", wish=wish.value, reason=error.reason.value, error=error.message)

    def _unwritten(self, look: Look, step: Send, error: KubeError) -> None:
        """The note could not be written, so nothing was sent."""
        if error.reason in (Reason.CONFLICT, Reason.OBJECT_NOT_FOUND):
            return
        look.known.unwritten += 1
        log.warning("cannot note what is to be sent", error=error.message)
        if look.known.unwritten >= _UNWRITTEN:
            self.tell(look, step.wishes, error)


def _limit(look: Look, error: StorageError) -> None:
    """Note when EC2 takes another modification, as far as it says so; else it is tried hourly."""
    known, now = look.known, utc_now()
    at = None
    if isinstance(error, Ec2Error) and error.retry_at is not None:
        at = max(error.retry_at.astimezone(UTC), now + _LIMIT_LEAST)
    elif error.retry_after_s is not None:
        at = now + max(timedelta(seconds=error.retry_after_s), _LIMIT_LEAST)
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
