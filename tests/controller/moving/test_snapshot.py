"""The snapshot of a move that is undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner import clock
from provisioner.controller.moving.snapshot import MoveSnapshots
from provisioner.controller.shared.services import Services
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import Later
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState

UID, SNAPSHOT = "move-uid", "snap-0123456789abcdef0"


@dataclass
class NewSnapshots:
    """EC2, which does not know what it has made before it is shown."""

    shown: list[EbsSnapshot] = field(default_factory=list)

    async def find_any(self, *_: Any) -> list[EbsSnapshot]:
        return self.shown

    async def delete(self, snapshot_id: str) -> bool:
        there = [each for each in self.shown if each.snapshot_id == snapshot_id]
        self.shown = []
        return bool(there)


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now


def taken() -> EbsSnapshot:
    return EbsSnapshot(SNAPSHOT, "vol-0123456789abcdef0", SnapshotState.PENDING, 4)


def of(ec2: NewSnapshots) -> MoveSnapshots:
    return MoveSnapshots(cast("Services", SimpleNamespace(snapshots=ec2)))


async def test_a_snapshot_that_ec2_shows_is_deleted_at_once(now_s: list[float]):
    ec2 = NewSnapshots([taken()])

    assert await of(ec2).delete_new(UID, SNAPSHOT) is None
    assert ec2.shown == []


async def test_a_snapshot_that_ec2_does_not_know_yet_is_deleted_once_it_does(now_s: list[float]):
    ec2 = NewSnapshots()
    snapshots = of(ec2)

    assert isinstance(await snapshots.delete_new(UID, SNAPSHOT), Later)
    ec2.shown = [taken()]
    assert await snapshots.delete_new(UID, SNAPSHOT) is None
    assert ec2.shown == []


async def test_a_snapshot_whose_id_nobody_has_written_down_is_found_and_deleted(
    now_s: list[float],
):
    ec2 = NewSnapshots([taken()])

    assert await of(ec2).delete_new(UID, "") is None
    assert ec2.shown == []


async def test_a_snapshot_that_is_never_shown_is_looked_for_for_a_minute(now_s: list[float]):
    snapshots = of(NewSnapshots())

    assert isinstance(await snapshots.delete_new(UID, SNAPSHOT), Later)
    now_s[0] += CONSISTENCY_S
    assert await snapshots.delete_new(UID, SNAPSHOT) is None
