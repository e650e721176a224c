"""Series of the volumes on this node, by claim: how full they are, and what EBS counts of them.

Prometheus collects without waiting, so the volumes are measured before (``refresh``), for a limited
time: what hangs is told as unreadable and holds up neither a scrape nor the other volumes.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from provisioner.decide import nvme_statistics
from provisioner.decide.mount_table import Mount
from provisioner.decide.nvme_statistics import Statistics
from provisioner.model.errors import NodeError, StorageError
from provisioner.model.node_requests import Usage
from provisioner.node import nvme
from provisioner.node.device_thread import in_thread
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
        table: what is mounted.
        measure: asks a file system at a path; it may hang or raise OSError.
        patience: calls what may hang; its patience should be ``PATIENCE_S``.
        statistics_page: asks a disk; it may hang or raise NodeError.
        budget_s: how long a refresh takes at most, in seconds.
    """

    def __init__(
        self,
        devices: Devices,
        names: VolumeNames,
        *,
        table: Callable[[], Sequence[Mount]],
        measure: Callable[[str], Usage],
        patience: Patience,
        statistics_page: Callable[..., bytes | None] = nvme.statistics_page,
        budget_s: float = BUDGET_S,
    ) -> None:
        self._devices = devices
        self._names = names
        self._table = table
        self._measure = measure
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
            seen = await in_thread(self._devices.volumes) or await self._names.told()
            names = await self._names.of(seen)
            table = self._table()
        except StorageError as exc:
            log.warning("volumes are not measured", error=exc.message)
            self._measured.clear()  # what was true once is no measurement
            return
        for gone in self._measured.keys() - names.keys():
            del self._measured[gone]
        await asyncio.gather(*(self._take(each, name, table) for each, name in names.items()))

    async def _take(self, volume_id: str, name: VolumeName, table: Sequence[Mount]) -> None:
        labels = (volume_id, name.persistent_volume, name.namespace, name.claim)
        async with self._slots:
            try:
                device = await self._devices.find(volume_id, name.device_path, "", wait_s=0.0)
                found = await self._look(Measured(labels, device.size_bytes), device, table)
            except NodeError as exc:
                found = Measured(labels, trouble=exc.message)
        before = self._measured.get(volume_id)
        if found.trouble and (before is None or before.trouble != found.trouble):
            log.warning("a volume cannot be measured", volume=volume_id, why=found.trouble)
        self._measured[volume_id] = found

    async def _look(self, found: Measured, device: Device, table: Sequence[Mount]) -> Measured:
        """Ask its file system and its disk, each whatever the other says."""
        usage, page = await asyncio.gather(
            self._usage(device, table), self._page(device), return_exceptions=True
        )
        troubles = []
        for answer in (usage, page):
            if isinstance(answer, NodeError | OSError | ValueError):
                troubles.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
        return replace(
            found,
            usage=usage if isinstance(usage, Usage) else None,
            statistics=page if isinstance(page, Statistics) else None,
            trouble="; ".join(troubles),
        )

    async def _usage(self, device: Device, table: Sequence[Mount]) -> Usage | None:
        mount = next((each for each in table if _is_of(each, device)), None)
        if mount is None:
            return None
        return await self._patience.call(
            f"metrics of {device.volume_id}",
            partial(self._measure, mount.path),
            what=f"measuring {mount.path}",
        )

    async def _page(self, device: Device) -> Statistics | None:
        if not device.is_nvme:
            return None
        page = await self._patience.call(
            f"statistics of {device.volume_id}",
            partial(self._statistics_page, device.disk),
            what=f"asking {device.disk} for its statistics",
        )
        return nvme_statistics.parse(page) if page is not None else None


def _is_of(mount: Mount, device: Device) -> bool:
    """Whether a mount shows a file system on a device or on one of its partitions."""
    if mount.is_deleted:
        return False
    partition = re.escape(str(device.disk)) + r"p?[0-9]+"
    return mount.number == device.number or re.fullmatch(partition, mount.source) is not None
