"""Which snapshots are taken while pods run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving import warm_rules as rules
from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.warm_rules import Discard, Take, Warmed
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.ebs_snapshot import EVERY_S, EbsSnapshot, SnapshotState
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume, VolumeState
from provisioner.model.volume_move import VolumeMove
from tests.builders import VOLUME, a_volume

SLOW_S, FAST_S = 600.0, 20.0


def a_move(*warm: str, wanted: bool = True) -> VolumeMove:
    status = {"warm": [*warm], "message": "it is being taken", "source": {"volumeID": VOLUME}}
    return msgspec.convert({"spec": {"warm": wanted}, "status": status}, VolumeMove)


def attached() -> Volume:
    on = InstanceAttachment("i-1", "/dev/xvdba", AttachmentState.ATTACHED)
    return replace(a_volume(), state=VolumeState.IN_USE, attachments=(on,))


DETACHED = replace(a_volume(), attachments=())


def last(state: SnapshotState = SnapshotState.COMPLETED) -> EbsSnapshot:
    return EbsSnapshot("snap-1", VOLUME, state, 4)


def test_they_are_for_a_volume_that_a_node_has_unless_nobody_wants_them():
    assert rules.is_worth_it(a_move(), attached())
    assert not rules.is_worth_it(a_move(), DETACHED)
    assert not rules.is_worth_it(a_move(wanted=False), attached())


def test_they_are_repeated_until_one_was_fast():
    step = rules.next_warm_step

    assert step(a_move(), attached(), None, float("inf")) == Take(1)
    assert step(a_move("a"), attached(), last(), SLOW_S) == Take(2)
    assert step(a_move("a", "b"), attached(), last(), FAST_S) == Warmed()


def test_a_volume_that_much_is_written_to_is_not_followed_for_ever():
    known = [str(number) for number in range(rules.MOST_WARM)]

    assert rules.next_warm_step(a_move(*known), attached(), last(), SLOW_S) == Warmed()
    assert rules.next_warm_step(a_move(*known[:-1]), attached(), last(), SLOW_S) == Take(4)


def test_pods_are_not_stopped_before_ec2_takes_the_next_snapshot():
    soon = rules.next_warm_step(a_move("a"), attached(), last(), EVERY_S - 1)

    assert isinstance(soon, Await)
    assert rules.next_warm_step(a_move("a"), attached(), last(), EVERY_S) == Warmed()


@pytest.mark.parametrize("volume", [attached(), DETACHED])
def test_one_that_is_being_taken_is_waited_for(volume: Any):
    pending = last(SnapshotState.PENDING)

    assert rules.next_warm_step(a_move("a"), volume, pending, SLOW_S) == Await("it is being taken")


def test_whoever_has_stopped_the_pods_waits_for_no_other_one():
    assert rules.next_warm_step(a_move(), DETACHED, None, float("inf")) == Warmed()
    assert rules.next_warm_step(a_move("a"), DETACHED, last(), SLOW_S) == Warmed()
    assert rules.next_warm_step(a_move("a"), DETACHED, last(), EVERY_S - 1) == Warmed()


def test_one_that_failed_is_deleted_and_the_next_one_is_taken():
    """A failed one counts as one that is being taken: of st1 and sc1 there may be one only."""
    failed, step = last(SnapshotState.ERROR), rules.next_warm_step

    assert step(a_move("a"), attached(), failed, SLOW_S) == Discard("snap-1")
    assert isinstance(step(a_move("a"), attached(), None, CONSISTENCY_S - 1), Await)
    assert step(a_move("a"), attached(), None, CONSISTENCY_S) == Take(2)
    assert step(a_move("a", "b", "c", "d"), attached(), None, CONSISTENCY_S) == Warmed()


def test_a_volume_that_is_gone_ends_the_move():
    assert isinstance(rules.next_warm_step(a_move("a"), None, last(), SLOW_S), Undo)
