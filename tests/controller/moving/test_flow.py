"""What the flow of moves does at the edges between its phases, with a record that is made up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.consumers import Consumers
from provisioner.controller.moving.flow import Mover
from provisioner.controller.moving.phase_rules import Use
from provisioner.model.decision import Later
from provisioner.model.document import Document
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.model.workload import Workload

OLD_UID, OLD_PV = "old-uid", "pvc-old"
PAST = "2020-01-01T00:00:00+00:00"


class FakeRecord:
    """The API server: one old PersistentVolume, and what was written."""

    def __init__(self, old: PersistentVolume | None) -> None:
        self.old = old
        self.policies: list[str] = []
        self.removed: list[str] = []
        self.written: list[Any] = []
        self.is_namespace_going = False

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        return self.old if name == OLD_PV else None

    async def set_policy(self, _: PersistentVolume, policy: str) -> None:
        self.policies.append(policy)

    async def write(self, move: VolumeMove, status: Any) -> VolumeMove:
        self.written.append(status)
        return move

    async def advance(
        self, move: VolumeMove, phase: Phase, message: str = "", **fields: Any
    ) -> VolumeMove:
        return await self.write(move, {"phase": phase, "message": message, **fields})

    async def create_claim(self, _: VolumeMove) -> bool:
        return not self.is_namespace_going

    async def claim(self, _: VolumeMove) -> None:
        return None

    async def uses(self, _: VolumeMove) -> list[Use]:
        return []

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


async def test_retain_that_somebody_sets_while_a_move_waits_is_what_the_swap_writes_down():
    mover, record = a_mover(None)
    claim = msgspec.convert({"metadata": {"name": "data", "uid": OLD_UID}}, Document)

    await mover._write_swap(a_done_move(keeps=False), claim, a_pv("Bound", "Retain"), volume="v")

    (status,) = record.written
    assert status["phase"] == Phase.SWAPPING
    assert status["source"]["reclaimPolicy"] == "Retain"
    assert status["source"]["claimUID"] == OLD_UID
    assert status["volume"] == "v"


async def test_a_claim_whose_namespace_goes_is_not_created_again_and_both_volumes_stay():
    mover, record = a_mover(a_pv("Released"))
    record.is_namespace_going = True

    await mover._swap(a_done_move(keeps=False))

    assert [each["phase"] for each in record.written] == [Phase.CLEANING]
    assert (record.policies, record.removed) == ([], [])


class FakeOwner(Consumers):
    """A StatefulSet that was recorded to be scaled from 3 to 0, and which nobody has changed."""

    def __init__(self, record: FakeRecord) -> None:
        self._record = record  # type: ignore[assignment]
        self.generation = 4
        self.replicas = 3
        self.scaled: list[int] = []

    async def _read(self, kind: str, name: str, namespace: str) -> Workload | None:
        body = {
            "metadata": {"name": name, "uid": "w", "generation": self.generation},
            "spec": {"replicas": self.replicas},
        }
        return msgspec.convert(body, Workload)

    async def _scale(self, consumer: Any, seen: Workload, replicas: int) -> None:
        self.scaled.append(replicas)


def a_scaling_move() -> VolumeMove:
    web = {
        "kind": "StatefulSet",
        "name": "web",
        "uid": "w",
        "scaleTo": 0,
        "replicas": 3,
        "generation": 4,
        "times": 1,
    }
    return msgspec.convert({"status": {"phase": "Aborting", "consumers": [web]}}, VolumeMove)


async def test_an_owner_that_a_lost_request_may_scale_down_yet_is_not_taken_for_brought_back():
    record = FakeRecord(None)
    owner = FakeOwner(record)

    await owner.bring_back(a_scaling_move(), is_settled=False)
    assert (record.written, owner.scaled) == ([], [])

    owner.replicas, owner.generation = 0, 5  # it has arrived
    await owner.bring_back(a_scaling_move(), is_settled=False)
    assert owner.scaled == [3]
    assert record.written[-1]["consumers"][0]["isBack"] is True


async def test_once_no_lost_request_can_come_any_more_an_unchanged_owner_is_back():
    record = FakeRecord(None)
    owner = FakeOwner(record)

    await owner.bring_back(a_scaling_move(), is_settled=True)

    assert owner.scaled == []
    assert record.written[-1]["consumers"][0]["isBack"] is True
