"""Prepare a snapshot before its content is ready: lock it, and enable fast snapshot restore.

What is due is noted on the content, whatever has become of its class since: a lock cannot be taken
back. Nothing is noted of a snapshot that the stock driver has begun; it has requested both itself
before it records a snapshot.
Its content becomes ready only once it is locked. It does become ready without fast restore: a
Warning says so, and EC2 is asked again later.
"""

from dataclasses import replace

import structlog

from provisioner import clock
from provisioner.controller.shared.services import Services
from provisioner.controller.snapshotting import class_rules, content_patch_rules, content_rules
from provisioner.controller.snapshotting.attempts import Attempts, Going
from provisioner.controller.snapshotting.class_rules import SnapshotParameters
from provisioner.controller.snapshotting.record import CHECK, ContentWriter, SnapshotEvents
from provisioner.model.backoff import Backoff
from provisioner.model.decision import Later
from provisioner.model.ebs_snapshot import LockRequest
from provisioner.model.errors import Reason, StorageError
from provisioner.model.names import PENDING_SETTINGS
from provisioner.model.volume_snapshot import VolumeSnapshotContent

# EC2 makes few snapshots of a Region fast: each night may leave one more that it always refuses.
_FAST_AGAIN = Backoff(600.0, 6 * 3600.0)

log = structlog.get_logger(__name__)


class Preparing:
    """Locks snapshots and makes them fast."""

    def __init__(
        self, services: Services, attempts: Attempts, writer: ContentWriter, events: SnapshotEvents
    ) -> None:
        self._snapshots = services.snapshots
        self._attempts = attempts
        self._writer = writer
        self._events = events

    async def prepare(
        self, content: VolumeSnapshotContent, snapshot_id: str
    ) -> VolumeSnapshotContent:
        """Lock a snapshot and enable fast restore, unless that is done.

        Raises:
            StorageError: it is not locked; it was reported, and is to be retried later.
        """
        attempt = self._attempts.of(content)
        try:
            settings = _settings(content)
            if settings.lock is not None:
                # After a failure or a restart it may be locked already.
                self._attempts.keep(content, replace(attempt, is_new=False))
                await self._lock(snapshot_id, settings.lock, is_new=attempt.is_new)
        except StorageError as error:
            await self._events.failed(content, error, CHECK)
            raise
        zones = settings.fast_zones
        self._attempts.keep(content, replace(self._attempts.of(content), is_prepared=True))
        return await self._make_fast(content, snapshot_id, zones, is_new=attempt.is_new)

    async def make_fast_again(self, content: VolumeSnapshotContent, snapshot_id: str) -> Going:
        """Ask again, less and less often, for what EC2 refused when it was prepared."""
        due_s = self._attempts.of(content).fast_due_s - clock.now_s()
        if due_s <= 0:
            try:
                zones = _settings(content).fast_zones
            except StorageError as error:
                self._events.warn(content, error)
                return Later(content_patch_rules.SLOWLY_S)
            content = await self._make_fast(content, snapshot_id, zones, is_new=False)
            due_s = self._attempts.of(content).fast_due_s - clock.now_s()
        return Later(due_s) if PENDING_SETTINGS in content.annotations else content

    async def _make_fast(
        self,
        content: VolumeSnapshotContent,
        snapshot_id: str,
        zones: tuple[str, ...],
        *,
        is_new: bool,
    ) -> VolumeSnapshotContent:
        """Enable fast restore, and note on the content that all settings are applied."""
        try:
            if zones and not is_new:
                states = await self._snapshots.fast_restores(snapshot_id)
                zones = class_rules.slow_zones(zones, states)
            if zones:
                await self._snapshots.enable_fast_restore(snapshot_id, zones)
                log.info("snapshot made fast", snapshot=snapshot_id, zones=zones)
        except StorageError as error:
            attempt = self._attempts.of(content)
            pause_s = _FAST_AGAIN.pause_s(attempt.fast_refusals)
            due_s, refusals = clock.now_s() + pause_s, attempt.fast_refusals + 1
            attempt = replace(attempt, fast_due_s=due_s, fast_refusals=refusals)
            self._attempts.keep(content, attempt)
            message = (
                f"{error.message}; volumes can be created from the snapshot, but without fast "
                f"restore; enabling it is retried in {pause_s / 60:.0f} minutes"
            )
            self._events.warn(content, StorageError(error.reason, message))
            return content
        if PENDING_SETTINGS in content.annotations:
            return await self._writer.clear_pending(content)
        return content

    async def _lock(self, snapshot_id: str, lock: LockRequest, *, is_new: bool) -> None:
        if not is_new and await self._snapshots.lock_state(snapshot_id):
            return
        try:
            await self._snapshots.lock(snapshot_id, lock)
        except StorageError as error:
            if not content_rules.is_final(error):
                raise
            message = (
                f"{error.message}; the lock is that of the class when the snapshot was requested; "
                "if the class has been corrected since, delete the VolumeSnapshot and create a new "
                "one"
            )
            after_s = error.retry_after_s
            raise StorageError(error.reason, message, retry_after_s=after_s) from error
        log.info("snapshot locked", snapshot=snapshot_id, mode=lock.mode)


def _settings(content: VolumeSnapshotContent) -> SnapshotParameters:
    """What is due.

    Raises:
        StorageError: INVALID_REQUEST; it cannot be read, so it may be a lock.
    """
    try:
        return class_rules.pending_settings(content)
    except ValueError as error:
        again_s = content_patch_rules.SLOWLY_S
        raise StorageError(Reason.INVALID_REQUEST, str(error), retry_after_s=again_s) from error
