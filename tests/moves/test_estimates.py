"""How long moves take and what they cost, as the command tells it before."""

from __future__ import annotations

from typing import Any

import msgspec

from provisioner.model.volume_move import VolumeMove
from provisioner.moves import estimate_words
from tests.moves.fake_cluster import PLANNED, SHAPE, SOURCE

TIME = {"leastMinutes": 5, "mostMinutes": 36}
COST = {
    "currency": "USD",
    "pricesOf": "2026-11-01",
    "sourceMonth": "8.00",
    "targetMonth": "10.00",
    "keepingSource": "0.80",
    "snapshotMonth": "5.00",
}
ESTIMATE = TIME | COST
STAYS: dict[str, Any] = {"keepsVolume": True, "estimate": None}


def a_move(size_gib: int = 100, *, policy: str = "Delete", **plan: Any) -> VolumeMove:
    shape = SHAPE | {"sizeGiB": size_gib}
    target = shape | {"zone": "us-east-1b"}
    body = {
        "metadata": {"name": "m", "namespace": "shop"},
        "spec": {"claimName": "data"},
        "status": PLANNED
        | {"plan": {"source": shape, "target": target, "estimate": ESTIMATE} | plan}
        | {"source": SOURCE | {"reclaimPolicy": policy}},
    }
    return msgspec.convert(body, VolumeMove)


def test_the_time_is_called_an_estimate():
    (said,) = estimate_words.times([[a_move()]], 1)

    assert said.startswith("a first snapshot of 100 GiB takes about 5 to 36 minutes (an estimate")
    assert said.endswith("; pods stop for it; a later one copies only what has changed")
    (said,) = estimate_words.times([[a_move(warms=True)]], 1)
    assert said.endswith("; pods go on meanwhile, and stop for what has changed since")


def test_where_files_are_copied_no_snapshot_is_spoken_of():
    move = a_move(copiesFiles=True, estimate={"leastMinutes": 10, "mostMinutes": 53})
    (said,) = estimate_words.times([[move]], 1)

    assert said == (
        "the copy of up to 100 GiB of files takes about 10 to 53 minutes (an estimate: many small "
        "files take longest); pods stop for it"
    )


def test_of_many_the_rounds_are_counted_by_how_many_go_at_once():
    small = a_move(1, estimate={"leastMinutes": 2, "mostMinutes": 2})
    groups = [[a_move(100), small], [small], [small]]

    assert estimate_words.times(groups, 1)[1] == "all 3 take about 15 to 108 minutes"
    assert estimate_words.times(groups, 2)[1] == "all 3 take about 10 to 72 minutes"


def test_the_cost_is_that_of_both_volumes_while_the_old_one_is_kept():
    (said,) = estimate_words.costs([a_move()])

    assert said == (
        "by list prices of us-east-1 (2026-11-01), the old volume costs USD 8.00 a month, the new "
        "one USD 10.00; both are paid while the old data is kept: USD 0.80 more; while it is there, "
        "the snapshot costs at most USD 5.00 a month"
    )


def test_the_cost_of_several_is_their_sum_and_what_stays_does_not_count():
    (said,) = estimate_words.costs([a_move(), a_move(), a_move(**STAYS)])

    assert "the old volumes cost USD 16.00 a month, the new ones USD 20.00" in said
    assert "kept: USD 1.60 more" in said


def test_a_volume_that_is_never_deleted_is_paid_until_somebody_does():
    (said,) = estimate_words.costs(
        [a_move(policy="Retain", estimate=ESTIMATE | {"keepingSource": ""})]
    )

    assert "both are paid until somebody deletes the old data" in said


def test_without_a_price_of_one_of_them_nothing_is_said():
    assert estimate_words.costs([a_move(), a_move(estimate=TIME)]) == []


def test_a_volume_that_stays_takes_no_time_and_costs_nothing_more():
    stays = a_move(**STAYS)

    assert estimate_words.times([[stays]], 1) == []
    assert estimate_words.costs([stays]) == []
