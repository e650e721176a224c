"""Refused places: where EC2 has refused volumes, to each claim and to anybody lately.

This is kept in memory only: the next process starts without it.
"""

import asyncio
import math
from collections.abc import Collection

import structlog

from provisioner import clock
from provisioner.controller.placement.failover_rules import (
    NO_REFUSALS,
    REMEMBERED_S,
    RETRY_S,
    Refusals,
)
from provisioner.metrics import Metrics
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume import CreateRequest
from provisioner.model.zone import Place

_Key = tuple[Place, str]
# Of so many claims it is remembered that they were refused: more than a pod has volumes.
_MOST_CLAIMS = 128

log = structlog.get_logger(__name__)


class RefusedPlaces:
    """What EC2 has refused each claim, by UID, and which places refuse which volume types.

    A refusal is noted only once it is certain that nothing was made, because readers may then make
    the volume in another place. A claim that has to wait keeps its refusals for that time, even if
    an event wakes it: only a place that has not refused it is tried sooner.

    Attributes:
        claims: what each claim was refused, by UID.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.claims: dict[str, Refusals] = {}
        self._paused_until_s: dict[str, float] = {}
        self._recent: dict[_Key, tuple[Reason, asyncio.TimerHandle, frozenset[str]]] = {}

    def of(self, uid: str) -> Refusals:
        """What a claim was refused since it was last asked for everywhere."""
        if self._paused_until_s.get(uid, math.inf) <= clock.now_s():
            self.reset(uid)
        return self.claims.get(uid, NO_REFUSALS)

    def recent(self, volume_type: str) -> dict[Place, Reason]:
        """Where volumes of a type were refused to anybody lately, and why; none was made since."""
        known = self._recent.items()
        return {place: told[0] for (place, kind), told in known if kind == volume_type}

    def refused(
        self, uid: str, request: CreateRequest, error: StorageError, siblings: Collection[str]
    ) -> Refusals:
        """Note that EC2 refused a claim's volume there and made none; returns all refusals so far.

        ``siblings``: the UIDs of the other claims of its pods.
        """
        place, volume_type = request.place, request.volume_type
        known = self._recent.get((place, volume_type))
        others_too = known is not None and not known[2] <= set(siblings)
        self.claims[uid] = self.of(uid).and_in(place, error.reason, others_too=others_too)
        self.note(place, volume_type, error.reason, by=uid)
        return self.claims[uid]

    def note(self, place: Place, volume_type: str, reason: Reason, *, by: str = "") -> None:
        """EC2 has no room there, does not offer the type there, or knows no such zone.

        ``by``: the UID of the claim that was refused.
        """
        known = self._recent.get((place, volume_type))
        claims = known[2] if known is not None else frozenset()
        self._forget((place, volume_type))
        self._metrics.zone_refuses.labels(*_labels(place, volume_type, reason)).set(1)
        loop = asyncio.get_running_loop()
        ends = loop.call_later(REMEMBERED_S.get(reason, 0.0), self._forget, (place, volume_type))
        claims = claims | {by} if len(claims) < _MOST_CLAIMS else claims
        self._recent[place, volume_type] = reason, ends, claims

    def made(self, place: Place, volume_type: str) -> None:
        """EC2 has made a volume of this type there."""
        if self._forget((place, volume_type)):
            log.info("a zone has room again", zone=place.zone, volume_type=volume_type)

    def pause_left_s(self, uid: str) -> float:
        """A claim waits, because there is no place that has not refused it: for how long yet."""
        now_s = clock.now_s()
        return self._paused_until_s.setdefault(uid, now_s + RETRY_S) - now_s

    def reset(self, uid: str) -> None:
        """A claim is bound or gone, or is asked for everywhere again."""
        self.claims.pop(uid, None)
        self._paused_until_s.pop(uid, None)

    def _forget(self, key: _Key) -> bool:
        known = self._recent.pop(key, None)
        if known is None:
            return False
        reason, ends, _ = known
        ends.cancel()
        place, volume_type = key
        self._metrics.zone_refuses.remove(*_labels(place, volume_type, reason))
        return True


def _labels(place: Place, volume_type: str, reason: Reason) -> tuple[str, str, str]:
    return place.outpost_arn or place.zone, volume_type, reason.value
