from datetime import UTC, datetime, timedelta

import pytest

from provisioner.model.leadership import Epoch

BEGAN = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
EPOCH = Epoch(BEGAN)
SECOND = timedelta(seconds=1)


def test_it_covers_what_was_made_since_and_not_what_was_made_before_or_when_nobody_knows():
    assert EPOCH.covers(BEGAN)
    assert EPOCH.covers(BEGAN + SECOND)
    assert not EPOCH.covers(BEGAN - SECOND)
    assert not EPOCH.covers(None)


def test_a_claim_counts_as_older_when_its_second_leaves_that_open():
    assert EPOCH.may_predate(BEGAN - SECOND)
    assert EPOCH.may_predate(BEGAN)
    assert EPOCH.may_predate(None)
    assert not EPOCH.may_predate(BEGAN + SECOND)


def test_it_begins_in_whole_seconds():
    assert Epoch.after([BEGAN + SECOND / 3], []).began_at == BEGAN


@pytest.mark.parametrize("ahead", [-10 * SECOND, 0 * SECOND, 600 * SECOND])
def test_it_begins_after_what_was_found_whatever_the_clocks_say(ahead: timedelta):
    of_volume = Epoch.after([BEGAN], [BEGAN + ahead, None])
    of_claim = Epoch.after([BEGAN, BEGAN + ahead], [])

    assert not of_volume.covers(BEGAN + ahead)
    assert of_volume.covers(BEGAN + 601 * SECOND)
    assert of_claim.may_predate(BEGAN + ahead)


def test_it_has_lasted_as_long_as_clocks_can_prove():
    assert EPOCH.lasted_s(BEGAN - SECOND) == 0
    assert EPOCH.lasted_s(BEGAN + 3 * SECOND) == 0
    assert EPOCH.lasted_s(BEGAN + 65 * SECOND) == 60
