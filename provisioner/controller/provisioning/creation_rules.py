"""Decide the next step of a volume that is being made: the life of one ``Attempt``.

An attempt begins right before the first CreateVolume and ends with a saved persistent volume or
with the certainty that no volume exists. In between, every answer, every timeout and every
description of EC2 leads to one step::

    send ──ok──▶ volume known ──available──▶ save
     │ ▲                ├─ gone for good ──▶ give up (the encryption key, most likely)
     │ │                └─ of no use ──▶ delete, then give up
     │ └──lost reply: the identical request again, which the token makes idempotent
     └──refused: certain ─▶ give up;  not certain ─▶ look-ups by tag for 60 s, then give up

After three minutes of lost replies the look-ups decide, too: a zone may be impaired for hours.

Tag look-ups must stay negative for ``CONSISTENCY_S`` because EC2 shows a new volume only after a
while. Source: EC2 developer guide "Eventual consistency" and "Ensuring idempotency".
"""

from dataclasses import dataclass, replace

from provisioner.controller.placement.failover_rules import REMEMBERED_S
from provisioner.controller.provisioning.plan_rules import Plan
from provisioner.model.backoff import Backoff
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import WHEN_WOKEN, Later, Next
from provisioner.model.errors import NO_ANSWER, RATE_LIMITED, Outcome, Reason, StorageError
from provisioner.model.key_rights import RIGHTS_ON_KEY
from provisioner.model.volume import CreateRequest, Volume, VolumeState

# A volume that a description has shown is gone after CONSISTENCY_S without one. One that none has
# shown yet may be late: in incidents EC2's descriptions lag by minutes, and what is given up too
# soon is made twice.
UNSEEN_S = 300.0
# For so long the identical request is repeated into silence.
UNANSWERED_S = 180.0
TOKEN_LIFE_S = 6 * 3600.0  # EC2 was seen to forget a token after 12 h (aws-ebs-csi-driver #2075)
MOST_PAUSE_S = 300.0  # somebody may have raised the quota
_COPY_PAUSE_S = 60.0
_SOON_S = 1.0
_MAKE_AGAIN_S = 5.0
_RESCHEDULE = REMEMBERED_S.keys()  # another zone may have room
_USABLE = frozenset({VolumeState.AVAILABLE, VolumeState.IN_USE})


@dataclass(frozen=True, slots=True)
class Attempt:
    """A volume in the making. Times in seconds of the monotonic clock.

    ``uncertain``: a request was sent whose effect is not known.
    ``token_since_s``: when its token may have been sent first, if that was before it started.
    ``looking_since_s``: tag look-ups decide, since then; None: they do not.
    ``refusal``: what EC2 said before the look-ups began.
    ``is_shown``: a description has shown the volume, so EC2 knows it wherever it is asked.
    ``unanswered_since_s``: since when each request was lost.
    ``is_clear``: look-ups have shown that there is nothing, and nothing that EC2 might have carried
    out was sent since.
    """

    plan: Plan
    started_at_s: float
    token_number: int = 1
    uncertain: bool = False
    volume: Volume | None = None
    looking_since_s: float | None = None
    refusal: StorageError | None = None
    token_since_s: float | None = None
    is_shown: bool = False
    unanswered_since_s: float | None = None
    is_clear: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Call CreateVolume with the attempt's request."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Search EC2 for a volume with the claim's name tag."""


@dataclass(frozen=True, slots=True)
class Await:
    """The volume is on its way; a sighting wakes the claim."""


@dataclass(frozen=True, slots=True)
class Save:
    """Write the persistent volume of this volume."""

    volume: Volume


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on with ``attempt`` after ``error`` was told."""

    attempt: Attempt
    error: StorageError


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is certain that no volume exists; the claim starts afresh.

    ``choose_again``: the zone is the reason, so the scheduler may pick another node.
    ``next_token``: the first that EC2 has not burned; the claim's next attempt begins with it.
    """

    error: StorageError
    choose_again: bool
    next_token: int = 1


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a volume that cannot serve the claim, then give the attempt up."""

    volume: Volume
    then: GiveUp


Step = Send | LookUp | Await | Save | Discard | GiveUp


def next_step(attempt: Attempt, seen: Volume | None, missing_for_s: float | None) -> Step:
    """What to do now.

    ``seen`` is the newest description of the attempt's volume, None while there is none;
    ``missing_for_s`` since when EC2 has not known it, None when it does or was not asked.
    """
    volume = attempt.volume
    if volume is None:
        return LookUp() if attempt.looking_since_s is not None else Send()
    wrong = _not_as_asked(attempt.plan.request, volume)
    if wrong is not None:
        why = f"EC2 created volume {volume.volume_id} {wrong}; another one will be created"
        return Discard(volume, _in_vain(attempt, _failure(why)))
    if seen is None and missing_for_s is None and attempt.is_shown and volume.state in _USABLE:
        # What a look-up found: a process that took over need not wait. The answer to a repeated
        # request is no sight: EC2 may not know the volume yet when it is asked to delete it.
        return Save(volume)
    if seen is None:
        gone = missing_for_s is not None and missing_for_s >= _patience_s(attempt)
        return _vanished(attempt, volume) if gone else Await()
    if seen.state in _USABLE:
        return Save(seen)
    if seen.state is VolumeState.ERROR:
        return Discard(seen, _failed(attempt, seen))
    if seen.state in (VolumeState.DELETING, VolumeState.DELETED):
        return _vanished(attempt, volume)
    return Await()


def _not_as_asked(request: CreateRequest, volume: Volume) -> str | None:
    """Why a volume cannot serve the claim, as the part of a sentence.

    An empty volume in place of restored data would look like data loss. EC2 names the snapshot
    that a volume was made from forever. It is documented to name the source of a copy too, but an
    answer without it is accepted: no call of ours can have made an empty volume then, and deleting
    the copy would only lead to another one.
    Source: API reference, Volume: ``sourceVolumeId``, only for copies (botocore 1.44).
    """
    if volume.size_gib < request.size_gib:
        return f"with {volume.size_gib} GiB instead of the requested {request.size_gib} GiB"
    if request.snapshot_id is not None and volume.snapshot_id != request.snapshot_id:
        made_of = volume.snapshot_id or "no snapshot"
        return f"from {made_of} instead of {request.snapshot_id}"
    asked, copied = request.source_volume_id, volume.source_volume_id
    if asked is not None and copied and copied != asked:
        return f"as a copy of {copied} instead of {asked}"
    return None


def look_again(attempt: Attempt, missing_for_s: float | None) -> Next:
    """When to look again: a volume that EC2 does not show wakes nobody."""
    if missing_for_s is None:
        return WHEN_WOKEN
    until_s = CONSISTENCY_S if missing_for_s < CONSISTENCY_S else _patience_s(attempt)
    return Later(max(until_s - missing_for_s, _SOON_S))


def _patience_s(attempt: Attempt) -> float:
    """For how long a volume that EC2 has named may be unknown to its descriptions.

    A volume with a KMS key of its own is far more often dropped because of that key than late, so
    the shorter limit applies: a corrected key then works sooner.
    """
    is_dropped = attempt.is_shown or attempt.plan.request.kms_key_id
    return CONSISTENCY_S if is_dropped else UNSEEN_S


def late(attempt: Attempt, missing_for_s: float | None) -> StorageError | None:
    """What to tell while EC2 has not shown a volume for longer than usual; None before that."""
    if attempt.volume is None or missing_for_s is None or missing_for_s < CONSISTENCY_S:
        return None
    return StorageError(
        Reason.VOLUME_NOT_FOUND,
        f"EC2 accepted volume {attempt.volume.volume_id} but has not listed it for "
        f"{CONSISTENCY_S:.0f} s; if it is still missing after {UNSEEN_S / 60:.0f} minutes, another "
        "one will be created",
    )


def after_failure(attempt: Attempt, error: StorageError, now_s: float) -> Continue | GiveUp:
    """What a failed CreateVolume means for the attempt."""
    if error.outcome is Outcome.UNKNOWN:
        return Continue(_unanswered(attempt, error, now_s), error)
    if error.reason in NO_ANSWER:  # it is sent again as it is
        return Continue(attempt, error)
    if error.reason is Reason.TOKEN_MISMATCH and attempt.is_clear and not attempt.uncertain:
        return Continue(replace(_next_token(attempt), is_clear=True), error)
    # A burned token, a refusal after a silence or after a process before us, and a full quota
    # (which EC2 checks before it honours the token) leave open whether a volume exists: look for
    # it by its tag.
    if (
        attempt.uncertain
        or (attempt.token_number > 1 and not attempt.is_clear)
        or error.reason in (Reason.TOKEN_MISMATCH, Reason.QUOTA_EXCEEDED)
    ):
        return Continue(replace(attempt, looking_since_s=now_s, refusal=error), error)
    return _given_up(attempt, error)


def _unanswered(attempt: Attempt, error: StorageError, now_s: float) -> Attempt:
    """The attempt after a reply was lost: look-ups decide once that has lasted for long."""
    since_s = attempt.unanswered_since_s
    since_s = now_s if since_s is None else since_s
    lost = replace(attempt, uncertain=True, unanswered_since_s=since_s, is_clear=False)
    if now_s - since_s < UNANSWERED_S:
        return lost
    request = attempt.plan.request
    refusal = StorageError(
        Reason.ZONE_NOT_ANSWERING,
        f"EC2 has not answered any request for the volume in "
        f"{request.outpost_arn or request.zone} for {UNANSWERED_S / 60:.0f} minutes, and has "
        f"created none ({error.message})",
    )
    return replace(lost, looking_since_s=now_s, refusal=refusal)


def is_refused_for_good(error: StorageError) -> bool:
    """Whether the API server has refused a persistent volume as it is: a policy, or a right."""
    return error.reason in (Reason.FORBIDDEN, Reason.REJECTED)


def pause_s(error: StorageError, before: int, most_s: float) -> float:
    """How long a claim waits after it was given up; ``before``: how often it was before.

    The queue, which counts failures in a row, knows only some of these: between two of them, EC2 is
    searched for the volume, or a volume seems to be on its way, and to wait for EC2's limits is no
    failure. Of a volume's copies one asks at a time, and the others wait behind it.
    """
    if error.reason is Reason.COPY_RATE:
        most_s = min(most_s, _COPY_PAUSE_S)
    return Backoff(error.retry_after_s or _SOON_S, most_s).pause_s(before)


def keeps_its_turn(done: Next | GiveUp) -> bool:
    """Whether a claim only waits until EC2 makes fewer at a time; it keeps its place in line.

    That was reported, and is no failure.
    """
    return isinstance(done, GiveUp) and done.error.reason in RATE_LIMITED


def inherited(attempt: Attempt, claim_age_s: float) -> Attempt:
    """The attempt when a process before us may have sent the same request.

    It may be refused now although a volume was made then: EC2 may check its capacity before it
    checks the token.

    ``claim_age_s``: no request for the claim is older; infinite when that is not known.
    """
    return replace(attempt, uncertain=True, token_since_s=attempt.started_at_s - claim_age_s)


def after_cancel(attempt: Attempt) -> Attempt:
    """The attempt after its CreateVolume was cut off: it may have been carried out."""
    return replace(attempt, uncertain=True)


def is_token_old(attempt: Attempt, now_s: float) -> bool:
    """Whether EC2 may have forgotten the token, so that the request would make a second volume."""
    since_s = attempt.token_since_s
    since_s = attempt.started_at_s if since_s is None else since_s
    return attempt.uncertain and now_s - since_s > TOKEN_LIFE_S


def look_up_first(attempt: Attempt, now_s: float) -> Attempt:
    """The attempt, decided by look-ups from now on."""
    return replace(attempt, looking_since_s=now_s)


def with_volume(attempt: Attempt, volume: Volume, *, is_shown: bool = False) -> Attempt:
    """The attempt after EC2 has named its volume, or even shown it to a look-up."""
    is_shown = is_shown or attempt.is_shown
    return replace(attempt, volume=volume, looking_since_s=None, refusal=None, is_shown=is_shown)


def after_look_up(attempt: Attempt, found: list[Volume], now_s: float) -> Attempt | GiveUp:
    """What a look-up by tag means; an attempt without a volume is looked up again later."""
    usable = [v for v in found if v.state not in (VolumeState.DELETING, VolumeState.DELETED)]
    if usable:
        best = min(usable, key=lambda v: (v.state is VolumeState.ERROR, v.volume_id))
        return with_volume(attempt, best, is_shown=True)
    since_s = attempt.looking_since_s if attempt.looking_since_s is not None else now_s
    if now_s - since_s < CONSISTENCY_S:
        return attempt
    refusal = attempt.refusal
    if refusal is None:  # nothing came of the request with the old token
        return replace(
            attempt,
            looking_since_s=None,
            uncertain=False,
            token_since_s=None,
            unanswered_since_s=None,
        )
    if refusal.reason is Reason.TOKEN_MISMATCH:
        # The look-ups are by the claim's name: they speak of all tokens that were sent.
        return replace(_next_token(attempt), is_clear=True)
    return _given_up(attempt, refusal)


def _given_up(attempt: Attempt, error: StorageError) -> GiveUp:
    choose_again = error.reason in _RESCHEDULE
    return GiveUp(error, choose_again=choose_again, next_token=attempt.token_number)


def under_token(attempt: Attempt, number: int) -> Attempt:
    """An attempt that has sent nothing, under the Nth token: EC2 has burned the ones before."""
    return replace(attempt, plan=attempt.plan.with_token(number), token_number=number)


def _next_token(attempt: Attempt) -> Attempt:
    fresh = Attempt(plan=attempt.plan, started_at_s=attempt.started_at_s)
    return under_token(fresh, attempt.token_number + 1)


def _failed(attempt: Attempt, volume: Volume) -> GiveUp:
    """The volume has ended in state error. A single one may be an accident: so it is tried soon."""
    how = f"EC2 failed to create volume {volume.volume_id} (state error)"
    if _is_encrypted(attempt, volume):
        return _in_vain(attempt, _key_unusable(attempt, how, retry_after_s=_MAKE_AGAIN_S))
    return _in_vain(attempt, _failure(f"{how}; another one will be created"))


def _vanished(attempt: Attempt, volume: Volume) -> GiveUp:
    """The volume is gone."""
    if _is_encrypted(attempt, volume):
        how = f"EC2 accepted volume {volume.volume_id} and then dropped it"
        return _in_vain(attempt, _key_unusable(attempt, how, retry_after_s=60.0))
    error = StorageError(
        Reason.VOLUME_NOT_FOUND,
        f"EC2 accepted volume {volume.volume_id} but no longer knows it; it will be created again",
        retry_after_s=10.0,
    )
    return _in_vain(attempt, error)


def _is_encrypted(attempt: Attempt, volume: Volume) -> bool:
    return attempt.plan.request.encrypted or volume.encrypted


def _key_unusable(attempt: Attempt, how: str, *, retry_after_s: float) -> StorageError:
    key = attempt.plan.request.kms_key_id or "the account's default key"
    return StorageError(
        Reason.KEY_UNUSABLE,
        f"{how}, as it does when it cannot use a KMS key: check that {key} exists and is enabled, "
        f"and that the controller's role has {RIGHTS_ON_KEY} on it",
        retry_after_s=retry_after_s,
    )


def _failure(message: str) -> StorageError:
    return StorageError(Reason.VOLUME_STATE, message, retry_after_s=_MAKE_AGAIN_S)


def _in_vain(attempt: Attempt, error: StorageError) -> GiveUp:
    """EC2 has used up the token. The claim is planned again: its class may have been corrected."""
    return GiveUp(error, choose_again=False, next_token=attempt.token_number + 1)
