"""How moves end: the old volume gets its policy back, with a record that is made up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from provisioner.controller.moving.ending import MoveEnding
from provisioner.controller.moving.phase_rules import Await
from provisioner.model.decision import Later
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import Phase, VolumeMove
from tests.controller.move_record import (
    FakeCompanions,
    FakeOwner,
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


def a_cleaning(old: PersistentVolume | None) -> tuple[MoveEnding, FakeRecord]:
    ending, record = an_ending(old)
    ending._consumers, ending._companions = FakeOwner(record), FakeCompanions()  # type: ignore[assignment]
    ending._snapshots = NoSnapshots()  # type: ignore[assignment]
    return ending, record


class NoSnapshots:
    """Deletes what there is: nothing."""

    async def delete_known(self, _: VolumeMove) -> None:
        pass


async def test_the_old_volume_is_held_until_nothing_waits_to_have_it_attached():
    """A pod that was kept from it is gone by now; its attachment goes a little later."""
    ending, record = a_cleaning(a_pv("Released"))
    record.is_wanted = True
    since = datetime.now(UTC).isoformat()
    move = a_done_move(keeps=False)
    fresh = structs.replace(
        move, status=structs.replace(move.told, phase="Cleaning", phase_since=since)
    )

    assert isinstance(await ending.clean(fresh), Later)
    assert (record.let_go_with, record.written) == ([], [])

    record.is_wanted = False
    await ending.clean(fresh)
    assert record.let_go_with == [""]
    assert record.written[-1]["phase"] == Phase.DONE


async def test_it_is_not_held_for_ever_for_an_attachment_that_stays():
    ending, record = a_cleaning(a_pv("Released"))
    record.is_wanted = True

    await ending.clean(in_phase(a_done_move(keeps=False), "Cleaning"))

    assert record.let_go_with == [""]


async def test_the_end_of_a_move_whose_old_object_was_deleted_says_so():
    ending, record = a_cleaning(None)

    await ending.clean(in_phase(a_done_move(keeps=False), "Cleaning"))

    assert record.written[-1]["sourceKeptUntil"] == ""
    assert "nothing keeps the old volume" in record.written[-1]["message"]


async def test_pods_are_not_brought_back_before_the_moves_that_go_together_have_swapped():
    ending, record = an_ending(None)
    ending._companions = FakeCompanions(Await("it waits"))  # type: ignore[assignment]

    move = in_phase(a_done_move(keeps=False), "Cleaning")
    assert isinstance(await ending.clean(move), Later)
    assert record.written == [{"message": "it waits"}]
