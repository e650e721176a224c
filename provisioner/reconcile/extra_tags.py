"""Extra tags: brought to volumes that were made before ``--extra-tags`` had them.

In the background and seldom: nobody waits for it. What fails is tried again in the next round.
"""

import asyncio
from collections.abc import Mapping, Sequence
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
_OF_ONE = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.PERMISSION_DENIED,
        Reason.QUOTA_EXCEEDED,
        Reason.VOLUME_STATE,  # somebody else writes its tags at this moment
    }
)
# So many single volumes refused in a row, and the rest of their group is left to the next round;
# so many such groups without one that was tagged, and it is no matter of single volumes.
_MOST_IN_A_ROW = 4
_MOST_GROUPS = 3
# Nobody else's tag is overwritten that was there this many writes ago: so old is what was seen.
_WRITES_PER_LOOK = 8
# Volumes that were refused alone, and how many of them are tried again in a round, one by one.
_MOST_REMEMBERED = 10_000
_AGAIN_PER_ROUND = 50

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
        self._refused: dict[str, None] = {}  # those tried last at the end
        self._passed = 0  # so many were looked at when the last round ended early

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
            StorageError: EC2 could not be asked, or has refused too much.
        """
        named = {
            volume_id: persistent_volume
            for persistent_volume in self._caches.persistent_volumes.values()
            if not persistent_volume.deleting
            and (volume_id := persistent_volume.volume_id(self._settings.driver))
        }
        self._told &= named.keys()
        self._refused = {each: None for each in self._refused if each in named}
        refused_before = list(self._refused)[:_AGAIN_PER_ROUND]
        tagged, error = await self._go_through(named)
        for volume_id in refused_before if tagged or error is None else ():
            self._refused.pop(volume_id, None)
            tagged += (await self._bring([volume_id], named))[0]
        if tagged:
            log.info("brought extra tags to existing volumes", volumes=tagged)
        if error is not None:
            raise error

    async def _go_through(
        self, named: Mapping[str, PersistentVolume]
    ) -> tuple[int, StorageError | None]:
        """How many volumes have them now, and why a group was left to the next round."""
        fresh = [each for each in named if each not in self._refused]
        begin = self._passed % (len(fresh) or 1)
        self._passed, tagged, groups, last = 0, 0, 0, None
        for ids in chunks([*fresh[begin:], *fresh[:begin]], IDS_PER_CALL):
            count, error = await self._bring(ids, named)
            tagged += count
            last = error or last
            groups = 0 if count or error is None else groups + 1
            self._passed += len(ids)
            if groups == _MOST_GROUPS:
                self._passed += begin
                return tagged, error
        self._passed = 0
        return tagged, last

    async def _bring(
        self, ids: list[str], named: Mapping[str, PersistentVolume]
    ) -> tuple[int, StorageError | None]:
        """The same for one group.

        One volume that may not be tagged does not keep the others: it is found by halves. They are
        every other volume each, because neighbours have much in common.
        """
        tagged, in_a_row, parts = 0, 0, [ids]
        lacking: dict[str, Tags] = {}
        writes = 0
        while parts:
            if writes == _WRITES_PER_LOOK or parts[0][0] not in lacking:
                ahead, parts = parts[:_WRITES_PER_LOOK], parts[_WRITES_PER_LOOK:]
                lacking = await self._lacking([each for part in ahead for each in part], named)
                parts = [group for part in ahead for group in _alike(part, lacking)] + parts
                writes = 0
                continue
            part = parts.pop(0)
            error = await self._add(part, lacking[part[0]])
            writes += 1
            if error is None:
                tagged, in_a_row = tagged + len(part), 0
            elif len(part) > 1:
                parts[:0] = [part[::2], part[1::2]]
            else:
                self._remember(part[0], error.message)
                in_a_row += 1
                if in_a_row == _MOST_IN_A_ROW:
                    return tagged, error
        return tagged, None

    async def _lacking(
        self, ids: list[str], named: Mapping[str, PersistentVolume]
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
                    self._skip(volume_id, message)
                case _:
                    assert_never(decision)
        return lacking

    async def _add(self, ids: list[str], missing: Tags) -> StorageError | None:
        """Why one of them may not be tagged, None if all have them now."""
        try:
            await self._volumes.tag(ids, dict(missing))
        except StorageError as error:
            if error.reason not in _OF_ONE:
                raise
            return error
        self._metrics.extra_tags.labels("tagged").inc(len(ids))
        return None

    def _remember(self, volume_id: str, message: str) -> None:
        self._skip(volume_id, message)
        if len(self._refused) == _MOST_REMEMBERED:
            del self._refused[next(iter(self._refused))]
        self._refused[volume_id] = None

    def _skip(self, volume_id: str, message: str) -> None:
        self._metrics.extra_tags.labels("skipped").inc()
        if volume_id not in self._told:
            self._told.add(volume_id)
            log.warning("extra tags cannot be brought to a volume", error=message)


def _alike(ids: Sequence[str], lacking: Mapping[str, Tags]) -> list[list[str]]:
    """The volumes by what they lack, without those that lack nothing."""
    groups: dict[Tags, list[str]] = {}
    for volume_id in ids:
        if volume_id in lacking:
            groups.setdefault(lacking[volume_id], []).append(volume_id)
    return list(groups.values())
