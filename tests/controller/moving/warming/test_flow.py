"""The snapshots that are taken while pods run, with an EC2 and a record that are made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from provisioner import clock
from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.snapshot import PENDING_AGAIN_S, MoveSnapshots
from provisioner.controller.moving.warming.flow import Warming
from provisioner.controller.shared.services import Services
from provisioner.ec2.snapshots import Turns
from provisioner.ec2.watcher import Sighting
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, Later
from provisioner.model.ebs_snapshot import EVERY_S, EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.names import MOVE_SNAPSHOT
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume
from provisioner.model.volume_move import Phase, VolumeMove
from tests.builders import VOLUME, a_volume
from tests.controller.move_record import (
    PAST,
    FakeCompanions,
    FakeRecord,
    a_claim,
    a_done_move,
    a_pv,
    in_phase,
)

ON_A_NODE = (InstanceAttachment("i-1", "/dev/xvdba", AttachmentState.ATTACHED),)


class FakeEc2:
    """Snapshots that are complete at once, of a volume that a node has."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.taken: list[EbsSnapshot] = []
        self.refusal: Ec2Error | None = None
        self.attachments: tuple[InstanceAttachment, ...] = ON_A_NODE

    async def volume(self, _: str) -> Volume:
        return replace(a_volume(), attachments=self.attachments)

    async def create(self, request: SnapshotRequest, *, patient: bool) -> EbsSnapshot:
        assert patient, "the snapshots of others go first"
        if self.refusal is not None and self.refusal.outcome is not Outcome.UNKNOWN:
            raise self.refusal
        number = len(self.taken) + 1
        made = EbsSnapshot(
            f"snap-{number}", VOLUME, SnapshotState.COMPLETED, 4, tags=dict(request.tags)
        )
        self.taken.append(made)
        if self.refusal is not None:
            raise self.refusal
        return made

    async def find(self, mark: str) -> list[EbsSnapshot]:
        return [each for each in self.taken if each.tags[MOVE_SNAPSHOT] == mark]

    # -- the watcher, which has always just looked

    def watch(self, *_: Any) -> None:
        pass

    forget = watch

    def trouble_with(self, _: str) -> None:
        return None

    def sighting(self, snapshot_id: str) -> Sighting[EbsSnapshot]:
        found = [each for each in self.taken if each.snapshot_id == snapshot_id]
        return Sighting(found[0] if found else None, 0.0)


class Move:
    """A move in Warming, with what was written to it."""

    def __init__(self) -> None:
        self.record = FakeRecord(a_pv("Bound"))
        self.record.found = a_claim()
        self.ec2 = FakeEc2()
        self.companions = FakeCompanions()
        self.begin_life()

    def begin_life(self) -> None:
        """Another process goes on."""
        edges: Any = dict.fromkeys(("snapshots", "move_snapshot_lookups", "volume_reads"), self.ec2)
        watchers = SimpleNamespace(snapshots=self.ec2)
        services = cast("Services", SimpleNamespace(watchers=watchers, **edges))
        snapshots = MoveSnapshots(services, lambda _: None)
        record, companions = cast("Any", self.record), cast("Any", self.companions)
        self.warming = Warming(services, record, snapshots, companions)

    @property
    def now(self) -> VolumeMove:
        """With what was written last of each."""
        move = in_phase(a_done_move(keeps=False), "Warming", warm_since=PAST)
        warm = [each["warm"] for each in self.record.written if "warm" in each]
        status = msgspec.structs.replace(move.told, warm=warm[-1] if warm else [])
        return msgspec.structs.replace(move, status=status)

    async def advance(self) -> Any:
        return await self.warming.advance(self.now)


def an_error(reason: Reason, outcome: Outcome = Outcome.NOTHING) -> Ec2Error:
    return Ec2Error(reason, "refused", action="CreateSnapshot", outcome=outcome)


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now


async def test_each_is_written_down_with_its_own_mark(now_s: list[float]):
    move = Move()
    await move.warming.begin(move.now)

    assert await move.advance() == AGAIN
    assert await move.advance() == Later(15.0)  # EC2 takes no other one before
    now_s[0] += 15.0
    assert await move.advance() == AGAIN

    assert move.now.told.warm == ["snap-1", "snap-2"]
    marks = [each.tags[MOVE_SNAPSHOT] for each in move.ec2.taken]
    assert marks == ["move-uid.1", "move-uid.2"]


async def test_a_leader_that_died_before_it_wrote_the_id_has_it_found_again(now_s: list[float]):
    move = Move()
    await move.warming.begin(move.now)
    await move.advance()
    move.record.written.clear()
    move.begin_life()

    assert await move.advance() == AGAIN

    assert len(move.ec2.taken) == 1
    assert move.now.told.warm == ["snap-1"]


async def test_a_lost_reply_takes_no_second_one_and_is_looked_for_for_a_minute(now_s: list[float]):
    move = Move()
    await move.warming.begin(move.now)
    move.ec2.refusal = an_error(Reason.TIMED_OUT, Outcome.UNKNOWN)
    with pytest.raises(Ec2Error):
        await move.advance()
    (taken,), move.ec2.taken, move.ec2.refusal = move.ec2.taken, [], None

    assert isinstance(await move.advance(), Later)  # EC2 does not show it yet
    now_s[0] += CONSISTENCY_S - 1
    move.ec2.taken = [taken]
    assert await move.advance() == AGAIN
    assert move.now.told.warm == ["snap-1"]


async def test_what_ec2_refuses_is_waited_for_while_pods_run(now_s: list[float]):
    """The snapshot that counts would be refused as well, and pods would be stopped by then."""
    move = Move()
    await move.warming.begin(move.now)
    move.ec2.refusal = an_error(Reason.QUOTA_EXCEEDED)

    with pytest.raises(Ec2Error):
        await move.advance()

    assert [each["phase"] for each in move.record.written] == [Phase.WARMING]
    move.ec2.refusal = None
    assert await move.advance() == AGAIN
    assert move.now.told.warm == ["snap-1"]


async def test_pods_that_have_ended_have_the_move_go_on(now_s: list[float]):
    move = Move()
    move.ec2.attachments = ()

    assert await move.advance() == AGAIN
    assert (move.record.written[-1]["phase"], move.ec2.taken) == (Phase.HELD, [])


async def test_a_claim_that_is_deleted_meanwhile_has_the_move_undone(now_s: list[float]):
    move = Move()
    move.record.found = None

    assert isinstance(await move.advance(), Undo)
    assert move.ec2.taken == []


async def test_a_first_snapshot_that_ec2_has_no_room_for_is_waited_for_and_told(
    now_s: list[float],
):
    move = Move()
    await move.warming.begin(move.now)
    move.ec2.refusal = an_error(Reason.SNAPSHOT_RATE)

    assert await move.advance() == Later(EVERY_S)

    assert "EBS allows an account only so many at once" in str(move.record.written[-1])
    assert move.ec2.taken == []


async def test_while_one_is_pending_the_move_waits_until_it_is_woken(now_s: list[float]):
    move = Move()
    await move.warming.begin(move.now)
    await move.advance()
    move.ec2.taken[0] = replace(move.ec2.taken[0], state=SnapshotState.PENDING)

    assert await move.advance() == Later(PENDING_AGAIN_S)


async def test_pods_do_not_stop_before_the_moves_that_go_together_have_their_snapshots():
    move = Move()
    move.ec2.attachments = ()  # no pod has the volume: nothing is to be warmed
    move.companions.says = Await("pods stop once VolumeMove logs has its snapshots, too")

    assert isinstance(await move.advance(), Later)
    assert move.record.written[-1] == {"message": move.companions.says.message, "ready": True}
    move.companions.says = Undo("claim logs is not moved with it any more")
    assert await move.advance() == move.companions.says
    move.companions.says = None
    assert await move.advance() == AGAIN
    assert move.record.written[-1].items() >= {"phase": Phase.HELD, "ready": False}.items()
