"""How fast EC2 is called, and by whom next: a token bucket for each action, and so many at once.

Buckets start from AWS's documented quotas, and learn: AWS raises these on request, per action.
Source: EC2 developer guide "Request throttling for the Amazon EC2 API" (read 2026-11-21): token
buckets per account, Region and action.
Not verified: whether mutating actions share a bucket (a comment in aws-ebs-csi-driver says so, the
guide says per action), and in which class a DescribeVolumes by ids falls; the smaller is assumed.

A call needs a token of its action and one of the threads. Waiting callers go by urgency, then
first come first served, over all actions: while threads are short, a detach that somebody waits
for goes before an attach, that before a deletion, and all before background work. A token is taken
only when there is a thread too, so that nothing is on its way when a throttle closes the bucket.

Patient callers, those of moves and of claims that EC2 has refused before, come by hundreds, and
each can wait. They go after all whose users wait, leave ``RESERVE`` tokens of each bucket to these,
and never try whether a quota is raised: a throttle would cost others their turn.

A call whose last check has to wait steps aside with its token: its thread goes to
others meanwhile. At most a burst of one action is aside at a time, which EC2 takes at once when the
looks are over.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from provisioner.metrics import SharedMetrics


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: so many calls at once, then so many a second."""

    burst: float
    per_s: float

    def times(self, factor: float) -> "Rate":
        """This quota, raised by a factor."""
        return Rate(self.burst * factor, self.per_s * factor)


_UNFILTERED = Rate(50, 10)
_READ = Rate(100, 20)
_MUTATE = Rate(50, 5)
_RESOURCE = Rate(100, 5)
_TAGS = Rate(100, 10)

DOCUMENTED: Mapping[str, Rate] = {
    "CreateVolume": _RESOURCE,
    "DeleteVolume": _RESOURCE,
    "CreateSnapshot": _RESOURCE,
    "DeleteSnapshot": _RESOURCE,
    "AttachVolume": _MUTATE,
    "DetachVolume": _MUTATE,
    "ModifyVolume": _MUTATE,
    "CopyVolumes": _MUTATE,
    "CreateTags": _TAGS,
    "DeleteTags": _TAGS,
    "DescribeVolumes": _UNFILTERED,
    "DescribeInstances": _UNFILTERED,
    "DescribeSnapshots": _UNFILTERED,
    "DescribeAvailabilityZones": _READ,
    "DescribeInstanceTypes": _READ,
    "DescribeVolumesModifications": _READ,
    "DescribeVolumeStatus": _READ,
    "EnableFastSnapshotRestores": _MUTATE,
    "DescribeFastSnapshotRestores": _READ,
    "LockSnapshot": _MUTATE,
    "DescribeLockedSnapshots": _READ,
}
EVERY_ACTION = "*"


def documented(action: str) -> Rate:
    """AWS's documented quota of an action; the class it belongs to if it is not listed."""
    known = DOCUMENTED.get(action)
    if known is not None:
        return known
    return _READ if action.startswith("Describe") else _MUTATE


class Rates:
    """The quota to start from, for every action."""

    __slots__ = ("_exact", "_factors")

    def __init__(
        self, exact: Mapping[str, Rate] | None = None, factors: Mapping[str, float] | None = None
    ) -> None:
        self._exact = dict(exact or {})
        self._factors = dict(factors or {})

    def of(self, action: str) -> Rate:
        """The quota of an action: an override, or the documented one times its factor."""
        exact = self._exact.get(action)
        if exact is not None:
            return exact
        factor = self._factors.get(action, self._factors.get(EVERY_ACTION, 1.0))
        return documented(action).times(factor)


# How a bucket learns its rate, see ``Bucket``.
PROBE_EVERY_S = 0.3
PROBE_FACTOR = 2.0
MAX_PER_S = 2000.0  # beyond what one process can send; keeps the doubling finite
DECREASE = 0.7
RECOVERY_PER_S = 0.04  # of the starting rate, each second, below it
INCREASE_PER_S = 0.05  # of the starting rate, each second, above it
INCREASE_RAISED_PER_S = 0.5  # the same for an account whose quota was seen to be raised
FIRST_PAUSE_S = 30.0
FIRST_PAUSE_RAISED_S = 1.0
RAISED = 0.2  # of the burst: so far above the documented quota, and only then throttled
MAX_PAUSE_S = 600.0
LOWEST = 0.05  # of the starting rate: other users of the account may leave us little
# EC2's bucket is empty when it throttles, and calls take 100 to 400 ms to arrive: some tokens are
# left to refill there, or jitter alone would throttle a caller that keeps to the exact rate.
CUSHION = 2.0
# So many tokens of a bucket are left by patient callers: a second's worth of creates, so that who
# comes now and then need not wait even the 0.2 s for the next token.
RESERVE = 5.0
_STEP_S = 0.1  # of the rate's integration while it changes


class Bucket:
    """The tokens of one action; learns their rate. Pure: time is an argument.

    Life of a bucket::

        probing    from the start: documented burst, documented rate; while callers lack tokens and
                   nothing was throttled, the rate doubles every 0.3 s (raised quotas are used
                   within seconds, without a flag); the first time it goes to what another action
                   was seen to be raised by, since quotas are mostly raised together
        tracking   from the first throttle on: the documented rate at once; then additive increase
                   while callers lack tokens, multiplicative decrease on each throttled episode

    Above the documented rate an increase waits for a pause that doubles with every throttle there
    (short if far more than the documented quota went through before the first throttle), so that an
    account at exactly the documented quota is not probed forever. ``tests/ec2/test_limiter.py``
    simulates all of it.

    Attributes:
        tokens: calls that may be sent now; below zero while a cushion is being refilled.
        per_s: the rate at which tokens come.
        raised: the multiple of the starting rate at which calls far beyond the starting quota went
            through; 1 while that was not seen, and again from the first throttle on.
    """

    __slots__ = (
        "_beyond",
        "_burst",
        "_decreased_at",
        "_hungry_s",
        "_increase",
        "_pause_s",
        "_raise_from",
        "_start_per_s",
        "_updated_at",
        "per_s",
        "probing",
        "raised",
        "tokens",
    )

    def __init__(self, rate: Rate, now: float) -> None:
        self.tokens = self._burst = rate.burst
        self.per_s = self._start_per_s = rate.per_s
        self.probing = True
        self.raised = 1.0
        self._updated_at = now
        self._hungry_s = 0.0
        self._decreased_at = now - 1.0
        self._pause_s = FIRST_PAUSE_S
        self._increase = INCREASE_PER_S * rate.per_s
        self._raise_from = now
        self._beyond = (
            -rate.burst
        )  # calls sent beyond what the starting quota would have allowed by now

    def advance(
        self, now: float, *, hungry: bool, patient: bool = False, hint: float = 1.0
    ) -> None:
        """Let time pass.

        Args:
            now: a monotonic clock, in seconds.
            hungry: whether callers have been waiting for tokens since the last call.
            patient: all of them are patient, so the rate goes no higher than where it started.
            hint: ``raised`` of other actions; how far the first probe goes.
        """
        while (left := now - self._updated_at) > 0:
            step = min(left, _STEP_S) if hungry else left
            self._updated_at = now if step == left else self._updated_at + step
            self.tokens = min(self.tokens + step * self.per_s, self.most)
            if self.probing:
                self._beyond = max(self._beyond - step * self._start_per_s, -self._burst)
            if hungry and not (patient and (self.probing or self.per_s >= self._start_per_s)):
                self._raise(step, hint)

    @property
    def most(self) -> float:
        """The calls that may be sent at once after a rest."""
        return max(self._burst, self.per_s / 4)

    def has_voided(self, taken_at: float) -> bool:
        """Whether a throttle has voided the token that was taken then."""
        return taken_at <= self._decreased_at

    def has_token(self, *, patient: bool = False) -> bool:
        """Whether a call may be sent now."""
        return self.tokens >= self._needed(patient=patient) - 1e-9

    def take(self) -> bool:
        """Take a token if there is one."""
        if not self.has_token():
            return False
        self.tokens -= 1.0
        self._beyond += 1.0
        if self.probing and self._beyond >= RAISED * self._burst:
            self.raised = self.per_s / self._start_per_s
        return True

    def refund(self, taken_at: float) -> None:
        """Put back the token of a call that was never sent; a throttle since has voided it."""
        if not self.has_voided(taken_at):
            self.tokens += 1.0
        self._beyond -= 1.0

    def ready_in_s(self, *, patient: bool = False) -> float:
        """Seconds until there is a token at the present rate."""
        return max(0.0, (self._needed(patient=patient) - self.tokens) / self.per_s)

    def _needed(self, *, patient: bool) -> float:
        """The tokens that must be there; no more than there ever are."""
        return min(1.0 + RESERVE, self.most) if patient else 1.0

    def throttled(self, sent_at: float, now: float) -> None:
        """EC2 refused a call that was sent at ``sent_at``.

        Calls that were on their way when the rate was last lowered tell nothing new.
        """
        self.advance(now, hungry=False)
        self.tokens = min(self.tokens, 1.0 - CUSHION)
        if sent_at <= self._decreased_at:
            return
        self._decreased_at = now
        self._hungry_s = 0.0
        if self.probing and self._beyond >= RAISED * self._burst:
            self._pause_s = FIRST_PAUSE_RAISED_S
            self._increase = INCREASE_RAISED_PER_S * self._start_per_s
        if self.probing or self.per_s > self._start_per_s:
            self._raise_from = now + self._pause_s
            self._pause_s = min(self._pause_s * 2.0, MAX_PAUSE_S)
        if self.probing:
            self.probing = False
            self.raised = 1.0
            self.per_s = self._start_per_s
        elif self.per_s > self._start_per_s:
            self.per_s = max(self._start_per_s, self.per_s * DECREASE)
        else:
            self.per_s = max(self._start_per_s * LOWEST, self.per_s * DECREASE)

    def _raise(self, step: float, hint: float) -> None:
        if self.probing:
            self._hungry_s += step
            if self._hungry_s >= PROBE_EVERY_S - 1e-9:
                self._hungry_s = 0.0
                probe = max(self.per_s * PROBE_FACTOR, self._start_per_s * hint)
                self.per_s = min(probe, MAX_PER_S)
        elif self.per_s < self._start_per_s:
            self.per_s = min(
                self._start_per_s, self.per_s + step * RECOVERY_PER_S * self._start_per_s
            )
        elif self._updated_at >= self._raise_from:
            self.per_s = min(self.per_s + step * self._increase, MAX_PER_S)


class Urgency(IntEnum):
    """Who goes first; lower is sooner."""

    RELEASE = 0  # detach: another attach may be waiting for what it frees
    NORMAL = 1
    DELETION = 2  # a namespace's thousand deletions must not keep a pod from starting
    PATIENT = 3  # moves, claims refused before: they leave tokens to all of the above
    BACKGROUND = 4  # sweeps, looks for nobody in particular


# So long a last look counts while its call waits for a thread; then it is taken again.
LOOK_COUNTS_S = 5.0
_Waiting = list[tuple[int, int, "asyncio.Future[Any]"]]


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to send one call.

    Attributes:
        action: the API action.
        sent_at: when it was given, or the last look before its call was over, on the limiter's
            clock.
        place: the caller's place in the queue; kept when a throttled call is sent again.
    """

    action: str
    sent_at: float
    place: int


class Turn:
    """A wait for leave that others can end, because the object of the call has gone.

    What was granted by then is not taken back: the last look before the call (its gate) is for
    that. A call that was throttled has had no effect, so its next wait can be ended too.
    """

    def __init__(self) -> None:
        self._why: Exception | None = None
        self._waiter: asyncio.Future[Any] | None = None

    def leave(self, why: Exception) -> None:
        """Raise ``why`` in the waiting caller, at once."""
        self._why = why
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(why)

    def begin(self, waiter: asyncio.Future[Any]) -> None:
        """Wait by means of ``waiter``; raises ``why`` if the wait was ended before it began."""
        if self._why is not None:
            raise self._why
        self._waiter = waiter


@dataclass(slots=True)
class _Queue:
    action: str
    bucket: Bucket
    waiting: _Waiting = field(default_factory=list)
    looked: _Waiting = field(default_factory=list)  # have a token, and want a thread again
    aside: int = 0  # with a token and without a thread
    hungry: bool = False

    @property
    def is_patient(self) -> bool:
        """Whether all who wait for a token are patient: who is not goes first."""
        head = _head(self.waiting)
        return head is not None and head[0] == Urgency.PATIENT

    @property
    def lacks_tokens_only(self) -> bool:
        """Whether the first caller could go if there was a token."""
        return self.aside < self.bucket.most and _head(self.waiting) is not None

    def first(self) -> _Waiting | None:
        """The heap whose head may have a thread now: who has looked needs no token."""
        heaps = [self.looked] if _head(self.looked) is not None else []
        if self.lacks_tokens_only and self.bucket.has_token(patient=self.is_patient):
            heaps.append(self.waiting)
        return min(heaps, key=lambda heap: heap[0][:2], default=None)


class Limiter:
    """Shared by everything that calls EC2; used on one event loop only."""

    def __init__(
        self,
        rates: Rates | None = None,
        *,
        at_once: int = 64,
        metrics: SharedMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates = rates or Rates()
        self._metrics = metrics
        self._clock = clock
        self._free = at_once
        self._queues: dict[str, _Queue] = {}
        self._places = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(
        self,
        action: str,
        urgency: Urgency = Urgency.NORMAL,
        *,
        place: int | None = None,
        turn: Turn | None = None,
    ) -> Grant:
        """Wait for a token of the action and a thread; ``release`` gives the thread back.

        Args:
            action: the API action.
            urgency: who goes first.
            place: of an earlier grant whose call was throttled: its turn is not lost.
            turn: lets others end the wait.

        Raises:
            Exception: what ended the wait: ``Turn.leave`` or ``dismiss``; nothing was granted.
        """
        queue = self._queue(action)
        asked_at = self._clock()
        waiter: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        if turn is not None:
            turn.begin(waiter)
        seq = next(self._places) if place is None else place
        heapq.heappush(queue.waiting, (urgency, seq, waiter))
        self._pump()
        try:
            grant = await waiter
        except asyncio.CancelledError:
            granted = waiter.done() and not waiter.cancelled() and waiter.exception() is None
            if granted:  # in the very same moment
                self.give_back(waiter.result())
            raise
        if self._metrics is not None and (waited := grant.sent_at - asked_at) > 0:
            self._metrics.ec2_wait_seconds.labels(action).inc(waited)
        return grant

    def release(self) -> None:
        """Give a thread back: its call has ended, well or not."""
        self._free += 1
        self._pump()

    def give_back(self, grant: Grant) -> None:
        """Give a thread and the token back: the call is not sent."""
        self._queue(grant.action).bucket.refund(grant.sent_at)
        self.release()

    def step_aside(self, grant: Grant) -> None:
        """Let others have the thread during a last look; then ``step_back`` or ``step_out``."""
        self._queue(grant.action).aside += 1
        self.release()

    async def step_back(self, grant: Grant, urgency: Urgency, turn: Turn | None = None) -> bool:
        """Wait for a thread after the last look.

        Returns:
            False: nothing is held any more, and both turn and look are to be had again: a throttle
            has voided the token, or a thread was long in coming and the look is old by now.

        Raises:
            Exception: what ended the wait: ``Turn.leave`` or ``dismiss``; nothing is held any more.
        """
        queue = self._queue(grant.action)
        if queue.bucket.has_voided(grant.sent_at):
            self.step_out(grant)
            return False
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        limit = asyncio.timeout(LOOK_COUNTS_S)
        has_thread = False
        try:
            if turn is not None:
                turn.begin(waiter)
            heapq.heappush(queue.looked, (urgency, grant.place, waiter))
            self._pump()
            async with limit:
                has_thread = await waiter
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            # Cancelled or out of time in the very moment in which there was a thread: it is ours.
            granted = waiter.done() and not waiter.cancelled() and waiter.exception() is None
            if not has_thread:
                self._free += granted and waiter.result()
                self.step_out(grant)
            else:
                queue.aside -= 1
                self._pump()  # the next one may look now
        return has_thread

    def step_out(self, grant: Grant) -> None:
        """Give the token back: the call is not sent after its last look."""
        queue = self._queue(grant.action)
        queue.aside -= 1
        queue.bucket.refund(grant.sent_at)
        self._pump()

    def dismiss(self, refusal: Callable[[str], Exception | None]) -> None:
        """End the waits of all those whose action gets a refusal; the others go on waiting."""
        for queue in self._queues.values():
            for _, _, waiter in (*queue.waiting, *queue.looked):
                why = None if waiter.done() else refusal(queue.action)
                if why is not None:
                    waiter.set_exception(why)

    def throttled(self, grant: Grant) -> None:
        """EC2 answered RequestLimitExceeded."""
        queue = self._queue(grant.action)
        queue.bucket.throttled(grant.sent_at, self._clock())
        for _, _, waiter in queue.looked:
            if not waiter.done():
                waiter.set_result(False)

    def per_s(self, action: str) -> float:
        """The present rate of an action, in calls a second."""
        return self._queue(action).bucket.per_s

    def close(self) -> None:
        """Stop the timer. Callers that still wait go on waiting: cancel them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _queue(self, action: str) -> _Queue:
        queue = self._queues.get(action)
        if queue is None:
            bucket = Bucket(self._rates.of(action), self._clock())
            queue = self._queues[action] = _Queue(action, bucket)
        return queue

    def _pump(self) -> None:
        """Let through all that can go now, and come back when the next token is due."""
        now = self._clock()
        live = [queue for queue in self._queues.values() if queue.waiting or queue.looked]
        hint = max((queue.bucket.raised for queue in self._queues.values()), default=1.0)
        for queue in live:
            queue.bucket.advance(now, hungry=queue.hungry, patient=queue.is_patient, hint=hint)
        while self._free > 0 and (first := _next(live)) is not None:
            queue, heap = first
            _, place, waiter = heapq.heappop(heap)
            self._free -= 1
            if heap is queue.looked:
                waiter.set_result(True)
            else:
                queue.bucket.take()
                waiter.set_result(Grant(queue.action, now, place))
        self._look_again(live)

    def _look_again(self, live: list[_Queue]) -> None:
        soonest: float | None = None
        for queue in live:
            # A queue that lacks threads, not tokens, says nothing about the rate.
            queue.hungry = self._free > 0 and queue.lacks_tokens_only
            if queue.hungry:
                ready = queue.bucket.ready_in_s(patient=queue.is_patient)
                soonest = ready if soonest is None else min(soonest, ready)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest is not None:
            delay = min(max(soonest, 0.001), 0.5)  # the rate may have risen by then
            self._timer = asyncio.get_running_loop().call_later(delay, self._pump)


def _next(live: list[_Queue]) -> tuple[_Queue, _Waiting] | None:
    heaps = ((queue, queue.first()) for queue in live)
    ready = [(queue, heap) for queue, heap in heaps if heap is not None]
    return min(ready, key=lambda each: each[1][0][:2], default=None)


def _head(heap: _Waiting) -> tuple[int, int, "asyncio.Future[Any]"] | None:
    """The first who still waits; those who gave up are dropped."""
    while heap and heap[0][2].done():
        heapq.heappop(heap)
    return heap[0] if heap else None
