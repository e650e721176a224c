"""A live cache of one kind: a list, then a watch that is resumed for as long as that is possible.

Under load the API server closes watches often (ten times in one run of 1,000 claims); the watch
then goes on from the last version seen, without a new list and without losing a change. Only
410 Gone leads to a new list, whose differences, lost deletions included, are told like any change.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Generic

import structlog

from provisioner.kube import wire
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import Projection, Resource, T, whole
from provisioner.kube.store import Handler, Indexer, Store
from provisioner.kube.wire import WatchLine
from provisioner.metrics import SharedMetrics
from provisioner.model.errors import KubeError, Reason, StorageError

# client-go asks for 5 to 10 minutes; spread so that kinds do not reconnect together.
_WATCH_MIN_S, _WATCH_MAX_S = 300, 600
# client-go waits up to 30 s; new claims would wait as long after an API server has come back.
_BACKOFF_BASE_S, _BACKOFF_CAP_S = 0.2, 10.0
_TOO_SHORT_S = 1.0  # a watch that ends sooner and showed nothing is a failure

log = structlog.get_logger(__name__)


class Informer(Generic[T]):
    """Keeps the decoded objects of one kind, or what a projection leaves of them.

    With a field selector such as ``metadata.name=data``, only of those that match: RBAC then grants
    list and watch by that name.

    Attributes:
        synced: set once the first list is in the cache; it stays set when the server goes away.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T] | Projection[T],
        metrics: SharedMetrics,
        *,
        indexers: Mapping[str, Indexer[T]] | None = None,
        namespace: str = "",
        field_selector: str = "",
    ) -> None:
        self._client = client
        if isinstance(resource, Resource):
            resource = Projection(resource, whole)
        self._resource = resource.resource
        self._keep = resource.keep
        self._metrics = metrics
        self._namespace = namespace
        self._field_selector = field_selector
        self._store: Store[T] = Store(indexers or {})
        self._failures = 0
        self._expired = False
        self.synced = asyncio.Event()

    def get(self, key: str) -> T | None:
        """One object by ``key_of``; None means "not here", not "does not exist"."""
        return self._store.get(key)

    def values(self) -> Collection[T]:
        """All objects: a live view, so use it before the next await."""
        return self._store.values()

    def keyed(self, index: str, value: str) -> Sequence[T]:
        """The objects for which an indexer gave a value."""
        return self._store.keyed(index, value)

    def subscribe(self, handler: Handler[T]) -> None:
        """Call ``handler(old, new)`` for all that is here, then for each change.

        ``old`` is None for a new object, ``new`` for one that is gone. The handler is sync; what
        it raises is logged and stops nobody.
        """
        self._store.subscribe(handler)

    def observe(self, obj: T) -> None:
        """Take the answer to an own write at once, so that nobody acts on the state before it.

        What is older than the cache, or was deleted since, is ignored.
        """
        self._store.observe(obj)

    async def run(self) -> None:
        """Follow the API server for ever."""
        loop = asyncio.get_running_loop()
        while True:
            began, seen = loop.time(), self._store.version
            wait_s: float | None = None
            try:
                if self._expired or not self._store.version:
                    await self._relist()
                    seen = self._store.version
                await self._watch()
            except KubeError as exc:
                wait_s = self._after_failure(exc)
            except Exception:  # a bug here must not blind the process for good
                log.exception("following a kind failed", kind=self._resource.kind)
                wait_s = 0.0
            if self._store.version != seen:
                self._failures = 0
            elif wait_s is None:
                if loop.time() - began < _TOO_SHORT_S:
                    wait_s = 0.0
                else:
                    self._failures = 0
            if wait_s is not None:
                await asyncio.sleep(max(wait_s, self._backoff_s()))

    async def _relist(self) -> None:
        kind = self._resource.kind
        listing = await self._client.list(
            self._resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            keep=self._keep,
        )
        self._metrics.relists.labels(kind).inc()
        self._metrics.unreadable.labels(kind).inc(listing.unreadable)
        self._store.replace(listing)
        self._expired = False
        if not self.synced.is_set():
            log.info("cache filled", kind=kind, objects=len(listing.items))
            self.synced.set()

    async def _watch(self) -> None:
        lines = self._client.watch(
            self._resource,
            resource_version=self._store.version,
            timeout_s=random.randint(_WATCH_MIN_S, _WATCH_MAX_S),  # noqa: S311 -- no secret
            namespace=self._namespace,
            field_selector=self._field_selector,
        )
        events = self._metrics.watch_events.labels(self._resource.kind)
        async with aclosing(lines):
            async for line in lines:
                events.inc()
                self._take(line)

    def _take(self, line: WatchLine) -> None:
        if line.type == "BOOKMARK":
            self._advance(wire.decode_metadata(line.object).metadata.resource_version)
            return
        try:
            obj = wire.decode_object(self._resource, line.object)
        except KubeError as exc:
            # What was readable before is kept: gone and unreadable are different things.
            log.warning("skipped an object that cannot be read", error=exc.message)
            self._metrics.unreadable.labels(self._resource.kind).inc()
            seen = wire.decode_metadata(line.object)
            if line.type == "DELETED":
                self._store.remove(seen.key, seen.metadata.resource_version)
            self._advance(seen.metadata.resource_version)
            return
        kept = None if line.type == "DELETED" else self._keep(obj)
        if kept is None:
            self._store.remove(obj.key, obj.metadata.resource_version)
        else:
            self._store.apply(kept)
        self._advance(obj.metadata.resource_version)

    def _advance(self, version: str) -> None:
        if version:
            self._store.version = version

    def _after_failure(self, exc: StorageError) -> float:
        """Log a failure; how long to wait at least, in seconds."""
        kind = self._resource.kind
        if exc.reason is Reason.EXPIRED:
            log.info("the watch is too far behind; listing again", kind=kind)
            self._expired = True
        elif self._failures == 0 or exc.reason not in {Reason.UNREACHABLE, Reason.TIMED_OUT}:
            log.warning("following a kind failed", kind=kind, error=exc.message)
        return exc.retry_after_s or 0.0

    def _backoff_s(self) -> float:
        ceiling = min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 -- no secret
