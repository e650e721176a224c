"""The new volume of a move that is undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner import clock
from provisioner.controller.moving.creation import MoveVolumes
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.shared.services import Services
from provisioner.metrics import Metrics
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import Later
from provisioner.model.volume import Volume
from provisioner.model.volume_move import VolumeMove
from tests.builders import DRIVER, VOLUME, a_volume
from tests.controller.moving.test_phase_rules import a_move

MOVE = a_move()


@dataclass
class NewVolumes:
    """EC2, which does not know what it has made before it is shown."""

    shown: list[Volume] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    patient: Any = None

    async def find(self, _: str) -> list[Volume]:
        return self.shown

    async def delete(self, volume_id: str, **_: Any) -> bool:
        self.asked.append(volume_id)
        there = [each for each in self.shown if each.volume_id == volume_id]
        self.shown = []
        return bool(there)


class NoObjects:
    """No PersistentVolume was created."""

    async def persistent_volume(self, _: str) -> None:
        return None


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now


def volumes_of(ec2: NewVolumes, known: str = "") -> MoveVolumes:
    """``known``: what CreateVolume has answered."""
    parts = dict.fromkeys(("client", "caches", "watcher", "unclaimed", "events"))
    settings = SimpleNamespace(driver=DRIVER)
    given = {"volumes": ec2, "lookups": ec2, "metrics": Metrics(), "settings": settings}
    services = cast("Services", SimpleNamespace(**parts, **given))
    found = MoveVolumes(services, cast("MoveRecord", NoObjects()), lambda _: None)
    vars(found)["_creations"] = SimpleNamespace(abandon=lambda _: known)
    return found


async def undone(volumes: MoveVolumes, move: VolumeMove = MOVE) -> bool:
    return not isinstance(await volumes.undo(move), Later)


async def test_a_volume_that_ec2_shows_is_deleted_at_once(now_s: list[float]):
    ec2 = NewVolumes(shown=[a_volume()])

    assert await undone(volumes_of(ec2, VOLUME))
    assert (ec2.asked, ec2.shown) == ([VOLUME], [])


async def test_a_volume_that_ec2_does_not_know_yet_is_deleted_once_it_does(now_s: list[float]):
    ec2 = NewVolumes()
    volumes = volumes_of(ec2, VOLUME)

    assert not await undone(volumes)
    ec2.shown = [a_volume()]
    vars(volumes)["_creations"] = SimpleNamespace(abandon=lambda _: "")
    assert await undone(volumes)
    assert (ec2.asked, ec2.shown) == ([VOLUME, VOLUME], [])


async def test_a_volume_that_is_never_shown_is_looked_for_for_a_minute(now_s: list[float]):
    volumes = volumes_of(NewVolumes(), VOLUME)

    assert not await undone(volumes)
    now_s[0] += CONSISTENCY_S
    assert await undone(volumes)


def test_what_ec2_has_shown_is_told_of_the_very_volume_and_no_longer_than_its_move():
    volumes = volumes_of(NewVolumes())
    volumes._shown[MOVE.uid] = a_volume()
    vars(volumes)["_creations"] = SimpleNamespace(forget=lambda _: None, attempts={})

    assert volumes.shown(MOVE.uid, VOLUME) == a_volume()
    assert volumes.shown(MOVE.uid, "vol-other") is None
    volumes.forget(MOVE.uid)
    assert volumes.shown(MOVE.uid, VOLUME) is None


def test_a_persistent_volume_is_not_asked_for_while_this_process_makes_it():
    volumes = volumes_of(NewVolumes())
    attempts: dict[str, Any] = {}
    vars(volumes)["_creations"] = SimpleNamespace(attempts=attempts)

    assert not volumes.is_under_way(MOVE.uid)
    volumes.begin(MOVE.uid)
    assert volumes.is_under_way(MOVE.uid)
    volumes._certain.clear()
    attempts[MOVE.uid] = object()
    assert volumes.is_under_way(MOVE.uid)
