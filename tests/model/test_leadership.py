from datetime import UTC, datetime, timedelta

import pytest

from provisioner.model.leadership import Reign

BEGAN = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
REIGN = Reign(BEGAN)
SECOND = timedelta(seconds=1)


def test_it_covers_what_was_made_since_and_not_what_was_made_before_or_when_nobody_knows():
    assert REIGN.covers(BEGAN)
    assert REIGN.covers(BEGAN + SECOND)
    assert not REIGN.covers(BEGAN - SECOND)
    assert not REIGN.covers(None)


def test_a_claim_counts_as_older_when_its_second_leaves_that_open():
    assert REIGN.may_predate(BEGAN - SECOND)
    assert REIGN.may_predate(BEGAN)
    assert REIGN.may_predate(None)
    assert not REIGN.may_predate(BEGAN + SECOND)


def test_it_begins_in_whole_seconds():
    assert Reign.after([BEGAN + SECOND / 3], []).began_at == BEGAN


@pytest.mark.parametrize("ahead", [-10 * SECOND, 0 * SECOND, 600 * SECOND])
def test_it_begins_after_what_was_found_whatever_the_clocks_say(ahead: timedelta):
    of_volume = Reign.after([BEGAN], [BEGAN + ahead, None])
    of_claim = Reign.after([BEGAN, BEGAN + ahead], [])

    assert not of_volume.covers(BEGAN + ahead)
    assert of_volume.covers(BEGAN + 601 * SECOND)
    assert of_claim.may_predate(BEGAN + ahead)


def test_it_has_lasted_as_long_as_clocks_can_prove():
    assert REIGN.lasted_s(BEGAN - SECOND) == 0
    assert REIGN.lasted_s(BEGAN + 3 * SECOND) == 0
    assert REIGN.lasted_s(BEGAN + 65 * SECOND) == 60
