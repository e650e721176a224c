"""How the volume that a claim gets again is held, with a record that is made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from provisioner.controller.moving.going_back.flow import GoingBack
from provisioner.controller.moving.phase_rules import Undo
from provisioner.model.decision import AGAIN
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_move import MoveKept, MoveTarget, VolumeMove
from tests.builders import DRIVER, a_volume
from tests.controller.move_record import FakeRecord, a_done_move, a_pv, in_phase

KEPT = MoveKept(persistent_volume="pv-0", volume_id="vol-0", claim_uid="before")


class TheVolume:
    """EC2, which has it, attached to nothing."""

    async def volume(self, volume_id: str) -> Volume:
        free = replace(a_volume(), volume_id=volume_id, state=VolumeState.AVAILABLE)
        return replace(free, attachments=())


def a_move() -> VolumeMove:
    move = in_phase(a_done_move(keeps=False), "Held", kept=KEPT)
    spec = msgspec.structs.replace(move.spec, to=MoveTarget(source="there"))
    return msgspec.structs.replace(move, spec=spec)


def kept_pv(policy: str = "Retain", **notes: str) -> PersistentVolume:
    body = {
        "metadata": {"name": "pv-0", "annotations": notes},
        "spec": {
            "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"uid": "before"},
            "csi": {"driver": DRIVER, "volumeHandle": "vol-0"},
        },
        "status": {"phase": "Released"},
    }
    return msgspec.convert(body, PersistentVolume)


def a_flow(found: PersistentVolume) -> tuple[GoingBack, FakeRecord]:
    record = FakeRecord(a_pv("Bound"))
    record.others = {"pv-0": found}
    services: Any = SimpleNamespace(
        client=None,
        caches=None,
        volume_reads=TheVolume(),
        settings=SimpleNamespace(driver=DRIVER),
    )
    return GoingBack(services, cast("Any", record)), record


async def test_the_kept_volume_is_held_and_then_looked_at_again():
    flow, record = a_flow(kept_pv())

    assert await flow.hold(a_move(), a_pv("Bound")) == AGAIN
    assert record.held == ["pv-0"]

    record.others = {"pv-0": kept_pv(**{HELD_FOR_MOVE: "shop/to-b"})}
    assert await flow.hold(a_move(), a_pv("Bound")) is None
    assert record.held == ["pv-0"]


async def test_a_volume_that_was_let_go_right_before_it_was_held_undoes_the_move():
    """keepSource of the other move ended between the first look and the hold."""
    flow, record = a_flow(kept_pv())
    await flow.hold(a_move(), a_pv("Bound"))

    record.others = {"pv-0": kept_pv("Delete", **{HELD_FOR_MOVE: "shop/to-b"})}
    assert isinstance(await flow.hold(a_move(), a_pv("Bound")), Undo)


async def test_a_move_that_does_not_go_back_looks_at_nothing():
    flow, _ = a_flow(kept_pv())

    assert await flow.look(a_done_move(keeps=False)) is None
