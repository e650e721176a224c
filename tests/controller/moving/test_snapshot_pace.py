"""When the snapshot of a move is taken, and how its move comes to know that it is complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from provisioner import clock
from provisioner.controller.moving.snapshot import PENDING_AGAIN_S, MoveSnapshots
from provisioner.controller.shared.services import Services
from provisioner.ec2.pending_snapshots import MOST_PENDING
from provisioner.ec2.snapshots import Turns
from provisioner.ec2.watcher import Sighting
from provisioner.model.decision import Later
from provisioner.model.ebs_snapshot import EVERY_S, EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.volume_move import MoveSource, VolumeMove

UID, SNAPSHOT = "move-uid", "snap-0123456789abcdef0"


@dataclass
class FakeSnapshots:
    """EC2, which takes snapshots or refuses them."""

    asked: list[str] = field(default_factory=list)
    refusal: StorageError | None = None
    turns: Turns = field(default_factory=Turns)

    async def create(self, request: SnapshotRequest, *, patient: bool) -> EbsSnapshot:
        assert patient, "the snapshots of others go first"
        self.asked.append(request.volume_id)
        if self.refusal is not None:
            raise self.refusal
        return taken()


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now


def taken() -> EbsSnapshot:
    return EbsSnapshot(SNAPSHOT, "vol-0123456789abcdef0", SnapshotState.PENDING, 4)


@dataclass
class FakeWatcher:
    """What the last look at snapshots has shown."""

    sightings: dict[str, Sighting[EbsSnapshot]] = field(default_factory=dict)
    wakes: dict[str, Callable[[], None]] = field(default_factory=dict)
    trouble: StorageError | None = None

    def watch(self, snapshot_id: str, _: str, wake: Callable[[], None]) -> None:
        self.wakes[snapshot_id] = wake

    def forget(self, snapshot_id: str, _: str) -> None:
        self.wakes.pop(snapshot_id, None)

    def sighting(self, snapshot_id: str) -> Sighting[EbsSnapshot] | None:
        return self.sightings.get(snapshot_id)

    def trouble_with(self, _: str) -> StorageError | None:
        return self.trouble

    def show(self, state: SnapshotState) -> None:
        found = replace(taken(), state=state)
        self.sightings[SNAPSHOT] = Sighting(found, 0.0)
        self.wakes[SNAPSHOT]()


def of(
    ec2: FakeSnapshots, watcher: FakeWatcher | None = None, woken: list[str] | None = None
) -> MoveSnapshots:
    watchers = SimpleNamespace(snapshots=watcher or FakeWatcher())
    given = SimpleNamespace(snapshots=ec2, move_snapshot_lookups=ec2, watchers=watchers)
    wakes = woken if woken is not None else list[str]()
    return MoveSnapshots(cast("Services", given), wakes.append)


def a_move_of(number: int) -> tuple[VolumeMove, MoveSource]:
    uid, volume_id = f"{UID}-{number}", f"vol-{number:017x}"
    body = {"metadata": {"name": "to-b", "namespace": "shop", "uid": uid}}
    return msgspec.convert(body, VolumeMove), MoveSource(volume_id=volume_id)


async def take(snapshots: MoveSnapshots, number: int) -> EbsSnapshot | Later:
    move, source = a_move_of(number)
    snapshots.begin(move.uid)
    return await snapshots.take(move, source)


async def test_no_more_are_taken_at_once_than_leave_room_for_the_snapshots_of_others(
    now_s: list[float],
):
    ec2, woken = FakeSnapshots(), list[str]()
    snapshots = of(ec2, woken=woken)
    for number in range(MOST_PENDING):
        assert isinstance(await take(snapshots, number), EbsSnapshot)

    assert isinstance(await take(snapshots, MOST_PENDING), Later)
    assert len(ec2.asked) == MOST_PENDING

    snapshots.leave(f"{UID}-0")
    assert woken == [f"{UID}-{MOST_PENDING}"]
    assert isinstance(await take(snapshots, MOST_PENDING), EbsSnapshot)


async def test_after_ec2_has_said_too_many_no_move_asks_until_one_of_ours_is_complete(
    now_s: list[float],
):
    ec2, woken = FakeSnapshots(), list[str]()
    snapshots = of(ec2, woken=woken)
    assert isinstance(await take(snapshots, 0), EbsSnapshot)
    ec2.refusal = Ec2Error(Reason.SNAPSHOT_RATE, "too many", action="CreateSnapshot")
    assert await take(snapshots, 1) == Later(EVERY_S)

    assert await take(snapshots, 2) == Later(EVERY_S)
    assert len(ec2.asked) == 2

    ec2.refusal = None
    snapshots.leave(f"{UID}-0")
    assert woken == [f"{UID}-1"]
    assert isinstance(await take(snapshots, 2), EbsSnapshot)


async def test_another_refusal_gives_the_place_to_the_next_and_is_raised(now_s: list[float]):
    ec2 = FakeSnapshots(refusal=Ec2Error(Reason.PERMISSION_DENIED, "no", action="CreateSnapshot"))
    snapshots = of(ec2)
    for number in range(MOST_PENDING + 1):
        with pytest.raises(Ec2Error, match="no"):
            await take(snapshots, number)


async def test_a_pending_snapshot_wakes_its_move_seldom_and_a_complete_one_at_once(
    now_s: list[float],
):
    watcher, woken = FakeWatcher(), list[str]()
    snapshots = of(FakeSnapshots(), watcher, woken)

    assert snapshots.follow(UID, SNAPSHOT) is None
    watcher.show(SnapshotState.PENDING)
    assert woken == []
    now_s[0] += PENDING_AGAIN_S
    watcher.show(SnapshotState.PENDING)
    assert woken == [UID]
    seen = snapshots.follow(UID, SNAPSHOT)
    assert seen is not None
    watcher.show(SnapshotState.COMPLETED)
    assert woken == [UID, UID]

    snapshots.leave(UID)
    assert watcher.wakes == {}


async def test_a_snapshot_that_ec2_refuses_to_describe_is_told(now_s: list[float]):
    watcher = FakeWatcher(trouble=Ec2Error(Reason.PERMISSION_DENIED, "no", action="Describe"))

    with pytest.raises(Ec2Error, match="no"):
        of(FakeSnapshots(), watcher).follow(UID, SNAPSHOT)


async def test_a_snapshot_that_is_followed_after_a_restart_has_a_place(now_s: list[float]):
    snapshots = of(FakeSnapshots())
    for number in range(MOST_PENDING):
        snapshots.follow(f"{UID}-{number}", f"snap-{number}")

    assert isinstance(await take(snapshots, MOST_PENDING), Later)
