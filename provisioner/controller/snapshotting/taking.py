"""Take the snapshot of a content: search for one that may exist, plan, send CreateSnapshot.

Only one snapshot of a volume is requested at a time (``Turns``). ``rules`` decides what follows
from a lost reply.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import structlog

from provisioner import clock
from provisioner.controller.shared.services import Services
from provisioner.controller.snapshotting import class_rules, content_patch_rules, content_rules
from provisioner.controller.snapshotting.attempts import Attempts, Going
from provisioner.controller.snapshotting.record import CREATE, ContentWriter, SnapshotEvents
from provisioner.ec2.snapshots import WHY_IT_WAITS, WORTH_TELLING_S, rests_after
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import SETTLED, Later
from provisioner.model.errors import (
    NEEDS_HUMAN,
    Ec2Error,
    Outcome,
    Reason,
    StorageError,
)
from provisioner.model.volume_snapshot import VolumeSnapshotContent

_LOOKING = (
    f"it is not known whether EC2 has already taken the snapshot; searching for it for up to "
    f"{CONSISTENCY_S:.0f} s before another one is taken"
)
_LOOKS, _TURN = "look-ups", "turn"

log = structlog.get_logger(__name__)


class _UnwantedError(Exception):
    """The content was deleted while its request waited for its turn."""


class Taking:
    """Takes snapshots; ``now``: the wall clock."""

    def __init__(
        self,
        services: Services,
        attempts: Attempts,
        writer: ContentWriter,
        events: SnapshotEvents,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._settings = services.settings
        self._caches = services.caches
        self._snapshots = services.snapshots
        self._turns = services.snapshots.turns
        self._lookups = services.snapshot_lookups
        self._zone_names = services.zone_names
        self._attempts = attempts
        self._writer = writer
        self._events = events
        self._now = now

    async def look_up(self, content: VolumeSnapshotContent) -> Going:
        """Search for a snapshot that may have been taken.

        Raises:
            StorageError: EC2 could not be asked, so nothing may be started.
        """
        attempt = self._attempts.of(content)
        try:
            found = await self._lookups.find(content.snapshot_name)
        except StorageError as error:
            if error.reason in NEEDS_HUMAN:
                await self._events.failed(content, error, CREATE)
            raise
        after = content_rules.after_look_up(attempt, content, found, clock.now_s())
        if after is attempt:
            self._events.waits(content, _LOOKING, about=_LOOKS)
            return Later(LOOK_AGAIN_S)
        if after.found is not None:
            log.info("found the snapshot of an earlier request", snapshot=after.found.snapshot_id)
        self._attempts.keep(content, after)
        return content

    async def take(self, content: VolumeSnapshotContent) -> Going:
        """Send CreateSnapshot, once it is this content's turn.

        Raises:
            StorageError: it was reported, and is to be retried later.
        """
        attempt = self._attempts.of(content)
        if attempt.began_s is None:
            self._attempts.keep(content, replace(attempt, began_s=clock.now_s()))
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

    async def _plan(self, content: VolumeSnapshotContent) -> content_patch_rules.Plan:
        settings = self._settings
        read_class = await self._caches.snapshot_class(content.class_name)
        plan = content_patch_rules.plan(
            content,
            read_class,
            driver=settings.driver,
            cluster_id=settings.cluster_id,
            extra_tags=settings.extra_tags,
        )
        why = class_rules.untimely_lock(plan.parameters, self._now())
        if why is not None:
            raise content_patch_rules.invalid(content, why)
        if plan.parameters.fast_zones:
            with suppress(Ec2Error):  # then EC2 refuses it later
                known = frozenset((await self._zone_names.by_id()).values())
                why = class_rules.unknown_zones(plan.parameters, known)
                if why is not None:
                    raise content_patch_rules.invalid(content, why)
        return plan

    def _waits_s(self, volume_id: str) -> float:
        siblings = self._caches.contents.keyed("volume", volume_id)
        by_contents_s = content_patch_rules.waits_s(siblings, self._now())
        return max(self._turns.waits_s(volume_id, clock.now_s()), by_contents_s)

    async def _send(self, content: VolumeSnapshotContent, plan: content_patch_rules.Plan) -> Going:
        request, reached, rests = plan.request, False, False
        try:
            if not content_patch_rules.is_announced(content, plan.annotations):
                content = await self._writer.announce(content, plan.annotations)
            reached = rests = True  # until the answer says otherwise
            taken = await self._snapshots.create(request, gate=lambda: self._still_wanted(content))
        except _UnwantedError:
            rests = False
            return self._caches.contents.get(content.name) or SETTLED
        except Ec2Error as error:
            rests = rests_after(error)
            return await self._not_taken(content, error)
        except asyncio.CancelledError:
            if reached:
                attempt = self._attempts.of(content)
                self._attempts.keep(content, replace(attempt, looking_since_s=clock.now_s()))
            raise
        finally:
            self._turns.end(request.volume_id, clock.now_s(), rests=rests)
        log.info("snapshot started", snapshot=taken.snapshot_id, volume=request.volume_id)
        self._attempts.keep(content, replace(self._attempts.of(content), found=taken, is_new=True))
        return content

    def _still_wanted(self, content: VolumeSnapshotContent) -> None:
        """Check right before CreateSnapshot is sent, perhaps minutes after it was queued."""
        live = self._caches.contents.get(content.name)
        if live is None or live.uid != content.uid or live.deleting:
            raise _UnwantedError

    async def _not_taken(self, content: VolumeSnapshotContent, error: Ec2Error) -> Going:
        if error.reason is Reason.SNAPSHOT_RATE:
            self._events.waits(content, f"waiting: {error.message}", about=_TURN)
            raise error
        attempt = content_rules.after_failure(self._attempts.of(content), error, clock.now_s())
        self._attempts.keep(content, attempt)
        if error.outcome is Outcome.UNKNOWN:
            log.warning("the reply to CreateSnapshot was lost", error=error.message)
            self._events.waits(content, _LOOKING, about=_LOOKS)
            return content
        await self._events.failed(content, error, CREATE)
        if content_rules.is_final(error):
            # It is removed once the snapshot exists or the content is released.
            with suppress(StorageError):
                await self._writer.withdraw(content)
        raise error
