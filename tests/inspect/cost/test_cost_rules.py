"""Amounts and whose they are: sums add up, ranges hold, CSV can be read back."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.inspect.cost import cost_rules
from provisioner.inspect.cost.cost_rules import Item, Owner, snapshot_items, total, volume_item
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.sentences import printable
from provisioner.model.volume import GIB
from tests.prices.test_price_rules import RATES, SHAPES, a_volume

NOW = datetime(2026, 11, 23, tzinfo=UTC)
TEXT = st.text(max_size=5)
OWNERS = st.builds(Owner, TEXT, TEXT, TEXT, st.dictionaries(TEXT, TEXT, max_size=2))
STATUSES = st.sampled_from([cost_rules.IN_USE, *cost_rules.WASTE])
ITEMS = st.lists(
    st.builds(
        volume_item, SHAPES, OWNERS, STATUSES, st.just(RATES), st.none() | st.integers(0, 2**50)
    ),
    max_size=6,
)
BY = st.sampled_from(["namespace", "claim", "class", "type", "status", "label=team"])


@settings(max_examples=40)
@given(ITEMS, BY)
def test_the_groups_add_up_to_the_total(items: list[Item], by: str):
    sums = [each for _, each in cost_rules.groups(items, by)]
    whole = total(items)

    assert sum(each.high for each in sums) == whole.high
    assert sum(each.low for each in sums) == whole.low
    assert sum(each.volumes for each in sums) == whole.volumes == len(items)
    assert sum(each.unpriced for each in sums) == whole.unpriced


@settings(max_examples=40)
@given(ITEMS)
def test_csv_has_every_item_and_is_no_formula(items: list[Item]):
    heading, *rows = csv.reader(io.StringIO(cost_rules.csv_text(items)))

    assert tuple(heading) == cost_rules.CSV_HEADINGS
    assert len(rows) == len(items)
    for row, item in zip(rows, items, strict=True):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
        shown = printable(item.owner.namespace)
        assert row[2] in {shown, f"'{shown}"}


@settings(max_examples=40)
@given(ITEMS)
def test_what_is_said_of_savings_is_never_more_than_the_whole(items: list[Item]):
    whole = total(items).high
    assert sum(each.saving or 0 for each in items) <= whole
    assert all(
        "-" not in each.partition(" USD")[0][:1] for each in cost_rules.remarks(items, "USD")
    )


def a_snapshot(name: str, days: int, full_gib: int | None = None, of: str = "vol-1") -> EbsSnapshot:
    began = NOW - timedelta(days=days)
    full = None if full_gib is None else full_gib * GIB
    return EbsSnapshot(name, of, SnapshotState.COMPLETED, 100, began, full_bytes=full)


def amounts(*snapshots: EbsSnapshot) -> dict[str, tuple[object, object]]:
    found = snapshot_items(snapshots, lambda _: Owner(), RATES)
    return {each.id: (each.low, each.high) for each in found}


def test_a_snapshot_of_which_nothing_is_known_costs_between_nothing_and_its_volume():
    assert amounts(a_snapshot("a", 1)) == {"a": (0, 5)}


def test_the_oldest_snapshot_that_is_known_may_store_nothing():
    """Others of its volume, as AWS Backup makes them, may have all of its blocks."""
    assert amounts(a_snapshot("new", 1, 60), a_snapshot("old", 2, 40)) == {
        "old": (0, 2),
        "new": (0, 3),
    }


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.none() | st.integers(0, 100), st.sampled_from("ab")),
        max_size=8,
    )
)
def test_a_range_never_ends_before_it_begins(made: list[tuple[int, int | None, str]]):
    snapshots = [
        a_snapshot(f"snap-{number}", days, full, of=f"vol-{of}")
        for number, (days, full, of) in enumerate(made)
    ]
    found = snapshot_items(snapshots, lambda _: Owner(), RATES)

    assert len(found) == len(made)
    for each in found:
        assert each.low is not None
        assert each.high is not None
        assert 0 <= each.low <= each.high


@pytest.mark.parametrize("by", ["", "team", "label", "label=", "namespace=shop"])
def test_an_unknown_group_is_refused_in_a_sentence(by: str):
    with pytest.raises(ValueError, match="label=KEY"):
        cost_rules.group_key(by)


def test_labels_of_claims_make_groups():
    items = [
        volume_item(a_volume("gp3", 100), Owner(labels={"team": "a"}), "in use", RATES),
        volume_item(a_volume("gp3", 50), Owner(), "in use", RATES),
    ]

    groups = cost_rules.groups(items, "label=team")

    assert [(name, each.high) for name, each in groups] == [("a", Decimal(8)), ("-", Decimal(4))]


def test_waste_savings_and_free_space_are_told_with_their_amounts():
    items = [
        volume_item(a_volume("gp2", 100, 300), Owner("shop", "a"), cost_rules.RELEASED, RATES),
        volume_item(a_volume("gp3", 100), Owner("shop", "b"), cost_rules.IN_USE, RATES, 25 * GIB),
    ]

    assert cost_rules.remarks(items, "USD") == [
        "1 volume of type gp2 would cost 2.00 USD a month less as gp3 with at least the same IOPS, and 250 MiB/s (125 up to 170 GiB, where gp2 has 128 at most)",
        "1 volume of Released PersistentVolumes: 100 GiB, 10.00 USD a month",
        "1 volume with known use: 6.00 USD a month is for free space (no EBS volume can shrink); most of it: shop/b 6.00",
    ]


def test_the_emptiest_volumes_are_named_first_by_what_their_free_space_costs():
    items = [
        volume_item(a_volume("gp3", gib), Owner("shop", name), cost_rules.IN_USE, RATES, GIB)
        for name, gib in (("a", 2), ("b", 200), ("c", 30), ("d", 100))
    ]

    (told,) = cost_rules.remarks(items, "USD")

    assert told.endswith("most of it: shop/b 15.92, shop/d 7.92, shop/c 2.32")


@pytest.mark.parametrize(("capacity", "gib"), [("100Gi", 100), ("", 0), ("much", 0)])
def test_a_volume_that_could_not_be_read_is_counted_without_an_amount(capacity: str, gib: int):
    item = cost_rules.unread_item("vol-1", Owner("shop", "a"), cost_rules.RELEASED, capacity)

    assert total([item]) == cost_rules.Sum(1, 1, gib, Decimal(0), Decimal(0), Decimal(0), 1)
    assert f": {gib} GiB, ? USD a month" in cost_rules.remarks([item], "USD")[0]


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "1 item has no price and counts as"), (2, "2 items have no price and count as")],
)
def test_what_has_no_price_is_counted(count: int, words: str):
    items = [volume_item(a_volume("gp4", 8), Owner(), cost_rules.IN_USE, RATES)] * count

    assert words in " ".join(cost_rules.remarks(items, "USD"))


def test_amounts_are_shown_in_cents():
    assert cost_rules.amount(Decimal("1234.565")) == "1,234.57"
    assert cost_rules.amount(None) == "?"
    assert cost_rules.amount_range(Decimal(0), Decimal("0.001")) == "0.00"
    assert cost_rules.amount_range(Decimal(0), Decimal(5)) == "0.00-5.00"
