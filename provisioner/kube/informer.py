"""A live cache of one kind: a list, then a watch that is resumed for as long as that is possible.

Under load the API server closes watches often (ten times in one run of 1,000 claims); the watch
then goes on from the last version seen, without a new list and without losing a change. Only
410 Gone leads to a new list, whose differences, lost deletions included, are told like any change.

A watch that has failed goes on after one question, as etcd may have been restored from a backup.

A cache is behind by an unknown time, so what it lacks is no proof; ``catch_up`` makes it one at a
price that does not grow with what there is. The API server tells its newest version (with any list,
so with one that has nothing), and the watch is waited for until it has passed that. Where nothing
of the kind changes, a watch of three seconds is opened beside it: the API server tells each watch
two seconds before its end how far it has come (1 to 2.3 s until the answer, measured with 1.37.2);
the long watch is told once a minute only. Several such looks are under way at once, so that nobody
waits for the end of one that began before he asked. An API server tells no more than it has asked
etcd for, which a question to another one of them, or an etcd before 3.5.13, does not have it do:
then the kind is listed whole (KEP-2340, KEP-956), and for some minutes without trying a watch
before. Where lists are slow, half of the time is free of them.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from typing import Generic

import structlog

from provisioner import clock
from provisioner.kube import wire
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import Projection, Resource, T, key_of, whole
from provisioner.kube.shared_lock import SharedLock
from provisioner.kube.store import Handler, Indexer, Store, is_above, is_past
from provisioner.kube.wire import Listing, WatchLine
from provisioner.metrics import SharedMetrics
from provisioner.model.backoff import Backoff
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.slices import between_slices
from provisioner.tell_once import TellOnce

# client-go asks for 5 to 10 minutes; spread so that kinds do not reconnect together.
_WATCH_MIN_S, _WATCH_MAX_S = 300, 600
# client-go waits up to 30 s; new claims would wait as long after an API server has come back.
_BACKOFF = Backoff(0.2, 10.0)
_TOO_SHORT_S = 1.0  # a watch that ends sooner and showed nothing is a failure
# ``catch_up``: so many objects are listed if they are quiet; 5 ms of the API server's CPU.
_FEW = 500
_GATHER_S, _PACE_S = 0.02, 0.25
_LOOKS = 10  # at once, which is more than ever are while the API server answers
# So long a kind that changes all the time is given to show it by itself.
_SOON_S, _SOON_LOOKS = 0.1, 10
_SHOWN_S = 0.05  # between two checks whether another short watch has shown it
_SHORT_WATCH_S, _SHORT_WATCHES = 3, 4
_LOOK_S = 75.0
_ONE_NAME = _ONE_NAMESPACE = "none"  # whether there is one does not matter
_LISTS_S = 300.0  # so long, once short watches have told nothing, they are not asked

log = structlog.get_logger(__name__)


class Informer(Generic[T]):
    """Keeps the decoded objects of one kind, or what a projection leaves of them.

    With a field selector such as ``metadata.name=data``, only of those that match: RBAC then grants
    list and watch by that name.

    Attributes:
        resource: the kind of its objects.
        synced: set once the first list is in the cache; it stays set when the server goes away.
        on_restore: called when a list has proven that etcd was restored from a backup.
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
        self.resource = resource.resource
        self._keep, self._trim = resource.keep, resource.trim
        self._metrics = metrics
        self._namespace = namespace
        self._field_selector = field_selector
        self._store: Store[T] = Store(indexers or {})
        self._failures = 0
        self._expired = False
        self._failing_since_s: float | None = None
        self._told = TellOnce()  # the failure that the log has
        self._listing = SharedLock()  # what lists or watches beside ``run`` excludes its lists
        self._beginning = asyncio.Lock()
        self._looks: dict[asyncio.Task[None], int] = {}  # under way, and how many wait for each
        self._newest_look: asyncio.Task[None] | None = None
        self._look_ended = asyncio.Event()  # another one for each
        self._short_watches: set[asyncio.Task[KubeError | None]] = set()
        # Tickets of ``catch_up``: the last one, up to which a look has begun, the cache was proven,
        # and given up.
        self._asked = self._begun = self._proven = self._given_up = 0
        self._failure: StorageError | None = None
        self._next_look_s = self._next_list_s = self._next_short_watch_s = 0.0
        self._watching: asyncio.Timeout | None = None
        self._listed = asyncio.Event()  # and nothing asks for another list
        self.synced = asyncio.Event()
        self._restores_told = 0
        self.on_restore: Callable[[], None] = lambda: None

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

    def hold_back(self) -> None:
        """Have those who subscribe from now on told by ``introduce`` only."""
        self._store.hold_back()

    async def introduce(self) -> None:
        """Tell those who were held back what is here; others on the loop go on meanwhile."""
        await between_slices(self._store.introducing())

    @property
    def unreadable(self) -> Collection[str]:
        """Objects that are there, but cannot be read: what the cache has of them may be old."""
        return self._store.unreadable.keys()

    async def catch_up(self) -> None:
        """Return once the cache has all that was written before this call: as good as a list.

        One look serves all who asked before it began. Who comes later waits for the next one, which
        begins while the first is under way: a quiet kind takes a second or two to be shown.

        Raises:
            KubeError: that cannot be told.
        """
        self._asked += 1
        ticket = self._asked
        while not self._is_told(ticket):
            async with self._beginning:
                if self._is_told(ticket):
                    break  # while it waited for its turn
                look = self._newest_look
                if look is None or look.done() or ticket > self._begun:
                    look = await self._begin()
                self._looks[look] += 1
            try:
                await self._answered(look, ticket)
            finally:
                self._left(look)
        if ticket > self._proven and self._failure is not None:
            raise self._failure.with_traceback(None)

    def _is_told(self, ticket: int) -> bool:
        return ticket <= max(self._proven, self._given_up)

    async def _answered(self, look: asyncio.Task[None], ticket: int) -> None:
        """Wait for a look, or for one that began later and was answered sooner."""
        while not look.done() and ticket > self._proven:
            await self._look_ended.wait()
        if look.done():
            look.result()  # nothing, except by a bug

    def _tell_ended(self, _: asyncio.Task[None]) -> None:
        self._look_ended.set()
        self._look_ended = asyncio.Event()

    async def _begin(self) -> asyncio.Task[None]:
        await asyncio.sleep(max(_GATHER_S, self._next_look_s - clock.now_s()))
        while len(self._looks) >= _LOOKS:
            await asyncio.wait(self._looks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # who waited for it takes it away
        self._next_look_s = clock.now_s() + _PACE_S
        self._begun = self._asked
        # Beside others it has the time that it would have after them: the list that answers it may
        # begin only when theirs has ended.
        limit_s = 2 * _LOOK_S if self._looks else _LOOK_S
        # Its log lines are not about the first caller.
        answer = self._answer(self._begun, limit_s)
        look = asyncio.get_running_loop().create_task(answer, context=Context())
        look.add_done_callback(self._tell_ended)
        self._newest_look, self._looks[look] = look, 0
        return look

    def _left(self, look: asyncio.Task[None]) -> None:
        """One waits no longer for a look; without any it ends."""
        self._looks[look] -= 1
        if not self._looks[look]:
            del self._looks[look]
            if self._newest_look is look:
                self._newest_look = None
            look.cancel()

    async def _answer(self, asked: int, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._look(asked)
            # Not if ``forget`` came meanwhile: the cache is empty then.
            if self.synced.is_set():
                self._proven = max(self._proven, asked)
        except StorageError as failure:
            self._give_up(asked, failure)
        except TimeoutError:
            message = f"the API server did not show the newest {self.resource.plural} in time"
            self._give_up(asked, KubeError(Reason.TIMED_OUT, message))

    def _give_up(self, asked: int, failure: StorageError) -> None:
        if asked > self._given_up:
            self._given_up, self._failure = asked, failure

    async def _look(self, ticket: int) -> None:
        await self.synced.wait()
        known = self._store.newest
        version = await self._newest_version(1)
        if is_above(known, version):
            await self._list_for(ticket)  # etcd was restored: what is here is of another world
        for _ in range(_SHORT_WATCHES):
            if await self._is_past(version):
                return
            if not self._listed.is_set() or clock.now_s() < self._next_short_watch_s:
                break
            # Also has one API server more ask etcd how far it is.
            await self._newest_version(_FEW)
            await self._watch_shortly(version)
        else:
            if await self._is_past(version):
                return
            self._next_short_watch_s = clock.now_s() + _LISTS_S
        await self._list_for(ticket)

    async def _list_for(self, ticket: int) -> None:
        """A list that starts after the caller asked; one that is under way may be it."""
        while ticket > self._proven:
            rest_s = self._next_list_s - clock.now_s()
            if not self._listed.is_set():
                await self._listed.wait()
            elif rest_s > 0:
                await asyncio.sleep(rest_s)
            else:
                self.list_soon()

    async def _newest_version(self, most: int) -> str:
        """As the API server tells it; where there are few objects, ``_ask`` tells it.

        Asked for the objects of one name it counts none: with 100,000 PersistentVolumes, the first
        one of all took it 15 ms of CPU more (1.37.2, measured 2026-11-30). A name in all namespaces
        it would look for in every object, so those of one namespace are asked for.
        """
        here = self._store.values()
        if len(here) < _FEW:
            return await self._ask(most)
        in_namespaces = next(("/" in key_of(each) for each in here), False)
        async with self._listing.shared():
            page = await self._client.list(
                self.resource,
                namespace=self._namespace or (_ONE_NAMESPACE if in_namespaces else ""),
                field_selector="" if in_namespaces else f"metadata.name={_ONE_NAME}",
                keep=lambda _: None,
                most=1,
            )
        return page.resource_version

    async def _ask(self, most: int) -> str:
        """The newest version. Where there are no more objects than these, they are taken in."""
        async with self._listing.shared():
            asked_at = self._store.newest
            page = await self._list(most)
            newer = is_above(page.resource_version, self._store.version)
            if page.is_all and newer and self.synced.is_set():  # else it was forgotten meanwhile
                self._store.replace(page, asked_at)
                self._tell_restore()
        return page.resource_version

    @property
    def fails_for_s(self) -> float:
        """For how long there has been a failure, and no list since; 0 for none."""
        since_s = self._failing_since_s
        return 0.0 if since_s is None else clock.now_s() - since_s

    async def forget(self) -> None:
        """Take what is here for unknown, and the cache for not filled, until the next list.

        It takes effect once nobody lists or watches beside ``run``, which takes 6 s, and 30 s while
        an API server hangs. Subscribers are notified that all objects are gone.
        """
        async with self._listing.alone():  # what is half taken in would be half forgotten
            self.synced.clear()
            self._store.replace(Listing([], ""))
            self._proven = 0  # who asks and is still here asks again
            self.list_soon()

    def list_soon(self) -> None:
        """Have the watch ended, and a list in its place."""
        self._expired = True
        self._listed.clear()
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(0.0)

    async def _is_past(self, version: str) -> bool:
        """Whether the watch has passed a version, or does so in a moment."""
        for _ in range(_SOON_LOOKS):
            if self._has_all_of(version):
                return True
            await asyncio.sleep(_SOON_S / _SOON_LOOKS)
        return self._has_all_of(version)

    def _has_all_of(self, version: str) -> bool:
        # While another list is wanted, what is here may be of a world before a restore of etcd.
        return self._listed.is_set() and is_past(self._store.version, version)

    async def _watch_shortly(self, version: str) -> None:
        """Until a short watch has passed a version: this one, or one that began before it.

        This one goes on when another was sooner: who looks next is answered by it.
        """
        watch = asyncio.create_task(self._short_watch(version))
        self._short_watches.add(watch)
        watch.add_done_callback(self._short_watches.discard)
        while not watch.done() and not self._has_all_of(version):
            await asyncio.wait({watch}, timeout=_SHOWN_S)
        if watch.done() and not watch.cancelled() and (failure := watch.result()) is not None:
            raise failure

    async def _short_watch(self, version: str) -> KubeError | None:
        """Why it has failed, if that is more than a version too old."""
        try:
            async with self._listing.shared(), asyncio.timeout(2 * _SHORT_WATCH_S):
                if self.synced.is_set() and not is_past(self._store.version, version):
                    await self._watch(_SHORT_WATCH_S, until=version)
        except TimeoutError:
            pass  # it was not ended when it should have been
        except KubeError as failure:
            return None if failure.reason is Reason.EXPIRED else failure
        return None

    def observe(self, obj: T) -> None:
        """Take the answer to an own write at once, so that nobody acts on the state before it.

        What is older than the cache, or was deleted since, is ignored.
        """
        trimmed = self._trim(obj)
        if trimmed is not obj:
            wire.share(trimmed)
        kept = self._keep(trimmed)
        if kept is not None:
            self._store.observe(kept)

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        try:
            await self._run()
        finally:
            for watch in self._short_watches:
                watch.cancel()

    async def _run(self) -> None:
        while True:
            began, seen = clock.now_s(), self._store.version
            wait_s: float | None = None
            try:
                if self._expired or not self._store.version:
                    async with self._listing.alone():
                        await self._relist()
                    seen = self._store.version
                elif self._failures:
                    if await self._is_restored():
                        self.list_soon()
                    if not self._listed.is_set():  # or somebody else has asked for a list meanwhile
                        continue
                    seen = self._store.version
                await self._follow()
            except KubeError as exc:
                wait_s = self._after_failure(exc)
            except Exception:  # a bug here must not blind the process for good
                log.exception("cannot watch a kind", kind=self.resource.kind)
                wait_s = 0.0
            if self._store.version != seen:
                self._failures = 0
            elif wait_s is None:
                if clock.now_s() - began < _TOO_SHORT_S:
                    wait_s = 0.0
                else:
                    self._failures = 0
            if wait_s is not None:
                await asyncio.sleep(max(wait_s, self._backoff_s()))

    async def _is_restored(self) -> bool:
        """Whether the API server has come back with an etcd from a backup.

        From a version that is ahead of its own, it watches without complaint, and shows nothing
        until it has passed it (``cacher.go``, ``watch_cache.go`` of 1.37). So what was written
        before that would never be seen, and later no version would tell.
        """
        known = self._store.newest
        return is_above(known, await self._newest_version(1))

    async def _follow(self) -> None:
        """Watch until the server ends it, or a list is wanted in its place."""
        self._watching = limit = asyncio.timeout(None)
        try:
            async with limit:
                await self._watch(random.randint(_WATCH_MIN_S, _WATCH_MAX_S))  # noqa: S311 -- no secret
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._watching = None

    async def _relist(self) -> None:
        kind, store = self.resource.kind, self._store
        asked, asked_at, began_s = self._asked, store.newest, clock.now_s()
        try:
            listing = await self._list()
            await between_slices(store.replacing(listing, asked_at))
        finally:
            self._next_list_s = 2 * clock.now_s() - began_s
        self._metrics.relists.labels(kind).inc()
        self._metrics.unreadable.labels(kind).inc(listing.unreadable)
        self._proven = max(self._proven, asked)
        self._expired = False
        self._failing_since_s = None
        self._told.clear()
        self._listed.set()
        if not self.synced.is_set():
            log.info("cache filled", kind=kind, objects=len(listing.items))
            self.synced.set()
        self._tell_restore()

    def _tell_restore(self) -> None:
        if self._store.restores > self._restores_told:
            self._restores_told = self._store.restores
            self.on_restore()

    async def _list(self, most: int = 0) -> Listing[T]:
        return await self._client.list(
            self.resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            keep=self._kept,
            trim=self._trim,
            most=most,
        )

    def _kept(self, obj: T) -> T | None:
        """What is kept of an object of a list; what has not changed is not held twice meanwhile."""
        new = self._keep(obj)
        known = None if new is None else self._store.get(key_of(new))
        return known if known == new else new

    async def _watch(self, timeout_s: int, *, until: str = "") -> None:
        lines = self._client.watch(
            self.resource,
            resource_version=self._store.version,
            timeout_s=timeout_s,
            namespace=self._namespace,
            field_selector=self._field_selector,
        )
        events = self._metrics.watch_events.labels(self.resource.kind)
        async with aclosing(lines):
            async for line in lines:
                events.inc()
                self._take(line)
                if is_past(self._store.version, until):
                    return

    def _take(self, line: WatchLine) -> None:
        if line.type == "BOOKMARK":
            self._advance(wire.decode_metadata(line.object).metadata.resource_version)
            return
        try:
            obj = wire.decode_object(self.resource, line.object, self._trim)
        except KubeError as exc:
            log.warning("skipped an object that cannot be read", error=exc.message)
            self._metrics.unreadable.labels(self.resource.kind).inc()
            seen = wire.decode_metadata(line.object)
            if line.type == "DELETED":
                self._store.remove(seen.key, seen.metadata.resource_version)
            else:
                self._store.cannot_read(seen.key, seen.metadata.resource_version)
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
            self._store.advance(version)

    def _after_failure(self, exc: StorageError) -> float:
        """Log a failure; how long to wait at least, in seconds."""
        kind = self.resource.kind
        if exc.reason is Reason.EXPIRED:
            log.info("the watch is too far behind; listing again", kind=kind)
            self._expired = True
            return exc.retry_after_s or 0.0
        is_away = exc.reason in {Reason.UNREACHABLE, Reason.TIMED_OUT}
        is_news = self._told.is_news(kind, exc.message)
        if self._failures == 0 if is_away else is_news:
            log.warning("cannot watch a kind", kind=kind, error=exc.message)
        if self._failing_since_s is None:
            self._failing_since_s = clock.now_s()
        return exc.retry_after_s or 0.0

    def _backoff_s(self) -> float:
        pause_s = _BACKOFF.jittered_s(self._failures, random.random())  # noqa: S311 -- no secret
        self._failures += 1
        return pause_s
