"""The new volume of a move that is undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from provisioner import clock
from provisioner.controller.moving import creation, patience_rules
from provisioner.controller.moving.creation import MoveVolumes
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.shared.services import Services
from provisioner.metrics import Metrics
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import Later
from provisioner.model.errors import KubeError, Reason
from provisioner.model.persistent_volume import PersistentVolume
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

    async def delete(self, volume_id: str, *, gate: Callable[[], Awaitable[None]]) -> bool:
        await gate()
        self.asked.append(volume_id)
        there = [each for each in self.shown if each.volume_id == volume_id]
        self.shown = []
        return bool(there)


@dataclass
class Objects:
    """The new PersistentVolume, if there is one; ``removed``: what was deleted of it."""

    saved: PersistentVolume | None = None
    named: KubeError | None = None
    removed: list[str] = field(default_factory=list)

    async def persistent_volume(self, _: str) -> PersistentVolume | None:
        return self.saved

    async def remove_volume_object(self, found: PersistentVolume) -> None:
        self.removed.append(found.name)

    async def nobody_names(self, _: str) -> None:
        if self.named is not None:
            raise self.named


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now


def volumes_of(ec2: NewVolumes, known: str = "", objects: Objects | None = None) -> MoveVolumes:
    """``known``: what CreateVolume has answered."""
    parts: dict[str, Any] = dict.fromkeys(("client", "watcher", "unclaimed", "events"))
    parts["caches"] = objects = objects or Objects()
    settings = SimpleNamespace(driver=DRIVER)
    given = {"volumes": ec2, "lookups": ec2, "metrics": Metrics(), "settings": settings}
    services = cast("Services", SimpleNamespace(**parts, **given))
    found = MoveVolumes(services, cast("MoveRecord", objects), lambda _: None)
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


def a_new_pv(phase: str, uid: str = "", volume_id: str = VOLUME) -> PersistentVolume:
    spec = {"claimRef": {"uid": uid}, "csi": {"driver": DRIVER, "volumeHandle": volume_id}}
    meta = {"name": MOVE.persistent_volume_name}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"phase": phase}}, PersistentVolume
    )


async def test_a_volume_that_a_claim_has_by_now_is_not_undone():
    ec2, objects = NewVolumes(shown=[a_volume()]), Objects(a_new_pv("Bound", "claim-uid"))

    assert await undone(volumes_of(ec2, VOLUME, objects))
    assert (ec2.asked, objects.removed) == ([], [])


async def test_the_object_goes_before_its_volume():
    ec2, objects = NewVolumes(shown=[a_volume()]), Objects(a_new_pv("Available"))

    assert not await undone(volumes_of(ec2, VOLUME, objects))
    assert (ec2.asked, objects.removed) == ([], [MOVE.persistent_volume_name])


async def test_what_is_withdrawn_is_the_object_that_no_claim_has_and_not_its_volume():
    ec2, objects = NewVolumes(shown=[a_volume()]), Objects(a_new_pv("Available"))
    await volumes_of(ec2, VOLUME, objects).withdraw(MOVE)
    assert (ec2.asked, objects.removed) == ([], [MOVE.persistent_volume_name])

    taken = Objects(a_new_pv("Bound", "claim-uid"))
    await volumes_of(ec2, VOLUME, taken).withdraw(MOVE)
    assert taken.removed == []


@pytest.mark.parametrize("known", [VOLUME, ""])
async def test_a_volume_that_another_object_names_is_not_deleted_and_the_move_ends(known: str):
    """Else it would try again for ever, and its namespace could not be deleted."""
    named = KubeError(Reason.CONFLICT, "PersistentVolume by-hand names it")
    ec2, objects = NewVolumes(shown=[a_volume()]), Objects(named=named)

    assert await undone(volumes_of(ec2, known, objects))
    assert ec2.asked == []


async def test_a_volume_is_not_given_up_because_nobody_knows_who_names_it():
    silent = KubeError(Reason.UNREACHABLE, "no answer")
    ec2 = NewVolumes(shown=[a_volume()])

    with pytest.raises(KubeError, match="no answer"):
        await undone(volumes_of(ec2, VOLUME, Objects(named=silent)))
    assert ec2.asked == []


@pytest.mark.parametrize("volume_id", [VOLUME, "vol-other"])
def test_an_object_of_that_name_which_names_another_volume_is_told(volume_id: str):
    volumes = volumes_of(NewVolumes())

    said = volumes._conflict(a_new_pv("Available", "", volume_id), cast("Any", None), a_volume())

    assert (said is None) is (volume_id == VOLUME)


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


def test_a_move_that_is_refused_again_and_again_is_tried_often_enough_to_be_given_up(
    monkeypatch: pytest.MonkeyPatch,
):
    given: dict[str, Any] = {}
    monkeypatch.setattr(creation, "Creations", lambda _, **named: given.update(named))
    volumes_of(NewVolumes())

    pause_s = given["most_pause_s"] * 1.1 * 1.1  # the jitter of the creations, and of the queue
    assert pause_s + CONSISTENCY_S + LOOK_AGAIN_S < patience_rules._PAUSE_S
