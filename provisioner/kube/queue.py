"""A queue of keys: one worker per key, any number of keys at once.

A key that waits, for its next pass or after a failure, is an entry with a timer: no task, no
worker. So 1,000 volumes that wait for EC2 do not hold up the next one.

::

    add() ──> ready ──> running ──> settled: forgotten
               ^           │
               └─ timer <──┘ after the handler's ``Later``, or base * 2^failures
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import assert_never

import msgspec
import structlog
from structlog.contextvars import clear_contextvars

from provisioner import clock
from provisioner.metrics import SharedMetrics
from provisioner.model.backoff import Backoff
from provisioner.model.decision import SETTLED, Later, Next, Settled, WhenWoken
from provisioner.model.errors import RETRY_SOON, Reason, StorageError

Handler = Callable[[str], Awaitable[Next]]

# Tasks started per turn of the event loop: 10,000 keys at the start neither hold up a lease's
# renewal nor all have a task at once (most are settled in their first pass).
_BATCH = 64
# After so many failures in a row an event wakes the key only base_s after the failure: otherwise a
# handler that writes and fails would wake itself forever.
_EAGER_FAILURES = 2

log = structlog.get_logger(__name__)


class _Entry(msgspec.Struct, gc=False):
    """A known key. It has a timer while it waits, none while it is ready or running.

    It is in no cycle, so the garbage collector need not look at it: a new leader has hundreds of
    thousands of them at once.
    """

    failures: int = 0
    floor: float = 0.0  # loop time before which an event does not wake it
    due: float = 0.0
    timer: asyncio.TimerHandle | None = None
    running: bool = False
    again: float | None = None  # added while running: when to run once more


class KeyedQueue:
    """Runs ``handler(key)`` for each key that was added, never twice at once for one key.

    The handler's answer says when its key is next. After a ``StorageError``, which is logged in one
    line, the key is retried after ``base_s * 2^n`` with jitter: at most ``cap_s``, at most
    ``outage_cap_s`` for the reasons in ``soon``, at least the error's ``retry_after_s``. Any other
    exception is handled in the same way, with a traceback.
    What the handler binds with ``bind_contextvars`` appears in the log lines of its key only.

    Attributes:
        name: the flow, in logs and metrics.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        metrics: SharedMetrics,
        *,
        base_s: float = 1.0,
        cap_s: float = 300.0,
        outage_cap_s: float = 30.0,
        soon: frozenset[Reason] = RETRY_SOON,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._handler = handler
        self._metrics = metrics
        self._base_s = base_s
        self._backoff = Backoff(base_s, cap_s)
        self._outage_backoff = Backoff(base_s, min(cap_s, outage_cap_s))
        self._soon = soon
        self._random = random
        self._entries: dict[str, _Entry] = {}
        self._ready: deque[str] = deque()
        self._group: asyncio.TaskGroup | None = None
        self._pumping = False
        self._wanted: Callable[[str], bool] = _everything
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._drained = asyncio.Event()
        self._gauge = metrics.queue_depth.labels(name)
        self._gauge.set_function(lambda: self.depth)

    @property
    def depth(self) -> int:
        """Keys waiting or being worked on."""
        return len(self._entries)

    def add(self, key: str, *, after_s: float = 0.0) -> None:
        """Have the handler run for a key; an earlier run wins over a later one.

        While the handler runs for it, any number of calls lead to one more run. A waiting key is
        woken; its count of failures stays until it succeeds.
        """
        if not self._wanted(key):
            return
        due = clock.now_s() + after_s
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            self._schedule(key, entry, due)
        elif entry.running:
            entry.again = due if entry.again is None else min(entry.again, due)
        elif entry.timer is not None and max(due, entry.floor) < entry.due:
            self._schedule(key, entry, max(due, entry.floor))

    async def run(self) -> None:
        """Work until cancelled, or until ``drain`` has finished. Owns every task it starts."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                self._pump_soon()
                await self._drained.wait()
            finally:
                self._group = None
                self.narrow(_nothing)

    @property
    def is_working(self) -> bool:
        """Whether a handler is running."""
        return self._running > 0

    def narrow(self, wanted: Callable[[str], bool]) -> None:
        """From now on, work only on keys that are wanted at that moment."""
        self._wanted = wanted
        for key, entry in list(self._entries.items()):
            if not entry.running and not wanted(key):
                if entry.timer is not None:
                    entry.timer.cancel()
                del self._entries[key]
        self._ready = deque(key for key in self._ready if key in self._entries)

    async def drain(self, timeout_s: float) -> bool:
        """Start no more handlers and wait for those that run.

        Returns:
            Whether all have ended; the others are cancelled with ``run``.
        """
        self.narrow(_nothing)
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        self._drained.set()
        return True

    def _schedule(self, key: str, entry: _Entry, due: float) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        loop = asyncio.get_running_loop()
        if due <= clock.now_s():
            self._make_ready(key)
        else:
            entry.due = due
            entry.timer = loop.call_at(due, self._on_timer, key)

    def _on_timer(self, key: str) -> None:
        entry = self._entries[key]
        entry.timer = None
        self._make_ready(key)

    def _make_ready(self, key: str) -> None:
        self._ready.append(key)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if self._group is not None and self._ready and not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        group = self._group
        if group is None:
            return
        for _ in range(min(_BATCH, len(self._ready))):
            key = self._ready.popleft()
            self._entries[key].running = True
            self._running += 1
            self._idle.clear()
            group.create_task(self._work(key), name=f"{self.name} {key}")
        self._pump_soon()

    async def _work(self, key: str) -> None:
        entry = self._entries[key]
        answer: Next = SETTLED
        clear_contextvars()  # they are those of the code that added the key
        try:
            answer = await self._handler(key)
            entry.failures = 0
            entry.floor = 0.0
        except Exception as exc:
            answer = self._failed(key, entry, exc)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if self._group is None or (task is not None and task.cancelling()):
                del self._entries[key]
                raise
            # Something that the handler waited for was cancelled, not the handler.
            answer = self._failed(key, entry, exc)
        finally:
            self._running -= 1
            entry.running = False
            if self._running == 0:
                self._idle.set()
        self._next(key, entry, answer)

    def _next(self, key: str, entry: _Entry, answer: Next) -> None:
        dues = []
        match answer:
            case Later(seconds=seconds):
                dues.append(clock.now_s() + seconds)
            case WhenWoken() | Settled():
                pass
            case _:
                assert_never(answer)
        if entry.again is not None:
            dues.append(max(entry.again, entry.floor))
            entry.again = None
        if dues and self._wanted(key):
            self._schedule(key, entry, min(dues))
        else:
            del self._entries[key]

    def _failed(self, key: str, entry: _Entry, exc: BaseException) -> Later:
        """Log and count a failure; when to retry."""
        outage = isinstance(exc, StorageError) and exc.reason in self._soon
        backoff = self._outage_backoff if outage else self._backoff
        wait_s = backoff.jittered_s(entry.failures, self._random())
        entry.failures += 1
        reason = "Bug"
        if isinstance(exc, StorageError) and exc.reason is Reason.NOT_LEADING:
            reason = exc.reason.value  # hundreds at the end of a process, and no failure
            log.debug("left to the next leader", flow=self.name, key=key)
        elif isinstance(exc, StorageError):
            reason = exc.reason.value
            if exc.retry_after_s is not None:
                wait_s = max(wait_s, exc.retry_after_s * (1.0 + 0.1 * self._random()))
            log.warning(
                "will try again",
                flow=self.name,
                key=key,
                reason=reason,
                error=exc.message,
                in_s=round(wait_s, 1),
            )
        else:
            log.error("handler failed", flow=self.name, key=key, in_s=wait_s, exc_info=exc)
        self._metrics.flow_failures.labels(self.name, reason).inc()
        if entry.failures > _EAGER_FAILURES:
            now = clock.now_s()
            entry.floor = now + min(wait_s, self._base_s)
        return Later(wait_s)


def _everything(_: str) -> bool:
    return True


def _nothing(_: str) -> bool:
    return False
