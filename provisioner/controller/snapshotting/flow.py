"""Snapshots: take, follow, record and delete the snapshots of VolumeSnapshotContents.

snapshot-controller creates and removes contents; this is the driver's half of its contract.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.controller.shared.services import Services
from provisioner.controller.snapshotting import content_patch_rules, content_rules
from provisioner.controller.snapshotting.attempts import Attempts, Going
from provisioner.controller.snapshotting.preparing import Preparing
from provisioner.controller.snapshotting.record import (
    CHECK,
    CREATE,
    DELETE,
    ContentWriter,
    SnapshotEvents,
)
from provisioner.controller.snapshotting.taking import Taking
from provisioner.kube.client import find
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import VOLUME_SNAPSHOTS
from provisioner.model.backoff import Backoff
from provisioner.model.decision import (
    AGAIN,
    SETTLED,
    Later,
    Next,
    Refuse,
    Settled,
    WhenWoken,
)
from provisioner.model.errors import (
    KubeError,
    Reason,
    StorageError,
)
from provisioner.model.leadership import Epoch
from provisioner.model.volume_snapshot import (
    BEING_DELETED,
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)
from provisioner.tell_once import EVENT_AGAIN_S

# After a refusal because of EC2's limits: there may be room at any time, and many may wait.
_SLOWEST_S = 120.0
# A lock lasts for days or years, and an AMI for as long as somebody needs it.
_KEPT = {Reason.SNAPSHOT_LOCKED, Reason.SNAPSHOT_IN_USE}
_KEPT_AGAIN = Backoff(600.0, 6 * 3600.0)

log = structlog.get_logger(__name__)


class _NotConfirmedError(Exception):
    """According to the API server, the snapshot is not to be deleted."""


class Snapshotter:
    """The flow of contents; keys are their names. ``now``: the wall clock."""

    def __init__(
        self, services: Services, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._services = services
        self._now = now
        self._caches = services.caches
        self._watcher = services.watchers.snapshots
        self._writer = ContentWriter(services.client, services.caches)
        driver = services.settings.driver
        self._events = SnapshotEvents(services.events, self._writer, driver=driver, now=now)
        self._attempts = Attempts(
            lambda content: self._caches.snapshots.get(content.snapshot_key), now=now
        )
        self._taking = Taking(services, self._attempts, self._writer, self._events, now=now)
        self._preparing = Preparing(services, self._attempts, self._writer, self._events)
        self._snapshots = services.snapshots
        self.queue = KeyedQueue("snapshot", self.reconcile, services.metrics, cap_s=_SLOWEST_S)
        if templated := [each.key for each in services.settings.extra_tags if not each.is_constant]:
            log.warning(
                "extra tags are written to snapshots as they are: their templates name claims",
                tags=templated,
            )

    def subscribe(self) -> None:
        """Wake contents when they change, and when what they wait for does."""
        self._caches.contents.subscribe(self._changed)
        self._caches.snapshots.subscribe(self._snapshot_changed)
        self._caches.snapshot_classes.subscribe(self._class_changed)

    def take_over(self, epoch: Epoch | None) -> None:
        """Note what another controller may have started; None: nothing is proven of who led."""
        self._attempts.take_over(epoch, self._caches.contents.values(), self._now())

    def _changed(
        self, old: VolumeSnapshotContent | None, new: VolumeSnapshotContent | None
    ) -> None:
        if new is None or (old is not None and old.uid != new.uid):
            self._forget(old)
        if new is not None and content_rules.is_news(old, new):
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

    async def reconcile(self, name: str) -> Next:
        """Move one content on as far as it goes now."""
        content = self._caches.contents.get(name)
        if content is None:
            return SETTLED
        owner = content.snapshot_key
        bind_contextvars(snapshot_of=owner, content=name, volume=content.volume_id)
        try:
            going: Going = content
            while isinstance(going, VolumeSnapshotContent):
                going = await self._step(going)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return SETTLED  # gone: its own event tells
            if error.reason is not Reason.CONFLICT:
                raise
            await self._writer.refresh(name)
            return AGAIN
        return going

    async def _step(self, content: VolumeSnapshotContent) -> Going:
        step = await self._decided(content)
        match step:
            case Settled():
                self._leave(content)
            case content_rules.Withdraw():
                return await self._writer.withdraw(content)
            case content_rules.LookUp():
                return await self._taking.look_up(content)
            case content_rules.Take():
                return await self._taking.take(content)
            case content_rules.Record():
                return await self._record(content, step)
            case content_rules.Follow(snapshot_id=snapshot_id):
                return await self._follow(content, snapshot_id)
            case content_rules.MakeFast(snapshot_id=snapshot_id):
                self._watcher.forget(snapshot_id, _who(content.uid))
                return await self._preparing.make_fast_again(content, snapshot_id)
            case content_rules.Delete(snapshot_id=snapshot_id):
                return await self._delete(content, snapshot_id)
            case content_rules.Release(why_kept=why):
                await self._release(content, why)
            case Refuse():
                raise await self._refused(content, step, DELETE if content.deleting else CREATE)
            case _:
                assert_never(step)
        return SETTLED

    async def _release(self, content: VolumeSnapshotContent, why_kept: str = "") -> Settled:
        await self._writer.release(content)
        if why_kept:
            kept = StorageError(Reason.SNAPSHOT_IN_USE, why_kept)
            await self._events.failed(content, kept, DELETE)
        return SETTLED

    async def _decided(self, content: VolumeSnapshotContent) -> content_rules.Step:
        return content_rules.decide(
            content,
            self._attempts.of(content),
            driver=self._services.settings.driver,
            owner_is_gone=await self._is_owner_gone(content),
            kept_for=await self._kept_for(content),
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
        live = await find(self._services.client, VOLUME_SNAPSHOTS, owner.name, owner.namespace)
        return live is None or live.uid != owner.uid

    async def _kept_for(self, content: VolumeSnapshotContent) -> list[str]:
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
            live = await self._writer.refresh(cached.name)
            if live is None or live.snapshot_id != snapshot_id:
                continue
            is_owner_gone = await self._is_owner_gone(live)
            if content_rules.keeps(live, content, owner_is_gone=is_owner_gone):
                keeping.append(live.name)
        return keeping

    async def _follow(self, content: VolumeSnapshotContent, snapshot_id: str) -> Going:
        name, watcher = content.name, self._watcher
        watcher.watch(snapshot_id, _who(content.uid), lambda: self.queue.add(name))
        sighting = watcher.sighting(snapshot_id)
        seen = sighting.found if sighting else None
        missing_for_s = sighting.missing_for_s if sighting and seen is None else None
        progress = content_rules.follow(content, self._attempts.of(content), seen, missing_for_s)
        match progress:
            case Later() | WhenWoken():
                trouble = watcher.trouble_with(snapshot_id)
                if trouble is not None:
                    self._events.warn(content, trouble)
                return progress
            case content_rules.Prepare():
                return await self._preparing.prepare(content, snapshot_id)
            case content_rules.Record():
                return await self._record(content, progress)
            case Refuse():
                raise await self._refused(content, progress, CHECK)
            case _:
                assert_never(progress)

    async def _refused(
        self, content: VolumeSnapshotContent, refused: Refuse, what: tuple[str, str]
    ) -> StorageError:
        """Report why it cannot go on, and return the error; only people can change it."""
        error = StorageError(
            refused.reason, refused.message, retry_after_s=content_patch_rules.SLOWLY_S
        )
        await self._events.failed(content, error, what)
        return error

    async def _record(
        self, content: VolumeSnapshotContent, record: content_rules.Record
    ) -> VolumeSnapshotContent:
        snapshot, ready = record.snapshot, record.ready
        status = content_patch_rules.recorded(content, snapshot, ready=ready, now=self._now())
        written = await self._writer.write_status(content, status)
        # There is nothing left to find.
        attempt = replace(self._attempts.of(content), found=None, looking_since_s=None)
        self._attempts.keep(content, attempt)
        if ready:
            if attempt.began_s is not None:
                took_s = clock.now_s() - attempt.began_s
                self._services.metrics.flow_seconds.labels("snapshot").observe(took_s)
            log.info("snapshot ready", snapshot=snapshot.snapshot_id)
        return written

    async def _delete(self, content: VolumeSnapshotContent, snapshot_id: str) -> Going:
        attempt = self._attempts.of(content)
        due_s = attempt.delete_due_s - clock.now_s()
        if attempt.kept is not None and due_s > 0:
            await self._events.failed(content, attempt.kept, DELETE)
            return Later(min(due_s, EVENT_AGAIN_S))
        try:
            await self._snapshots.delete(
                snapshot_id, gate=lambda: self._confirm(content, snapshot_id)
            )
        except _NotConfirmedError:
            return AGAIN
        except StorageError as error:
            refused = self._kept(content, error) if error.reason in _KEPT else error
            await self._events.failed(content, refused, DELETE)
            raise refused from error.__cause__
        self._watcher.forget(snapshot_id, _who(content.uid))
        log.info("snapshot deleted", snapshot=snapshot_id)
        if content.status is None:
            return await self._release(content)
        # Without the handle, the next pass releases it, also after a crash.
        return await self._writer.write_status(content, content_patch_rules.cleared())

    def _kept(self, content: VolumeSnapshotContent, error: StorageError) -> StorageError:
        """The refusal of what may last for long: tried again seldom, but told all the time."""
        attempt = self._attempts.of(content)
        pause_s = _KEPT_AGAIN.pause_s(attempt.delete_refusals)
        at = self._now() + timedelta(seconds=pause_s)
        message = f"{error.message}; it is tried again after {at:%Y-%m-%d %H:%M} UTC"
        kept = StorageError(error.reason, message, retry_after_s=min(pause_s, EVENT_AGAIN_S))
        attempt = replace(
            attempt,
            kept=kept,
            delete_due_s=clock.now_s() + pause_s,
            delete_refusals=attempt.delete_refusals + 1,
        )
        self._attempts.keep(content, attempt)
        return kept

    async def _confirm(self, content: VolumeSnapshotContent, snapshot_id: str) -> None:
        """Check once more, right before DeleteSnapshot is sent.

        The policy may have changed, or another content may name the snapshot now.

        Raises:
            _NotConfirmedError: the API server says otherwise.
            KubeError: it could not be asked, so nothing is deleted.
        """
        # Somebody may have kept the snapshot by creating another content for it, and the cache may
        # not have that content yet.
        await self._caches.certain(self._caches.contents)
        live = self._caches.contents.get(content.name)
        if live is None or live.uid != content.uid:
            raise _NotConfirmedError
        if await self._decided(live) != content_rules.Delete(snapshot_id):
            raise _NotConfirmedError

    def _leave(self, content: VolumeSnapshotContent) -> None:
        """Nothing is left to do: remember nothing of it."""
        if content.is_ready or content.spec.driver != self._services.settings.driver:
            self._forget(content)

    def _forget(self, content: VolumeSnapshotContent | None) -> None:
        if content is not None:
            self._attempts.forget(content.uid)
            self._events.forget(content.uid)
            self._watcher.forget(content.snapshot_id, _who(content.uid))


def _who(uid: str) -> str:
    return f"snapshot {uid}"
