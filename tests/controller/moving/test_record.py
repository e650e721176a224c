"""What a move writes to the PersistentVolume that its claim has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.record import MoveRecord
from provisioner.kube.client import Patch
from provisioner.model.names import HELD_FOR_MOVE, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import VolumeMove
from provisioner.model.workload import ControlledPod

META = {"name": "to-csi", "namespace": "shop", "uid": "move-uid"}
MOVE = msgspec.convert({"metadata": META}, VolumeMove)
HELD = {HELD_FOR_MOVE: "shop/to-csi"}
NOTED = {POLICY_BEFORE_MOVE: "Delete"}
EXACTLY = {"uid": "pv-uid", "resourceVersion": "7"}


class FakeClient:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def patch(self, _: Any, name: str, body: Any, *, kind: Patch) -> Any:
        assert (name, kind) == ("pvc-old", Patch.MERGE)
        self.bodies.append(body)


def a_record() -> tuple[MoveRecord, FakeClient]:
    record, client = object.__new__(MoveRecord), FakeClient()
    cache = SimpleNamespace(observe=lambda _: None)
    record._client = client  # type: ignore[assignment]
    record._caches = SimpleNamespace(persistent_volumes=cache)  # type: ignore[assignment]
    return record, client


def a_pv(policy: str = "Retain", **notes: str) -> PersistentVolume:
    meta = {"name": "pvc-old", **EXACTLY, "annotations": notes}
    body = {"metadata": meta, "spec": {"persistentVolumeReclaimPolicy": policy}}
    return msgspec.convert(body, PersistentVolume)


async def test_retain_and_the_policy_of_before_are_one_write_to_the_version_that_was_read():
    record, client = a_record()

    await record.retain(a_pv("Delete"))

    assert client.bodies == [
        {
            "metadata": EXACTLY | {"annotations": NOTED},
            "spec": {"persistentVolumeReclaimPolicy": "Retain"},
        }
    ]


async def test_the_policy_comes_back_in_the_write_that_lets_go():
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**HELD, **NOTED), "Delete")

    notes = {HELD_FOR_MOVE: None, POLICY_BEFORE_MOVE: None}
    assert client.bodies == [
        {
            "metadata": EXACTLY | {"annotations": notes},
            "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        }
    ]


@pytest.mark.parametrize(("notes", "policy"), [(HELD | NOTED, ""), (HELD, "Delete")])
async def test_retain_stays_after_the_swap_and_where_the_move_has_not_set_it(
    notes: dict[str, str], policy: str
):
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**notes), policy)

    assert client.bodies == [{"metadata": EXACTLY | {"annotations": dict.fromkeys(notes)}}]


@pytest.mark.parametrize("notes", [{}, {HELD_FOR_MOVE: "shop/another"} | NOTED])
async def test_what_is_not_of_this_move_is_left(notes: dict[str, str]):
    record, client = a_record()

    await record.let_go(MOVE, a_pv(**notes), "Delete")
    await record.let_go(MOVE, None, "Delete")

    assert client.bodies == []


class FakePods:
    """Lists two pods: one of the claim, one of a claim that may be moved with it, and a third."""

    async def list(self, _: Any, *, namespace: str) -> Any:
        assert namespace == "shop"
        return SimpleNamespace(items=[using(each) for each in ("data", "logs", "other")])


def using(claim: str) -> ControlledPod:
    volumes = [{"persistentVolumeClaim": {"claimName": claim}}]
    meta = {"name": f"with-{claim}", "namespace": "shop"}
    return msgspec.convert({"metadata": meta, "spec": {"volumes": volumes}}, ControlledPod)


@pytest.mark.parametrize(
    ("moved_with", "names"), [([], ["with-data"]), (["logs"], ["with-data", "with-logs"])]
)
async def test_the_pods_of_claims_that_are_moved_together_stop_together(
    moved_with: list[str], names: list[str]
):
    record, _ = a_record()
    record._client = FakePods()  # type: ignore[assignment]
    spec = {"claimName": "data", "movedWith": moved_with}
    move = msgspec.convert({"metadata": META, "spec": spec}, VolumeMove)

    assert [each.name for each in await record.pods(move)] == names
