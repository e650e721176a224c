"""Sweep: find volumes of this cluster that nothing knows, and delete, keep or report them.

Only a tagged volume may be deleted, so EC2 is asked for these: one call where nothing is wrong. The
inventory of all others serves reports only, and is read page by page, once in twelve sweeps. A
volume that has an owner in the caches is left alone at once; any other is judged by what the API
server has now. If that cannot be asked, the sweep ends and touches nothing more. While a single
object cannot be read, or VolumeMoves cannot be listed, volumes are only reported.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import nan
from typing import Any, assert_never

import structlog

from provisioner.controller.deleting import orphan_rules as rules
from provisioner.controller.provisioning.creation import Creations
from provisioner.controller.provisioning.creation_rules import Attempt
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Sweep
from provisioner.kube.informer import Informer
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model import tags
from provisioner.model.claim import claim_uid_of
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.names import CLAIM_NAME, CLAIM_NAMESPACE, UNCLAIMED, VOLUME_NAME
from provisioner.model.volume import Volume
from provisioner.tell_once import TellOnce

_INVENTORY_EVERY = 12  # sweeps: once an hour, with the default interval
_PAGE_PAUSE_S = 1.0
_AT_ONCE = 64
_DOUBT_AGAIN_S = 3600.0  # an object may stay unreadable for days

log = structlog.get_logger(__name__)


class OrphanSweep:
    """Lists volumes with this cluster's tags, at the start and then regularly."""

    def __init__(self, services: Services, creations: Creations) -> None:
        self._settings = services.settings
        self._client = services.client
        self._volumes = services.volumes
        self._unclaimed = services.unclaimed
        self._caches = services.caches
        self._metrics = services.metrics
        self._creations = creations
        self._reported = TellOnce()
        # What is left in EC2: of the tagged volumes, and of all others.
        self._left_tagged: set[str] = set()
        self._left: set[str] = set()
        self._metrics.orphans_reported.set_function(self._how_many_left)
        self._until_inventory = 0  # sweeps
        self._has_failed_halfway = False  # the last inventory
        self._has_seen_all = False
        self._doubt = ""  # what cannot be read, and may name any volume
        self._doubts = TellOnce()

    async def run(self) -> None:
        """Sweep until cancelled; without a cluster id our volumes cannot be recognised."""
        if self._settings.orphan_sweep is Sweep.OFF:
            return
        if not self._settings.cluster_id:
            log.warning(
                "the sweep for orphans is off: without --cluster-id, the volumes of this cluster "
                "cannot be distinguished from others"
            )
            return
        await self._unclaimed.settled()
        while True:
            try:
                await self.sweep()
            except StorageError as error:
                log.warning("the sweep for orphans ended early", error=error.message)
            except Exception:
                log.exception("the sweep for orphans failed")
            await asyncio.sleep(self._settings.orphan_sweep_interval_s)

    async def sweep(self) -> None:
        """Examine tagged volumes; every twelfth time all others too, for reports.

        Raises:
            StorageError: a list could not be read, or it is unknown what is owned; volumes that
                were not examined are left alone.
        """
        ours = tags.of_cluster(self._settings.cluster_id)
        self._until_inventory = max(0, self._until_inventory - 1)
        tagged = await self._volumes.find(tags={**ours, UNCLAIMED: None}, background=True)
        self._left_tagged &= {volume.volume_id for volume in tagged}
        await self._settle(tagged)
        if not self._until_inventory:
            await self._take_inventory(ours)

    def _how_many_left(self) -> float:
        """For the gauge: that there are none is known once all volumes were seen."""
        left = len(self._left_tagged | self._left)
        return left if left or self._has_seen_all else nan

    async def _take_inventory(self, ours: Mapping[str, str]) -> None:
        """One page is held at a time: there may be a hundred thousand volumes.

        If its first page fails, each sweep tries again. If a later one fails, the next sweep does,
        and then every twelfth: a page that always fails would cost all calls before it each time.
        """
        still_here: set[str] = set()
        pause = _INVENTORY_EVERY if self._has_failed_halfway else 1
        async for page in self._volumes.find_pages(tags=ours, background=True):
            await self._settle([volume for volume in page if UNCLAIMED not in volume.tags])
            self._until_inventory, self._has_failed_halfway = pause, True
            still_here |= {each.volume_id for each in page if each.volume_id in self._reported}
            await asyncio.sleep(_PAGE_PAUSE_S)
        self._reported.forget_all_but(still_here)
        self._left &= still_here
        self._until_inventory, self._has_failed_halfway = _INVENTORY_EVERY, False
        self._has_seen_all = True

    async def _settle(self, volumes: Sequence[Volume]) -> None:
        """Decide by the caches, then again by what the API server has now."""
        in_flight = dict(self._creations.attempts)
        doubtful = [volume for volume, _ in self._decided(volumes, in_flight)]
        lacks_moves = ""
        if doubtful:
            # Moves come first: one that is gone by then has its persistent volume in the next look.
            lacks_moves = await self._catch_up_moves()
            await self._caches.catch_up(self._caches.persistent_volumes, self._caches.claims)
            self._note_doubt(lacks_moves)
        in_flight |= self._creations.attempts
        decided = self._decided(
            doubtful, in_flight, self._unreadable(), lacks_moves=bool(lacks_moves)
        )
        for left in (self._left_tagged, self._left):
            left.difference_update(volume.volume_id for volume in volumes)
        for at in range(0, len(decided), _AT_ONCE):
            await asyncio.gather(*(self._end(*each) for each in decided[at : at + _AT_ONCE]))

    async def _catch_up_moves(self) -> str:
        """Why the cache may lack moves, "" if it has all."""
        try:
            await self._caches.catch_up_moves()
        except KubeError as error:
            return error.message
        return ""

    def _unreadable(self) -> frozenset[str]:
        return frozenset().union(*(each.unreadable for each in self._owners()))

    def _owners(self) -> tuple[Informer[Any], ...]:
        caches = self._caches
        return caches.persistent_volumes, caches.claims, caches.moves

    def _note_doubt(self, doubt: str) -> None:
        """Note whether a volume may have an owner that is not listed, or cannot be read."""
        try:
            self._caches.check_readable(*self._owners())
        except KubeError as error:
            doubt = error.message
        self._doubt = doubt
        if not doubt:
            self._doubts.clear()
        elif self._doubts.is_news("", doubt, again_s=_DOUBT_AGAIN_S):
            log.warning(
                "the sweep for orphans only reports volumes until all objects can be read",
                error=doubt,
            )

    def _decided(
        self,
        volumes: Sequence[Volume],
        in_flight: Mapping[str, Attempt],
        unreadable: Collection[str] = (),
        *,
        lacks_moves: bool = False,
    ) -> list[tuple[Volume, rules.Decision]]:
        """What becomes of volumes that are not to be left alone."""
        world = self._world(volumes, in_flight)
        world = replace(world, unreadable=unreadable, lacks_moves=lacks_moves)
        now = datetime.now(UTC)
        decided = [
            (
                volume,
                rules.decide(
                    volume,
                    world,
                    cluster_id=self._settings.cluster_id,
                    now=now,
                    min_age=timedelta(seconds=self._settings.orphan_min_age_s),
                ),
            )
            for volume in volumes
        ]
        return [each for each in decided if not isinstance(each[1], rules.Leave)]

    def _world(self, volumes: Sequence[Volume], in_flight: Mapping[str, Attempt]) -> rules.World:
        """What the caches have, and what is under way, of these volumes."""
        caches, attempts = self._caches, in_flight.values()
        ids = [volume.volume_id for volume in volumes]
        names = [volume.tags.get(VOLUME_NAME, "") for volume in volumes]
        uids = filter(None, map(claim_uid_of, names))
        return rules.World(
            named_volume_ids={v for v in ids if caches.persistent_volumes.keyed("volume", v)},
            persistent_volume_names={n for n in names if caches.persistent_volumes.get(n)},
            claim_uids={uid for uid in uids if caches.claim(uid) or caches.move(uid)},
            in_flight_names={a.plan.persistent_volume_name for a in attempts},
            in_flight_ids={a.volume.volume_id for a in attempts if a.volume},
            epoch=self._unclaimed.leadership.epoch,
        )

    async def _end(self, volume: Volume, decision: rules.Decision) -> None:
        try:
            await self._carry_out(volume, decision)
        except StorageError as error:  # one odd volume must not keep the others
            log.warning(
                "cannot handle an orphaned volume yet",
                error=error.message,
                **_facts(volume),
            )
        except Exception:
            log.exception("handling an orphaned volume failed", **_facts(volume))

    async def _carry_out(self, volume: Volume, decision: rules.Decision) -> None:
        removes = self._settings.orphan_sweep is Sweep.DELETE
        match decision:
            case rules.Leave():
                return
            case rules.Remove() | rules.Keep() if self._unclaimed.may_be_in_use(volume.volume_id):
                return
            case rules.Untag():
                self._unclaimed.remove(volume.volume_id)
            case rules.Remove() if removes:
                await self._remove(volume)
            case rules.Keep() if removes:
                await self._keep(volume)
            case rules.Report() | rules.Remove() | rules.Keep():
                self._report(volume)
            case _:
                assert_never(decision)

    async def _remove(self, volume: Volume) -> None:
        was_there = await self._volumes.delete(
            volume.volume_id, gate=lambda: self._caches.nobody_names(volume.volume_id)
        )
        self._unclaimed.forget(volume.volume_id)
        if not was_there:  # the flow of its persistent volume was faster
            return
        self._metrics.orphans.labels("deleted").inc()
        log.warning("deleted an orphaned volume", **_facts(volume))

    async def _keep(self, volume: Volume) -> None:
        body = rules.retained(volume, driver=self._settings.driver)
        try:
            await self._client.create(PERSISTENT_VOLUMES, body)
        except KubeError as error:
            if error.reason is not Reason.OBJECT_EXISTS:
                raise
            return  # created meanwhile; the next sweep sees what it is
        self._unclaimed.remove(volume.volume_id)
        self._metrics.orphans.labels("retained").inc()
        log.warning("created a PersistentVolume for an orphaned volume", **_facts(volume))

    def _report(self, volume: Volume) -> None:
        (self._left_tagged if UNCLAIMED in volume.tags else self._left).add(volume.volume_id)
        if volume.volume_id not in self._reported:
            self._metrics.orphans.labels("reported").inc()
        if not self._reported.is_news(volume.volume_id, "in doubt" if self._doubt else ""):
            return
        if self._doubt:
            log.warning(
                "no PersistentVolume that can be read names a volume of this cluster; it is kept; "
                "do not delete it before all can be read",
                error=self._doubt,
                **_facts(volume),
            )
            return
        log.warning(
            "no PersistentVolume names a volume of this cluster; it is kept; delete it in EC2 if "
            "it is not needed",
            **_facts(volume),
        )


def _facts(volume: Volume) -> dict[str, object]:
    namespace = volume.tags.get(CLAIM_NAMESPACE, "?")
    return {
        "volume": volume.volume_id,
        "claim": f"{namespace}/{volume.tags.get(CLAIM_NAME, '?')}",
        "persistent_volume": volume.tags.get(VOLUME_NAME, "?"),
        "size_gib": volume.size_gib,
        "zone": volume.zone,
    }
