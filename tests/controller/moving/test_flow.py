"""What the flow of moves does at the edges between its phases, with a record that is made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.consumers import Consumers
from provisioner.controller.moving.flow import Mover
from provisioner.controller.moving.phase_rules import Use
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, Later
from provisioner.model.document import Document
from provisioner.model.names import POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_move import MoveConsumer, MovePlan, Phase, VolumeMove
from provisioner.model.workload import Workload
from tests.builders import DRIVER, VOLUME, a_volume

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
        self.new: PersistentVolume | None = None
        self.found: Document | None = None
        self.retained: list[str] = []
        self.let_go_with: list[str] = []
        self.created: list[Any] = []
        self.announced: list[str] = []

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        return self.old if name == OLD_PV else self.new

    async def try_volume_object(self, _: VolumeMove) -> None:
        pass

    async def retain(self, found: PersistentVolume) -> None:
        self.retained.append(found.reclaim_policy)

    async def let_go(self, _: VolumeMove, found: Any, policy: str = "") -> None:
        self.let_go_with.append(policy)

    async def create_volume_object(self, body: Any) -> None:
        self.created.append(body)

    async def announce(
        self, move: VolumeMove, message: str, *, reason: str, warning: bool, **fields: Any
    ) -> Any:
        self.announced.append(f"{warning} {message}")
        return await self.write(move, {"message": message, **fields})

    async def pods(self, _: VolumeMove) -> list[Any]:
        return []

    async def tell(self, move: VolumeMove, message: str, **fields: Any) -> VolumeMove:
        return await self.write(move, {"message": message, **fields})

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

    async def claim(self, _: VolumeMove) -> Document | None:
        return self.found

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
            "persistentVolume": {"metadata": {"name": "pvc-move-uid"}, "spec": {}},
            "sourceKeptUntil": PAST,
        },
    }
    return msgspec.convert(body, VolumeMove)


def a_pv(phase: str, policy: str = "Retain", **notes: str) -> PersistentVolume:
    spec = {"persistentVolumeReclaimPolicy": policy, "claimRef": {"uid": OLD_UID}}
    meta = {"name": OLD_PV, "annotations": notes}
    body = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
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


def a_claim(uid: str = OLD_UID, volume: str = OLD_PV) -> Document:
    meta = {"name": "data", "namespace": "shop", "uid": uid, "resourceVersion": "7"}
    return msgspec.convert({"metadata": meta, "spec": {"volumeName": volume}}, Document)


async def test_a_volume_that_stays_has_retain_before_its_claim_is_exchanged():
    mover, record = a_mover(a_pv("Bound", "Delete"))
    record.found = a_claim()
    move = a_done_move(keeps=True)

    assert await mover._begin_swap_of_form(move, a_pv("Bound", "Delete")) == AGAIN
    assert (record.retained, record.written) == (["Delete"], [])

    noted = a_pv("Bound", **{POLICY_BEFORE_MOVE: "Delete"})
    await mover._begin_swap_of_form(move, noted)

    (status,) = record.written
    assert (record.retained, status["phase"]) == (["Delete"], Phase.SWAPPING)
    assert status["source"]["reclaimPolicy"] == "Delete"
    assert status["persistentVolume"]["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


async def test_a_claim_that_is_deleted_after_retain_was_set_aborts_and_the_policy_comes_back():
    """Kubernetes then deletes the volume, as its user wanted; nothing is created again."""
    noted = a_pv("Released", **{POLICY_BEFORE_MOVE: "Delete"})
    mover, record = a_mover(noted)
    move = a_done_move(keeps=True)

    await mover._begin_swap_of_form(move, noted)
    assert record.written[-1]["phase"] == Phase.ABORTING

    mover._consumers = FakeOwner(record)
    await mover._undo(in_phase(move, "Aborting"))
    assert record.let_go_with == ["Delete"]
    assert record.written[-1]["phase"] == Phase.ABORTED
    assert record.created == []


def in_phase(move: VolumeMove, phase: str, **changes: Any) -> VolumeMove:
    status = msgspec.structs.replace(move.told, phase=phase, phase_since=PAST, **changes)
    return msgspec.structs.replace(move, status=status)


class FakeVolumes:
    """The new volume in EC2, and for how long its PersistentVolume is missing."""

    def __init__(self, made: Volume | None, missing_s: float) -> None:
        self.made = made
        self.missing_s = missing_s

    async def volume(self, volume_id: str) -> Volume | None:
        assert volume_id == VOLUME
        return self.made

    def missing_for_s(self, _: str) -> float:
        return self.missing_s

    def forget(self, _: str) -> None:
        pass


def a_mover_without_new(made: Volume | None, missing_s: float) -> tuple[Mover, FakeRecord]:
    """The claim waits for its new PersistentVolume, which somebody has deleted."""
    mover, record = a_mover(a_pv("Released"))
    record.found = a_claim("new", "pvc-move-uid")
    volumes = FakeVolumes(made, missing_s)
    mover._volumes = volumes  # type: ignore[assignment]
    mover._services = SimpleNamespace(volume_reads=volumes)  # type: ignore[assignment]
    return mover, record


def a_swapping_copy() -> VolumeMove:
    body = {"metadata": {"name": "pvc-move-uid"}, "spec": {"csi": {"driver": DRIVER}}}
    changes: Any = {"volume": VOLUME, "snapshot": "snap-1", "persistent_volume": body}
    return in_phase(a_done_move(keeps=False), "Swapping", **changes)


async def test_the_new_object_of_a_copy_that_its_user_deletes_is_created_again():
    mover, record = a_mover_without_new(a_volume(), CONSISTENCY_S)

    assert await mover._swap(a_swapping_copy()) == AGAIN

    (body,) = record.created
    assert body["metadata"]["name"] == "pvc-move-uid"
    assert body["spec"]["csi"] == {"driver": DRIVER, "volumeHandle": VOLUME}


async def test_it_is_not_created_again_before_ec2_would_show_that_its_volume_is_deleted():
    mover, record = a_mover_without_new(a_volume(), CONSISTENCY_S - 1)

    assert isinstance(await mover._swap(a_swapping_copy()), Later)

    assert record.created == []
    assert "was deleted" in record.written[-1]["message"]


@pytest.mark.parametrize("made", [None, replace(a_volume(), state=VolumeState.DELETING)])
async def test_a_new_volume_that_is_gone_is_told_with_the_snapshot_that_helps(made: Any):
    mover, record = a_mover_without_new(made, CONSISTENCY_S)

    assert isinstance(await mover._swap(a_swapping_copy()), Later)

    told = record.written[-1]["message"]
    assert record.created == []
    assert "from snapshot snap-1" in told
    assert f"PersistentVolume {OLD_PV} keeps the old volume vol-1" in told


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


@pytest.mark.parametrize(
    ("stops", "warning"),
    [(["StatefulSet web is scaled from 2 to 0, and back after the swap"], False), ([], True)],
)
async def test_an_owner_is_named_before_it_is_scaled_down_and_one_without_a_plan_warns(
    stops: Any, warning: Any
):
    record = FakeRecord(None)
    owner = FakeOwner(record)
    plan = MovePlan(stops=stops)
    known = [MoveConsumer(kind="StatefulSet", name="web", uid="w")]
    move = in_phase(a_done_move(keeps=False), "Held", plan=plan, consumers=known)

    await owner.stop(move)

    (said,) = record.announced
    assert said.startswith(f"{warning} StatefulSet web is scaled from 3 to 0")
    assert ("the plan does not name it" in said) is warning
    assert record.written[-1]["consumers"][0]["replicas"] == 3
    assert owner.scaled == [0]
