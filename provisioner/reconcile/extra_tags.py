"""Extra tags: brought to volumes that were made before ``--extra-tags`` had them.

In the background and seldom: nobody waits for it. What fails is tried again in the next round.
"""

import asyncio
from collections.abc import Mapping
from typing import assert_never

import structlog

from provisioner.decide import extra_tags as rules
from provisioner.ec2.batches import chunks
from provisioner.ec2.volumes import IDS_PER_CALL, Volumes
from provisioner.metrics import Metrics
from provisioner.model.errors import Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.reconcile.caches import Caches
from provisioner.settings import Settings

# What one volume of a batch may be the reason of: the others are found by halves.
_OF_ONE = frozenset({Reason.PERMISSION_DENIED, Reason.QUOTA_EXCEEDED, Reason.INVALID_REQUEST})
# So many refusals in a row are no matter of single volumes (nine find the one of a full batch).
_MOST_REFUSALS = 12

Tags = tuple[tuple[str, str], ...]

log = structlog.get_logger(__name__)


class ExtraTags:
    """Goes through the volumes of all persistent volumes, 500 at a time."""

    def __init__(
        self, *, settings: Settings, caches: Caches, volumes: Volumes, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._caches = caches
        self._volumes = volumes
        self._metrics = metrics
        self._told: set[str] = set()
        self._refusals = 0

    async def run(self) -> None:
        """Go round for ever, if that was asked for and there is something to bring."""
        if not self._settings.reconcile_extra_tags or not self._settings.extra_tags:
            return
        while True:
            try:
                await self.round()
            except StorageError as error:
                log.warning("extra tags are not everywhere yet", error=error.message)
            except Exception:
                log.exception("extra tags cannot be brought to volumes")
            await asyncio.sleep(self._settings.extra_tags_interval_s)

    async def round(self) -> None:
        """Look at each volume once and add what it lacks.

        Raises:
            StorageError: EC2 could not be asked, or refuses whatever it is asked for.
        """
        self._refusals = 0
        named = {
            volume_id: persistent_volume
            for persistent_volume in self._caches.persistent_volumes.values()
            if not persistent_volume.deleting
            and (volume_id := persistent_volume.volume_id(self._settings.driver))
        }
        tagged = 0
        for ids in chunks(named, IDS_PER_CALL):
            for missing, lacking in (await self._lacking(ids, named)).items():
                tagged += await self._add(lacking, missing)
        if tagged:
            log.info("brought extra tags to existing volumes", volumes=tagged)

    async def _lacking(
        self, ids: list[str], named: Mapping[str, PersistentVolume]
    ) -> dict[Tags, list[str]]:
        """The volumes that lack something, by what they lack."""
        found = await self._volumes.describe(ids, background=True)
        lacking: dict[Tags, list[str]] = {}
        for volume_id, volume in found.items():
            decision = rules.decide(
                volume,
                named[volume_id],
                self._settings.extra_tags,
                cluster_id=self._settings.cluster_id,
            )
            match decision:
                case rules.Nothing():
                    continue
                case rules.Add(tags=missing):
                    lacking.setdefault(missing, []).append(volume_id)
                case rules.Skip(message=message):
                    self._skip(volume_id, message)
                case _:
                    assert_never(decision)
        return lacking

    async def _add(self, ids: list[str], missing: Tags) -> int:
        """How many have them now. One volume that may not be tagged does not keep the others."""
        try:
            await self._volumes.tag(ids, dict(missing))
        except StorageError as error:
            self._refusals += 1
            if error.reason not in _OF_ONE or self._refusals > _MOST_REFUSALS:
                raise
            if len(ids) == 1:
                self._skip(ids[0], error.message)
                return 0
            middle = len(ids) // 2
            return await self._add(ids[:middle], missing) + await self._add(ids[middle:], missing)
        self._refusals = 0
        self._metrics.extra_tags.labels("tagged").inc(len(ids))
        return len(ids)

    def _skip(self, volume_id: str, message: str) -> None:
        self._metrics.extra_tags.labels("skipped").inc()
        if volume_id not in self._told:
            self._told.add(volume_id)
            log.warning("extra tags cannot be brought to a volume", error=message)
