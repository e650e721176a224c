"""What the flow of moves does at the edges between its phases, with a record that is made up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.flow import Mover
from provisioner.model.decision import Later
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import VolumeMove

OLD_UID, OLD_PV = "old-uid", "pvc-old"
PAST = "2020-01-01T00:00:00+00:00"


class FakeRecord:
    """The API server: one old PersistentVolume, and what was written."""

    def __init__(self, old: PersistentVolume | None) -> None:
        self.old = old
        self.policies: list[str] = []
        self.removed: list[str] = []
        self.written: list[Any] = []

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        return self.old if name == OLD_PV else None

    async def set_policy(self, _: PersistentVolume, policy: str) -> None:
        self.policies.append(policy)

    async def write(self, move: VolumeMove, status: Any) -> VolumeMove:
        self.written.append(status)
        return move

    async def release(self, _: VolumeMove) -> None:
        pass


def a_mover(old: PersistentVolume | None) -> tuple[Mover, FakeRecord]:
    mover, record = object.__new__(Mover), FakeRecord(old)
    mover._record = record  # type: ignore[assignment]
    return mover, record


def a_done_move(*, keeps: bool) -> VolumeMove:
    body = {
        "metadata": {"name": "to-b", "namespace": "shop", "uid": "move-uid"},
        "spec": {"claimName": "data", "to": {"zone": "us-east-1b"}, "keepSource": "0h"},
        "status": {
            "phase": "Done",
            "source": {
                "claimUID": OLD_UID,
                "persistentVolume": OLD_PV,
                "volumeID": "vol-1",
                "reclaimPolicy": "Delete",
            },
            "plan": {"keepsVolume": keeps},
            "sourceKeptUntil": PAST,
        },
    }
    return msgspec.convert(body, VolumeMove)


def a_pv(phase: str, policy: str = "Retain") -> PersistentVolume:
    spec = {"persistentVolumeReclaimPolicy": policy, "claimRef": {"uid": OLD_UID}}
    body = {"metadata": {"name": OLD_PV}, "spec": spec, "status": {"phase": phase}}
    return msgspec.convert(body, PersistentVolume)


@pytest.mark.parametrize("keeps", [False, True])
async def test_the_end_waits_until_the_binder_has_released_the_old_volume(keeps: Any):
    mover, record = a_mover(a_pv("Bound"))

    assert isinstance(await mover._keep_source(a_done_move(keeps=keeps)), Later)
    assert (record.policies, record.written) == ([], [])


async def test_the_old_volume_of_a_copy_gets_its_policy_back_once_it_is_released():
    mover, record = a_mover(a_pv("Released"))

    await mover._keep_source(a_done_move(keeps=False))

    assert record.policies == ["Delete"]
    assert record.written[-1]["sourceKeptUntil"] == ""
