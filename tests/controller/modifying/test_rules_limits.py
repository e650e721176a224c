"""What is said while EC2 takes no modification, and which failure is one of what is wanted."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.controller.modifying.rules import Limit, has_failed_in, not_before
from provisioner.controller.modifying.shape_rules import TargetShape
from provisioner.model.budget import Ledger, Start
from provisioner.model.modification import Modification, ModificationState, Shape

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HAS = Shape(10, "gp3", 3000, 125)
LARGER = Shape(20, "gp3", 3000, 125)


def test_ec2_s_own_limit_is_not_told_as_four_that_are_used_up():
    until = NOW + timedelta(hours=6)

    waits = not_before(Ledger(), None, NOW, Limit(until))

    assert waits is not None
    assert waits.at == until
    assert "until 2026-11-22 18:00:00 UTC" in waits.message
    assert "used up" not in waits.message
    assert not_before(Ledger(), None, NOW, Limit(NOW)) is None


def test_four_that_are_used_up_are_told_as_that():
    starts = tuple(Start(NOW - timedelta(hours=each), "x") for each in (23, 10, 5, 1))

    waits = not_before(Ledger(starts), None, NOW, None)

    assert waits is not None
    assert "4 modifications of a volume in 24 hours, and all are used up" in waits.message


@pytest.mark.parametrize(
    ("was", "days_ago", "target", "is_about"),
    [
        (LARGER, 0, TargetShape(20, "gp3", None, None), True),
        (LARGER, 0, TargetShape(20, "gp3", 4000, None), True),  # a class came later
        (LARGER, None, TargetShape(20, "gp3", None, None), True),
        (Shape(10, "gp3", 4000, 125), 0, TargetShape(10, "gp3", 4000, None), True),
        (LARGER, 300, TargetShape(20, "gp3", None, None), False),
        (HAS, 0, TargetShape(20, "gp3", None, None), False),
        (LARGER, 0, TargetShape(30, "gp3", None, None), False),
        (LARGER, 0, TargetShape(10, "gp3", 4000, None), False),
    ],
)
def test_a_failure_is_told_to_who_wants_what_has_failed(
    was: Shape, days_ago: int | None, target: TargetShape, *, is_about: bool
):
    began = None if days_ago is None else NOW - timedelta(days=days_ago)
    failed = Modification("vol-1", ModificationState.FAILED, was, started_at=began)

    assert has_failed_in(failed, HAS, target, NOW) is is_about
