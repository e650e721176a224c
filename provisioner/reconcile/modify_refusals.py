"""What follows when EC2 refuses a modification: one bad wish never holds the other up."""

from datetime import UTC, datetime, timedelta

import structlog

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import expand
from provisioner.decide.volume_plan import BOTH, Send, Wish
from provisioner.edges import Edges
from provisioner.model.claim import Claim
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.reconcile.modify_memory import Known
from provisioner.reconcile.modify_record import ModifyRecord, utc_now

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
FOR_GOOD_AGAIN_S = 1800.0  # as aws-ebs-csi-driver's chart has the stock resizer do it
_AGAIN_S, _AGAIN_MOST_S = 60.0, 600.0
_LIMIT_AGAIN = timedelta(hours=1)  # where EC2 does not say when
_DISPUTE_S = 5.0
_DISPUTES = 3
_LOST_AGAIN_S = 1.0

log = structlog.get_logger(__name__)


class ModifyRefusals:
    """Sorts refusals: about time, about the plan, about one wish, about us."""

    def __init__(self, edges: Edges, record: ModifyRecord) -> None:
        self._metrics = edges.metrics
        self._record = record

    async def after(
        self,
        claim: Claim,
        known: Known,
        step: Send,
        error: StorageError,
        *,
        grow: expand.Grow | None,
        change: attribute_rules.Change | None,
    ) -> float | bool:
        """What to do after a ModifyVolume that brought an error; as ``ModifySteps.take``.

        Raises:
            StorageError: the same, told; it goes on after a while.
        """
        known.read_at_s = None
        if error.outcome is Outcome.UNKNOWN:
            log.warning("the reply to ModifyVolume was lost", error=error.message)
            return _LOST_AGAIN_S
        if error.reason is Reason.MODIFICATION_LIMIT:
            known.limited_until = _until(error)
            return True
        if error.reason in (Reason.MODIFICATION_RUNNING, Reason.VOLUME_STATE):
            known.disputes += 1
            if known.disputes <= _DISPUTES:
                return _DISPUTE_S
        elif error.reason is Reason.VOLUME_NOT_FOUND:
            known.volume = None
            return True
        elif error.reason in _OF_THE_WISH:
            if step.wishes == BOTH:
                known.alone, known.together = True, error
                log.warning("refused together; each goes alone", error=error.message)
                return True
            wish = next(iter(step.wishes))
            return await self.refuse(claim, known, wish, error, grow=grow, change=change)
        self._told(claim, step.wishes, error, known)
        raise error

    async def of_tags(
        self,
        claim: Claim,
        known: Known,
        error: StorageError,
        *,
        grow: expand.Grow | None,
        change: attribute_rules.Change | None,
    ) -> float | bool:
        """What to do after tags could not be written; a size never waits for them.

        Raises:
            StorageError: the same, told; it goes on after a while.
        """
        wish = Wish.ATTRIBUTES
        about_us = error.reason in (Reason.PERMISSION_DENIED, Reason.VOLUME_STATE)
        if error.reason in _OF_THE_WISH or (about_us and grow is not None):
            return await self.refuse(claim, known, wish, error, grow=grow, change=change)
        self._told(claim, frozenset({wish}), error, known)
        raise error

    async def refuse(
        self,
        claim: Claim,
        known: Known,
        wish: Wish,
        error: StorageError,
        *,
        grow: expand.Grow | None,
        change: attribute_rules.Change | None,
    ) -> bool:
        """Set a wish aside and say why; the other one goes on."""
        for_good = error.reason in FOR_GOOD
        before = known.refusals.get(wish)
        times = before.times if before is not None else 0
        again_s = max(error.retry_after_s or 0.0, _AGAIN_S) * 2.0 ** min(times, 8)
        known.refuse(wish, error, FOR_GOOD_AGAIN_S if for_good else min(again_s, _AGAIN_MOST_S))
        self._metrics.flow_failures.labels("modify", error.reason.value).inc()
        log.warning("refused", wish=wish.value, reason=error.reason.value, error=error.message)
        await self._record.refused(
            claim,
            wish,
            error,
            grow=grow,
            name=change.name if change is not None else None,
            for_good=for_good,
        )
        return True

    def _told(
        self, claim: Claim, wishes: frozenset[Wish], error: StorageError, known: Known
    ) -> None:
        text = f"{error.reason}: {error.message}"
        if error.reason is not Reason.NOT_LEADING and known.told != text:
            known.told = text
            self._record.tell_failed(claim, wishes, text)


def _until(error: StorageError) -> datetime:
    """When EC2 takes another modification, as it says; else some time from now."""
    if isinstance(error, Ec2Error) and error.retry_at is not None:
        return error.retry_at.astimezone(UTC)
    wait = _LIMIT_AGAIN if error.retry_after_s is None else timedelta(seconds=error.retry_after_s)
    return utc_now() + wait
