from __future__ import annotations

from provisioner.ec2.snapshot_turns import (
    ALONE_MOST_S,
    IN_A_ROW,
    PER_ACCOUNT,
    PER_VOLUME,
    PROBE_MOST_S,
    PROBE_S,
    Turns,
)
from provisioner.model.ebs_snapshot import EVERY_S

CONCURRENT = "ConcurrentSnapshotLimitExceeded"  # of a volume, or of the account


def refuse(turns: Turns, volume_id: str, now_s: float, code: str = CONCURRENT) -> None:
    turns.begin(volume_id)
    turns.refused(volume_id, now_s, code=code)
    turns.end(volume_id, now_s, reached=False)


def full() -> Turns:
    """EC2 has refused several volumes at second 0."""
    turns = Turns()
    for number in range(IN_A_ROW):
        refuse(turns, f"refused-{number}", 0.0)
    return turns


def test_of_one_volume_one_snapshot_is_asked_for_at_a_time():
    turns = Turns()
    turns.begin("a")

    assert turns.waits_s("a", 0.0) > 0
    assert turns.waits_s("b", 0.0) == 0

    turns.end("a", 2.0)

    assert turns.waits_s("a", 2.0) == EVERY_S
    assert turns.waits_s("a", 2.0 + EVERY_S) == 0


def test_what_ec2_refused_is_no_snapshot():
    turns = Turns()
    turns.begin("a")
    turns.end("a", 2.0, reached=False)

    assert turns.waits_s("a", 2.0) == 0


def test_volumes_that_had_one_by_somebody_else_wait_alone():
    turns = Turns()
    for volume_id in "abcdef":
        refuse(turns, volume_id, 1.0, PER_VOLUME)

    assert turns.waits_s("a", 1.0) == EVERY_S
    assert turns.waits_s("z", 1.0) == 0


def test_one_volume_at_its_own_limit_waits_alone_and_longer_each_time():
    turns = Turns()
    waits = []
    for again in range(4):
        refuse(turns, "a", again * 100.0)
        waits.append(turns.waits_s("a", again * 100.0))

    assert waits == [EVERY_S, 2 * EVERY_S, ALONE_MOST_S, ALONE_MOST_S]
    assert turns.waits_s("b", 300.0) == 0
    assert "of this volume" in turns.why("a", 400.0)


def test_volumes_at_their_own_limits_close_nothing_while_others_succeed():
    turns = Turns()
    for number in range(10):
        refuse(turns, f"bad-{number}", 0.0)
        turns.begin(f"good-{number}")
        turns.end(f"good-{number}", 0.0)

    assert turns.waits_s("new", 0.0) == 0


def test_a_full_account_is_probed_by_one_first_by_a_volume_that_was_not_refused():
    turns = full()

    assert turns.waits_s("new", 0.0) == PROBE_S
    assert "the account" in turns.why("new", 0.0)
    assert turns.waits_s("new", PROBE_S) == 0
    assert turns.waits_s("refused-0", PROBE_S) > 0

    turns.begin("new")
    assert turns.waits_s("other", PROBE_S) > 0


def test_probes_that_fail_come_less_often():
    turns, at_s, pauses = full(), 0.0, []
    for number in range(4):
        pauses.append(turns.waits_s("refused-0", at_s) if number else PROBE_S)
        at_s += 100.0
        refuse(turns, "refused-1", at_s)

    assert pauses[-1] == PROBE_MOST_S + 1.0
    assert turns.waits_s("new", at_s) == PROBE_S


def test_a_full_account_is_opened_step_by_step():
    turns = full()
    for step, at_once in enumerate((2, 4, 8)):
        now_s = 100.0 * (step + 1)
        turns.begin(f"{step}")
        turns.end(f"{step}", now_s)
        for number in range(at_once):
            assert turns.waits_s("new", now_s) == 0
            turns.begin(f"{step} {number}")
        assert turns.waits_s("new", now_s) > 0
        for number in range(at_once):
            turns.end(f"{step} {number}", now_s, reached=False)


def test_the_code_that_is_of_the_account_only_closes_it_at_once():
    turns = Turns()
    refuse(turns, "a", 0.0, PER_ACCOUNT)

    assert turns.waits_s("b", 0.0) == PROBE_S


def test_what_ec2_said_long_ago_says_nothing_of_now():
    turns = full()
    refuse(turns, "a", 10_000.0)

    assert turns.waits_s("b", 10_000.0) == 0
