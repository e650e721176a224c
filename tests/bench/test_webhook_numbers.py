"""What the webhook's bench computes itself must be right before its figures can be."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.webhook_numbers import Spread, at_random, blocks, evenly, percentile, runs_of


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([5.0], 0.5, 5.0),
        ([5.0], 0.99, 5.0),
        ([2.0, 1.0], 0.5, 1.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 102)), 0.99, 100),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_a_percentile_is_one_of_the_values(values, share, expected):
    assert percentile(values, share) == expected


@given(
    st.lists(st.floats(min_value=0, max_value=1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.99])
)
def test_at_least_the_share_and_no_more_than_needed_are_at_or_below_a_percentile(values, share):
    found = percentile(values, share)

    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_one_late_answer_of_a_hundred_is_the_worst_but_not_the_99th_percentile():
    assert Spread.of([1.0] * 99 + [50.0]) == Spread(100, 1.0, 1.0, 50.0)


def test_even_reviews_begin_at_once_and_come_at_the_rate():
    due = evenly(1001, 500.0)

    assert due[0] == 0.0
    assert due[1] == pytest.approx(0.002)
    assert due[1000] == pytest.approx(2.0)


def test_random_reviews_come_at_the_rate_in_their_order_and_again_the_same():
    due = at_random(20_000, 500.0, seed=1)

    assert due == sorted(due)
    assert due[-1] == pytest.approx(40.0, rel=0.05)
    assert due == at_random(20_000, 500.0, seed=1)
    assert due != at_random(20_000, 500.0, seed=2)


def test_random_reviews_come_in_bursts():
    due = at_random(20_000, 500.0, seed=1)
    gaps = [after - before for before, after in pairwise(due)]

    # Of an exponential distribution with a mean of 2 ms: 1 - e^-0.1 of the gaps.
    assert sum(gap < 0.0002 for gap in gaps) / len(gaps) == pytest.approx(0.095, abs=0.01)


def test_every_way_does_everything_and_none_is_always_first():
    turns = list(blocks(250, 100, "abc"))

    assert turns == [
        *(("a", 100), ("b", 100), ("c", 100)),
        *(("c", 100), ("b", 100), ("a", 100)),
        *(("a", 50), ("b", 50), ("c", 50)),
    ]


def test_a_value_that_comes_back_is_told_twice():
    assert runs_of(["a", "a", "b", "b", "a"]) == ["a", "b", "a"]
    assert runs_of([]) == []
