"""Series of the volumes on this node, by claim: their size, and what EBS counts of them.

How full they are the kubelet tells (``kubelet_volume_stats_*``).

Prometheus collects without waiting, so the volumes are measured before (``refresh``), for a limited
time: what hangs is told as unreadable and holds up neither a scrape nor the other volumes.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from provisioner.decide import nvme_statistics
from provisioner.decide.nvme_statistics import Statistics
from provisioner.model.errors import NodeError, StorageError
from provisioner.node import nvme
from provisioner.node.devices import Device, Devices
from provisioner.node.patience import Patience
from provisioner.node.volume_names import VolumeName, VolumeNames
from provisioner.node.volume_series import Measured, series_of

# Below Prometheus's own patience, which is 10 s by default.
BUDGET_S = 4.0
PATIENCE_S = 2.0
_AT_ONCE = 16

log = structlog.get_logger(__name__)


class VolumeCollector(Collector):
    """Measures on demand and shows what was measured last.

    Args:
        devices: finds devices.
        names: knows claims.
        patience: calls what may hang; its patience should be ``PATIENCE_S``.
        statistics_page: asks a disk; it may hang or raise NodeError.
        budget_s: how long a refresh takes at most, in seconds.
    """

    def __init__(
        self,
        devices: Devices,
        names: VolumeNames,
        *,
        patience: Patience,
        statistics_page: Callable[..., bytes | None] = nvme.statistics_page,
        budget_s: float = BUDGET_S,
    ) -> None:
        self._devices = devices
        self._names = names
        self._patience = patience
        self._statistics_page = statistics_page
        self._budget_s = budget_s
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._measured: dict[str, Measured] = {}
        self._refreshing: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Measure all volumes; leaves what takes longer to go on by itself."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="measure volumes")
        await asyncio.wait({self._refreshing}, timeout=self._budget_s)

    async def close(self) -> None:
        """Stop measuring."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def describe(self) -> Iterable[Metric]:
        """Nothing: which volumes there are is known only when they are measured."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """What was measured last."""
        return series_of(self._measured.values())

    async def _refresh(self) -> None:
        try:
            seen = await self._devices.volumes() or await self._names.told()
            names = await self._names.of(seen)
        except StorageError as exc:
            log.warning("volumes are not measured", error=exc.message)
            self._measured.clear()  # what was true once is no measurement
            return
        for gone in self._measured.keys() - names.keys():
            del self._measured[gone]
        await asyncio.gather(*(self._take(each, name) for each, name in names.items()))

    async def _take(self, volume_id: str, name: VolumeName) -> None:
        labels = (volume_id, name.persistent_volume, name.namespace, name.claim)
        async with self._slots:
            try:
                device = await self._devices.find(volume_id, name.device_path, "", wait_s=0.0)
                found = await self._look(Measured(labels, device.size_bytes), device)
            except NodeError as exc:
                found = Measured(labels, trouble=exc.message)
        before = self._measured.get(volume_id)
        if found.trouble and (before is None or before.trouble != found.trouble):
            log.warning("a volume cannot be measured", volume=volume_id, why=found.trouble)
        self._measured[volume_id] = found

    async def _look(self, found: Measured, device: Device) -> Measured:
        """Ask its disk; of one that does not answer, the size is known all the same."""
        try:
            return replace(found, statistics=await self._page(device))
        except (NodeError, OSError, ValueError) as error:
            return replace(found, trouble=str(error))

    async def _page(self, device: Device) -> Statistics | None:
        if not device.is_nvme:
            return None
        page = await self._patience.call(
            device.resource,
            partial(self._statistics_page, device.disk),
            what=f"asking {device.disk} for its statistics",
        )
        return nvme_statistics.parse(page) if page is not None else None
