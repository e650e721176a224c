"""What EC2 has told of zones: which volume types they refuse, for as long as that is believed."""

import asyncio
from collections.abc import Collection

import structlog

from provisioner.decide.failover import BELIEVED_S
from provisioner.metrics import Metrics
from provisioner.model.errors import Reason
from provisioner.model.zone import Place

_Key = tuple[Place, str]
# Of so many claims it is remembered that they were refused: more than a pod has volumes.
_MOST_CLAIMS = 128

log = structlog.get_logger(__name__)


class ZoneState:
    """The places that refuse volume types, as told by the latest answers of CreateVolume."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: dict[_Key, tuple[Reason, asyncio.TimerHandle, frozenset[str]]] = {}

    def refusing(self, volume_type: str) -> dict[Place, Reason]:
        """Where a volume of this type was refused lately, and why; none was made there since."""
        known = self._refused.items()
        return {place: told[0] for (place, kind), told in known if kind == volume_type}

    def has_refused_others(self, place: Place, volume_type: str, siblings: Collection[str]) -> bool:
        """Whether a volume of this type was refused there lately to more claims than these."""
        known = self._refused.get((place, volume_type))
        return known is not None and not known[2] <= set(siblings)

    def refused(self, place: Place, volume_type: str, reason: Reason, *, by: str = "") -> None:
        """EC2 has no room there, does not offer the type there, or knows no such zone.

        ``by``: the UID of the claim that was refused.
        """
        known = self._refused.get((place, volume_type))
        claims = known[2] if known is not None else frozenset()
        self._forget((place, volume_type))
        self._metrics.zone_refuses.labels(*_labels(place, volume_type, reason)).set(1)
        loop = asyncio.get_running_loop()
        ends = loop.call_later(BELIEVED_S.get(reason, 0.0), self._forget, (place, volume_type))
        claims = claims | {by} if len(claims) < _MOST_CLAIMS else claims
        self._refused[place, volume_type] = reason, ends, claims

    def made(self, place: Place, volume_type: str) -> None:
        """EC2 has made a volume of this type there."""
        if self._forget((place, volume_type)):
            log.info("a zone has room again", zone=place.zone, volume_type=volume_type)

    def _forget(self, key: _Key) -> bool:
        known = self._refused.pop(key, None)
        if known is None:
            return False
        reason, ends, _ = known
        ends.cancel()
        place, volume_type = key
        self._metrics.zone_refuses.remove(*_labels(place, volume_type, reason))
        return True


def _labels(place: Place, volume_type: str, reason: Reason) -> tuple[str, str, str]:
    return place.outpost_arn or place.zone, volume_type, reason.value
