"""Snapshots: take, follow, record and delete what VolumeSnapshotContents stand for.

snapshot-controller makes and removes contents; this is the driver's half of its contract. What a
process knows of each content is kept by its UID for as long as it lives; what a process before it
knew is in the content's annotation, and in EC2's tags.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.controller.shared.services import Services
from provisioner.controller.snapshotting import class_rules as classes
from provisioner.controller.snapshotting import content_rules as bodies
from provisioner.controller.snapshotting import rules
from provisioner.controller.snapshotting.class_rules import SnapshotParameters
from provisioner.controller.snapshotting.record import (
    CHECK,
    CREATE,
    DELETE,
    ContentWriter,
    SnapshotEvents,
)
from provisioner.controller.snapshotting.rules import Attempt
from provisioner.ec2.snapshots import WHY_IT_WAITS, WORTH_TELLING_S, rests_after
from provisioner.kube.client import find
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import VOLUME_SNAPSHOTS
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import (
    AGAIN,
    SETTLED,
    Later,
    Next,
    Refuse,
    Settled,
    WhenWoken,
)
from provisioner.model.ebs_snapshot import LockRequest
from provisioner.model.errors import (
    NEEDS_HUMAN,
    Ec2Error,
    KubeError,
    Outcome,
    Reason,
    StorageError,
)
from provisioner.model.leadership import Epoch
from provisioner.model.names import PENDING_SETTINGS
from provisioner.model.volume_snapshot import (
    BEING_DELETED,
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)

# Where EC2 refuses for its limits: a place may be free at any time, and many may wait for it.
_SLOWEST_S = 120.0
_SLOWLY_S = 60.0
# EC2 makes few snapshots of a Region fast: each night may leave one more that it refuses for ever.
_FAST_FIRST_S, _FAST_LAST_S = 600.0, 6 * 3600.0
_LOOKING = (
    f"it is not known whether EC2 has taken the snapshot already; it is looked for, for up to "
    f"{CONSISTENCY_S:.0f} s, before another one is taken"
)
_LOOKS, _TURN = "look-ups", "turn"

log = structlog.get_logger(__name__)


# The content as it is by now, to go on with; or when it is looked at again.
_Going = VolumeSnapshotContent | Next


class _UnwantedError(Exception):
    """The content went while its request waited for its turn."""


class _NotConfirmedError(Exception):
    """What the API server has now does not want the deletion."""


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
        self._attempts: dict[str, Attempt] = {}
        self._doubted: set[str] = set()
        self._epoch: Epoch | None = None
        self._strangers_ended_at_s = 0.0
        self._snapshots = services.snapshots
        self._turns = services.snapshots.turns
        self._began_s: dict[str, float] = {}
        self.queue = KeyedQueue("snapshot", self.reconcile, services.metrics, cap_s=_SLOWEST_S)
        if templated := [each.key for each in services.settings.extra_tags if not each.is_constant]:
            log.warning(
                "extra tags are written to snapshots as they stand: their templates name claims",
                tags=templated,
            )

    def subscribe(self) -> None:
        """Have contents looked at when they change, and when what held them back does."""
        self._caches.contents.subscribe(self._changed)
        self._caches.snapshots.subscribe(self._snapshot_changed)
        self._caches.snapshot_classes.subscribe(self._class_changed)

    def take_over(self, epoch: Epoch | None) -> None:
        """Note what another controller may have begun; None: nothing is proven of who led.

        Also for contents that are not here yet: their CRDs may be served, or listed, later.
        """
        now_s, now = clock.now_s(), self._now()
        lasted_s = 0.0 if epoch is None else epoch.lasted_s(now)
        self._strangers_ended_at_s = now_s - lasted_s
        self._epoch = epoch or Epoch.after([now], ())
        for content in self._caches.contents.values():
            created_at = content.metadata.creation_timestamp
            if not content.snapshot_id and (epoch is None or epoch.may_predate(created_at)):
                self._doubted.add(content.uid)

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

    async def reconcile(self, name: str) -> Next:
        """Move one content on as far as it goes now."""
        content = self._caches.contents.get(name)
        if content is None:
            return SETTLED
        owner = content.snapshot_key
        bind_contextvars(snapshot_of=owner, content=name, volume=content.volume_id)
        try:
            going: _Going = content
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

    async def _step(self, content: VolumeSnapshotContent) -> _Going:
        step = await self._decided(content)
        match step:
            case Settled():
                self._leave(content)
            case rules.Withdraw():
                return await self._writer.withdraw(content)
            case rules.LookUp():
                return await self._look_up(content)
            case rules.Take():
                self._began_s.setdefault(content.uid, clock.now_s())
                return await self._take(content)
            case rules.Record():
                return await self._record(content, step)
            case rules.Follow(snapshot_id=snapshot_id):
                return await self._follow(content, snapshot_id)
            case rules.MakeFast(snapshot_id=snapshot_id):
                self._watcher.forget(snapshot_id, _who(content.uid))
                return await self._make_fast_again(content, snapshot_id)
            case rules.Delete(snapshot_id=snapshot_id):
                return await self._delete(content, snapshot_id)
            case rules.Release(why_kept=why):
                await self._writer.release(content)
                if why:
                    kept = StorageError(Reason.SNAPSHOT_IN_USE, why)
                    await self._events.failed(content, kept, DELETE)
            case Refuse():
                raise await self._refused(content, step, DELETE if content.deleting else CREATE)
            case _:
                assert_never(step)
        return SETTLED

    async def _decided(self, content: VolumeSnapshotContent) -> rules.Step:
        return rules.decide(
            content,
            self._attempt(content),
            driver=self._services.settings.driver,
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
        live = await find(self._services.client, VOLUME_SNAPSHOTS, owner.name, owner.namespace)
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
            live = await self._writer.refresh(cached.name)
            if live is None or live.snapshot_id != snapshot_id:
                continue
            if rules.keeps(live, owner_is_gone=await self._is_owner_gone(live)):
                keeping.append(live.name)
        return keeping

    async def _follow(self, content: VolumeSnapshotContent, snapshot_id: str) -> _Going:
        name, watcher = content.name, self._watcher
        watcher.watch(snapshot_id, _who(content.uid), lambda: self.queue.add(name))
        sighting = watcher.sighting(snapshot_id)
        seen = sighting.found if sighting else None
        missing_for_s = sighting.missing_for_s if sighting and seen is None else None
        progress = rules.follow(content, self._attempt(content), seen, missing_for_s)
        match progress:
            case Later() | WhenWoken():
                trouble = watcher.trouble_with(snapshot_id)
                if trouble is not None:
                    self._events.warn(content, trouble)
                return progress
            case rules.Prepare():
                return await self._prepare(content, snapshot_id)
            case rules.Record():
                return await self._record(content, progress)
            case Refuse():
                raise await self._refused(content, progress, CHECK)
            case _:
                assert_never(progress)

    async def _refused(
        self, content: VolumeSnapshotContent, refused: Refuse, what: tuple[str, str]
    ) -> StorageError:
        """The error that it ends with, once its user was told; only people can change it."""
        error = StorageError(refused.reason, refused.message, retry_after_s=_SLOWLY_S)
        await self._events.failed(content, error, what)
        return error

    def _attempt(self, content: VolumeSnapshotContent) -> Attempt:
        """What is known of its snapshot."""
        known = self._attempts.get(content.uid)
        if known is None:
            ended_at_s = self._strangers_ended_at_s if self._is_doubted(content) else None
            known = rules.begin(content, stranger_ended_at_s=ended_at_s, now_s=clock.now_s())
            self._attempts[content.uid] = known
        return known

    def _is_doubted(self, content: VolumeSnapshotContent) -> bool:
        """Whether another controller may have taken its snapshot."""
        if content.uid in self._doubted:
            return True
        created_at = content.metadata.creation_timestamp
        epoch = self._epoch
        return not content.snapshot_id and epoch is not None and epoch.may_predate(created_at)

    async def _look_up(self, content: VolumeSnapshotContent) -> _Going:
        """Search for a snapshot that may have been taken.

        Raises:
            StorageError: EC2 could not be asked, so nothing may be begun.
        """
        attempt = self._attempt(content)
        try:
            found = await self._services.snapshot_lookups.find(content.snapshot_name)
        except StorageError as error:
            if error.reason in NEEDS_HUMAN:
                await self._events.failed(content, error, CREATE)
            raise
        after = rules.after_look_up(attempt, content, found, clock.now_s())
        if after is attempt:
            self._events.waits(content, _LOOKING, about=_LOOKS)
            return Later(LOOK_AGAIN_S)
        if after.found is not None:
            log.info("found the snapshot that was begun", snapshot=after.found.snapshot_id)
        self._attempts[content.uid] = after
        return content

    async def _take(self, content: VolumeSnapshotContent) -> _Going:
        """Send CreateSnapshot, once it is this content's turn.

        Raises:
            StorageError: it goes on after a while; its user was told.
        """
        try:
            plan = await self._plan(content)
        except StorageError as error:
            await self._events.failed(content, error, CREATE)
            raise
        volume_id = plan.request.volume_id
        wait_s = self._waits_s(volume_id)
        if wait_s > 0:
            if wait_s >= WORTH_TELLING_S:
                self._events.waits(content, f"waiting: {WHY_IT_WAITS}", about=_TURN)
            return Later(wait_s)
        self._turns.begin(volume_id)
        return await self._send(content, plan)

    async def _send(self, content: VolumeSnapshotContent, plan: bodies.Plan) -> _Going:
        request, reached, rests = plan.request, False, False
        try:
            if not bodies.is_announced(content, plan.annotations):
                content = await self._writer.announce(content, plan.annotations)
            reached = rests = True  # until it is known better
            taken = await self._snapshots.create(request, gate=lambda: self._still_wanted(content))
        except _UnwantedError:
            rests = False
            return self._caches.contents.get(content.name) or SETTLED
        except Ec2Error as error:
            rests = rests_after(error)
            return await self._not_taken(content, error)
        except asyncio.CancelledError:
            if reached:
                self._keep(content, replace(self._attempt(content), looking_since_s=clock.now_s()))
            raise
        finally:
            self._turns.end(request.volume_id, clock.now_s(), rests=rests)
        log.info("snapshot begun", snapshot=taken.snapshot_id, volume=request.volume_id)
        self._keep(content, Attempt(found=taken, is_new=True))
        return content

    async def _prepare(
        self, content: VolumeSnapshotContent, snapshot_id: str
    ) -> VolumeSnapshotContent:
        """Lock a snapshot and make it fast, as far as that is not done.

        It is ready without being fast: its user is told, and it is asked for again.

        Raises:
            StorageError: it is not locked, and goes on after a while; its user was told.
        """
        attempt = self._attempt(content)
        try:
            wanted = await self._wanted(content)
            if wanted is not None and wanted.lock is not None:
                # After a failure, or a process before us, it may be locked.
                self._keep(content, replace(attempt, is_new=False))
                await self._lock(snapshot_id, wanted.lock, is_new=attempt.is_new)
        except StorageError as error:
            await self._events.failed(content, error, CHECK)
            raise
        fast_zones = wanted.fast_zones if wanted is not None else ()
        self._keep(content, replace(self._attempt(content), is_prepared=True))
        return await self._make_fast(content, snapshot_id, fast_zones, is_new=attempt.is_new)

    async def _make_fast_again(self, content: VolumeSnapshotContent, snapshot_id: str) -> _Going:
        """Ask again, ever more seldom, for what EC2 refused when a snapshot was prepared."""
        due_s = self._attempt(content).fast_due_s - clock.now_s()
        if due_s <= 0:
            wanted = classes.wishes_on(content)
            zones = wanted.fast_zones if wanted is not None else ()
            content = await self._make_fast(content, snapshot_id, zones, is_new=False)
            due_s = self._attempt(content).fast_due_s - clock.now_s()
        return Later(due_s) if PENDING_SETTINGS in content.annotations else content

    async def _make_fast(
        self,
        content: VolumeSnapshotContent,
        snapshot_id: str,
        zones: tuple[str, ...],
        *,
        is_new: bool,
    ) -> VolumeSnapshotContent:
        """Enable fast restores, and note on the content that nothing is left to be asked for."""
        try:
            if zones and not is_new:
                states = await self._snapshots.fast_restores(snapshot_id)
                zones = classes.slow_zones(zones, states)
            if zones:
                await self._snapshots.enable_fast_restore(snapshot_id, zones)
                log.info("snapshot made fast", snapshot=snapshot_id, zones=zones)
        except StorageError as error:
            attempt = self._attempt(content)
            pause_s = min(max(2 * attempt.fast_pause_s, _FAST_FIRST_S), _FAST_LAST_S)
            due_s = clock.now_s() + pause_s
            self._keep(content, replace(attempt, fast_due_s=due_s, fast_pause_s=pause_s))
            message = (
                f"{error.message}; volumes can be made of the snapshot, but are not fast at once; "
                f"it is asked for again in {pause_s / 60:.0f} minutes"
            )
            self._events.warn(content, StorageError(error.reason, message))
            return content
        return (
            content
            if PENDING_SETTINGS not in content.annotations
            else await self._writer.grant(content)
        )

    async def _lock(self, snapshot_id: str, lock: LockRequest, *, is_new: bool) -> None:
        if is_new or not await self._snapshots.lock_state(snapshot_id):
            await self._snapshots.lock(snapshot_id, lock)
            log.info("snapshot locked", snapshot=snapshot_id, mode=lock.mode)

    async def _wanted(self, content: VolumeSnapshotContent) -> SnapshotParameters | None:
        """What its class asks for; None if nothing, or, with a word, if nobody can tell any more.

        What it asked for when the snapshot was begun is written to the content, so a class that
        went is no matter. Of a snapshot that the stock driver took it is not: people must not be
        kept from it.
        """
        read_class = await self._caches.snapshot_class(content.class_name)
        try:
            return bodies.parameters_of(content, read_class, driver=self._services.settings.driver)
        except StorageError as error:
            kept = classes.wishes_on(content)
            if kept is None:
                self._events.warn(content, classes.unknown_wishes(error))
            return kept

    async def _plan(self, content: VolumeSnapshotContent) -> bodies.Plan:
        settings = self._services.settings
        read_class = await self._caches.snapshot_class(content.class_name)
        plan = bodies.plan(
            content,
            read_class,
            driver=settings.driver,
            cluster_id=settings.cluster_id,
            extra_tags=settings.extra_tags,
        )
        why = classes.untimely_lock(plan.parameters, self._now())
        if why is not None:
            raise _invalid(content, why)
        if plan.parameters.fast_zones:
            with suppress(Ec2Error):  # then EC2 says it later
                known = frozenset((await self._services.zone_names.by_id()).values())
                why = classes.unknown_zones(plan.parameters, known)
                if why is not None:
                    raise _invalid(content, why)
        return plan

    def _waits_s(self, volume_id: str) -> float:
        siblings = self._caches.contents.keyed("volume", volume_id)
        by_contents_s = bodies.waits_s(siblings, self._now())
        return max(self._turns.waits_s(volume_id, clock.now_s()), by_contents_s)

    def _still_wanted(self, content: VolumeSnapshotContent) -> None:
        """The last look before CreateSnapshot is sent, perhaps minutes after it was asked for."""
        live = self._caches.contents.get(content.name)
        if live is None or live.uid != content.uid or live.deleting:
            raise _UnwantedError

    async def _not_taken(self, content: VolumeSnapshotContent, error: Ec2Error) -> _Going:
        if error.reason is Reason.SNAPSHOT_RATE:
            self._events.waits(content, f"waiting: {error.message}", about=_TURN)
            raise error
        self._keep(content, rules.after_failure(self._attempt(content), error, clock.now_s()))
        if error.outcome is Outcome.UNKNOWN:
            log.warning("EC2's reply was lost", error=error.message)
            self._events.waits(content, _LOOKING, about=_LOOKS)
            return content
        await self._events.failed(content, error, CREATE)
        if rules.is_final(error):
            with suppress(StorageError):  # it comes off when the snapshot is there, or let go
                await self._writer.withdraw(content)
        raise error

    def _keep(self, content: VolumeSnapshotContent, attempt: Attempt) -> None:
        self._attempts[content.uid] = attempt

    async def _record(
        self, content: VolumeSnapshotContent, record: rules.Record
    ) -> VolumeSnapshotContent:
        snapshot, ready = record.snapshot, record.ready
        status = bodies.recorded(content, snapshot, ready=ready, now=self._now())
        written = await self._writer.write_status(content, status)
        # There is nothing left to find.
        self._keep(content, replace(self._attempt(content), found=None, looking_since_s=None))
        if ready:
            began_s = self._began_s.get(content.uid)
            if began_s is not None:
                took_s = clock.now_s() - began_s
                self._services.metrics.flow_seconds.labels("snapshot").observe(took_s)
            log.info("snapshot ready", snapshot=snapshot.snapshot_id)
        return written

    async def _delete(self, content: VolumeSnapshotContent, snapshot_id: str) -> _Going:
        try:
            await self._snapshots.delete(
                snapshot_id, gate=lambda: self._confirm(content, snapshot_id)
            )
        except _NotConfirmedError:
            return AGAIN
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
        if content.is_ready or content.spec.driver != self._services.settings.driver:
            self._forget(content)

    def _forget(self, content: VolumeSnapshotContent | None) -> None:
        if content is not None:
            self._attempts.pop(content.uid, None)
            self._doubted.discard(content.uid)
            self._events.forget(content.uid)
            self._began_s.pop(content.uid, None)
            self._watcher.forget(content.snapshot_id, _who(content.uid))


def _who(uid: str) -> str:
    return f"snapshot {uid}"


def _invalid(content: VolumeSnapshotContent, why: str) -> StorageError:
    message = f"volumesnapshotclass {content.class_name}: {why}"
    return StorageError(Reason.INVALID_CLASS, message, retry_after_s=_SLOWLY_S)
