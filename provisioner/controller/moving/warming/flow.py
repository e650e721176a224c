"""Warming: snapshots of the volume while pods run; each is written down before the next begins."""

from typing import assert_never

from provisioner.controller.moving import phase_rules
from provisioner.controller.moving.pace import LOOK_AGAIN_S, now, passed_s
from provisioner.controller.moving.phase_rules import Undo
from provisioner.controller.moving.record import MoveRecord, broken
from provisioner.controller.moving.snapshot import (
    PENDING_AGAIN_S,
    MoveSnapshots,
    mark_of,
    progress_of,
    waiting,
)
from provisioner.controller.moving.together.companions import Companions
from provisioner.controller.moving.warming import rules as warm_rules
from provisioner.controller.shared.services import Services
from provisioner.model.decision import AGAIN, Later, Next
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.volume_move import Phase, VolumeMove


class Warming:
    """The phase Warming. Its methods raise ``StorageError``."""

    def __init__(
        self,
        services: Services,
        record: MoveRecord,
        snapshots: MoveSnapshots,
        companions: Companions,
    ) -> None:
        self._volume_reads = services.volume_reads
        self._record = record
        self._snapshots = snapshots
        self._companions = companions

    async def begin(self, move: VolumeMove) -> None:
        """Write the phase: before it, no snapshot was asked for."""
        await self._record.advance(move, Phase.WARMING)
        self._snapshots.begin(mark_of(move.uid, 1))

    async def advance(self, move: VolumeMove) -> Next | Undo:
        """One step; or why the move is to be undone."""
        source, told = move.source, move.told
        why = await broken(self._record, move)
        if why is not None:
            return why
        sighting = self._snapshots.follow(move.uid, told.warm[-1]) if told.warm else None
        if told.warm and sighting is None:
            return Later(LOOK_AGAIN_S)
        last = sighting.found if sighting is not None else None
        volume = await self._volume_reads.volume(source.volume_id)
        step = warm_rules.next_warm_step(move, volume, last, passed_s(told.warm_since))
        match step:
            case Undo():
                return step
            case warm_rules.Take(number=number):
                return await self._take(move, number)
            case warm_rules.Discard(snapshot_id=snapshot_id):
                await self._snapshots.delete(snapshot_id)
            case phase_rules.Await(message=message):
                await self._tell(move, message, last)
                if last is not None and last.state is SnapshotState.PENDING:
                    return Later(PENDING_AGAIN_S)
            case warm_rules.Warmed():
                self._snapshots.leave(move.uid)
                return await self._stop(move)
            case _:
                assert_never(step)
        return Later(LOOK_AGAIN_S)

    async def _stop(self, move: VolumeMove) -> Next | Undo:
        """Pods stop once all claims that go together have their snapshots, and not before."""
        match await self._companions.before_stop(move):
            case Undo() as why:
                return why
            case phase_rules.Await(message=message):
                news = {} if move.told.ready else {"ready": True}
                await self._record.tell(move, message, **news)
                return Later(LOOK_AGAIN_S)
            case None:
                await self._record.advance(move, Phase.HELD, "", **progress_of(None), ready=False)
                return AGAIN

    async def _take(self, move: VolumeMove, number: int) -> Next:
        """It is found again by its number if its id does not come to be written."""
        taken = await self._snapshots.take(move, move.source, number)
        if isinstance(taken, Later):
            if number == 1 and taken.seconds > LOOK_AGAIN_S:
                await self._record.tell(move, waiting(move.source))
            return taken
        text = warm_rules.said(number, taken.snapshot_id, move.source.volume_id)
        warm = [*move.told.warm, taken.snapshot_id]
        await self._record.tell(move, text, warm=warm, warmSince=now(), **progress_of(None))
        self._snapshots.begin(mark_of(move.uid, number + 1))
        return AGAIN

    async def _tell(self, move: VolumeMove, message: str, last: EbsSnapshot | None) -> None:
        await self._record.tell(move, message, **progress_of(last))
