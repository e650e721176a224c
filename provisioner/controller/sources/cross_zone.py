"""Clones across zones: each comes by a snapshot that is taken for it and then deleted.

CreateSnapshot has no client token. So the intention is written to the claim before EC2 is asked. A
process that finds it there, or that has lost a reply, takes a snapshot only after look-ups by tag
have shown none for as long as EC2 may take to show one.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog

from provisioner import clock
from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT, ZoneAnnotations
from provisioner.controller.shared.services import Services
from provisioner.controller.sources import cross_zone_rules as rules
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.snapshots import WHY_IT_WAITS, WORTH_TELLING_S, rests_after
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.data_source import Source
from provisioner.model.decision import Later, Refuse
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.names import CROSS_ZONE_CLAIM, CROSS_ZONE_CLUSTER

POLL_S = 15.0
_GATHER_S = 2.0  # who asks within this time shares a DescribeSnapshots

# What a process before us has left is found by these; one alone may come before EC2 shows it.
_FIRST_SWEEPS = 2

Tags = tuple[tuple[str, str], ...]

log = structlog.get_logger(__name__)


class CrossZoneClones:
    """The snapshots of claims whose clones go to other zones, by claim UID.

    ``in_flight`` gives the UIDs of the claims for which volumes are being made.
    """

    def __init__(
        self,
        services: Services,
        *,
        annotations: ZoneAnnotations,
        events: ClaimEvents,
        in_flight: Callable[[], Collection[str]],
    ) -> None:
        self._settings = services.settings
        self._caches = services.caches
        self._snapshots = services.snapshots
        self._annotations = annotations
        self._events = events
        self._in_flight = in_flight
        self._reads = Coalescer[EbsSnapshot | None](
            self._describe, window_s=_GATHER_S, fresh_for_s=0.0
        )
        self._taken: dict[str, EbsSnapshot] = {}
        self._looking_since_s: dict[str, float] = {}
        self._certain: set[str] = set()  # no snapshot that we do not know was started for these
        self._failures: dict[str, tuple[int, float]] = {}  # how many, and when the next try is due
        self._left_over: set[str] = set()
        self._in_use = False
        self._ended = asyncio.Event()

    async def source_of(
        self, claim: Claim, read_class: ReadClass, volume_id: str, zone: str, tags: Tags
    ) -> Source | Refuse | Later:
        """The snapshot of a volume, once a volume can be made from it.

        ``tags``: what the claim's volume will have.

        ``Later``: it takes its time.

        Raises:
            StorageError: it cannot be had now.
        """
        if not self._settings.cluster_id:
            return Refuse(
                Reason.NOT_SUPPORTED,
                f"class {read_class.name!r} clones across zones by temporary snapshots; run the "
                "controller with --cluster-id, or it cannot tell them from those of another "
                "cluster and delete them",
                settled=True,
            )
        with self._events.reporting(claim):
            return await self._snapshot_of(claim, volume_id, zone, tags)

    async def _snapshot_of(
        self, claim: Claim, volume_id: str, zone: str, tags: Tags
    ) -> Source | Later:
        snapshot = self._taken.get(claim.uid)
        if snapshot is not None and snapshot.volume_id != volume_id:
            self._discard(claim.uid)  # the claim names another volume by now
            snapshot = None
        if snapshot is None:
            answer = await self._find_or_take(claim, volume_id, tags)
            if not isinstance(answer, EbsSnapshot):
                return answer
            snapshot = self._taken[claim.uid] = answer
            self._looking_since_s.pop(claim.uid, None)
            if not self._is_wanted(claim.uid):  # any more, and nobody will say so again
                self.forget(claim.uid)
                return Later(LOOK_AGAIN_S)
        return await self._once_complete(claim, snapshot, zone)

    def forget(self, uid: str) -> None:
        """A claim is bound or gone: what was taken for it is deleted."""
        self._looking_since_s.pop(uid, None)
        self._certain.discard(uid)
        self._failures.pop(uid, None)
        self._discard(uid)

    def _discard(self, uid: str) -> None:
        snapshot = self._taken.pop(uid, None)
        if snapshot is not None:
            self._left_over.add(snapshot.snapshot_id)
            self._ended.set()

    async def run(self) -> None:
        """Delete snapshots that are not needed any more, and regularly what was left behind."""
        sweeps = 0
        while self._settings.cluster_id:
            try:
                if sweeps < _FIRST_SWEEPS or self._is_asked_for():
                    await self.sweep()
                    sweeps += 1
            except StorageError as error:
                log.warning("cannot list the temporary snapshots of clones", error=error.message)
            except Exception:
                log.exception("the sweep for temporary snapshots of clones failed")
            due_s = clock.now_s() + self._settings.orphan_sweep_interval_s
            while await self._has_ended(due_s):
                await self._delete_left_over()

    def _is_asked_for(self) -> bool:
        """Whether a class has, or had in the life of this process, clones come to other zones."""
        classes = self._caches.classes.values()
        self._in_use = self._in_use or any(each.clones_across_zones for each in classes)
        return self._in_use

    async def sweep(self) -> None:
        """Go through all snapshots that were taken for clones of this cluster.

        By the caches: what is deleted too early is taken again.

        Raises:
            StorageError: EC2 could not be asked.
        """
        cluster_id = self._settings.cluster_id
        found = await self._snapshots.find_any(CROSS_ZONE_CLUSTER, [cluster_id], background=True)
        in_flight = self._in_flight()
        for each in found:
            claim = self._caches.claim(each.tags.get(CROSS_ZONE_CLAIM, ""))
            if rules.is_left_over(each, claim, cluster_id=cluster_id, in_flight=in_flight):
                self._left_over.add(each.snapshot_id)
        await self._delete_left_over()

    async def close(self) -> None:
        """Stop asking EC2."""
        await self._reads.close()

    async def _find_or_take(self, claim: Claim, volume_id: str, tags: Tags) -> EbsSnapshot | Later:
        if claim.cross_zone_volume_id and claim.uid not in self._certain:
            found = await self._snapshots.find_any(CROSS_ZONE_CLAIM, [claim.uid])
            again = rules.found_again(claim, volume_id, found)
            if again is not None:
                return again
            now_s = clock.now_s()
            if now_s - self._looking_since_s.setdefault(claim.uid, now_s) < CONSISTENCY_S:
                return Later(LOOK_AGAIN_S)
        _, due_s = self._failures.get(claim.uid, (0, 0.0))
        if due_s > clock.now_s():
            return Later(due_s - clock.now_s())
        self._certain.add(claim.uid)
        if not await self._annotations.write_cross_zone_volume(claim, volume_id):
            return AFTER_CONFLICT
        return await self._take(claim, volume_id, tags)

    async def _take(self, claim: Claim, volume_id: str, tags: Tags) -> EbsSnapshot | Later:
        request = rules.request(claim, volume_id, self._settings.cluster_id, tags)
        turns, now_s = self._snapshots.turns, clock.now_s()
        wait_s = turns.waits_s(volume_id, now_s)
        if wait_s > 0:
            if wait_s >= WORTH_TELLING_S:
                self._events.note(claim, f"waiting: {WHY_IT_WAITS}")
            return Later(wait_s)
        self._in_doubt(claim)  # until EC2 has answered
        try:
            snapshot = await self._create(claim, request)
        except StorageError as error:
            if error.outcome is not Outcome.UNKNOWN:
                self._certain.add(claim.uid)
            if self._is_wanted(claim.uid):
                self._events.failed(claim, error)
            if error.reason is not Reason.SNAPSHOT_RATE:
                raise
            return Later(error.retry_after_s or POLL_S)
        self._certain.add(claim.uid)
        return snapshot

    async def _create(self, claim: Claim, request: SnapshotRequest) -> EbsSnapshot:
        turns, volume_id, rests = self._snapshots.turns, request.volume_id, True
        turns.begin(volume_id)
        try:
            return await self._snapshots.create(request, gate=lambda: self._still_wanted(claim.uid))
        except StorageError as error:
            rests = rests_after(error)
            raise
        finally:
            turns.end(volume_id, clock.now_s(), rests=rests)

    def _in_doubt(self, claim: Claim) -> None:
        self._certain.discard(claim.uid)
        self._looking_since_s.pop(claim.uid, None)

    def _still_wanted(self, uid: str) -> None:
        if not self._is_wanted(uid):
            raise StorageError(
                Reason.OBJECT_NOT_FOUND, "the claim is already bound, or no longer exists"
            )

    def _is_wanted(self, uid: str) -> bool:
        claim = self._caches.claim(uid)
        return claim is not None and not claim.deleting and not claim.spec.volume_name

    async def _once_complete(
        self, claim: Claim, snapshot: EbsSnapshot, zone: str
    ) -> Source | Later:
        seen = await self._reads.get(snapshot.snapshot_id)
        what = f"temporary snapshot {snapshot.snapshot_id}, which brings the clone to {zone},"
        if seen is None:
            now_s = clock.now_s()
            if now_s - self._looking_since_s.setdefault(claim.uid, now_s) < CONSISTENCY_S:
                return Later(LOOK_AGAIN_S)
            raise self._lost(claim, f"{what} no longer exists in EC2")
        self._looking_since_s.pop(claim.uid, None)
        match seen.state:
            case SnapshotState.COMPLETED:
                return Source(snapshot_id=seen.snapshot_id, size_gib=seen.size_gib)
            case SnapshotState.PENDING:
                text = (
                    f"{what} is being taken of volume {seen.volume_id}; this can take a long time"
                )
                self._events.note(claim, text)
                return Later(POLL_S)
            case _:
                why = f"{what} is in state {seen.state} {seen.message}".rstrip()
                raise self._lost(claim, why)

    def _lost(self, claim: Claim, why: str) -> StorageError:
        """Have another one taken, each time after a longer pause: it may fail every time."""
        self._discard(claim.uid)
        self._looking_since_s.pop(claim.uid, None)
        before, _ = self._failures.get(claim.uid, (0, 0.0))
        pause_s = rules.BACKOFF.pause_s(before)
        self._failures[claim.uid] = before + 1, clock.now_s() + pause_s
        message = f"{why}; another one will be taken in {pause_s:.0f} s"
        error = StorageError(Reason.SNAPSHOT_STATE, message, retry_after_s=pause_s)
        self._events.failed(claim, error)
        return error

    async def _has_ended(self, due_s: float) -> bool:
        """Whether something is to be deleted before the next sweep is due."""
        try:
            async with asyncio.timeout_at(due_s):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    async def _delete_left_over(self) -> None:
        self._ended.clear()
        for snapshot_id in sorted(self._left_over):
            try:
                await self._snapshots.delete(snapshot_id)
            except StorageError as error:  # the next sweep finds it again
                log.warning(
                    "cannot delete the temporary snapshot of a clone",
                    snapshot=snapshot_id,
                    error=error.message,
                )
            else:
                log.info("deleted the temporary snapshot of a clone", snapshot=snapshot_id)
            self._left_over.discard(snapshot_id)

    async def _describe(self, ids: list[str]) -> Mapping[str, EbsSnapshot | StorageError | None]:
        return dict.fromkeys(ids) | await self._snapshots.describe(ids)
