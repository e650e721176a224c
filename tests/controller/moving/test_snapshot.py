"""The snapshots of a move that is undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from provisioner import clock
from provisioner.controller.moving.snapshot import MoveSnapshots, mark_of
from provisioner.controller.shared.services import Services
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import Later
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.names import MOVE_SNAPSHOT
from provisioner.model.volume_move import VolumeMove

UID, SNAPSHOT = "move-uid", "snap-0123456789abcdef0"


@dataclass
class NewSnapshots:
    """EC2, which does not know what it has made before it is shown."""

    shown: list[EbsSnapshot] = field(default_factory=list)
    looks: int = 0

    async def find_any(self, key: str, values: Any) -> list[EbsSnapshot]:
        self.looks += 1
        return [each for each in self.shown if each.tags[key] in values]

    async def find(self, mark: str) -> list[EbsSnapshot]:
        return await self.find_any(MOVE_SNAPSHOT, [mark])

    async def delete(self, snapshot_id: str, *, patient: bool) -> bool:
        assert patient, "the deletions of others go first"
        there = [each for each in self.shown if each.snapshot_id == snapshot_id]
        self.shown = [each for each in self.shown if each not in there]
        return bool(there)


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now


def taken(number: int = 0, state: SnapshotState = SnapshotState.PENDING) -> EbsSnapshot:
    tags = {MOVE_SNAPSHOT: mark_of(UID, number)}
    name = f"{SNAPSHOT[:-1]}{number}"
    return EbsSnapshot(name, "vol-0123456789abcdef0", state, 4, tags=tags)


def undone(snapshot: str = "", warm: Any = (), of: str = "Snapshotting") -> VolumeMove:
    status = {"undoneFrom": of, "snapshot": snapshot, "warm": [*warm]}
    return msgspec.convert({"metadata": {"uid": UID}, "status": status}, VolumeMove)


def of(ec2: NewSnapshots) -> MoveSnapshots:
    watchers = SimpleNamespace(snapshots=SimpleNamespace(forget=lambda *_: None))
    given = SimpleNamespace(snapshots=ec2, move_snapshot_lookups=ec2, watchers=watchers)
    return MoveSnapshots(cast("Services", given), lambda _: None)


async def test_a_snapshot_that_ec2_shows_is_deleted_at_once(now_s: list[float]):
    ec2 = NewSnapshots([taken()])

    assert await of(ec2).delete_new(undone(SNAPSHOT)) is None
    assert (ec2.shown, ec2.looks) == ([], 0)


async def test_a_snapshot_that_ec2_does_not_know_yet_is_deleted_once_it_does(now_s: list[float]):
    ec2 = NewSnapshots()
    snapshots = of(ec2)

    assert isinstance(await snapshots.delete_new(undone(SNAPSHOT)), Later)
    ec2.shown = [taken()]
    assert await snapshots.delete_new(undone(SNAPSHOT)) is None
    assert ec2.shown == []


@pytest.mark.parametrize("state", [SnapshotState.PENDING, SnapshotState.ERROR])
async def test_a_snapshot_whose_id_nobody_has_written_down_is_found_and_deleted(
    now_s: list[float], state: Any
):
    ec2 = NewSnapshots([taken(state=state)])

    assert await of(ec2).delete_new(undone("")) is None
    assert ec2.shown == []


async def test_a_snapshot_that_is_never_shown_is_looked_for_for_a_minute(now_s: list[float]):
    snapshots = of(NewSnapshots())

    assert isinstance(await snapshots.delete_new(undone(SNAPSHOT)), Later)
    now_s[0] += CONSISTENCY_S
    assert await snapshots.delete_new(undone(SNAPSHOT)) is None


async def test_all_snapshots_taken_while_pods_ran_go_and_one_nobody_has_written_down_as_well(
    now_s: list[float],
):
    """The leader died between CreateSnapshot of number 3 and writing it."""
    ec2 = NewSnapshots([taken(1), taken(2), taken(3)])
    known = [taken(1).snapshot_id, taken(2).snapshot_id]

    assert await of(ec2).delete_new(undone(warm=known, of="Warming")) is None
    assert ec2.shown == []


async def test_the_last_one_may_be_unknown_to_ec2_for_a_minute_and_those_deleted_are_not_looked_for(
    now_s: list[float],
):
    ec2 = NewSnapshots([taken(1)])
    move, snapshots = undone(warm=[taken(1).snapshot_id], of="Warming"), of(ec2)

    assert isinstance(await snapshots.delete_new(move), Later)
    now_s[0] += CONSISTENCY_S - 1
    ec2.shown = [taken(2)]
    assert await snapshots.delete_new(move) is None
    assert ec2.shown == []


async def test_a_move_undone_from_held_looks_for_none_but_those_written_down(now_s: list[float]):
    ec2 = NewSnapshots([taken(1), taken()])

    assert await of(ec2).delete_new(undone(warm=[taken(1).snapshot_id], of="Held")) is None
    assert (ec2.shown, ec2.looks) == ([taken()], 0)


async def test_what_is_written_down_is_deleted_by_a_process_that_was_certain_of_nothing_before(
    now_s: list[float],
):
    ec2 = NewSnapshots([taken(1)])
    snapshots = of(ec2)
    snapshots.begin(mark_of(UID, 1))  # and another leader has taken it

    move = undone(warm=[taken(1).snapshot_id], of="Held")
    assert await snapshots.delete_new(move) is None
    assert ec2.shown == []


async def test_at_the_end_all_that_are_written_down_go(now_s: list[float]):
    ec2 = NewSnapshots([taken(1), taken(2), taken()])
    move = undone(taken().snapshot_id, [taken(1).snapshot_id, taken(2).snapshot_id], of="")

    await of(ec2).delete_known(move)
    assert ec2.shown == []


async def test_one_that_is_taken_while_pods_run_is_not_taken_for_the_one_that_counts(
    now_s: list[float],
):
    snapshots = of(NewSnapshots([taken(1)]))

    assert isinstance(await snapshots.find(UID), Later)
    assert await snapshots.find(mark_of(UID, 1)) == taken(1)
