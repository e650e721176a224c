"""Loops that describe what is in transition, one for each kind, and wake those who wait for it.

Describe calls grow with time, not with things (``looks_a_second``), none when nothing is watched;
and the loops of all kinds share one ``Pace``. Reconcilers are
level-triggered: they read ``sighting``, decide, register ``watch`` and return; they never wait
here.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

import structlog

from provisioner.ec2.look_rules import (
    MOST_A_SECOND,
    THINGS_A_CALL,
    Asked,
    Usual,
    after_a_look,
    looks_a_second,
    soon_then_seldom,
    was_ready,
)
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.pace import Pace
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.model.backoff import Backoff
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import NEEDS_HUMAN, NO_ANSWER, Ec2Error, Reason, StorageError
from provisioner.model.modification import Initialization, Modification, ModificationState
from provisioner.model.volume import Volume

MISSING_PER_CALL = 200
# Those who wait are woken so often even if nothing changes, to apply their deadlines.
REMIND_S = 30.0
# What is due in a tenth of its pause is looked at with what is due now: so looks come together.
EARLY = 0.1
# What was asked of EC2 may be ready before it usually is, and to look at one more costs no call.
EARLY_AFTER_ASKING = 0.2
_BACKOFF = Backoff(1.0, 30.0)
# EC2 is unreachable for a moment now and then; users hear of it only after this long.
AWAY_S = 30.0
# A thing that EC2 refuses to describe is looked at again so seldom.
REFUSED_AGAIN_S = 60.0
# Optimizing takes minutes to days, and what waits for its end has waited as long.
_OPTIMIZING_MOST_S = 30.0
# EC2's word about an initialization can be five minutes old; aws-ebs-csi-driver asks in 2 minutes.
_INITIALIZING_S = (1.0, 120.0)
# Passes by itself, so users hear of it only when it lasts.
_PASSES = NO_ANSWER - NEEDS_HUMAN

_log = structlog.get_logger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Looker(Protocol[T_co]):
    """What the watcher needs of ``Volumes``, ``Modifications`` or ``Snapshots``."""

    async def describe(self, ids: list[str], /) -> Mapping[str, T_co | StorageError]:
        """Those that exist, of things that should; or why EC2 does not describe one."""

    async def look_for(self, ids: list[str], /) -> Mapping[str, T_co | StorageError]:
        """Those that exist, of things that may not; or why EC2 does not describe one."""


# Seconds until the next look, from: what was found, since when it is so, since when it is watched.
Again = Callable[[T | None, float, float], float]


@dataclass(frozen=True, slots=True)
class Sighting(Generic[T]):
    """What EC2 said about a thing when it was last looked at.

    Attributes:
        found: None if EC2 does not know it (now, or not yet).
        at_s: when EC2 was asked, in seconds of the monotonic clock.
        missing_for_s: between the first and the last of the looks in a row that did not find it.
    """

    found: T | None
    at_s: float
    missing_for_s: float = 0.0


@dataclass(slots=True)
class _Watched(Generic[T]):
    since: float
    due_at: float
    changed_at: float
    wakes: dict[str, Callable[[], None]] = field(default_factory=dict)
    sighting: Sighting[T] | None = None
    refusal: StorageError | None = None  # why the last look did not show it
    missing_since: float | None = None
    woken_at: float = 0.0
    early_s: float = 0.0  # it may be looked at so much earlier, with others that are due
    asked: Asked[T] | None = None  # until a look has told whether it was ready when it usually is
    usual_s: float = 0.0


class Watcher(Generic[T]):
    """Things of one kind in transition, by their ids; used on one event loop.

    Attributes:
        kind: what they are, in the plural.
        trouble: why EC2 cannot be looked at, whatever the thing; None once a look succeeded, and
            for what passes by itself (throttling, a short outage).
    """

    def __init__(
        self,
        looker: Looker[T],
        *,
        metrics: Metrics,
        kind: str = "volumes",
        pace: Pace | None = None,
        again_s: Again[T] = soon_then_seldom,
        most: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at nothing yet.

        Args:
            looker: EC2.
            metrics: where it is counted how many are watched.
            kind: in the plural; of log lines and metrics.
            pace: the budget of describes that it shares with others; else one of its own.
            again_s: how long after a look the next one is worth it.
            most: looks a second, while one look can show all that is watched; more where pods wait:
                for volumes, and for the snapshots of moves.
            clock: monotonic seconds.
        """
        self._looker = looker
        self.kind = kind
        self._pace = pace or Pace()
        self._again_s = again_s
        self._metrics = metrics
        self._most_a_second = most
        self._clock = clock
        self._watched: dict[str, _Watched[T]] = {}
        self._usual: dict[str, Usual] = {}  # by what was asked
        self._news = asyncio.Event()
        self._looked_at = clock() - 1.0
        self._failing_since: float | None = None
        self.trouble: StorageError | None = None

    def watch(
        self,
        thing_id: str,
        who: str,
        wake: Callable[[], None],
        *,
        asked: Asked[T] | None = None,
    ) -> None:
        """Look at a thing until ``forget``; keep on if ``who`` watches it already.

        When somebody new begins to watch, sightings from before no longer count, for anybody: what
        has just been asked of EC2 must not be judged by an older look.

        Args:
            thing_id: its id.
            who: lets several flows watch one thing.
            wake: called at the first sighting, at each change, and every 30 s; must not block.
            asked: what was asked of EC2 just now: the first look comes when such is usually ready,
                which is learned. Given by one who watches already, sightings from before no longer
                count, and the next look is no later than that.
        """
        now = self._clock()
        watched = self._watched.get(thing_id)
        if watched is None or who not in watched.wakes:
            others = {} if watched is None else watched.wakes
            watched = _Watched[T](since=now, due_at=now, changed_at=now, wakes=others, woken_at=now)
            self._watched[thing_id] = watched
            self._count()
            self._expect(watched, asked, latest=math.inf)
        elif asked is not None:
            # Something was asked of EC2 again: look often again, and tell of the next look even if
            # it shows nothing new: what was seen before the request says nothing about it.
            watched.since = watched.changed_at = now
            watched.sighting = None
            self._expect(watched, asked, latest=watched.due_at)
        watched.wakes[who] = wake

    def _expect(self, watched: "_Watched[T]", asked: Asked[T] | None, *, latest: float) -> None:
        """Have it looked at when it is usually ready, at the latest at some moment."""
        usual_s = 0.0
        if asked is not None:
            usual_s = self._usual.setdefault(asked.what, Usual(asked.guess_s)).after_s
        watched.asked, watched.usual_s = asked, usual_s
        watched.due_at = min(latest, watched.since + usual_s)
        watched.early_s = usual_s * EARLY_AFTER_ASKING
        self._news.set()

    def sighting(self, thing_id: str) -> Sighting[T] | None:
        """What the last look showed; None if there was none since the last watch began."""
        watched = self._watched.get(thing_id)
        return watched.sighting if watched is not None else None

    def trouble_with(self, thing_id: str) -> StorageError | None:
        """Why a thing cannot be looked at, for those whose users wait for it."""
        watched = self._watched.get(thing_id)
        return (watched and watched.refusal) or self.trouble

    def forget(self, thing_id: str, who: str) -> None:
        """Stop looking on behalf of ``who``; the last one to leave ends the describes."""
        watched = self._watched.get(thing_id)
        if watched is None:
            return
        watched.wakes.pop(who, None)
        if not watched.wakes:
            del self._watched[thing_id]
            self._count()

    async def run(self) -> None:
        """Describe, forever. A failure is one log line and a pause; the loop never ends."""
        failures = 0
        while True:
            await self._until_due()
            await self._pace.turn()
            pause_s = wait_s = _BACKOFF.pause_s(failures)
            try:
                await self._look()
            except StorageError as failure:
                wait_s = max(pause_s, failure.retry_after_s or 0.0)
                _log.warning(
                    f"cannot describe {self.kind}", error=failure.message, retry_in_s=wait_s
                )
                self._note_trouble(failure)
            except Exception:
                _log.exception(f"describing {self.kind} failed", retry_in_s=pause_s)
            else:
                failures = 0
                self._failing_since = self.trouble = None
                continue
            self._remind(self._clock())
            await asyncio.sleep(wait_s)
            failures += 1

    def _note_trouble(self, failure: StorageError) -> None:
        """Keep what users should hear of; wake all who wait when it is new."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        away = failure.reason is Reason.UNREACHABLE and now - self._failing_since >= AWAY_S
        if failure.reason in _PASSES and not away:
            return
        # The texts differ by the number of things asked for; the first one stays.
        if self.trouble is None or self.trouble.reason is not failure.reason:
            self.trouble = failure
            for thing_id, watched in list(self._watched.items()):
                self._wake(thing_id, watched, now)

    async def _until_due(self) -> None:
        """Wait until some thing is due and the budget of describes allows a look."""
        while True:
            self._news.clear()
            if not self._watched:
                self._failing_since = self.trouble = None  # it may be over when the next one comes
                await self._news.wait()
                continue
            pause_s = 1 / looks_a_second(len(self._watched), self._most_a_second)
            soonest = min(watched.due_at for watched in self._watched.values())
            wait_s = max(soonest, self._looked_at + pause_s) - self._clock()
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
            (watched.due_at, thing_id)
            for thing_id, watched in self._watched.items()
            if watched.due_at - watched.early_s <= now
        )
        if not due:
            return
        # One id that EC2 does not know fails a call by ids; such are looked for by a filter.
        doubtful = self._is_missing(due[0][1])
        most = MISSING_PER_CALL if doubtful else THINGS_A_CALL
        ids = [thing_id for _, thing_id in due if self._is_missing(thing_id) is doubtful][:most]
        found = await (self._looker.look_for(ids) if doubtful else self._looker.describe(ids))
        self._take_in(ids, found, asked_at=now)

    def _is_missing(self, thing_id: str) -> bool:
        return self._watched[thing_id].missing_since is not None

    def _take_in(
        self, ids: Iterable[str], found: Mapping[str, T | StorageError], *, asked_at: float
    ) -> None:
        now = self._clock()
        told: dict[str, list[bool]] = defaultdict(list)  # by what was asked
        for thing_id in ids:
            watched = self._watched.get(thing_id)
            if watched is None or watched.since > asked_at:
                continue  # forgotten meanwhile, or watched again: this answer is too old for it
            thing = found.get(thing_id)
            if isinstance(thing, StorageError):
                self._refused(thing_id, watched, thing)
                continue
            watched.refusal = None
            if thing is not None:
                watched.missing_since = None
            elif watched.missing_since is None:
                watched.missing_since = now
            missing_for_s = 0.0 if watched.missing_since is None else now - watched.missing_since
            before, watched.sighting = watched.sighting, Sighting(thing, asked_at, missing_for_s)
            if before is None or before.found != thing:
                watched.changed_at = now
                self._wake(thing_id, watched, now)
            after_s = self._again_s(thing, now - watched.changed_at, now - watched.since)
            # From when EC2 was asked: an answer takes as long as the pause.
            watched.due_at, watched.early_s = asked_at + after_s, after_s * EARLY
            if watched.asked is not None:
                is_ready = thing is not None and watched.asked.is_ready(thing)
                was = was_ready(watched.usual_s, asked_at - watched.since, ready=is_ready)
                if was is not None:
                    told[watched.asked.what].append(was)
                if was is not None or is_ready:
                    watched.asked = None  # no later look tells when it was ready
        self._learn(told)
        self._remind(now)

    def _learn(self, told: Mapping[str, list[bool]]) -> None:
        """One look is one lesson, of however many things: they were ready for the same reason."""
        for what, were in told.items():
            self._usual[what] = after_a_look(self._usual[what], ready=2 * sum(were) > len(were))

    def _refused(self, thing_id: str, watched: "_Watched[T]", why: StorageError) -> None:
        """EC2 does not describe it, and says nothing of whether it is there."""
        now = self._clock()
        is_news = watched.refusal is None or watched.refusal.reason is not why.reason
        watched.refusal = why if is_news else watched.refusal
        watched.due_at, watched.early_s = now + REFUSED_AGAIN_S, 0.0
        if is_news:
            self._wake(thing_id, watched, now)

    def _count(self) -> None:
        self._metrics.in_transition.labels(self.kind).set(len(self._watched))
        self._pace.expect(self.kind, len(self._watched))

    def _remind(self, now: float) -> None:
        for thing_id, watched in list(self._watched.items()):
            if now - watched.woken_at >= REMIND_S:
                self._wake(thing_id, watched, now)

    @staticmethod
    def _wake(thing_id: str, watched: "_Watched[T]", now: float) -> None:
        watched.woken_at = now
        for who, wake in list(watched.wakes.items()):
            try:
                wake()
            except Exception:
                _log.exception("waking failed", thing=thing_id, who=who)


VolumeWatcher = Watcher[Volume]


@dataclass(frozen=True, slots=True)
class Watchers:
    """All loops; each is by volume id or snapshot id.

    Attributes:
        pace: their budget, which others that look at EC2 share too.
        volumes: volumes that are made, attached, detached.
        modifications: the latest modification of each volume; None is a volume never modified, or
            one whose modification EC2 does not show yet.
        snapshots: snapshots that are taken.
        initializations: volumes whose blocks arrive.
    """

    pace: Pace
    volumes: Watcher[Volume]
    modifications: Watcher[Modification]
    snapshots: Watcher[EbsSnapshot]
    initializations: Watcher[Initialization]

    @classmethod
    def over(
        cls,
        volumes: Volumes,
        modifications: Modifications,
        snapshots: Snapshots,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """The loops over these; nothing is looked at yet."""
        pace = Pace()
        return cls(
            pace=pace,
            volumes=Watcher(volumes, metrics=metrics, pace=pace, most=MOST_A_SECOND, clock=clock),
            modifications=Watcher(
                modifications,
                metrics=metrics,
                kind="modifications",
                pace=pace,
                clock=clock,
                again_s=seldom_while_optimizing,
            ),
            snapshots=Watcher(
                snapshots,
                metrics=metrics,
                kind="snapshots",
                pace=pace,
                most=MOST_A_SECOND,
                clock=clock,
                again_s=seldom_while_pending,
            ),
            initializations=Watcher(
                _Initializations(volumes),
                metrics=metrics,
                kind="initializations",
                pace=pace,
                clock=clock,
                again_s=by_the_estimate,
            ),
        )

    async def run(self) -> None:
        """Describe, forever."""
        async with asyncio.TaskGroup() as tasks:
            for each in (self.volumes, self.modifications, self.snapshots, self.initializations):
                tasks.create_task(each.run(), name=f"watcher of {each.kind}")


class _Initializations:
    """How far volumes are initialized, as the watcher looks at it."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    async def describe(self, volume_ids: list[str]) -> Mapping[str, Initialization | Ec2Error]:
        return await self._volumes.initializations(volume_ids)

    look_for = describe


def seldom_while_optimizing(
    found: Modification | None, unchanged_s: float, watched_s: float
) -> float:
    """Seconds until the next look at a modification.

    While it is optimizing each percent of progress is a change, which nobody waits for.
    """
    if found is not None and found.state is ModificationState.OPTIMIZING:
        least_s = soon_then_seldom(found, 0.0, watched_s)
        return min(max(watched_s / 10, least_s), _OPTIMIZING_MOST_S)
    return soon_then_seldom(found, unchanged_s, watched_s)


def seldom_while_pending(found: EbsSnapshot | None, unchanged_s: float, watched_s: float) -> float:
    """Seconds until the next look at a snapshot; a percent more of progress is no change."""
    is_pending = found is not None and found.state is SnapshotState.PENDING
    return soon_then_seldom(found, watched_s if is_pending else unchanged_s, watched_s)


def by_the_estimate(found: Initialization | None, _unchanged_s: float, watched_s: float) -> float:
    """Seconds until the next look at an initialization: when EC2 says that it ends, else seldom."""
    least_s, most_s = _INITIALIZING_S
    estimated_s = None if found is None else found.estimated_s
    wait_s = watched_s / 10 if estimated_s is None else float(estimated_s)
    return min(max(wait_s, least_s), most_s)
