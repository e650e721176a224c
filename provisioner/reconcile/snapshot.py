"""Snapshots: take, follow, record and delete what VolumeSnapshotContents stand for.

snapshot-controller makes and removes contents; this is the driver's half of its contract.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.decide import snapshot as rules
from provisioner.decide import snapshot_content as bodies
from provisioner.edges import Edges
from provisioner.kube.client import find
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import VOLUME_SNAPSHOTS
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.reign import Reign
from provisioner.model.volume_snapshot import (
    BEING_DELETED,
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)
from provisioner.reconcile.snapshot_content import (
    CHECK,
    CREATE,
    DELETE,
    ContentWriter,
    SnapshotEvents,
)
from provisioner.reconcile.snapshot_taking import Progress, Taking

# Where EC2 refuses for its limits: a place may be free at any time, and many may wait for it.
_SLOWEST_S = 120.0

log = structlog.get_logger(__name__)


class _NotConfirmedError(Exception):
    """What the API server has now does not want the deletion."""


class Snapshotter:
    """The flow of contents; keys are their names. ``now``: the wall clock."""

    def __init__(
        self, edges: Edges, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._edges = edges
        self._now = now
        self._caches = edges.caches
        self._watcher = edges.watchers.snapshots
        self._writer = ContentWriter(edges.client, edges.caches)
        driver = edges.settings.driver
        self._events = SnapshotEvents(edges.events, self._writer, driver=driver, now=now)
        self._taking = Taking(edges, self._writer, self._events, now=now)
        self._began_s: dict[str, float] = {}
        self.queue = KeyedQueue("snapshot", self.reconcile, edges.metrics, cap_s=_SLOWEST_S)

    def subscribe(self) -> None:
        """Have contents looked at when they change, and when what held them back does."""
        self._caches.contents.subscribe(self._changed)
        self._caches.snapshots.subscribe(self._snapshot_changed)
        self._caches.snapshot_classes.subscribe(self._class_changed)

    def take_over(self, reign: Reign | None) -> None:
        """Note what another controller may have begun, by what is proven of who led before."""
        self._taking.take_over(self._caches.contents.values(), reign)

    def _changed(
        self, old: VolumeSnapshotContent | None, new: VolumeSnapshotContent | None
    ) -> None:
        if new is None or (old is not None and old.uid != new.uid):
            self._forget(old)
        if new is not None and rules.is_news(old, new):
            self.queue.add(new.name)

    def _snapshot_changed(self, old: VolumeSnapshot | None, new: VolumeSnapshot | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            for content in self._caches.contents.keyed("snapshot_uid", old.uid):
                self.queue.add(content.name)

    def _class_changed(self, _: object, new: VolumeSnapshotClass | None) -> None:
        if new is not None:
            for content in self._caches.contents.keyed("class", new.name):
                if not content.is_ready:
                    self.queue.add(content.name)

    async def reconcile(self, name: str) -> float | None:
        """Move one content on as far as it goes now; None once settled."""
        content = self._caches.contents.get(name)
        if content is None:
            return None
        owner = content.snapshot_key
        bind_contextvars(snapshot_of=owner, content=name, volume=content.volume_id)
        try:
            going: Progress = content
            while isinstance(going, VolumeSnapshotContent):
                going = await self._step(going)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return None  # gone: its own event tells
            if error.reason is not Reason.CONFLICT:
                raise
            await self._writer.refresh(name)
            return 0.0
        return going

    async def _step(self, content: VolumeSnapshotContent) -> Progress:
        step = await self._decided(content)
        match step:
            case rules.Nothing():
                self._leave(content)
            case rules.Withdraw():
                return await self._writer.withdraw(content)
            case rules.LookUp():
                return await self._taking.look_up(content)
            case rules.Take():
                self._began_s.setdefault(content.uid, asyncio.get_running_loop().time())
                return await self._taking.take(content)
            case rules.Record():
                return await self._record(content, step)
            case rules.Follow(snapshot_id=snapshot_id):
                return await self._follow(content, snapshot_id)
            case rules.MakeFast(snapshot_id=snapshot_id):
                self._watcher.forget(snapshot_id, _who(content.uid))
                return await self._taking.make_fast(content, snapshot_id)
            case rules.Delete(snapshot_id=snapshot_id):
                return await self._delete(content, snapshot_id)
            case rules.Release(told=told):
                await self._writer.release(content)
                if told is not None:
                    await self._events.failed(content, told, DELETE)
            case rules.Refuse(error=error):
                await self._events.failed(content, error, DELETE if content.deleting else CREATE)
                raise error
            case _:
                assert_never(step)
        return None

    async def _decided(self, content: VolumeSnapshotContent) -> rules.Step:
        return rules.decide(
            content,
            self._taking.attempt(content),
            driver=self._edges.settings.driver,
            owner_is_gone=await self._is_owner_gone(content),
            namesakes=await self._namesakes(content),
        )

    async def _is_owner_gone(self, content: VolumeSnapshotContent) -> bool:
        """Whether the API server itself has no such VolumeSnapshot.

        It is not asked where the answer does not matter.

        Raises:
            KubeError: it could not be asked.
        """
        owner = content.spec.volume_snapshot_ref
        if not content.deleting or BEING_DELETED in content.annotations or not owner.uid:
            return False
        cached = self._caches.snapshots.get(content.snapshot_key)
        if cached is not None and cached.uid == owner.uid:
            return False
        live = await find(self._edges.client, VOLUME_SNAPSHOTS, owner.name, owner.namespace)
        return live is None or live.uid != owner.uid

    async def _namesakes(self, content: VolumeSnapshotContent) -> list[str]:
        """Other contents for which the snapshot of one that goes must stay, by name.

        The cache says which may; each is then asked for at the API server. The stock sidecar asks
        for none.

        Raises:
            KubeError: it could not be asked.
        """
        snapshot_id = content.snapshot_id
        if not content.deleting or not snapshot_id:
            return []
        keeping = []
        for cached in list(self._caches.contents.keyed("snapshot", snapshot_id)):
            if cached.name == content.name:
                continue
            try:
                live = await self._writer.refresh(cached.name)
            except KubeError as error:
                if error.reason is Reason.OBJECT_NOT_FOUND:
                    continue
                raise
            if live.snapshot_id == snapshot_id and rules.keeps(
                live, owner_is_gone=await self._is_owner_gone(live)
            ):
                keeping.append(live.name)
        return keeping

    async def _follow(self, content: VolumeSnapshotContent, snapshot_id: str) -> Progress:
        name, watcher = content.name, self._watcher
        watcher.watch(snapshot_id, _who(content.uid), lambda: self.queue.add(name))
        sighting = watcher.sighting(snapshot_id)
        seen = sighting.found if sighting else None
        missing_for_s = sighting.missing_for_s if sighting and seen is None else None
        look = rules.follow(content, self._taking.attempt(content), seen, missing_for_s)
        match look:
            case rules.Await(again_s=again_s):
                trouble = watcher.trouble_with(snapshot_id)
                if trouble is not None:
                    self._events.warn(content, trouble)
                return again_s
            case rules.Prepare():
                return await self._taking.prepare(content, snapshot_id)
            case rules.Record():
                return await self._record(content, look)
            case rules.Refuse(error=error):
                await self._events.failed(content, error, CHECK)
                raise error
            case _:
                assert_never(look)

    async def _record(
        self, content: VolumeSnapshotContent, record: rules.Record
    ) -> VolumeSnapshotContent:
        snapshot, ready = record.snapshot, record.ready
        status = bodies.recorded(content, snapshot, ready=ready, now=self._now())
        written = await self._writer.write_status(content, status)
        self._taking.recorded(content)
        if ready:
            began_s = self._began_s.get(content.uid)
            if began_s is not None:
                took_s = asyncio.get_running_loop().time() - began_s
                self._edges.metrics.flow_seconds.labels("snapshot").observe(took_s)
            log.info("snapshot ready", snapshot=snapshot.snapshot_id)
        return written

    async def _delete(self, content: VolumeSnapshotContent, snapshot_id: str) -> Progress:
        try:
            await self._edges.snapshots.delete(
                snapshot_id, gate=lambda: self._confirm(content, snapshot_id)
            )
        except _NotConfirmedError:
            return 0.0
        except StorageError as error:
            await self._events.failed(content, error, DELETE)
            raise
        self._watcher.forget(snapshot_id, _who(content.uid))
        log.info("snapshot deleted", snapshot=snapshot_id)
        # Without the handle it is let go next, also by whoever comes after a crash.
        return await self._writer.write_status(content, bodies.cleared())

    async def _confirm(self, content: VolumeSnapshotContent, snapshot_id: str) -> None:
        """The last look, right before DeleteSnapshot is sent.

        The policy may have changed, and another content may name the snapshot by now.

        Raises:
            _NotConfirmedError: the API server says otherwise.
            KubeError: it could not be asked, so nothing is deleted.
        """
        # Whoever rescues the snapshot by a content of its own is told by the API server that it is,
        # and a cache may be behind that.
        await self._caches.certain(self._caches.contents)
        live = self._caches.contents.get(content.name)
        if live is None or live.uid != content.uid:
            raise _NotConfirmedError
        if await self._decided(live) != rules.Delete(snapshot_id):
            raise _NotConfirmedError

    def _leave(self, content: VolumeSnapshotContent) -> None:
        """Nothing is to be done: remember nothing of it either."""
        if content.is_ready or content.spec.driver != self._edges.settings.driver:
            self._forget(content)

    def _forget(self, content: VolumeSnapshotContent | None) -> None:
        if content is not None:
            self._taking.forget(content.uid)
            self._events.forget(content.uid)
            self._began_s.pop(content.uid, None)
            self._watcher.forget(content.snapshot_id, _who(content.uid))


def _who(uid: str) -> str:
    return f"snapshot {uid}"
