from datetime import UTC, datetime, timedelta

from provisioner.model.reign import Reign

BEGAN = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
REIGN = Reign(BEGAN)
SECOND = timedelta(seconds=1)


def test_it_covers_what_was_made_since_and_not_what_was_made_before_or_when_nobody_knows():
    assert REIGN.covers(BEGAN)
    assert REIGN.covers(BEGAN + SECOND)
    assert not REIGN.covers(BEGAN - SECOND)
    assert not REIGN.covers(None)


def test_a_claim_counts_as_older_when_clocks_leave_that_open():
    assert REIGN.may_predate(BEGAN - SECOND)
    assert REIGN.may_predate(BEGAN + SECOND)
    assert REIGN.may_predate(None)
    assert not REIGN.may_predate(BEGAN + 6 * SECOND)


def test_it_has_lasted_as_long_as_clocks_can_prove():
    assert REIGN.lasted_s(BEGAN - SECOND) == 0
    assert REIGN.lasted_s(BEGAN + 3 * SECOND) == 0
    assert REIGN.lasted_s(BEGAN + 65 * SECOND) == 60
