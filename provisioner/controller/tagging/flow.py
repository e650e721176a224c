"""Extra tags: added to volumes that were made before ``--extra-tags`` had them.

This runs in the background at long intervals; no one waits for it. Failures are retried next time.
"""

import asyncio
from collections.abc import Mapping
from typing import assert_never

import structlog

from provisioner.controller.shared.services import Services
from provisioner.controller.tagging import extra_tags_rules
from provisioner.ec2.batches import chunks, is_of_the_call
from provisioner.ec2.volumes import IDS_PER_CALL
from provisioner.model.decision import Settled
from provisioner.model.errors import Ec2Error, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.slices import in_slices
from provisioner.tell_once import TellOnce

# After this many writes the volumes are described again, so that no newer tag is overwritten.
_WRITES_PER_LOOK = 8

Tags = tuple[tuple[str, str], ...]

log = structlog.get_logger(__name__)


class ExtraTags:
    """Goes through the volumes of all persistent volumes, 500 at a time."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings
        self._caches = services.caches
        self._volumes = services.volumes
        self._metrics = services.metrics
        self._told = TellOnce()

    async def run(self) -> None:
        """Go round forever, if that was asked for and there is something to bring."""
        if not self._settings.reconcile_extra_tags or not self._settings.extra_tags:
            return
        while True:
            try:
                await self.round()
            except StorageError as error:
                log.warning(
                    "could not add extra tags to all volumes; will try again", error=error.message
                )
            except Exception:
                log.exception("adding extra tags to volumes failed")
            await asyncio.sleep(self._settings.extra_tags_interval_s)

    async def round(self) -> None:
        """Look at each volume once and add what it lacks.

        Raises:
            StorageError: EC2 could not be asked, or denies all volumes of some group.
        """
        named = {
            volume_id: persistent_volume
            async for persistent_volume in in_slices(self._caches.persistent_volumes.values())
            if not persistent_volume.deleting
            and (volume_id := persistent_volume.volume_id(self._settings.driver))
        }
        self._told.forget_all_but(named.keys())
        tagged, denial = 0, None
        for ids in chunks(named, IDS_PER_CALL):
            try:
                tagged += await self._bring(ids, named)
            except Ec2Error as error:
                if is_of_the_call(error):
                    raise
                denial = error  # nothing of this group may be tagged
        if tagged:
            log.info("added extra tags to existing volumes", volumes=tagged)
        if denial is not None:
            raise denial

    async def _bring(self, ids: list[str], named: Mapping[str, PersistentVolume]) -> int:
        """How many of them have the tags now that lacked some."""
        tagged = 0
        while ids:
            groups: dict[Tags, list[str]] = {}
            for volume_id, missing in (await self._lacking(ids, named)).items():
                groups.setdefault(missing, []).append(volume_id)
            writes = list(groups.items())
            for missing, group in writes[:_WRITES_PER_LOOK]:
                tagged += await self._add(group, missing)
            ids = [each for _, group in writes[_WRITES_PER_LOOK:] for each in group]
        return tagged

    async def _lacking(
        self, ids: list[str], named: Mapping[str, PersistentVolume]
    ) -> dict[str, Tags]:
        """What each of the volumes lacks; without those that lack nothing that can be brought."""
        found = await self._volumes.describe(ids, background=True)
        lacking: dict[str, Tags] = {}
        for volume_id, volume in found.items():
            if isinstance(volume, Ec2Error):
                self._skip(volume_id, volume.message)
                continue
            decision = extra_tags_rules.decide(
                volume,
                named[volume_id],
                self._settings.extra_tags,
                cluster_id=self._settings.cluster_id,
            )
            match decision:
                case Settled():
                    continue
                case extra_tags_rules.Add(tags=missing):
                    lacking[volume_id] = missing
                case extra_tags_rules.Skip(message=message):
                    self._skip(volume_id, message)
                case _:
                    assert_never(decision)
        return lacking

    async def _add(self, ids: list[str], missing: Tags) -> int:
        """How many of them have the tags now."""
        refused = await self._volumes.tag(ids, dict(missing))
        for volume_id, error in refused.items():
            self._skip(volume_id, error.message)
        tagged = len(ids) - len(refused)
        self._metrics.extra_tags.labels("tagged").inc(tagged)
        return tagged

    def _skip(self, volume_id: str, message: str) -> None:
        self._metrics.extra_tags.labels("skipped").inc()
        if self._told.is_news(volume_id):
            log.warning("cannot add extra tags to a volume", error=message)
