"""Which days count as missed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.day import report
from tests.day.report import Found


def an_hour(number: int, **changes: Any) -> Found:
    """A good one."""
    return {
        "hour": number,
        "took_s": {"bound": [250, 2.2, 2.5], "gone": [250, 1.9, 2.4]},
        "longest_s": {"bound": 2.9, "gone": 61.4},
        "waiting": 3,
        "longest_wait_s": 2.0,
        "wrong": {},
        "led_for_s": 3600.0,
        "calls": {"CreateVolume": 250},
        "throttled": 0,
        "held_objects": 100_000,
        "held_mib": 13.7,
        "pushed_out": 0,
        "depth": 0,
        "cpu_s": 9.0,
        **changes,
    }


def a_day(**changes: Any) -> Found:
    """A good one of two hours and one trouble."""
    trouble = {
        "what": "API server away",
        "behind": 3,
        "most_behind": 5,
        "recovered_s": 40.0,
        "depth_after": 0,
    }
    return {
        "volumes": 5000,
        "hours": [an_hour(1), an_hour(2)],
        "troubles": [trouble],
        "wrong": [],
        "errors": [],
        "late_in_calm": 0,
        "calls": {"CreateVolume": 500, "DescribeVolumes": 4000},
        "throttled": {"CreateVolume": 10, "DescribeVolumes": 80},
        "busiest": {"DescribeVolumes": 2.9},
        "ended": 500,
        "replaced": 20,
        "leaders": 2,
        "cpu_s": 18.0,
        **changes,
    }


def test_a_day_on_which_nothing_went_wrong_is_told_as_such() -> None:
    text = report.markdown(a_day())

    assert report.missed(a_day()) == []
    assert "All goals were reached." in text
    assert "| API server away | 3, at most 5 | 40 | 0 |" in text
    assert "| 2 | 250: 2.2, 2.5 |  |  | 250: 1.9, 2.4 |" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"wrong": ["leaked: vol-1"]}, "leaked: vol-1"),
        ({"errors": ["Traceback"]}, "Traceback"),
        ({"hours": [an_hour(1), an_hour(2, held_objects=106_001)]}, "holds 106001 objects"),
        ({"late_in_calm": 1}, "in calm, 1 waited"),
        ({"hours": [an_hour(1), an_hour(2, held_mib=14.6)]}, "takes 14.6 MiB in the last hour"),
        ({"throttled": {"DescribeVolumes": 91}}, "91 of 4500 calls were throttled"),
        ({"throttled": {"CreateVolume": 11}}, "11 of 500 CreateVolume were throttled"),
        ({"busiest": {"DescribeVolumes": 3.1}}, "3.1 DescribeVolumes a second"),
        (
            {"troubles": [{**a_day()["troubles"][0], "recovered_s": 601.0}]},
            "API server away: some still waited 601 s after its end",
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_goal_that_was_missed_is_told(changes: Found, says: str) -> None:
    found = report.missed(a_day(**changes))

    assert len(found) == 1
    assert says in found[0]
    assert says in report.markdown(a_day(**changes))


def test_an_hour_is_told_by_itself_with_all_that_went_wrong_until_then() -> None:
    bad = an_hour(2, wrong={"lost": 2, "leaked": 1})

    line = report.hour_line(a_day(hours=[an_hour(1), bad], wrong=["hour 2: lost: a"] * 3))

    assert line.startswith("hour 2: bound 250 (median 2.2, longest 2.9 s), gone 250")
    assert "3 wait, for 2 s at most" in line
    assert "wrong now: 1 leaked, 2 lost, until now 3, errors 0" in line
    assert "holds 100,000 objects" in line
    assert "after the end of: API server away 40 s" in line
    assert "wrong now: nothing" in report.hour_line(a_day())
