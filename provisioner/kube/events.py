"""Kubernetes Events for people: never in the way of the work that they tell about.

Some are told once only, so an event is kept while the API server cannot take it: at most 5,000 of
them, and an hour. An API server that has just started answers 403 to everybody until it has read
its roles, so an event that is forbidden is kept for a minute.

What becomes of one follows the rules and numbers of client-go's event correlator
(tools/record/events_cache.go, v0.36), without which a claim that keeps failing floods etcd: more
than 10 similar events in 600 s become one "combined" event; of one source about one object at most
25 at once and one per 300 s are written.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog

from provisioner import clock
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import EVENTS
from provisioner.metrics import SharedMetrics
from provisioner.model.backoff import Backoff
from provisioner.model.errors import RETRY_SOON, KubeError, Reason
from provisioner.model.meta import UnlabelledObject

SIMILAR_MAX = 10
SIMILAR_S = 600.0
BURST = 25
REFILL_S = 300.0
_REMEMBERED = 4096
_COMBINED = "(combined from similar events): "
# Few, so that 1,000 events leave the connections and the API server to 1,000 volumes.
WRITERS = 3
QUEUE_MAX = 5000
_RETRY = Backoff(1.0, 30.0)
_KEPT_S = 3600.0  # the API server itself drops events after an hour
_KEPT_FORBIDDEN_S = 60.0
_MESSAGE_MAX = 1024  # events.k8s.io refuses more
_NAME_MAX = 230  # of 253, the rest is our suffix
_NEVER_AGAIN = "being terminated"  # a namespace: 403 for good

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about."""

    kind: str
    api_version: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, obj: UnlabelledObject, kind: str, api_version: str = "v1") -> "Regarding":
        """The reference to an object that was read."""
        meta = obj.metadata
        return cls(kind, api_version, meta.name, meta.namespace, meta.uid, meta.resource_version)


@dataclass(slots=True)
class Series:
    """One Event object: everything that was recorded under one key."""

    regarding: Regarding
    warning: bool
    reason: str
    message: str
    first_at: float
    last_at: float
    component: str = ""
    count: int = 0
    name: str = ""  # of the Event object, from the first try to write it
    written: bool = False  # the object is there, as far as is known
    queued: bool = False  # waiting for a writer, or with one
    again: bool = False  # recorded while a writer had it
    tries: int = 0  # in a row that failed
    failing_since: float | None = None  # seconds of the event loop's clock


@dataclass(slots=True)
class _Similar:
    last_at: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    last_at: float


_V = TypeVar("_V", Series, _Similar, _Bucket)


class Correlator:
    """Decides about each record; remembers the last few thousand series, while that matters.

    Args:
        clock: wall clock, seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._series: OrderedDict[object, Series] = OrderedDict()
        self._similar: OrderedDict[object, _Similar] = OrderedDict()
        self._buckets: OrderedDict[object, _Bucket] = OrderedDict()

    def record(
        self,
        regarding: Regarding,
        *,
        warning: bool,
        reason: str,
        message: str,
        component: str = "",
    ) -> Series | None:
        """Count an event; its series if it is to be written, None when it is one too many."""
        now = self._clock()
        # An object is the same one whichever version of it was looked at.
        about = (regarding.kind, regarding.namespace, regarding.name, regarding.uid)
        group = (about, warning, reason, component)
        combined = self._is_one_of_many(group, message, now)
        key: object = group if combined else (group, message)
        series = self._series.get(key)
        if series is None:
            series = Series(
                regarding, warning, reason, message, first_at=now, last_at=now, component=component
            )
        series.count += 1
        series.last_at = now
        _remember(self._series, key, series, _KEPT_S)
        series.message = f"{_COMBINED}{message}" if combined else message
        return series if self._may_write(about, now) else None

    def _is_one_of_many(self, group: object, message: str, now: float) -> bool:
        similar = self._similar.get(group)
        if similar is None or now - similar.last_at > SIMILAR_S:
            similar = _Similar(now)
        similar.last_at = now
        _remember(self._similar, group, similar, SIMILAR_S)
        is_one = message not in similar.messages and len(similar.messages) >= SIMILAR_MAX
        if not is_one:
            similar.messages.add(message)
        return is_one

    def _may_write(self, about: object, now: float) -> bool:
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = _Bucket(BURST, now)
        # A wall clock may be set back; that must not take tokens away.
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, now - bucket.last_at) / REFILL_S)
        bucket.last_at = now
        _remember(self._buckets, about, bucket, BURST * REFILL_S)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


class EventRecorder:
    """Writes core/v1 Events in the background, correlated as client-go does it.

    Args:
        client: where to write.
        component: ``source.component``, for example "ebs.csi.aws.com_host_uuid".
        metrics: counts what was dropped.
        writers: how many events are written at once.
        clock: wall clock, seconds since the epoch.
    """

    def __init__(
        self,
        client: KubeClient,
        component: str,
        metrics: SharedMetrics,
        *,
        writers: int = WRITERS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._component = component
        self._metrics = metrics
        self._writers = writers
        self._correlator = Correlator(clock)
        self._queue: deque[Series] = deque()
        self._later: dict[int, tuple[Series, asyncio.TimerHandle]] = {}  # by id: failed before
        self._filled = asyncio.Event()
        self._writing = 0
        self._emptied = asyncio.Event()
        self._emptied.set()

    def record(
        self,
        regarding: Regarding,
        *,
        warning: bool,
        reason: str,
        message: str,
        component: str = "",
    ) -> None:
        """Tell about an object; returns at once and never fails.

        ``component`` is the source, if that is not the recorder's own: the stock sidecars have one
        each, and alerts may name them.
        """
        series = self._correlator.record(
            regarding,
            warning=warning,
            reason=reason,
            message=message[:_MESSAGE_MAX],
            component=component or self._component,
        )
        if series is not None and series.queued:
            series.again = True
        elif series is None or len(self._queue) + len(self._later) >= QUEUE_MAX:
            self._metrics.events_dropped.inc()
        else:
            self._enqueue(series)

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._writers):
                    group.create_task(self._write_all(), name=f"event writer {number}")
        finally:
            for _, timer in self._later.values():
                timer.cancel()

    async def flush(self, timeout_s: float) -> bool:
        """Wait, before the end of the process, until all is written; False if it takes longer."""
        for series, timer in list(self._later.values()):
            timer.cancel()
            self._try_again(series)  # now or never
        try:
            async with asyncio.timeout(timeout_s):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def _enqueue(self, series: Series) -> None:
        series.queued = True
        self._queue.append(series)
        self._filled.set()
        self._emptied.clear()

    async def _write_all(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                if not self._writing and not self._later:
                    self._emptied.set()
                await self._filled.wait()
            series = self._queue.popleft()
            self._writing += 1
            try:
                await self._write(series)
            except KubeError as exc:
                self._failed(series, exc)
            except Exception:  # an event is never worth a crash
                log.exception("cannot write an event", reason=series.reason)
                _is_over(series)
            finally:
                self._writing -= 1

    async def _write(self, series: Series) -> None:
        series.again = False  # what is recorded from here on is not in this write
        if series.written:
            await self._update(series)
        else:
            await self._create(series)
        _is_over(series)
        if series.again:
            self._enqueue(series)

    async def _create(self, series: Series) -> None:
        # One name for all tries: after a lost reply, the next one must not make a second event.
        series.name = series.name or _name(series.regarding)
        body = self._body(series)
        try:
            await self._client.create(EVENTS, body, body["metadata"]["namespace"])
        except KubeError as exc:
            if exc.reason is not Reason.OBJECT_EXISTS:
                raise
            series.again = True  # it has the count of the try that made it
        series.written = True

    async def _update(self, series: Series) -> None:
        change = {
            "count": series.count,
            "lastTimestamp": _timestamp(series.last_at),
            "message": series.message,
        }
        namespace = series.regarding.namespace or "default"
        try:
            await self._client.patch(
                EVENTS, series.name, change, kind=Patch.MERGE, namespace=namespace
            )
        except KubeError as exc:
            if exc.reason is not Reason.OBJECT_NOT_FOUND:
                raise
            await self._create(series)  # the API server drops events after an hour

    def _failed(self, series: Series, exc: KubeError) -> None:
        """Try again later, without keeping a writer from other events; or drop it."""
        loop = asyncio.get_running_loop()
        if series.failing_since is None:
            series.failing_since = clock.now_s()
        if clock.now_s() - series.failing_since < _kept_s(exc):
            wait_s = _RETRY.pause_s(series.tries)
            series.tries += 1
            due = loop.call_later(max(wait_s, exc.retry_after_s or 0.0), self._try_again, series)
            self._later[id(series)] = series, due
            return
        self._metrics.events_dropped.inc()
        log.info("dropped an event", reason=series.reason, error=exc.message)
        _is_over(series)

    def _try_again(self, series: Series) -> None:
        del self._later[id(series)]
        self._enqueue(series)

    def _body(self, series: Series) -> dict[str, Any]:
        about = series.regarding
        namespace = about.namespace or "default"  # where events of cluster-wide objects live
        involved = {
            "kind": about.kind,
            "apiVersion": about.api_version,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "reason": series.reason,
            "message": series.message,
            "type": "Warning" if series.warning else "Normal",
            "count": series.count,
            "firstTimestamp": _timestamp(series.first_at),
            "lastTimestamp": _timestamp(series.last_at),
            "source": {"component": series.component},
            "reportingComponent": series.component,
        }


def _kept_s(exc: KubeError) -> float:
    """How long an event that failed so is tried again."""
    if exc.reason is Reason.FORBIDDEN and _NEVER_AGAIN not in exc.message:
        return _KEPT_FORBIDDEN_S
    return _KEPT_S if exc.reason in RETRY_SOON else 0.0


def _is_over(series: Series) -> None:
    """It is written, or dropped."""
    series.tries, series.failing_since, series.queued = 0, None, False


def _name(about: Regarding) -> str:
    return f"{about.name[:_NAME_MAX].rstrip('.-')}.{time.time_ns():x}"


def _timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _remember(memory: OrderedDict[object, _V], key: object, value: _V, matters_s: float) -> None:
    """Keep a value as the latest; forget the others that are too many, or do not matter any more.

    client-go keeps them until they are too many: 6 MiB that a day fills.
    """
    memory[key] = value
    memory.move_to_end(key)
    oldest = next(iter(memory.values()))
    while len(memory) > _REMEMBERED or oldest.last_at < value.last_at - matters_s:
        memory.popitem(last=False)
        oldest = next(iter(memory.values()))
