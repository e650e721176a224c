"""How long a move takes and what it costs, as it is told before."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from provisioner.model.volume_move import VolumeMove
from provisioner.moves import estimate_words
from provisioner.prices.price_rules import PriceFile, RegionPrices
from tests.moves.fake_cluster import PLANNED, SHAPE, SOURCE

PRICES = PriceFile(
    format=1,
    currency="USD",
    regions={
        "us-east-1": RegionPrices(
            as_of=date(2026, 11, 1),
            gib_month={"gp3": Decimal("0.08"), "gp2": Decimal("0.10")},
            snapshot_gib_month=Decimal("0.05"),
        )
    },
)


def a_move(
    size_gib: int = 100, *, policy: str = "Delete", keep: str = "73h", **plan: Any
) -> VolumeMove:
    shape = SHAPE | {"sizeGiB": size_gib}
    target = shape | {"zone": "us-east-1b"}
    body = {
        "metadata": {"name": "m", "namespace": "shop"},
        "spec": {"claimName": "data", "keepSource": keep},
        "status": PLANNED
        | {"plan": {"source": shape, "target": target} | plan}
        | {"source": SOURCE | {"reclaimPolicy": policy}},
    }
    return msgspec.convert(body, VolumeMove)


@pytest.mark.parametrize(("size_gib", "told"), [(1, (2, 2)), (100, (5, 36)), (1024, (36, 351))])
def test_the_time_follows_the_size(size_gib: int, told: tuple[int, int]):
    assert estimate_words.minutes(size_gib) == told


def test_the_time_is_called_an_estimate():
    (said,) = estimate_words.times([[a_move()]], 1)

    assert said.startswith("a first snapshot of 100 GiB takes about 5 to 36 minutes (an estimate")
    assert said.endswith("a later one copies only what has changed")


def test_of_many_the_rounds_are_counted_by_how_many_go_at_once():
    groups = [[a_move(100), a_move(1)], [a_move(1)], [a_move(1)]]

    assert estimate_words.times(groups, 1)[1] == "all 3 take about 15 to 108 minutes"
    assert estimate_words.times(groups, 2)[1] == "all 3 take about 10 to 72 minutes"


def test_the_cost_is_that_of_both_volumes_while_the_old_one_is_kept():
    target = SHAPE | {"sizeGiB": 100, "type": "gp2", "zone": "us-east-1b"}
    (said,) = estimate_words.costs([a_move(target=target)], PRICES)

    assert said == (
        "by list prices of us-east-1 (2026-11-01), the old volume costs USD 8.00 a month, the new "
        "one USD 10.00; both are paid while the old data is kept: USD 0.80 more; while it is there, "
        "the snapshot costs at most USD 5.00 a month"
    )


def test_the_cost_of_several_is_their_sum():
    (said,) = estimate_words.costs([a_move(), a_move()], PRICES)

    assert "the old volumes cost USD 16.00 a month, the new ones USD 16.00" in said


def test_a_volume_that_is_never_deleted_is_paid_until_somebody_does():
    (said,) = estimate_words.costs([a_move(policy="Retain")], PRICES)

    assert "both are paid until somebody deletes the old data" in said


def test_without_a_price_nothing_is_said_and_nothing_guessed():
    assert estimate_words.costs([a_move()], PriceFile(format=1, currency="USD", regions={})) == []
    io1 = SHAPE | {"type": "io1", "iops": 100}
    assert estimate_words.costs([a_move(source=io1)], PRICES) == []


def test_a_volume_that_stays_takes_no_time_and_costs_nothing_more():
    stays = a_move(keepsVolume=True)

    assert estimate_words.times([[stays]], 1) == []
    assert estimate_words.costs([stays], PRICES) == []
