"""When a move is undone because it does not get on while the pods that it has stopped wait."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from provisioner.controller.moving.patience_rules import (
    GIVE_UP_AFTER_S,
    Patience,
    is_refused,
    undone,
)
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.volume_move import ConsumerWish, StopPolicy, VolumeMove
from tests.controller.move_record import a_done_move, in_phase


def a_move(phase: str, policy: StopPolicy = StopPolicy.RESTART, **status: Any) -> VolumeMove:
    move = in_phase(a_done_move(keeps=False), phase, **status)
    return structs.replace(
        move, spec=structs.replace(move.spec, consumers=ConsumerWish(policy=policy))
    )


def is_out_after(patience: Patience, move: VolumeMove, seconds: float, at_s: float = 0.0) -> bool:
    """Whether it is out when the move is refused once a minute for so long."""
    found = patience.is_out(move, at_s)
    for passed_s in range(0, int(seconds) + 1, 60):
        found = patience.is_out(move, at_s + passed_s)
    return found


@pytest.mark.parametrize("phase", ["Held", "Snapshotting", "Creating", "Checking", "Copying"])
@pytest.mark.parametrize("policy", [StopPolicy.RESTART, StopPolicy.SCALE_DOWN])
def test_what_is_refused_for_a_quarter_of_an_hour_undoes_a_move_that_stops_pods(
    phase: str, policy: StopPolicy
):
    move = a_move(phase, policy)

    assert not is_out_after(Patience(), move, GIVE_UP_AFTER_S - 60)
    assert is_out_after(Patience(), move, GIVE_UP_AFTER_S)
    assert undone("the key is disabled").message == (
        "given up, as it did not get on for 15 minutes: the key is disabled"
    )


@pytest.mark.parametrize(
    "move",
    [
        a_move("Creating", StopPolicy.WAIT),
        *(a_move(phase) for phase in ("Planned", "Warming", "Swapping", "Cleaning", "Aborting")),
    ],
    ids=["its user stops pods", "planned", "pods run", "swapping", "pods can run", "undone"],
)
def test_it_waits_for_as_long_as_it_takes_where_no_pod_waits_or_nothing_can_be_undone(
    move: VolumeMove,
):
    assert not is_out_after(Patience(), move, 10 * GIVE_UP_AFTER_S)


def test_refusals_with_a_long_pause_between_them_are_two_matters():
    patience, move = Patience(), a_move("Creating")

    assert not is_out_after(patience, move, GIVE_UP_AFTER_S / 2)
    assert not is_out_after(patience, move, GIVE_UP_AFTER_S / 2, at_s=3600.0)


def test_another_phase_or_a_pod_that_runs_begins_anew():
    patience = Patience()

    assert not is_out_after(patience, a_move("Snapshotting"), GIVE_UP_AFTER_S / 2)
    assert not is_out_after(patience, a_move("Creating"), GIVE_UP_AFTER_S / 2, at_s=480.0)
    patience.forget("move-uid")
    assert not is_out_after(patience, a_move("Creating"), GIVE_UP_AFTER_S / 2, at_s=960.0)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (StorageError(Reason.KEY_UNUSABLE, "the key is disabled"), True),
        (StorageError(Reason.THROTTLED, "busy"), False),
        (StorageError(Reason.NOT_LEADING, "another leads"), False),
        (StorageError(Reason.KEY_UNUSABLE, "lost", outcome=Outcome.UNKNOWN), False),
    ],
    ids=["refused", "throttled", "not leading", "reply lost"],
)
def test_no_answer_is_no_refusal(error: StorageError, *, refused: bool):
    assert is_refused(error) is refused
