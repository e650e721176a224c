"""Prices of a file, and what volumes and snapshots cost by them."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_type import VOLUME_TYPES
from provisioner.prices.price_file import SHIPPED as FILE
from provisioner.prices.price_rules import (
    Prices,
    RegionPrices,
    fast_restore_month,
    gp3_saving,
    read_file,
    snapshot_month,
    volume_month,
    warnings,
)
from tests.builders import VOLUME, ZONE

SHIPPED = read_file(FILE.read_bytes())
RATES = SHIPPED.regions["us-east-1"]


def a_volume(kind: str, gib: int, iops: int | None = None, mibps: int | None = None) -> Volume:
    return Volume(VOLUME, VolumeState.IN_USE, ZONE, gib, kind, iops, mibps)


@pytest.mark.parametrize(
    ("volume", "month"),
    [
        (a_volume("gp3", 100, 3_000, 125), "8"),
        (a_volume("gp3", 100), "8"),
        (a_volume("gp3", 100, 6_000, 250), "28"),
        (a_volume("gp2", 100, 300), "10"),
        (a_volume("io1", 100, 1_000), "77.5"),
        (a_volume("io2", 100, 32_000), "2092.5"),
        (a_volume("io2", 100, 64_000), "3548.5"),
        (a_volume("io2", 100, 100_000), "4695.1"),
        (a_volume("st1", 500), "22.5"),
        (a_volume("sc1", 500), "7.5"),
        (a_volume("standard", 10), "0.5"),
    ],
)
def test_a_volume_costs_what_aws_charges_in_us_east_1(volume: Volume, month: str):
    assert volume_month(volume, RATES) == Decimal(month)


@pytest.mark.parametrize(
    ("volume", "rates"),
    [
        (a_volume("gp3", 1), None),
        (a_volume("gp4", 1), RATES),
        (a_volume("gp3", 1, 3_001), msgspec.structs.replace(RATES, gp3_iops_month=None)),
        (a_volume("io1", 4, 100), msgspec.structs.replace(RATES, io1_iops_month=None)),
        (a_volume("io2", 4, 100), msgspec.structs.replace(RATES, io2_iops_month=None)),
    ],
)
def test_without_a_price_there_is_no_amount(volume: Volume, rates: RegionPrices | None):
    assert volume_month(volume, rates) is None


def test_a_price_that_does_not_matter_may_be_missing():
    rates = msgspec.structs.replace(RATES, gp3_iops_month=None, gp3_mibps_month=None)

    assert volume_month(a_volume("gp3", 10, 3_000, 125), rates) == Decimal("0.8")


@pytest.mark.parametrize(
    ("volume", "saving"),
    [
        (a_volume("gp2", 100, 300), Decimal(2)),
        (a_volume("gp2", 170, 510), Decimal("3.4")),
        (a_volume("gp2", 171, 513), None),  # 250 MiB/s would cost more than is saved
        (a_volume("gp2", 1_000, 3_000), Decimal(15)),
        (a_volume("gp2", 4_000, 12_000), Decimal(30)),
        (a_volume("gp3", 100, 3_000), None),
    ],
)
def test_gp3_saves_what_the_same_iops_and_throughput_leave(volume: Volume, saving: Decimal | None):
    assert gp3_saving(volume, RATES) == saving


SHAPES = st.builds(
    a_volume,
    st.sampled_from([*VOLUME_TYPES, "gp4"]),
    st.integers(1, 65_536),
    st.none() | st.integers(0, 256_000),
    st.none() | st.integers(0, 2_000),
)
REGIONS = st.sampled_from(sorted(SHIPPED.regions))


@given(SHAPES, REGIONS)
def test_no_amount_is_negative_and_no_saving_larger_than_it(volume: Volume, region: str):
    rates = SHIPPED.regions[region]
    month, saving = volume_month(volume, rates), gp3_saving(volume, rates)

    assert month is None or month >= 0
    assert saving is None or (month is not None and 0 < saving < month)


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_more_iops_of_io2_never_cost_less(first: int, second: int):
    low, high = sorted((first, second))

    of_low, of_high = (volume_month(a_volume("io2", 4, n), RATES) for n in (low, high))
    assert of_low is not None
    assert of_high is not None
    assert of_low <= of_high


def test_snapshots_and_fast_restores_have_their_own_prices():
    assert snapshot_month(100 * 2**30, RATES) == Decimal(5)
    assert fast_restore_month(3, RATES) == Decimal("1642.5")
    assert fast_restore_month(3, SHIPPED.regions["us-west-2"]) is None
    assert snapshot_month(1, SHIPPED.regions["eu-central-1"]) is None


def test_each_shipped_region_names_its_sources_and_has_all_usual_types():
    usual = {"gp2", "gp3", "io1", "st1", "sc1", "standard"}

    assert len(SHIPPED.regions) > 20
    for rates in SHIPPED.regions.values():
        assert rates.sources
        assert set(rates.sources) <= SHIPPED.sources.keys()
        assert usual <= rates.gib_month.keys() <= VOLUME_TYPES.keys()
        assert min(rates.gib_month.values()) > 0
    assert all("read 20" in source for source in SHIPPED.sources.values())


@pytest.mark.parametrize(
    ("today", "region", "words"),
    [
        (date(2026, 11, 23), "us-east-1", []),
        (date(2027, 11, 23), "us-east-1", ["the prices of us-east-1 are of 2026-10-06"]),
        (date(2026, 11, 23), "eu-central-1", ["the prices of IOPS and throughput", "2022-02-10"]),
        (date(2026, 11, 23), "xx-moon-1", ["no prices for region xx-moon-1", "--prices api"]),
    ],
)
def test_old_and_missing_prices_are_told(today: date, region: str, words: list[str]):
    told = warnings(Prices(region, "USD", SHIPPED.regions.get(region), ""), today)

    assert bool(told) == bool(words)
    assert all(word in told[0] for word in words)


def shipped_with(**changes: Any) -> bytes:
    document = json.loads(FILE.read_bytes())
    document["regions"] = {"us-east-1": document["regions"]["us-east-1"] | changes}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no price file"),
        (b'{"format": 2, "currency": "USD", "regions": {}}', "format 2"),
        (shipped_with(io1_iops_month="-1"), "is -1"),
        (shipped_with(io1_iops_month="NaN"), "NaN"),
        (shipped_with(gib_month={"gp3": "much"}), "no price file"),
        (shipped_with(gp5_month="1"), "no price file"),
    ],
)
def test_what_is_no_price_file_is_refused_in_a_sentence(text: bytes, why: str):
    with pytest.raises(ValueError, match=why):
        read_file(text)
