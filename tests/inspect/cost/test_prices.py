"""Where prices come from: a file, and AWS's price list."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from provisioner.inspect.cost import price_list_rules
from provisioner.inspect.cost.prices import prices_of
from provisioner.prices.price_rules import RegionPrices, snapshot_month
from tests.prices.test_price_rules import shipped_with


async def test_a_file_of_ones_own_is_used(tmp_path: Any):
    path = tmp_path / "prices.json"
    path.write_bytes(shipped_with(snapshot_gib_month="7"))

    prices = await prices_of("us-east-1", str(path))

    assert snapshot_month(2**30, prices.rates) == Decimal(7)


async def test_a_file_that_is_not_there_is_one_sentence():
    with pytest.raises(ValueError, match="--prices /nowhere: No such file"):
        await prices_of("us-east-1", "/nowhere")


def listed(family: str, usage: str, price: str, unit: str = "GB-Mo", **attributes: str) -> str:
    """A product as GetProducts lists it."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": price}, "beginRange": "0"}
    return json.dumps(
        {
            "product": {
                "productFamily": family,
                "sku": "X",
                "attributes": {"usagetype": usage, "locationType": "AWS Region"} | attributes,
            },
            "terms": {"OnDemand": {"X.T": {"priceDimensions": {"X.T.D": dimension}}}},
            "publicationDate": "2026-11-20T01:02:03Z",
        }
    )


LISTED = [
    listed("Storage", "EUC1-EBS:VolumeUsage.gp3", "0.0952", volumeApiName="gp3"),
    listed("Storage", "EUC1-EBS:VolumeUsage.piops", "0.149", volumeApiName="io1"),
    listed("Storage", "EUC1-EBS:VolumeUsage", "0.059", volumeApiName="standard"),
    listed("Storage", "EUC1-HAM1-EBS:VolumeUsage.gp3", "9", volumeApiName="gp3").replace(
        "AWS Region", "AWS Local Zone"
    ),
    listed("System Operation", "EUC1-EBS:VolumeP-IOPS.gp3", "0.006", "IOPS-Mo"),
    listed("System Operation", "EUC1-EBS:VolumeP-IOPS.piops", "0.078", "IOPS-Mo"),
    listed("System Operation", "EUC1-EBS:VolumeP-IOPS.io2", "0.078", "IOPS-Mo"),
    listed("System Operation", "EUC1-EBS:VolumeP-IOPS.io2.tier2", "0.0546", "IOPS-Mo"),
    listed("System Operation", "EUC1-EBS:VolumeP-IOPS.io2.tier3", "0.03822", "IOPS-Mo"),
    listed("Provisioned Throughput", "EUC1-EBS:VolumeP-Throughput.gp3", "48.7424", "GiBps-mo"),
    listed("Storage Snapshot", "EUC1-EBS:SnapshotUsage", "0.054"),
    listed("Storage Snapshot", "EUC1-EBS:SnapshotArchiveStorage", "0.0135"),
    listed("Fast Snapshot Restore", "EUC1-EBS:FastSnapshotRestore", "0.9", "hours"),
    listed("Storage", "EUC1-TimedStorage-ByteHrs", "0.0245"),
]


def test_the_price_list_is_read_into_the_same_prices():
    assert price_list_rules.read_prices(LISTED) == RegionPrices(
        as_of=date(2026, 11, 20),
        gib_month={
            "gp3": Decimal("0.0952"),
            "io1": Decimal("0.149"),
            "standard": Decimal("0.059"),
        },
        gp3_iops_month=Decimal("0.006"),
        gp3_mibps_month=Decimal("0.0476"),
        io1_iops_month=Decimal("0.078"),
        io2_iops_month=(Decimal("0.078"), Decimal("0.0546"), Decimal("0.03822")),
        snapshot_gib_month=Decimal("0.054"),
        fast_restore_hour=Decimal("0.9"),
    )


def test_a_price_list_without_ebs_has_no_prices():
    assert price_list_rules.read_prices([LISTED[-1]]) is None


@pytest.mark.parametrize("text", ["", "[]", LISTED[0].replace("0.0952", "much")])
def test_a_price_list_that_cannot_be_read_is_a_sentence(text: str):
    with pytest.raises(ValueError, match="price"):
        price_list_rules.read_prices([text])
