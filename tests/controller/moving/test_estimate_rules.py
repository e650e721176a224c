"""What a plan tells of a move's time and cost."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import msgspec
import pytest

from provisioner.controller.moving.estimate_rules import copy_minutes, estimate, minutes
from provisioner.model.meta import ObjectMeta
from provisioner.model.volume_move import MoveEstimate, MovePlan, Shape, VolumeMove, VolumeMoveSpec
from provisioner.prices.price_rules import PriceFile, RegionPrices

NO_PRICES = PriceFile(format=1, currency="USD", regions={})
PRICES = PriceFile(
    format=1,
    currency="USD",
    regions={
        "us-east-1": RegionPrices(
            as_of=date(2026, 11, 1),
            gib_month={"gp3": Decimal("0.08"), "gp2": Decimal("0.10")},
            gp3_mibps_month=Decimal("0.04"),
            snapshot_gib_month=Decimal("0.05"),
        )
    },
)
OLD = Shape(zone="us-east-1a", size_gib=100, volume_type="gp3", iops=3000, throughput_mibps=125)
NEW = Shape(zone="us-east-1b", size_gib=100, volume_type="gp2")


def told(
    old: Shape = OLD, *, keep: str = "73h", policy: str = "Delete", prices: PriceFile = PRICES
) -> MoveEstimate:
    spec = VolumeMoveSpec(claim_name="data", keep_source=keep)
    move = VolumeMove(metadata=ObjectMeta(name="m", namespace="shop"), spec=spec)
    return estimate(move, MovePlan(source=old, target=NEW), policy, prices)


@pytest.mark.parametrize(("size_gib", "range_"), [(1, (2, 2)), (100, (5, 36)), (1024, (36, 351))])
def test_the_time_follows_the_size(size_gib: int, range_: tuple[int, int]):
    assert minutes(size_gib) == range_


def test_the_cost_is_that_of_both_volumes_while_the_old_one_is_kept():
    assert told() == MoveEstimate(
        least_minutes=5,
        most_minutes=36,
        currency="USD",
        prices_of="2026-11-01",
        source_month="8.00",
        target_month="10.00",
        keeping_source="0.80",
        snapshot_month="5.00",
    )


@pytest.mark.parametrize(("keep", "policy"), [("0h", "Delete"), ("73h", "Retain")])
def test_what_is_not_kept_or_never_deleted_has_no_cost_of_keeping(keep: str, policy: str):
    assert told(keep=keep, policy=policy).keeping_source == ""


@pytest.mark.parametrize(
    ("old", "prices"),
    [(OLD, NO_PRICES), (Shape(zone="us-east-1a", size_gib=100, volume_type="io1"), PRICES)],
    ids=["of the Region", "of the type"],
)
def test_without_a_price_no_amount_is_told_and_none_guessed(old: Shape, prices: PriceFile):
    found = told(old, prices=prices)

    assert msgspec.to_builtins(found) == {"leastMinutes": 5, "mostMinutes": 36}


def test_a_copy_of_files_takes_as_long_as_the_slower_volume_and_costs_no_snapshot():
    small = Shape(zone="us-east-1a", size_gib=30, volume_type="gp3", throughput_mibps=250)
    plan = MovePlan(source=OLD, target=small, copies_files=True)
    spec = VolumeMoveSpec(claim_name="data", keep_source="73h")
    found = estimate(VolumeMove(spec=spec), plan, "Delete", PRICES)

    assert copy_minutes(plan) == (10, 53)
    assert (found.least_minutes, found.most_minutes, found.snapshot_month) == (10, 53, "")
    assert (found.source_month, found.keeping_source) == ("8.00", "0.80")


def test_a_check_takes_a_minute_more_at_most():
    spec = VolumeMoveSpec(claim_name="data")
    plan = MovePlan(source=OLD, target=NEW, checks=True)
    found = estimate(VolumeMove(spec=spec), plan, "Delete", NO_PRICES)

    assert (found.least_minutes, found.most_minutes) == (5, 37)


def test_a_copy_between_volumes_of_no_told_throughput_is_no_faster_than_gp2():
    plan = MovePlan(source=NEW, target=NEW, copies_files=True)

    assert copy_minutes(plan)[0] == 15
