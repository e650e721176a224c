"""EBS's page of statistics, byte by byte."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.node.metrics.nvme_statistics_rules import Latencies, parse
from tests.node.statistics_pages import histogram, page, u64

BINS = (0, 256, 5), (256, 512, 7), (512, 2**64 - 1, 1)


def test_each_counter_is_read_from_its_place():
    found = parse(page(counters=(1, 2, 3, 4, 5_000_000, 6_000_000, 7, 8, 9, 10, 11)))

    assert (found.reads, found.writes, found.read_bytes, found.written_bytes) == (1, 2, 3, 4)
    assert (found.read_s, found.write_s) == (5.0, 6.0)
    assert (found.volume_iops_exceeded_s, found.volume_throughput_exceeded_s) == (7e-6, 8e-6)
    assert (found.instance_iops_exceeded_s, found.instance_throughput_exceeded_s) == (9e-6, 10e-6)
    assert found.queue_length == 11


def test_each_histogram_is_read_from_its_place():
    found = parse(page(reads=histogram(*BINS), writes=histogram((0, 1000, 3))))

    assert found.read_latencies == Latencies((0.000256, 0.000512, math.inf), (5, 7, 1))
    assert found.write_latencies == Latencies((0.001,), (3,))


def test_a_page_in_bytes():
    raw = bytearray(4096)
    raw[0:4] = b"\x10\xb5\x23\x3c"
    raw[8] = 1  # reads
    raw[16:18] = b"\x00\x01"  # writes: 256
    raw[88] = 9  # queue
    raw[512] = 1  # bins of reads
    raw[528] = 100  # upper bound of the first: 100 us
    raw[536] = 4  # its count
    raw[2056] = 1  # bins of writes
    raw[2072] = 200
    raw[2080] = 6

    found = parse(bytes(raw))

    assert (found.reads, found.writes, found.queue_length) == (1, 256, 9)
    assert found.read_latencies == Latencies((0.0001,), (4,))
    assert found.write_latencies == Latencies((0.0002,), (6,))


def test_all_64_bins_are_read():
    bins = [(each, each + 1, each) for each in range(64)]

    assert parse(page(writes=histogram(*bins))).write_latencies.counts == tuple(range(64))


def test_a_later_version_that_appends_is_read():
    assert parse(page(version=1)).reads == 1


def test_the_largest_numbers_are_read():
    assert parse(page(counters=(2**64 - 1,) * 11)).reads == 2**64 - 1


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (b"", "4096 bytes, not 0"),
        (page()[:-1], "not 4095"),
        (bytes(4096), "begin with 0x3c23b510, not 0x0"),
        (page(magic=bytes.fromhex("7e0d2cec")), "not 0xec2c0d7e"),  # instance storage
        (page(reads=histogram(told=65)), "at most 64 bins, not 65"),
        (page(writes=u64(2**64 - 1)), "at most 64 bins"),
        (page(reads=histogram((0, 10, 1), (5, 10, 1))), "do not ascend"),
    ],
)
def test_what_is_no_such_page_is_refused(odd, why):
    with pytest.raises(ValueError, match=why):
        parse(odd)


@given(st.binary(min_size=4092, max_size=4092))
def test_no_bytes_lead_to_another_error(body):
    try:
        found = parse(page()[:4] + body)
    except ValueError:
        return
    assert len(found.read_latencies.counts) <= 64
