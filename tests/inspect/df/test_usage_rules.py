"""How full volumes are, from a kubelet's statistics, and when they will be full."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.df.usage_rules import (
    Usage,
    by_claim,
    duration,
    full_in,
    full_in_s,
    measured_before,
    plot,
    read_summary,
    size,
    sorted_by_fullness,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
USAGE = Usage("shop", "data", 1_000, 400, 600, 100, 10, NOW)


def summary(**changes: Any) -> str:
    """As a kubelet of Kubernetes 1.36 writes it, with more than is read."""
    volume = {
        "time": "2026-11-23T12:00:00Z",
        "availableBytes": 600,
        "capacityBytes": 1_000,
        "usedBytes": 400,
        "inodesFree": 90,
        "inodes": 100,
        "inodesUsed": 10,
        "name": "data",
        "pvcRef": {"name": "data", "namespace": "shop"},
        "volumeHealthStats": {"abnormal": False},
    }
    changed = {key: each for key, each in (volume | changes).items() if each is not None}
    other = {"name": "kube-api-access", "usedBytes": 12}
    pod = {"podRef": {"name": "web-0"}, "volume": [other, changed]}
    return json.dumps({"node": {"nodeName": "a"}, "pods": [pod, {"podRef": {"name": "x"}}]})


def test_the_claims_of_a_summary_are_read():
    assert read_summary(summary()) == [USAGE]


@pytest.mark.parametrize("key", ["pvcRef", "usedBytes", "availableBytes", "capacityBytes"])
def test_what_is_no_file_system_of_a_claim_is_left_out(key: str):
    assert read_summary(summary(**{key: None})) == []


def test_a_file_system_without_a_fixed_number_of_inodes_has_no_percentage_of_them():
    (usage,) = read_summary(summary(inodes=0, inodesUsed=0))

    assert usage.inodes_percent is None
    assert usage.fullness == usage.used_percent == 40.0


@pytest.mark.parametrize("text", ["", "[]", '{"pods": 3}', "<html>"])
def test_what_is_no_summary_is_a_sentence(text: str):
    with pytest.raises(ValueError, match="statistics"):
        read_summary(text)


def test_of_several_pods_the_latest_measurement_counts():
    older = replace(USAGE, used_bytes=1, at=NOW - timedelta(minutes=1))

    assert by_claim([USAGE, older, replace(older, at=None)]) == {"shop/data": USAGE}


def test_the_fullest_comes_first_by_space_or_by_inodes():
    inodes = replace(USAGE, claim="inodes", inodes_used=99)
    space = replace(USAGE, claim="space", used_bytes=900, available_bytes=100)

    found = sorted_by_fullness(by_claim([USAGE, space, inodes]))

    assert [each.claim for each in found] == ["inodes", "space", "data"]


def later(seconds: int = 60, **changes: Any) -> Usage:
    return replace(USAGE, at=NOW + timedelta(seconds=seconds), **changes)


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (later(used_bytes=7_000, available_bytes=1_100), 10.0),  # 110 bytes a second
        (later(inodes_used=40), 120.0),  # one in two seconds, 60 are left
        (
            later(used_bytes=7_000, available_bytes=1_100, inodes_used=99),
            pytest.approx(0.674, 0.01),
        ),
        (later(), None),
        (later(used_bytes=300), None),
        (later(used_bytes=460), None),  # 86 KB a day is no growth
        (later(0, used_bytes=7_000), None),
        (later(-60, used_bytes=7_000), None),
        (replace(USAGE, at=None), None),
    ],
)
def test_the_time_to_full_is_by_what_grew_between_two_looks(after: Usage, seconds: float | None):
    assert full_in_s(USAGE, after) == seconds


def test_what_is_full_is_called_so():
    of_space = replace(USAGE, available_bytes=0)
    of_inodes = replace(USAGE, inodes_used=100)

    assert full_in(full_in_s(None, of_space)) == full_in(full_in_s(USAGE, of_inodes)) == "full"
    assert full_in(0.4) == "0s"
    assert full_in(None) == "-"


def test_one_look_tells_no_time_to_full():
    assert full_in_s(None, USAGE) is None


def test_a_look_before_the_next_measurement_is_compared_with_what_the_last_one_was():
    first, second, third = ({USAGE.key: later(60 * n, used_bytes=100 * n)} for n in (1, 2, 3))
    other = {"shop/new": replace(USAGE, claim="new")}

    assert measured_before({}, {}, first) == {}
    assert measured_before({}, first, first) == first
    assert measured_before({}, first, second) == first
    assert measured_before(first, second, second) == first
    assert measured_before(first, second, third) == second
    assert measured_before(first, second, second | other) == first
    assert measured_before(first, second, other) == {}
    # The node was away for a look.
    assert measured_before(first, {}, second) == first


USAGES = st.builds(
    Usage,
    st.just("shop"),
    st.just("data"),
    *(st.integers(0, 2**50) for _ in range(3)),
    *(st.integers(0, 2**32) for _ in range(2)),
    st.none() | st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 -- bounds
)


@given(USAGES, USAGES)
def test_no_time_is_negative_and_no_percentage_of_space_is_above_a_hundred(
    before: Usage, now: Usage
):
    left_s = full_in_s(before, now)

    assert left_s is None or left_s >= 0
    assert 0 <= now.used_percent <= 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3_700, "1h1m"), (90_000, "1d1h")],
)
def test_durations_are_short(seconds: float | None, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0"), (1_023, "1023"), (1_024, "1.0Ki"), (20 * 2**20, "20Mi")),
        *((int(1.5 * 2**30), "1.5Gi"), (2**40, "1.0Ti"), (2**63, "8192Pi")),
    ],
)
def test_sizes_are_as_df_shows_them(count: int, text: str):
    assert size(count) == text


@pytest.mark.parametrize(
    ("percents", "drawn"),
    [
        ([40.0, 41.0, 47.0], "▁▂█ 40-47%"),
        ([90.0, 60.0, 30.0], "█▅▁ 30-90%"),
        ([71.2], "▁ 71%"),
        ([71.2, 71.6, 71.2], "▁▄▁ 71-72%"),  # a bar's whole height is at least one percent
        ([0.0, 100.0], "▁█ 0-100%"),
    ],
)
def test_use_over_time_is_drawn_from_its_lowest_to_its_highest(percents: list[float], drawn: str):
    assert plot(percents) == drawn
