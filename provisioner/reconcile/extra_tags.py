"""Extra tags: brought to volumes that were made before ``--extra-tags`` had them.

In the background, seldom, one volume after the other: nobody waits for it, and a volume that may
not be tagged costs only itself. What fails is tried again in the next round.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import assert_never

import structlog

from provisioner.decide import extra_tags as rules
from provisioner.ec2.batches import chunks
from provisioner.ec2.volumes import IDS_PER_CALL, Volumes
from provisioner.kube.queue import OUTAGE
from provisioner.metrics import Metrics
from provisioner.model.errors import Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.reconcile.caches import Caches
from provisioner.settings import Settings

# CreateTags has 10 calls a second in the long run, and classes are waited for (``ec2/rates.py``).
_EACH_S = 0.2
# Nobody else's tag is overwritten that was there this many writes ago: so old is what was seen.
_WRITES_PER_LOOK = 8

Tags = tuple[tuple[str, str], ...]

log = structlog.get_logger(__name__)


class ExtraTags:
    """Goes through the volumes of all persistent volumes."""

    def __init__(
        self, *, settings: Settings, caches: Caches, volumes: Volumes, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._caches = caches
        self._volumes = volumes
        self._metrics = metrics

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
            StorageError: EC2 could not be asked.
        """
        named = {
            volume_id: persistent_volume
            for persistent_volume in self._caches.persistent_volumes.values()
            if not persistent_volume.deleting
            and (volume_id := persistent_volume.volume_id(self._settings.driver))
        }
        tagged, refused = 0, dict[str, str]()
        for ids in chunks(list(named), IDS_PER_CALL):
            lacking = await self._lacking(ids, named, refused)
            for few in chunks(list(lacking), _WRITES_PER_LOOK):
                lacking = await self._lacking(few, named, refused)
                for volume_id, missing in lacking.items():
                    tagged += await self._add(volume_id, missing, refused)
                    await asyncio.sleep(_EACH_S)
        self._metrics.extra_tags.labels("tagged").inc(tagged)
        self._metrics.extra_tags.labels("skipped").inc(len(refused))
        if tagged:
            log.info("brought extra tags to existing volumes", volumes=tagged)
        if refused:
            why = next(iter(refused.values()))
            log.warning(
                "extra tags cannot be brought to some volumes", volumes=len(refused), first=why
            )

    async def _lacking(
        self, ids: Sequence[str], named: Mapping[str, PersistentVolume], refused: dict[str, str]
    ) -> dict[str, Tags]:
        """What each of the volumes lacks; without those that lack nothing that can be brought."""
        found = await self._volumes.describe(ids, background=True)
        lacking: dict[str, Tags] = {}
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
                    lacking[volume_id] = missing
                case rules.Skip(message=message):
                    refused[volume_id] = message
                case _:
                    assert_never(decision)
        return lacking

    async def _add(self, volume_id: str, missing: Tags, refused: dict[str, str]) -> bool:
        """Whether the volume has them now; nobody need be told of one that is refused alone."""
        try:
            await self._volumes.tag([volume_id], dict(missing), background=True)
        except StorageError as error:
            if error.reason in OUTAGE | {Reason.NOT_LEADING}:
                raise
            refused[volume_id] = error.message
            return False
        return True
