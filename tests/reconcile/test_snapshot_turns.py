from __future__ import annotations

from provisioner.decide.snapshot_content import EVERY_S
from provisioner.reconcile.snapshot_turns import PROBE_S, Turns


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


def test_a_volume_that_had_one_by_somebody_else_waits_alone():
    turns = Turns()
    turns.begin("a")
    turns.refused("a", 1.0, by_volume=True)
    turns.end("a", 1.0, reached=False)

    assert turns.waits_s("a", 1.0) == EVERY_S
    assert turns.waits_s("b", 1.0) == 0


def test_a_full_account_is_probed_by_one_and_opened_step_by_step():
    turns = Turns()
    turns.begin("a")
    turns.refused("a", 0.0, by_volume=False)
    turns.end("a", 0.0, reached=False)

    assert turns.waits_s("b", 0.0) == PROBE_S
    assert "the account" in turns.why(0.0)
    assert turns.waits_s("b", PROBE_S) == 0

    turns.begin("b")
    assert turns.waits_s("c", PROBE_S) > 0
    turns.end("b", PROBE_S)
    turns.begin("c")
    assert turns.waits_s("d", PROBE_S) == 0
    turns.begin("d")
    assert turns.waits_s("e", PROBE_S) > 0
    assert "of a volume" in turns.why(PROBE_S)
