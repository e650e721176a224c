"""The series of volumes, from what was measured of them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from provisioner.decide.nvme_statistics import Latencies, Statistics

PREFIX = "ebs_provisioner_node_volume_"
_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.25, 1.0)
LABELS = ("volume_id", "persistentvolume", "namespace", "claim")


@dataclass(frozen=True, slots=True)
class Measured:
    """One volume at one moment.

    Attributes:
        labels: the values of ``LABELS``.
        device_bytes: None if it could not be seen.
        statistics: None if the device keeps none.
        trouble: why something is missing that should be there, "" for nothing.
    """

    labels: tuple[str, ...]
    device_bytes: int | None = None
    statistics: Statistics | None = None
    trouble: str = ""


_COUNTERS: tuple[tuple[str, str, Callable[[Statistics], float]], ...] = (
    ("reads", "Read operations, as EBS counts them.", lambda page: page.reads),
    ("writes", "Write operations.", lambda page: page.writes),
    ("read_bytes", "Bytes read.", lambda page: page.read_bytes),
    ("written_bytes", "Bytes written.", lambda page: page.written_bytes),
    ("read_seconds", "Time that read operations took.", lambda page: page.read_s),
    ("write_seconds", "Time that write operations took.", lambda page: page.write_s),
)
_EXCEEDED: tuple[tuple[str, str, Callable[[Statistics], tuple[float, float]]], ...] = (
    (
        "exceeded_iops_seconds",
        "Time during which more IOPS were asked for than the volume, or the instance, allows.",
        lambda page: (page.volume_iops_exceeded_s, page.instance_iops_exceeded_s),
    ),
    (
        "exceeded_throughput_seconds",
        "Time during which more throughput was asked for than the volume, or the instance, allows.",
        lambda page: (page.volume_throughput_exceeded_s, page.instance_throughput_exceeded_s),
    ),
)


def series_of(volumes: Collection[Measured]) -> Iterator[Metric]:
    """The series of these volumes."""
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
        f"{PREFIX}queue_length", "Operations that wait for EBS.", labels=LABELS
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
    """Counts of all that took no longer, as Prometheus has them; the last is without a bound.

    Of EBS's many bounds those next above ``_BOUNDS_S``: each bound is a series for each volume.
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
