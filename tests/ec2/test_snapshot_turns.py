from __future__ import annotations

import pytest

from provisioner.ec2.snapshots import Turns, rests_after
from provisioner.model.ebs_snapshot import EVERY_S
from provisioner.model.errors import Ec2Error, Outcome, Reason


def test_of_one_volume_one_snapshot_is_asked_for_at_a_time():
    turns = Turns()
    turns.begin("a")

    assert turns.waits_s("a", 0.0) > 0
    assert turns.waits_s("b", 0.0) == 0

    turns.end("a", 2.0)

    assert turns.waits_s("a", 2.0) == EVERY_S
    assert turns.waits_s("a", 2.0 + EVERY_S) == 0


def test_what_was_not_sent_holds_nothing_up():
    turns = Turns()
    turns.begin("a")
    turns.end("a", 2.0, rests=False)

    assert turns.waits_s("a", 2.0) == 0


def test_volumes_that_ec2_refused_hold_up_no_other_one():
    turns = Turns()
    for volume_id in "abcdef":
        turns.begin(volume_id)
        turns.end(volume_id, 1.0)

    assert turns.waits_s("a", 1.0) == EVERY_S
    assert turns.waits_s("z", 1.0) == 0


@pytest.mark.parametrize(
    ("reason", "outcome", "rests"),
    [
        (Reason.SNAPSHOT_RATE, Outcome.NOTHING, True),
        (Reason.REPLY_LOST, Outcome.UNKNOWN, True),
        (Reason.PERMISSION_DENIED, Outcome.NOTHING, False),
    ],
)
def test_when_a_volume_rests(reason: Reason, outcome: Outcome, *, rests: bool):
    error = Ec2Error(reason, "no", action="CreateSnapshot", outcome=outcome)

    assert rests_after(error) is rests
