"""Metrics of the volumes on this node, by claim: their size, and EBS's statistics.

Their usage is in the kubelet's metrics (``kubelet_volume_stats_*``).

Prometheus's collectors cannot wait, so the volumes are measured before (``refresh``), for a limited
time. A volume that hangs is shown as unreadable, and delays neither the scrape nor other volumes.
The claim of a volume is looked up once, and cached while the volume is there.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

import structlog
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from provisioner.model.errors import KubeError, NodeError, StorageError
from provisioner.node.devices import nvme
from provisioner.node.devices.lookup import Device, Devices
from provisioner.node.instance.attachments import AttachmentLookups
from provisioner.node.instance.kube import NodeKube
from provisioner.node.metrics import nvme_statistics_rules
from provisioner.node.metrics.nvme_statistics_rules import Latencies, Statistics
from provisioner.node.runtime.blocking import BlockingCalls

AGAIN_S = 15.0

log = structlog.get_logger(__name__)
PREFIX = "ebs_provisioner_node_volume_"
_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.25, 1.0)
LABELS = ("volume_id", "persistentvolume", "namespace", "claim")
# Below Prometheus's own timeout, which is 10 s by default.
BUDGET_S = 4.0
DISK_TIMEOUT_S = 2.0
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class VolumeName:
    """The objects that a volume belongs to; "" if unknown, as for inline volumes.

    Attributes:
        persistent_volume: its name.
        namespace, claim: of its claim.
        device_path: the device name given to AttachVolume, for devices without a serial.
    """

    persistent_volume: str
    namespace: str
    claim: str
    device_path: str


class VolumeNames:
    """Looks up names by VolumeAttachment and PersistentVolume.

    Args:
        kube: reads them.
        attachments: tells which volumes are not ours.
        again_s: the pause after a request failed, in seconds.
    """

    def __init__(
        self, kube: NodeKube, attachments: AttachmentLookups, *, again_s: float = AGAIN_S
    ) -> None:
        self._kube = kube
        self._attachments = attachments
        self._again_s = again_s
        self._names: dict[str, VolumeName] = {}
        self._ask_at_s = 0.0
        self._attached: frozenset[str] = frozenset()
        self._attached_until_s = 0.0

    async def of(self, seen: AbstractSet[str]) -> dict[str, VolumeName]:
        """The known names of those of these volumes that are ours."""
        now_s = time.monotonic()
        self._names = {each: name for each, name in self._names.items() if each in seen}
        self._attachments.keep(seen)
        if now_s >= self._ask_at_s:
            try:
                for volume_id in sorted(seen - self._names.keys()):
                    await self._look_up(volume_id)
            except KubeError as exc:
                self._ask_at_s = now_s + self._again_s
                log.info("not measuring some volumes: their claims are unknown", why=str(exc))
        return dict(self._names)

    async def attached(self) -> frozenset[str]:
        """The volumes that are here by the Node's status, as last read.

        For machines whose disks do not report their volume, as on Xen.
        """
        now_s = time.monotonic()
        if now_s >= self._attached_until_s:
            self._attached_until_s = now_s + self._again_s
            try:
                self._attached = (await self._kube.node()).volumes(self._kube.driver)
            except KubeError as exc:
                log.info(
                    "cannot read the volumes of this node; using the last list", why=exc.message
                )
        return self._attached

    async def _look_up(self, volume_id: str) -> None:
        attachment = await self._attachments.find(volume_id)
        if attachment is None:
            return
        name = attachment.persistent_volume
        volume = await self._kube.persistent_volume(name) if name else None
        claim = volume.spec.claim_ref if volume is not None else None
        namespace, claim_name = (claim.namespace, claim.name) if claim is not None else ("", "")
        self._names[volume_id] = VolumeName(name, namespace, claim_name, attachment.device_path)


@dataclass(frozen=True, slots=True)
class Measured:
    """One volume at one moment.

    Attributes:
        labels: the values of ``LABELS``.
        device_bytes: None if the device was not found.
        statistics: None if the device has none.
        trouble: why something is missing; "" for nothing.
    """

    labels: tuple[str, ...]
    device_bytes: int | None = None
    statistics: Statistics | None = None
    trouble: str = ""


_COUNTERS: tuple[tuple[str, str, Callable[[Statistics], float]], ...] = (
    ("reads", "Read operations, as counted by EBS.", lambda page: page.reads),
    ("writes", "Write operations.", lambda page: page.writes),
    ("read_bytes", "Bytes read.", lambda page: page.read_bytes),
    ("written_bytes", "Bytes written.", lambda page: page.written_bytes),
    ("read_seconds", "Time that read operations took.", lambda page: page.read_s),
    ("write_seconds", "Time that write operations took.", lambda page: page.write_s),
)
_EXCEEDED: tuple[tuple[str, str, Callable[[Statistics], tuple[float, float]]], ...] = (
    (
        "exceeded_iops_seconds",
        "Time during which more IOPS were requested than the volume, or the instance, allows.",
        lambda page: (page.volume_iops_exceeded_s, page.instance_iops_exceeded_s),
    ),
    (
        "exceeded_throughput_seconds",
        "Time during which more throughput was requested than the volume, or the instance, allows.",
        lambda page: (page.volume_throughput_exceeded_s, page.instance_throughput_exceeded_s),
    ),
)


def series_of(volumes: Collection[Measured]) -> Iterator[Metric]:
    """The metrics of these volumes."""
    size = GaugeMetricFamily(f"{PREFIX}device_bytes", "Size of the device.", labels=LABELS)
    unreadable = GaugeMetricFamily(
        f"{PREFIX}unreadable",
        "1 if the volume or its statistics could not be read: see the log.",
        labels=LABELS,
    )
    for each in volumes:
        unreadable.add_metric(each.labels, float(bool(each.trouble)))
        if each.device_bytes is not None:
            size.add_metric(each.labels, each.device_bytes)
    yield from (size, unreadable)
    yield from _statistics(
        [(each.labels, each.statistics) for each in volumes if each.statistics is not None]
    )


def _statistics(volumes: Sequence[tuple[tuple[str, ...], Statistics]]) -> Iterator[Metric]:
    for name, text, value in _COUNTERS:
        counter = CounterMetricFamily(PREFIX + name, text, labels=LABELS)
        for labels, page in volumes:
            counter.add_metric(labels, value(page))
        yield counter
    for name, text, both in _EXCEEDED:
        counter = CounterMetricFamily(PREFIX + name, text, labels=(*LABELS, "limit_of"))
        for labels, page in volumes:
            for whose, seconds in zip(("volume", "instance"), both(page), strict=True):
                counter.add_metric((*labels, whose), seconds)
        yield counter
    queue = GaugeMetricFamily(
        f"{PREFIX}queue_length", "Operations that are waiting for EBS.", labels=LABELS
    )
    reads = HistogramMetricFamily(
        f"{PREFIX}read_latency_seconds", "How long read operations took.", labels=LABELS
    )
    writes = HistogramMetricFamily(
        f"{PREFIX}write_latency_seconds", "How long write operations took.", labels=LABELS
    )
    for labels, page in volumes:
        queue.add_metric(labels, page.queue_length)
        reads.add_metric(labels, _buckets(page.read_latencies), page.read_s)
        writes.add_metric(labels, _buckets(page.write_latencies), page.write_s)
    yield from (queue, reads, writes)


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    """Cumulative counts, as Prometheus wants them; the last is unbounded.

    Of EBS's many bounds only the next above each of ``_BOUNDS_S``: each is a series per volume.
    """
    wanted = list(_BOUNDS_S)
    total = 0
    buckets: list[tuple[str, float]] = []
    for upper_s, count in zip(latencies.upper_s, latencies.counts, strict=True):
        total += count
        if wanted and wanted[0] <= upper_s < float("inf"):
            buckets.append((str(upper_s), total))
            wanted = [each for each in wanted if each > upper_s]
    return [*buckets, ("+Inf", total)]


class VolumeCollector(Collector):
    """Measures on demand, and serves the last measurements.

    Args:
        devices: finds devices.
        names: looks up claims.
        blocking: for calls that may hang; its timeout should be ``DISK_TIMEOUT_S``.
        statistics_page: reads it from a disk; may hang or raise NodeError.
        budget_s: how long a refresh may take, in seconds.
    """

    def __init__(
        self,
        devices: Devices,
        names: VolumeNames,
        *,
        blocking: BlockingCalls,
        statistics_page: Callable[..., bytes | None] = nvme.statistics_page,
        budget_s: float = BUDGET_S,
    ) -> None:
        self._devices = devices
        self._names = names
        self._blocking = blocking
        self._statistics_page = statistics_page
        self._budget_s = budget_s
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._measured: dict[str, Measured] = {}
        self._refreshing: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Measure all volumes; slow ones continue in the background."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="measure volumes")
        await asyncio.wait({self._refreshing}, timeout=self._budget_s)

    async def close(self) -> None:
        """Stop measuring."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the volumes are only known once they are measured."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The last measurements."""
        return series_of(self._measured.values())

    async def _refresh(self) -> None:
        try:
            seen = await self._devices.volumes() or await self._names.attached()
            if vanished := self._measured.keys() - seen:
                # Detached by force if the Node still has it: Kubernetes takes it off before.
                seen |= vanished & await self._names.attached()
            names = await self._names.of(seen)
        except StorageError as exc:
            log.warning("cannot measure volumes", error=exc.message)
            self._measured.clear()  # do not serve old measurements
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
            log.warning("cannot measure a volume", volume=volume_id, why=found.trouble)
        self._measured[volume_id] = found

    async def _look(self, found: Measured, device: Device) -> Measured:
        """Read its statistics; if that fails, the size is still known."""
        try:
            return replace(found, statistics=await self._page(device))
        except (NodeError, OSError, ValueError) as error:
            return replace(found, trouble=str(error))

    async def _page(self, device: Device) -> Statistics | None:
        if not device.is_nvme:
            return None
        page = await self._blocking.call(
            device.resource,
            partial(self._statistics_page, device.disk),
            what=f"reading the statistics of {device.disk}",
        )
        return nvme_statistics_rules.parse(page) if page is not None else None
