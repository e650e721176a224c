"""The zone in which EC2 has a volume: asked once, for many volumes together, kept forever.

A volume never changes its zone, so a zone that was found once is true for as long as the process
lives. That the volume exists is true for minutes, as somebody may delete it; that it is missing for
seconds only: somebody may be making it.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping
from contextvars import Context
from typing import TypeVar

import structlog

from provisioner import clock
from provisioner.ec2.batches import FILTER_VALUES
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Reason, StorageError
from provisioner.model.ids import is_volume_id
from provisioner.model.volume import Volume
from webhook.metrics import WebhookMetrics
from webhook.model.fair_share import PEER, FairShares, Share
from webhook.reviews.persistent_volume_rules import Doubt, Found, Missing, Truth

# Reviews that come together share a call; the first one hardly waits.
_WINDOW_S = 0.02
# Twenty calls at once, then five a second, 200 volumes each: anybody who may create persistent
# volumes makes us ask, and the controller lives on the same quota of DescribeVolumes.
_PACE_S = 0.2
_BURST_S = 20 * _PACE_S
# EC2 is eventually consistent: it may show a volume a second after CreateVolume has answered.
_AGAIN_S = 1.0
_MISSING_FOR_S = 5.0
# After a review got no answer, others do not wait until EC2 answers again: of a hundred persistent
# volumes, created one after the other, each would wait nine seconds for nothing.
_SILENT_FOR_S = 10.0
# A wait that tells something about EC2: it answers in a tenth of a second or two.
_PATIENT_S = 0.5
_THERE_FOR_S = 300.0
_MOST_ZONES = 20_000  # some 6 MiB; then reviews push out what was found first
_MOST_MISSING = 1_000
# Shared by the callers' addresses, as all else is.
_MOST_UNDER_WAY = 1_000
# Of them; who may create pods may name any ids in them, and persistent volumes go first.
_MOST_INLINE_UNDER_WAY = 200

# What users are told. EC2's own text names roles and accounts, so it goes to the log only.
_WHY = {
    Reason.PERMISSION_DENIED: "EC2 denies ec2:DescribeVolumes to the webhook's IAM role",
    Reason.CREDENTIALS_INVALID: "the webhook has no usable AWS credentials",
    Reason.UNREACHABLE: "EC2 cannot be reached",
    Reason.REPLY_LOST: "EC2 gave no usable answer",
    Reason.TIMED_OUT: "EC2 gave no answer",
    Reason.THROTTLED: "EC2 is throttling the account's calls",
}
_OTHERWISE = "EC2 could not be asked; the log of the webhook says why"

V = TypeVar("V")
_Place = Found | Doubt | StorageError | None

_log = structlog.get_logger(__name__)


class ZoneLookup:
    """Zones by volume id."""

    def __init__(self, volumes: Volumes, metrics: WebhookMetrics) -> None:
        self._volumes = volumes
        self._metrics = metrics
        # No two asks of one volume are the same question here, so no answer is reused.
        self._coalescer = Coalescer[Found | Doubt | None](
            self._fetch, window_s=_WINDOW_S, fresh_for_s=0.0
        )
        self._found: dict[str, tuple[Found, float]] = {}  # with the loop's time of the answer
        self._places: dict[Found, Found] = {}  # one object for all volumes of a zone
        self._missing_until_s: dict[str, float] = {}
        self._under_way: dict[str, asyncio.Task[Truth]] = {}
        self._places_for = FairShares(_MOST_UNDER_WAY)
        self._places_for_inline = FairShares(_MOST_INLINE_UNDER_WAY)
        self._not_seen: set[str] = set()  # under way, and EC2 has said once that there is no such
        self._closing = False
        self._paid_until_s = 0.0
        self._silent_until_s = 0.0

    async def zone(
        self, volume_id: str, *, deadline: float, inline: bool = False, existing: bool = False
    ) -> Truth:
        """Where a volume is; that it is missing only after EC2 has said so twice.

        A lookup that takes longer than the caller can wait goes on, and the next caller has its
        answer.

        Args:
            volume_id: the bare id; text of another form is never asked for and missing.
            deadline: loop time at which the caller needs an answer, whatever it is.
            inline: a pod names it, which takes but a few of the places for questions.
            existing: whether it is still there matters too, so a zone that was found some minutes
                ago only counts if EC2 does not answer.
        """
        truth, source = self._known(volume_id, existing=existing), "cache"
        if truth is None:
            truth, source = await self._answer(volume_id, deadline, inline=inline), "ec2"
            if isinstance(truth, Doubt):
                truth, _ = self._found.get(volume_id, (truth, 0.0))
        self._metrics.lookups.labels(source, type(truth).__name__.lower()).inc()
        return truth

    async def zones(self, volume_ids: Iterable[str]) -> dict[str, Truth]:
        """Where many volumes are, for who can wait: one call to EC2, no task for each volume.

        A second call is about those that it did not show. What is found takes no more room in the
        memory than reviews leave.
        """
        truths: dict[str, Truth] = {}
        unknown = []
        for each in dict.fromkeys(volume_ids):  # two persistent volumes may name one volume
            if (truth := self._known(each, existing=False)) is None:
                unknown.append(each)
            else:
                truths[each] = truth
                self._metrics.lookups.labels("cache", type(truth).__name__.lower()).inc()
        for each, truth in (await self._asked_now(unknown)).items():
            if isinstance(truth, Found) and len(self._found) < _MOST_ZONES:
                self._found[each] = truth, clock.now_s()
            truths[each] = truth
            self._metrics.lookups.labels("ec2", type(truth).__name__.lower()).inc()
        return truths

    async def _asked_now(self, volume_ids: list[str]) -> dict[str, Truth]:
        places: dict[str, _Place] = {}
        for pause_s in (0.0, _AGAIN_S):
            if asked := [each for each in volume_ids if places.get(each) is None]:
                await asyncio.sleep(pause_s)
                try:
                    places |= await self._fetch(asked)
                except StorageError as error:
                    places |= dict.fromkeys(asked, error)
        return {each: self._truth_of(place) for each, place in places.items()}

    def _truth_of(self, place: _Place) -> Truth:
        if place is None:
            return Missing()
        if isinstance(place, StorageError):
            return _doubt(place)
        return self._places.setdefault(place, place) if isinstance(place, Found) else place

    def seen(self, volume_id: str) -> str:
        """The zone that EC2 has told before, "" if it was not asked; nobody is asked now."""
        found = self._found.get(volume_id)
        return "" if found is None else found[0].zone

    async def close(self) -> None:
        """End what is under way."""
        self._closing = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._coalescer.close()

    def _known(self, volume_id: str, *, existing: bool) -> Truth | None:
        if not is_volume_id(volume_id):
            # As a filter's value it could even be a pattern that finds every volume.
            return Missing()
        if volume_id in self._found:
            found, at_s = self._found[volume_id]
            return None if existing and clock.now_s() - at_s > _THERE_FOR_S else found
        if clock.now_s() < self._missing_until_s.get(volume_id, 0.0):
            return Missing()
        return None

    async def _answer(self, volume_id: str, deadline: float, *, inline: bool) -> Truth:
        silent = clock.now_s() < self._silent_until_s
        waited_s = 0.0 if silent else max(0.0, deadline - clock.now_s())
        until_s = clock.now_s() + waited_s
        while True:
            task = self._under_way.get(volume_id) or self._asked(volume_id, inline=inline)
            if task is None:
                return Doubt("too many lookups in EC2 are already in progress")
            done, _ = await asyncio.wait({task}, timeout=max(0.0, until_s - clock.now_s()))
            if not task.cancelled():
                break
            if self._closing:
                return Doubt("the webhook is shutting down")
            # The caller that began it had too many. It may be asked for this caller instead.
        if not done and volume_id in self._not_seen:
            return Doubt(f"EC2 does not show {volume_id} yet; it may not exist")
        if not done and silent:
            return Doubt("EC2 did not answer a moment ago; it is being asked again")
        if not done:
            if waited_s >= _PATIENT_S:
                self._silent_until_s = clock.now_s() + _SILENT_FOR_S
            return Doubt(
                f"EC2 did not return the zone of {volume_id} within {waited_s:.1f} s: "
                "it is throttling the account's calls, or cannot be reached"
            )
        return task.result()

    def _asked(self, volume_id: str, *, inline: bool) -> asyncio.Task[Truth] | None:
        """The question, begun; None if there are too many."""
        shares: list[tuple[FairShares, Share]] = []
        # The smaller room first: who gets no place there must not have taken one of another's.
        rooms = [self._places_for_inline] if inline else []
        for room in (*rooms, self._places_for):
            share = room.take(PEER.get())
            if share is None:
                _release(shares)
                return None
            shares.append((room, share))
        task = asyncio.create_task(
            self._ask(volume_id),
            name=f"zone of {volume_id}",
            context=Context(),  # its log lines are not about the first caller's review
        )
        self._under_way[volume_id] = task
        for _, share in shares:
            share.on_evict = task.cancel
        task.add_done_callback(lambda _: self._ended(volume_id, shares))
        return task

    def _ended(self, volume_id: str, shares: Iterable[tuple[FairShares, Share]]) -> None:
        self._under_way.pop(volume_id, None)
        self._not_seen.discard(volume_id)
        _release(shares)

    async def _ask(self, volume_id: str) -> Truth:
        try:
            found = await self._coalescer.get(volume_id)
            if found is None:
                self._not_seen.add(volume_id)
                await asyncio.sleep(_AGAIN_S)
                found = await self._coalescer.get(volume_id)
        except StorageError as error:
            return _doubt(error)
        return self._remember(volume_id, found)

    def _remember(self, volume_id: str, found: Found | Doubt | None) -> Truth:
        if found is None:
            self._found.pop(volume_id, None)
            _make_room(self._missing_until_s, _MOST_MISSING)
            self._missing_until_s[volume_id] = clock.now_s() + _MISSING_FOR_S
            return Missing()
        if isinstance(found, Doubt):
            return found
        _make_room(self._found, _MOST_ZONES)
        found = self._places.setdefault(found, found)
        self._found[volume_id] = found, clock.now_s()
        return found

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, _Place]:
        """One call for up to 200 volumes; None for those that EC2 does not know."""
        await asyncio.sleep(max(0.0, self._paid_until_s - _BURST_S - clock.now_s()))
        calls = math.ceil(len(volume_ids) / FILTER_VALUES)
        self._paid_until_s = max(self._paid_until_s, clock.now_s()) + calls * _PACE_S
        try:
            volumes = await self._volumes.look_for(volume_ids)
        except StorageError as error:
            _log.warning(
                "cannot look up zones in EC2", volumes=len(volume_ids), error=error.message
            )
            raise
        self._silent_until_s = 0.0
        return {each: _place_of(volumes.get(each)) for each in volume_ids}


def _doubt(error: StorageError) -> Doubt:
    return Doubt(_WHY.get(error.reason, _OTHERWISE))


def _place_of(volume: Volume | StorageError | None) -> _Place:
    if volume is None or isinstance(volume, StorageError):
        return volume
    if not volume.zone:
        return Doubt(f"EC2 shows {volume.volume_id} without a zone")
    return Found(volume.zone, volume.outpost_arn)


def _release(shares: Iterable[tuple[FairShares, Share]]) -> None:
    for room, share in shares:
        room.release(share)


def _make_room(known: dict[str, V], most: int) -> None:
    """Forget the oldest entry of a full memory."""
    if len(known) >= most:
        del known[next(iter(known))]
