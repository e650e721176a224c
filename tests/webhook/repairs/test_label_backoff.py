import pytest

from webhook.repairs import rules
from webhook.repairs.rules import LabelBackoff

ZONE, REGION = "zone", "region"


def test_what_was_never_written_does_not_wait():
    assert LabelBackoff().rest_s("pv", 0.0) == 0.0


def test_after_a_label_was_written_the_next_one_waits_a_minute():
    it = LabelBackoff()

    assert not it.wrote("pv", [ZONE], 100.0)

    assert [it.rest_s("pv", now) for now in (100.0, 130.0, 160.0, 200.0)] == [60.0, 30.0, 0.0, 0.0]
    assert it.rest_s("other", 100.0) == 0.0


def test_each_time_that_it_was_undone_it_waits_twice_as_long_up_to_an_hour():
    it, now, waits = LabelBackoff(), 0.0, []

    it.wrote("pv", [ZONE, REGION], now)
    for _ in range(8):
        now += it.rest_s("pv", now) + 5.0
        assert it.wrote("pv", [ZONE], now)
        waits.append(it.rest_s("pv", now))

    assert waits == [120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]


@pytest.mark.parametrize(("keys", "after_s"), [([REGION], 60.0), ([ZONE], 7200.0)])
def test_another_label_or_one_after_hours_is_no_fight(keys, after_s):
    it = LabelBackoff()
    it.wrote("pv", [ZONE], 0.0)

    assert not it.wrote("pv", keys, after_s)
    assert it.rest_s("pv", after_s) == 60.0


def test_who_writes_labels_by_turns_fights_too():
    it = LabelBackoff()
    it.wrote("pv", [ZONE], 0.0)
    it.wrote("pv", [REGION], 60.0)

    assert it.wrote("pv", [ZONE], 120.0)


def test_one_that_is_made_anew_does_not_wait():
    it = LabelBackoff()
    it.wrote("pv", [ZONE], 0.0)
    it.forget("pv")

    assert it.rest_s("pv", 0.0) == 0.0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "_MOST_KNOWN", 2)
    it = LabelBackoff()
    for name in ("a", "b", "c"):
        it.wrote(name, [ZONE], 0.0)

    assert [it.rest_s(name, 0.0) for name in ("a", "b", "c")] == [0.0, 60.0, 60.0]
