from __future__ import annotations

import pytest

from provisioner.controller.snapshotting.class_rules import slow_zones
from provisioner.controller.snapshotting.content_rules import (
    Attempt,
    Prepare,
    Record,
    follow,
)
from provisioner.model import volume_snapshot as v
from provisioner.model.decision import WHEN_WOKEN, Later, Refuse
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Reason
from tests.builders import VOLUME
from tests.snapshot_builders import SNAPSHOT, a_content, a_content_status

PREPARED, FRESH = Attempt(is_prepared=True), Attempt()
TAKEN = a_content(status=a_content_status())
GIVEN = a_content(given=SNAPSHOT)
GIVEN_SEEN = a_content(given=SNAPSHOT, status=a_content_status())


def seen(state: SnapshotState, message: str = "") -> EbsSnapshot:
    return EbsSnapshot(SNAPSHOT, VOLUME, state, 4, message=message)


PENDING, COMPLETED = seen(SnapshotState.PENDING), seen(SnapshotState.COMPLETED)


@pytest.mark.parametrize(
    ("content", "attempt", "found", "step"),
    [
        (TAKEN, FRESH, None, WHEN_WOKEN),
        # Fast restore and the lock come before the snapshot is ready, and as early as possible.
        (TAKEN, FRESH, PENDING, Prepare(SNAPSHOT)),
        (TAKEN, FRESH, COMPLETED, Prepare(SNAPSHOT)),
        (TAKEN, PREPARED, PENDING, WHEN_WOKEN),
        (TAKEN, PREPARED, COMPLETED, Record(COMPLETED, ready=True)),
        # What was given is used as it is.
        (GIVEN, FRESH, None, WHEN_WOKEN),
        (GIVEN, FRESH, PENDING, Record(PENDING)),
        (GIVEN_SEEN, FRESH, PENDING, WHEN_WOKEN),
        (GIVEN, FRESH, COMPLETED, Record(COMPLETED, ready=True)),
    ],
)
def test_a_snapshot_becomes_ready(
    content: v.VolumeSnapshotContent, attempt: Attempt, found: EbsSnapshot | None, step: object
):
    assert follow(content, attempt, found, None) == step


def test_a_snapshot_that_failed_is_told_with_ec2s_own_words():
    step = follow(TAKEN, PREPARED, seen(SnapshotState.ERROR, "the key is disabled"), None)

    assert isinstance(step, Refuse)
    assert step.reason is Reason.SNAPSHOT_STATE
    assert "the key is disabled" in step.message


@pytest.mark.parametrize("missing_for_s", [0.0, 59.0])
def test_ec2_may_take_a_minute_to_show_a_snapshot(missing_for_s: float):
    assert follow(TAKEN, FRESH, None, missing_for_s) == Later(max(60 - missing_for_s, 1.0))


def test_a_snapshot_that_stays_away_is_told():
    step = follow(TAKEN, FRESH, None, 60.0)

    assert isinstance(step, Refuse)
    assert step.reason is Reason.SNAPSHOT_NOT_FOUND
    assert SNAPSHOT in step.message


def test_only_what_is_missing_is_asked_for():
    states = {"a": "enabled", "b": "optimizing", "c": "disabled"}

    assert slow_zones(("a", "b", "c", "d"), states) == ("c", "d")
