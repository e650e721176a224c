"""What becomes of an event: a new one, a higher count, a combined one, or nothing. No I/O.

The rules and numbers of client-go's event correlator (tools/record/events_cache.go, v0.36), without
which a claim that keeps failing floods etcd: more than 10 similar events in 600 s become one
"combined" event; of one source about one object at most 25 at once and one per 300 s are written.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from provisioner.model.meta import KubeObject

SIMILAR_MAX = 10
SIMILAR_S = 600.0
BURST = 25
REFILL_S = 300.0
_REMEMBERED = 4096
_COMBINED = "(combined from similar events): "


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
    def of(cls, obj: KubeObject, kind: str, api_version: str = "v1") -> "Regarding":
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
    messages: set[str] = field(default_factory=set)
    last_at: float = 0.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


_V = TypeVar("_V")


class Correlator:
    """Decides about each record; remembers the last few thousand series.

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
        _remember(self._series, key, series)
        series.count += 1
        series.last_at = now
        series.message = f"{_COMBINED}{message}" if combined else message
        return series if self._may_write(about, now) else None

    def _is_one_of_many(self, group: object, message: str, now: float) -> bool:
        similar = self._similar.get(group)
        if similar is None or now - similar.last_at > SIMILAR_S:
            similar = _Similar()
        _remember(self._similar, group, similar)
        similar.last_at = now
        is_one = message not in similar.messages and len(similar.messages) >= SIMILAR_MAX
        if not is_one:
            similar.messages.add(message)
        return is_one

    def _may_write(self, about: object, now: float) -> bool:
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = _Bucket(BURST, now)
        _remember(self._buckets, about, bucket)
        # A wall clock may be set back; that must not take tokens away.
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, now - bucket.at) / REFILL_S)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _remember(memory: OrderedDict[object, _V], key: object, value: _V) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
