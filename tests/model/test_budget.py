"""How often a volume may still be modified, and whether what was sent took place."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.budget import MOST, WINDOW, Ledger, Start, name_of, summary
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.modification import Modification, ModificationState, ModifyRequest, Shape

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
REQUEST = ModifyRequest("vol-1", 20, None, None, None)


def began(ago_s: float) -> Modification:
    return Modification(
        "vol-1",
        ModificationState.COMPLETED,
        Shape(20, "gp3"),
        started_at=NOW - timedelta(seconds=ago_s),
    )


def ledger(*hours_ago: float) -> Ledger:
    """All shown: each was begun after the one before it."""
    return Ledger(tuple(Start(NOW - timedelta(hours=each), f"{each}") for each in hours_ago))


def written(found: Ledger) -> str:
    return found.text(persistent_volume_uid="pv-1", volume_id="vol-1")


def read(text: str | None, uid: str = "pv-1", volume: str = "vol-1") -> Ledger:
    return Ledger.read(text, persistent_volume_uid=uid, volume_id=volume)


def test_what_is_written_is_read_again():
    found = Ledger().with_next(REQUEST, began(3600), NOW)

    assert read(written(found)) == found
    assert found.starts[0].after == name_of(began(3600))
    assert found.starts[0].asked == "20 GiB"


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "{", "[]", '{"uid": 1}', '{"a":' * 2000),
        '{"uid":"pv-1","volume":"vol-1","starts":[{"at":"x"}]}',
    ],
)
def test_what_nobody_of_us_has_written_says_nothing(text):
    assert read(text) == Ledger()


def test_the_note_of_another_object_or_volume_says_nothing():
    text = written(Ledger().with_next(REQUEST, None, NOW))

    assert read(text, uid="pv-2") == Ledger()
    assert read(text, volume="vol-2") == Ledger()


def test_what_was_sent_is_in_doubt_until_ec2_would_show_it():
    sent = Ledger().with_next(REQUEST, began(3600), NOW)

    assert sent.doubt_s(began(3600), NOW) == CONSISTENCY_S
    assert sent.doubt_s(began(3600), NOW + timedelta(seconds=20)) == CONSISTENCY_S - 20
    assert sent.doubt_s(began(3600), NOW + timedelta(seconds=CONSISTENCY_S)) == 0
    assert sent.doubt_s(began(1), NOW) == 0
    assert Ledger().doubt_s(None, NOW) == 0


def test_no_clock_decides_whether_a_modification_is_ours():
    """EC2's clock may be behind ours by minutes."""
    sent = Ledger().with_next(REQUEST, began(3600), NOW)

    assert sent.doubt_s(began(250), NOW) == 0
    assert sent.left(began(250), NOW) == MOST - 1


def test_what_did_not_take_place_does_not_count():
    sent = Ledger().with_next(REQUEST, None, NOW)
    later = NOW + timedelta(seconds=CONSISTENCY_S)

    assert sent.left(None, NOW) == MOST - 1
    assert sent.left(None, later) == MOST
    assert sent.settled(None, later) == Ledger()
    assert sent.without_last() == Ledger()


def test_four_in_a_day_and_then_the_oldest_has_to_age():
    found = ledger(25, 20, 10, 5, 1)

    assert found.left(None, NOW) == 0
    assert found.more_at(None, NOW) == NOW - timedelta(hours=20) + WINDOW
    assert ledger(30, 25).left(None, NOW) == MOST
    assert ledger(30, 25).more_at(None, NOW) is None
    assert ledger(10).more_at(None, NOW) == NOW + timedelta(hours=14, minutes=1)


def test_what_somebody_else_has_modified_counts_too():
    assert ledger(10).left(began(7200), NOW) == MOST - 2
    assert ledger(2).left(began(7200), NOW) == MOST - 1
    assert Ledger().left(began(7200), NOW) == MOST - 1


def test_what_is_asked_is_told_in_words():
    request = ModifyRequest("vol-1", 20, "gp3", 4000, 250)

    assert summary(request) == "20 GiB, gp3, 4000 IOPS, 250 MiB/s"


AGES = st.lists(st.floats(0, 60), max_size=12).map(lambda ages: sorted(ages, reverse=True))


@given(AGES)
def test_one_more_is_allowed_at_the_time_that_is_told(ages):
    found = ledger(*ages)
    left, more_at = found.left(None, NOW), found.more_at(None, NOW)

    assert 0 <= left <= MOST
    if left == 0:
        assert more_at is not None
        assert more_at > NOW
        assert found.left(None, more_at) >= 1
        assert found.left(None, more_at - timedelta(seconds=1)) == 0


@given(AGES)
def test_a_note_never_grows_without_bound(ages):
    found = ledger(*ages)
    for _ in range(20):
        found = found.with_next(REQUEST, began(1), NOW)

    assert len(written(found)) < 1500


def test_a_note_of_a_time_that_ec2_would_have_refused_is_not_believed():
    near, far = Start(NOW + timedelta(minutes=9)), Start(NOW + timedelta(minutes=11))

    assert Ledger((near, far)).plausible(NOW) == Ledger((near,))
    assert ledger(30, 1).plausible(NOW) == ledger(30, 1)


def test_a_call_that_goes_again_is_in_doubt_from_then_on():
    sent = Ledger().with_next(REQUEST, began(3600), NOW)
    later = NOW + timedelta(seconds=CONSISTENCY_S)

    again = sent.with_last_at(later)

    assert again.doubt_s(began(3600), later) == CONSISTENCY_S
    assert len(again.starts) == 1


def test_the_last_note_is_the_last_one_whatever_the_clocks_say():
    """Written by a leader whose clock is behind that of the one before it."""
    ahead = Ledger((Start(NOW + timedelta(minutes=2), "the one before"),))

    sent = read(written(ahead.with_next(REQUEST, began(30), NOW)))

    assert sent.starts[-1].after == name_of(began(30))
    assert sent.doubt_s(began(30), NOW) == CONSISTENCY_S
