"""Sweep: find volumes of this cluster that nothing knows, and end them or report them.

A failed or partial list ends a sweep with nothing touched.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import assert_never

import structlog

from provisioner.decide import orphans as rules
from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.volume import Volume
from provisioner.reconcile.creation import Creations
from provisioner.reconcile.live import LiveLists
from provisioner.reconcile.marks import Marks
from provisioner.settings import Settings, Sweep

log = structlog.get_logger(__name__)


class OrphanSweep:
    """Looks through all volumes with this cluster's tags, at the start and then regularly."""

    def __init__(
        self,
        *,
        settings: Settings,
        client: KubeClient,
        volumes: Volumes,
        marks: Marks,
        live: LiveLists,
        creations: Creations,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._client = client
        self._volumes = volumes
        self._marks = marks
        self._live = live
        self._creations = creations
        self._metrics = metrics
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Sweep for ever; without a cluster id there is nothing to tell ours by."""
        if self._settings.orphan_sweep is Sweep.OFF:
            return
        if not self._settings.cluster_id:
            log.warning(
                "there is no sweep for orphans: without --cluster-id this cluster's volumes cannot "
                "be told from others"
            )
            return
        await self._marks.settled()
        while True:
            try:
                await self.sweep()
            except StorageError as error:
                log.warning("the sweep for orphans ended early", error=error.message)
            except Exception:
                log.exception("the sweep for orphans failed")
            await asyncio.sleep(self._settings.orphan_sweep_interval_s)

    async def sweep(self) -> None:
        """One sweep.

        Raises:
            StorageError: a list could not be read whole; nothing was touched.
        """
        cluster_id = self._settings.cluster_id
        found = await self._volumes.find(tags=tags.of_cluster(cluster_id), background=True)
        world = await self._look_around() if found else None
        present = {volume.volume_id for volume in found}
        self._reported &= present
        if world is None:
            return
        await asyncio.gather(*(self._settle(volume, world) for volume in found))

    async def _settle(self, volume: Volume, world: rules.World) -> None:
        decision = rules.decide(
            volume,
            world,
            cluster_id=self._settings.cluster_id,
            now=datetime.now(UTC),
            min_age=timedelta(seconds=self._settings.orphan_min_age_s),
        )
        try:
            await self._carry_out(volume, decision)
        except StorageError as error:  # one odd volume must not keep the others
            log.warning("cannot end an orphan yet", error=error.message, **_facts(volume))
        except Exception:
            log.exception("an orphan cannot be ended", **_facts(volume))

    async def _look_around(self) -> rules.World:
        """Live lists, read after the volumes: what was made in between is seen here."""
        in_flight = dict(self._creations.attempts)
        snapshot = await self._live.snapshot()
        claims = await self._client.list(CLAIMS)
        if claims.unreadable:
            raise KubeError(Reason.UNREADABLE, "a claim cannot be read (see the log line about it)")
        in_flight |= self._creations.attempts
        attempts = in_flight.values()
        return rules.World(
            named_volume_ids=snapshot.named_volume_ids,
            persistent_volume_names=frozenset(snapshot.persistent_volumes),
            claim_uids=frozenset(claim.uid for claim in claims.items),
            in_flight_names=frozenset(a.plan.persistent_volume_name for a in attempts),
            in_flight_ids=frozenset(a.volume.volume_id for a in attempts if a.volume),
            reign=self._marks.lineage.reign,
        )

    async def _carry_out(self, volume: Volume, decision: rules.Decision) -> None:
        removes = self._settings.orphan_sweep is Sweep.DELETE
        match decision:
            case rules.Leave():
                return
            case rules.Unmark():
                self._marks.clear(volume.volume_id)
            case rules.Remove() if removes:
                await self._remove(volume)
            case rules.Keep() if removes:
                await self._keep(volume)
            case rules.Report() | rules.Remove() | rules.Keep():
                self._report(volume)
            case _:
                assert_never(decision)

    async def _remove(self, volume: Volume) -> None:
        await self._volumes.delete(
            volume.volume_id, gate=lambda: self._live.nobody_names(volume.volume_id)
        )
        self._marks.forget(volume.volume_id)
        self._metrics.orphans.labels("deleted").inc()
        log.warning("deleted a volume that nothing knew", **_facts(volume))

    async def _keep(self, volume: Volume) -> None:
        body = rules.retained(volume, driver=self._settings.driver)
        try:
            await self._client.create(PERSISTENT_VOLUMES, body)
        except KubeError as error:
            if error.reason is not Reason.OBJECT_EXISTS:
                raise
            return  # somebody was faster; the next sweep sees what it is
        self._marks.clear(volume.volume_id)
        self._metrics.orphans.labels("retained").inc()
        log.warning("put a volume that nothing knew under a persistent volume", **_facts(volume))

    def _report(self, volume: Volume) -> None:
        if volume.volume_id in self._reported:
            return
        self._reported.add(volume.volume_id)
        self._metrics.orphans.labels("reported").inc()
        log.warning(
            "a volume of this cluster is named by no persistent volume; it is left alone, delete "
            "it in EC2 if it is not needed",
            **_facts(volume),
        )


def _facts(volume: Volume) -> dict[str, object]:
    namespace = volume.tags.get(tags.CLAIM_NAMESPACE, "?")
    return {
        "volume": volume.volume_id,
        "claim": f"{namespace}/{volume.tags.get(tags.CLAIM_NAME, '?')}",
        "persistent_volume": volume.tags.get(tags.VOLUME_NAME, "?"),
        "size_gib": volume.size_gib,
        "zone": volume.zone,
    }
