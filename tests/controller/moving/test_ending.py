"""How moves end: the old volume gets its policy back, with a record that is made up."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.controller.moving.ending import MoveEnding
from provisioner.controller.moving.phase_rules import Await
from provisioner.model.decision import Later
from provisioner.model.persistent_volume import PersistentVolume
from tests.controller.move_record import (
    FakeCompanions,
    FakeRecord,
    a_done_move,
    a_pv,
    in_phase,
)


def an_ending(old: PersistentVolume | None) -> tuple[MoveEnding, FakeRecord]:
    ending, record = object.__new__(MoveEnding), FakeRecord(old)
    ending._record = record  # type: ignore[assignment]
    return ending, record


@pytest.mark.parametrize("keeps", [False, True])
async def test_the_end_waits_until_the_binder_has_released_the_old_volume(keeps: Any):
    ending, record = an_ending(a_pv("Bound"))

    assert isinstance(await ending.keep_source(a_done_move(keeps=keeps)), Later)
    assert (record.policies, record.written) == ([], [])


async def test_the_old_volume_of_a_copy_gets_its_policy_back_once_it_is_released():
    ending, record = an_ending(a_pv("Released"))

    await ending.keep_source(a_done_move(keeps=False))

    assert record.policies == ["Delete"]
    assert record.written[-1]["sourceKeptUntil"] == ""


async def test_pods_are_not_brought_back_before_the_moves_that_go_together_have_swapped():
    ending, record = an_ending(None)
    ending._companions = FakeCompanions(Await("it waits"))  # type: ignore[assignment]

    move = in_phase(a_done_move(keeps=False), "Cleaning")
    assert isinstance(await ending.clean(move), Later)
    assert record.written == [{"message": "it waits"}]
