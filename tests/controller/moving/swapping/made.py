"""A ``Swapping`` whose record, companions and other moves are made up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from provisioner.controller.moving.swapping.flow import Swapping
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import VolumeMove
from tests.builders import DRIVER
from tests.controller.move_record import (
    FakeCompanions,
    FakeRecord,
)


class SwappingMoves:
    """The moves that swap: those that the test names, and those that have written so."""

    def __init__(self, record: FakeRecord) -> None:
        self.record = record
        self.others: list[VolumeMove] = []

    def keyed(self, index: str, phase: str) -> list[VolumeMove]:
        assert index == "phase"
        return [each for each in self.others if each.told.phase == phase]


def a_swapping(old: PersistentVolume | None) -> tuple[Swapping, FakeRecord]:
    swapping, record = object.__new__(Swapping), FakeRecord(old)
    swapping._record = record  # type: ignore[assignment]
    swapping._driver = DRIVER
    swapping._counting = asyncio.Lock()
    swapping._caches = SimpleNamespace(moves=SwappingMoves(record))  # type: ignore[assignment]
    swapping._companions = FakeCompanions()  # type: ignore[assignment]
    return swapping, record
