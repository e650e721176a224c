"""What each volume costs a month, as a metric, with ``--volume-costs``.

EC2 is asked once an hour, in background: who modifies a volume by hand is seen too, and no flow has
to tell of its changes. Amounts are those of ``kubectl ebs cost`` with the shipped prices.
"""

import asyncio

import structlog

from provisioner.controller.shared.services import Services
from provisioner.ec2.batches import chunks
from provisioner.ec2.volumes import IDS_PER_CALL
from provisioner.model.errors import StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.prices import price_file
from provisioner.prices.price_rules import RegionPrices, volume_month
from provisioner.slices import in_slices

Labels = tuple[str, ...]

log = structlog.get_logger(__name__)


class VolumeCosts:
    """Goes through the volumes of all persistent volumes, 500 at a time."""

    def __init__(self, services: Services, region: str) -> None:
        self._settings = services.settings
        self._caches = services.caches
        self._volumes = services.volumes
        self._gauge = services.metrics.volume_usd_per_month
        self._region = region

    async def run(self) -> None:
        """Go round forever, if that was asked for and the region has prices."""
        if not self._settings.volume_costs:
            return
        prices = await asyncio.to_thread(price_file.shipped)
        rates = prices.regions.get(self._region)
        if rates is None:
            log.warning(
                "volumes have no costs as a metric: this release has no prices of the region",
                region=self._region,
            )
            return
        log.info("showing what volumes cost", prices_of=rates.oldest.isoformat())
        while True:
            try:
                await self.round(rates)
            except StorageError as error:
                log.warning("could not see what volumes cost; will try again", error=error.message)
            except Exception:
                log.exception("seeing what volumes cost failed")
            await asyncio.sleep(self._settings.volume_costs_interval_s)

    async def round(self, rates: RegionPrices) -> None:
        """Show what each volume costs, and nothing of those that are gone.

        Raises:
            StorageError: EC2 could not be asked; what is shown stays.
        """
        named = {
            volume_id: _labels(persistent_volume)
            async for persistent_volume in in_slices(self._caches.persistent_volumes.values())
            if (volume_id := persistent_volume.volume_id(self._settings.driver))
        }
        amounts: dict[Labels, float] = {}
        for ids in chunks(named, IDS_PER_CALL):
            found = await self._volumes.describe(ids, background=True)
            for volume_id, volume in found.items():
                month = volume_month(volume, rates) if isinstance(volume, Volume) else None
                if month is not None:
                    amounts[named[volume_id]] = float(month)
        await asyncio.to_thread(self._gauge.show, amounts)


def _labels(persistent_volume: PersistentVolume) -> Labels:
    ref = persistent_volume.spec.claim_ref
    namespace, claim = (ref.namespace, ref.name) if ref is not None else ("", "")
    return persistent_volume.name, namespace, claim
