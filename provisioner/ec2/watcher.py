"""One loop that describes every volume in transition, and wakes whoever waits for a change.

Describe calls grow with time, not with volumes: at most one a second for each started 500 volumes
that are watched, none when nothing is. Reconcilers are level-triggered: they read ``sighting``,
decide, register ``watch`` and return; they never wait here.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from provisioner.metrics import Metrics
from provisioner.model.errors import NEEDS_HUMAN, Reason, StorageError
from provisioner.model.volume import Volume

IDS_PER_CALL = 500
MISSING_PER_CALL = 200
TICK_S = 1.0
# Whoever waits is woken so often even if nothing changes, to apply its deadlines.
REMIND_S = 30.0
# A volume is looked at again after a tenth of the time that nothing has happened, within these.
LOOK_AGAIN_S = (0.5, 5.0)
BACKOFF_S = (1.0, 30.0)
# EC2 is away for a moment now and then; only after so long somebody should know.
AWAY_S = 30.0

_log = structlog.get_logger(__name__)


class Looker(Protocol):
    """What the watcher needs of ``Volumes``."""

    async def describe(self, volume_ids: list[str]) -> Mapping[str, Volume]:
        """Those that exist, of volumes that should."""

    async def look_for(self, volume_ids: list[str]) -> Mapping[str, Volume]:
        """Those that exist, of volumes that may not."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What EC2 said about a volume when it was last looked at.

    Attributes:
        volume: None if EC2 does not know it (now, or not yet).
        at_s: when EC2 was asked, in seconds of the monotonic clock.
        missing_for_s: between the first and the last of the looks in a row that did not find it.
    """

    volume: Volume | None
    at_s: float
    missing_for_s: float = 0.0


@dataclass(slots=True)
class _Watched:
    since: float
    due_at: float
    changed_at: float
    wakes: dict[str, Callable[[], None]] = field(default_factory=dict)
    sighting: Sighting | None = None
    missing_since: float | None = None
    woken_at: float = 0.0


class Watcher:
    """Volumes in transition; used on one event loop.

    Attributes:
        trouble: why EC2 cannot be looked at, for those whose users wait; None once a look
            succeeded, and for what passes by itself (throttling, a short outage).
    """

    def __init__(
        self,
        volumes: Looker,
        *,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        tick_s: float = TICK_S,
    ) -> None:
        self._volumes = volumes
        self._metrics = metrics
        self._clock = clock
        self._tick_s = tick_s
        self._watched: dict[str, _Watched] = {}
        self._news = asyncio.Event()
        self._looked_at = clock() - tick_s
        self._failing_since: float | None = None
        self.trouble: StorageError | None = None

    def watch(
        self, volume_id: str, who: str, wake: Callable[[], None], *, not_before_s: float = 0.0
    ) -> None:
        """Look at a volume until ``forget``; keep on if ``who`` watches it already.

        When somebody new begins to watch, sightings from before no longer count, for anybody: what
        has just been asked of EC2 must not be judged by an older look.

        Args:
            volume_id: the volume.
            who: lets several flows watch one volume.
            wake: called at the first sighting, at each change, and every 30 s; must not block.
            not_before_s: there is no use in looking earlier. Given by one who watches already, it
                says that something new was asked of EC2: sightings from before no longer count,
                and the next look is no later than that.
        """
        now = self._clock()
        watched = self._watched.get(volume_id)
        if watched is None or who not in watched.wakes:
            others = {} if watched is None else watched.wakes
            due_at = now + not_before_s
            watched = _Watched(since=now, due_at=due_at, changed_at=now, wakes=others, woken_at=now)
            self._watched[volume_id] = watched
            self._metrics.in_transition.set(len(self._watched))
            self._news.set()
        elif not_before_s > 0:
            # Something was asked of EC2 again: look often again, and tell of the next look even if
            # it shows nothing new: what was seen before the request says nothing about it.
            watched.since = watched.changed_at = now
            watched.sighting = None
            watched.due_at = min(watched.due_at, now + not_before_s)
            self._news.set()
        watched.wakes[who] = wake

    def sighting(self, volume_id: str) -> Sighting | None:
        """What the last look showed; None if there was none since the last watch began."""
        watched = self._watched.get(volume_id)
        return watched.sighting if watched is not None else None

    def forget(self, volume_id: str, who: str) -> None:
        """Stop looking on behalf of ``who``; the last one to leave ends the describes."""
        watched = self._watched.get(volume_id)
        if watched is None:
            return
        watched.wakes.pop(who, None)
        if not watched.wakes:
            del self._watched[volume_id]
            self._metrics.in_transition.set(len(self._watched))

    async def run(self) -> None:
        """Look, for ever. A failed look is one log line and a pause; the loop never ends."""
        pause_s, most_s = BACKOFF_S
        while True:
            await self._until_due()
            wait_s = pause_s
            try:
                await self._look()
            except StorageError as failure:
                wait_s = max(pause_s, failure.retry_after_s or 0.0)
                _log.warning("cannot look at volumes", error=failure.message, retry_in_s=wait_s)
                self._note_trouble(failure)
            except Exception:
                _log.exception("looking at volumes failed", retry_in_s=pause_s)
            else:
                pause_s = BACKOFF_S[0]
                self._failing_since = self.trouble = None
                continue
            self._remind(self._clock())
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, most_s)

    def _note_trouble(self, failure: StorageError) -> None:
        """Keep what users should hear of; wake all who wait when it is new."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        away = failure.reason is Reason.UNREACHABLE and now - self._failing_since >= AWAY_S
        if failure.reason not in NEEDS_HUMAN and not away:
            return
        # The texts differ by the number of volumes asked for; the first one stays.
        if self.trouble is None or self.trouble.reason is not failure.reason:
            self.trouble = failure
            for volume_id, watched in list(self._watched.items()):
                self._wake(volume_id, watched, now)

    async def _until_due(self) -> None:
        """Wait until some volume is due and the budget of describes allows a look."""
        while True:
            self._news.clear()
            if not self._watched:
                self._failing_since = self.trouble = None  # it may be over when somebody comes
                await self._news.wait()
                continue
            started_500s = -(-len(self._watched) // IDS_PER_CALL)
            soonest = min(watched.due_at for watched in self._watched.values())
            wait_s = max(soonest, self._looked_at + self._tick_s / started_500s) - self._clock()
            if wait_s <= 0:
                return
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        """One describe, of those that have waited longest."""
        now = self._looked_at = self._clock()
        due = sorted(
            (watched.due_at, volume_id)
            for volume_id, watched in self._watched.items()
            if watched.due_at <= now
        )
        if not due:
            return
        # One id that EC2 does not know fails a call by ids; such are looked for by a filter.
        doubtful = self._is_missing(due[0][1])
        most = MISSING_PER_CALL if doubtful else IDS_PER_CALL
        ids = [volume_id for _, volume_id in due if self._is_missing(volume_id) is doubtful][:most]
        found = await (self._volumes.look_for(ids) if doubtful else self._volumes.describe(ids))
        self._take_in(ids, found, asked_at=now)

    def _is_missing(self, volume_id: str) -> bool:
        return self._watched[volume_id].missing_since is not None

    def _take_in(self, ids: Iterable[str], found: Mapping[str, Volume], *, asked_at: float) -> None:
        now = self._clock()
        least_s, most_s = LOOK_AGAIN_S
        for volume_id in ids:
            watched = self._watched.get(volume_id)
            if watched is None or watched.since > asked_at:
                continue  # forgotten meanwhile, or begun anew: this look is too old for it
            volume = found.get(volume_id)
            if volume is not None:
                watched.missing_since = None
            elif watched.missing_since is None:
                watched.missing_since = now
            missing_for_s = 0.0 if watched.missing_since is None else now - watched.missing_since
            before, watched.sighting = watched.sighting, Sighting(volume, asked_at, missing_for_s)
            if before is None or before.volume != volume:
                watched.changed_at = now
                self._wake(volume_id, watched, now)
            watched.due_at = now + min(max((now - watched.changed_at) / 10, least_s), most_s)
        self._remind(now)

    def _remind(self, now: float) -> None:
        for volume_id, watched in list(self._watched.items()):
            if now - watched.woken_at >= REMIND_S:
                self._wake(volume_id, watched, now)

    @staticmethod
    def _wake(volume_id: str, watched: _Watched, now: float) -> None:
        watched.woken_at = now
        for who, wake in list(watched.wakes.items()):
            try:
                wake()
            except Exception:
                _log.exception("waking failed", volume=volume_id, who=who)
