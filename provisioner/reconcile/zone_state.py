"""What EC2 has told of zones: which volume types they refuse, for as long as that is believed."""

import asyncio

import structlog

from provisioner.decide.failover import BELIEVED_S
from provisioner.metrics import Metrics
from provisioner.model.errors import Reason
from provisioner.model.zone import Place

_Key = tuple[Place, str]

log = structlog.get_logger(__name__)


class ZoneState:
    """The places that refuse volume types, as told by the latest answers of CreateVolume."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: dict[_Key, tuple[Reason, asyncio.TimerHandle]] = {}

    def refusing(self, volume_type: str) -> dict[Place, Reason]:
        """Where a volume of this type was refused lately, and why; none was made there since."""
        known = self._refused.items()
        return {place: reason for (place, kind), (reason, _) in known if kind == volume_type}

    def refused(self, place: Place, volume_type: str, reason: Reason) -> None:
        """EC2 has no room there, does not offer the type there, or knows no such zone."""
        self._forget((place, volume_type))
        self._metrics.zone_refuses.labels(*_labels(place, volume_type, reason)).set(1)
        loop = asyncio.get_running_loop()
        ends = loop.call_later(BELIEVED_S.get(reason, 0.0), self._forget, (place, volume_type))
        self._refused[place, volume_type] = reason, ends

    def made(self, place: Place, volume_type: str) -> None:
        """EC2 has made a volume of this type there."""
        if self._forget((place, volume_type)):
            log.info("a zone has room again", zone=place.zone, volume_type=volume_type)

    def _forget(self, key: _Key) -> bool:
        known = self._refused.pop(key, None)
        if known is None:
            return False
        reason, ends = known
        ends.cancel()
        place, volume_type = key
        self._metrics.zone_refuses.remove(*_labels(place, volume_type, reason))
        return True


def _labels(place: Place, volume_type: str, reason: Reason) -> tuple[str, str, str]:
    return place.outpost_arn or place.zone, volume_type, reason.value
