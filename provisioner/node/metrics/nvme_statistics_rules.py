"""The page of performance statistics that EBS's NVMe devices keep since a volume was attached.

Log page 0xD0, 4,096 bytes, little endian, times in microseconds: 32 bits of magic number and 32 of
a version, eleven 64-bit counters, 416 bytes unused, then a histogram of latencies for reads and one
for writes: the number of bins, and 64 bins of a lower and an upper bound (64 bits each), a count
(32 bits) and 32 bits unused. What follows at offset 3,600 (latencies by size) is not read.

Source: EBS user guide "Amazon EBS detailed performance statistics"; nvme-cli plugins/amzn;
aws-ebs-csi-driver v1.64 pkg/metrics/nvme.go. The latter reads magic number and version as one
number of 64 bits, so that a version other than 0 is an error to it.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise

PAGE_BYTES = 4096
MAGIC = 0x3C23B510

_HEAD = struct.Struct("<II11Q")
_HISTOGRAMS_AT = 512
_MOST_BINS = 64
_BIN = struct.Struct("<QQII")
_COUNT = struct.Struct("<Q")
_HISTOGRAM_BYTES = _COUNT.size + _MOST_BINS * _BIN.size
# The last bin has no end.
_ENDLESS_US = 2**63


@dataclass(frozen=True, slots=True)
class Latencies:
    """How many operations took how long.

    Attributes:
        upper_s: the bins' upper bounds in seconds, ascending; the last may be infinite.
        counts: how many operations each bin has.
    """

    upper_s: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a volume has done since it was attached to this instance.

    Attributes:
        reads, writes: operations.
        read_bytes, written_bytes: what they moved.
        read_s, write_s: how long they took in all, in seconds.
        volume_iops_exceeded_s, volume_throughput_exceeded_s: how long more was requested than the
            volume is provisioned with, in seconds.
        instance_iops_exceeded_s, instance_throughput_exceeded_s: the same of the instance's limits.
        queue_length: operations waiting now.
        read_latencies, write_latencies: histograms.
    """

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    read_s: float
    write_s: float
    volume_iops_exceeded_s: float
    volume_throughput_exceeded_s: float
    instance_iops_exceeded_s: float
    instance_throughput_exceeded_s: float
    queue_length: int
    read_latencies: Latencies
    write_latencies: Latencies


def parse(page: bytes) -> Statistics:
    """Read the page.

    Raises:
        ValueError: it is another page, or malformed.
    """
    if len(page) != PAGE_BYTES:
        raise ValueError(f"statistics have {PAGE_BYTES} bytes, not {len(page)}")
    magic, _version, *counters = _HEAD.unpack_from(page)
    if magic != MAGIC:
        raise ValueError(f"statistics begin with {MAGIC:#x}, not {magic:#x}")
    return Statistics(
        reads=counters[0],
        writes=counters[1],
        read_bytes=counters[2],
        written_bytes=counters[3],
        read_s=counters[4] / 1e6,
        write_s=counters[5] / 1e6,
        volume_iops_exceeded_s=counters[6] / 1e6,
        volume_throughput_exceeded_s=counters[7] / 1e6,
        instance_iops_exceeded_s=counters[8] / 1e6,
        instance_throughput_exceeded_s=counters[9] / 1e6,
        queue_length=counters[10],
        read_latencies=_latencies(page, _HISTOGRAMS_AT),
        write_latencies=_latencies(page, _HISTOGRAMS_AT + _HISTOGRAM_BYTES),
    )


def _latencies(page: bytes, offset: int) -> Latencies:
    (bins,) = _COUNT.unpack_from(page, offset)
    if bins > _MOST_BINS:
        raise ValueError(f"a histogram has at most {_MOST_BINS} bins, not {bins}")
    start = offset + _COUNT.size
    found = [_BIN.unpack_from(page, start + each * _BIN.size) for each in range(bins)]
    upper_us = [upper for _, upper, _, _ in found]
    if any(above <= below for below, above in pairwise(upper_us)):
        raise ValueError("the bins of a histogram do not ascend")
    return Latencies(
        tuple(each / 1e6 if each < _ENDLESS_US else float("inf") for each in upper_us),
        tuple(count for _, _, count, _ in found),
    )
