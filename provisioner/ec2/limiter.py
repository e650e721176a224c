"""Who may call EC2 next: a token bucket for each action, and a bounded number of calls at once.

A call needs a token of its action and one of the threads. Waiting callers go by urgency, then
first come first served, over all actions: while threads are short, a detach that somebody waits
for goes before an attach, and both before background work. A token is taken only when there is a
thread too, so that nothing is on its way when a throttle closes the bucket.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from provisioner.ec2.bucket import Bucket
from provisioner.ec2.rates import Rates
from provisioner.metrics import SharedMetrics


class Urgency(IntEnum):
    """Who goes first; lower is sooner."""

    RELEASE = 0  # detach, delete: somebody else may be waiting for what they free
    NORMAL = 1
    BACKGROUND = 2  # sweeps, looks for nobody in particular


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
    """A wait for leave that somebody else can end, because what the call is for has gone.

    What was granted by then is not taken back: the last look before the call (its gate) is for
    that. A call that was throttled has had no effect, so its next wait can be ended too.
    """

    def __init__(self) -> None:
        self._why: Exception | None = None
        self._waiter: asyncio.Future[Grant] | None = None

    def leave(self, why: Exception) -> None:
        """Have ``why`` raised by whoever waits, at once."""
        self._why = why
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(why)

    def begin(self, waiter: asyncio.Future[Grant]) -> None:
        """Wait by means of ``waiter``; raises ``why`` if the wait was ended before it began."""
        if self._why is not None:
            raise self._why
        self._waiter = waiter


@dataclass(slots=True)
class _Queue:
    action: str
    bucket: Bucket
    waiting: list[tuple[int, int, asyncio.Future[Grant]]] = field(default_factory=list)
    hungry: bool = False

    def head(self) -> tuple[int, int, asyncio.Future[Grant]] | None:
        """The first who still waits; those who gave up are dropped."""
        while self.waiting and self.waiting[0][2].done():
            heapq.heappop(self.waiting)
        return self.waiting[0] if self.waiting else None


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
        """Give a thread back: its call has ended, whatever the end was."""
        self._free += 1
        self._pump()

    def give_back(self, grant: Grant) -> None:
        """Give a thread and the token back: the call is not sent."""
        self._queue(grant.action).bucket.refund(grant.sent_at)
        self.release()

    def dismiss(self, refusal: Callable[[str], Exception | None]) -> None:
        """End the waits of all those whose action gets a refusal; the others go on waiting."""
        for queue in self._queues.values():
            for _, _, waiter in queue.waiting:
                why = None if waiter.done() else refusal(queue.action)
                if why is not None:
                    waiter.set_exception(why)

    def throttled(self, grant: Grant) -> None:
        """EC2 answered RequestLimitExceeded."""
        self._queue(grant.action).bucket.throttled(grant.sent_at, self._clock())

    def per_s(self, action: str) -> float:
        """The present rate of an action, in calls a second."""
        return self._queue(action).bucket.per_s

    def close(self) -> None:
        """Stop the timer; whoever still waits stays waiting and is to be cancelled."""
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
        """Let through whoever can go now, and come back when the next token is due."""
        now = self._clock()
        hint = max((queue.bucket.raised for queue in self._queues.values()), default=1.0)
        for queue in self._queues.values():
            queue.bucket.advance(now, hungry=queue.hungry, hint=hint)
        while self._free > 0 and (first := self._next()) is not None:
            _, place, waiter = heapq.heappop(first.waiting)
            first.bucket.take()
            self._free -= 1
            waiter.set_result(Grant(first.action, now, place))
        self._look_again()

    def _next(self) -> _Queue | None:
        best: _Queue | None = None
        best_key = (0, 0)
        for queue in self._queues.values():
            head = queue.head()
            if head is None or not queue.bucket.has_token():
                continue
            if best is None or head[:2] < best_key:
                best, best_key = queue, head[:2]
        return best

    def _look_again(self) -> None:
        soonest: float | None = None
        for queue in self._queues.values():
            # A queue that lacks threads, not tokens, says nothing about the rate.
            queue.hungry = self._free > 0 and queue.head() is not None
            if queue.hungry:
                ready = queue.bucket.ready_in_s()
                soonest = ready if soonest is None else min(soonest, ready)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest is not None:
            delay = min(max(soonest, 0.001), 0.5)  # the rate may have risen by then
            self._timer = asyncio.get_running_loop().call_later(delay, self._pump)
