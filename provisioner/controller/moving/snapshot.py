"""The snapshots of a move: each taken once, found again after a lost reply, deleted at the end.

CreateSnapshot has no client token. The phase is written before it is sent, and whoever did not
write the phase, or has lost a reply, looks by tag for as long as EC2 may take to show a snapshot.
Of all that are pending one look tells; a move is woken when its own is complete.
"""

from collections.abc import Callable

from provisioner import clock
from provisioner.controller.moving.phase_rules import Undo
from provisioner.controller.moving.warming.rules import MOST_WARM
from provisioner.controller.shared.services import Services
from provisioner.ec2.pending_snapshots import PendingSnapshots
from provisioner.ec2.snapshots import rests_after
from provisioner.ec2.watcher import Sighting
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import Later
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.names import (
    MOVE_SNAPSHOT,
    PERSISTENT_VOLUME_NAME,
    UNCLAIMED,
    VOLUME_NAME,
)
from provisioner.model.volume import GIB
from provisioner.model.volume_move import MoveSource, Phase, VolumeMove

# A percent more of a snapshot is no news for this long; whoever waits for one looks this often.
PENDING_AGAIN_S = 10.0
_OF_VOLUMES = frozenset({VOLUME_NAME, PERSISTENT_VOLUME_NAME, UNCLAIMED})


def mark_of(uid: str, number: int = 0) -> str:
    """The tag's value: of the snapshot that counts, or of the n-th that is taken while pods run."""
    return f"{uid}.{number}" if number else uid


def progress_of(snapshot: EbsSnapshot | None) -> dict[str, int]:
    """How far one is, for the status: EC2's percentage, and that part of all bytes.

    These are the blocks that were ever written to the volume; where EC2 does not say, its size.
    Source: EC2 API reference, Snapshot FullSnapshotSizeInBytes (read 2026-11-29).
    """
    percent = total = 0
    if snapshot is not None:
        is_complete = snapshot.state is SnapshotState.COMPLETED
        percent = 100 if is_complete else snapshot.progress_percent
        full = snapshot.full_bytes
        total = snapshot.size_gib * GIB if full is None else full
    done = total * percent // 100
    return {"progressPercent": percent, "progressBytes": done, "totalBytes": total}


class MoveSnapshots:
    """The snapshots of moves, each by its mark; of each move, one is pending at a time.

    ``wake`` queues a move.
    """

    def __init__(self, services: Services, wake: Callable[[str], None]) -> None:
        self._snapshots = services.snapshots
        self._lookups = services.move_snapshot_lookups
        self._watcher = services.watchers.snapshots
        self._wake = wake
        self._pending = PendingSnapshots(wake)
        self._watched: dict[str, str] = {}  # by the move's UID
        self._passed_s: dict[str, float] = {}
        # Of these it is certain that no snapshot exists that is not known.
        self._certain: set[str] = set()
        self._gone: set[str] = set()  # deleted by this process
        self._looking_since_s: dict[str, float] = {}

    def begin(self, mark: str) -> None:
        """This process has written that it is the next one: nothing was sent before."""
        self._certain.add(mark)

    def forget(self, uid: str) -> None:
        """The move has ended."""
        self.leave(uid)
        for mark in [uid, *(mark_of(uid, number) for number in range(1, MOST_WARM + 2))]:
            self._certain.discard(mark)
            self._gone.discard(mark)
            self._looking_since_s.pop(mark, None)

    def leave(self, uid: str) -> None:
        """The snapshot of a move is complete, or nobody wants it any more."""
        self._watcher.forget(self._watched.pop(uid, ""), _who(uid))
        self._passed_s.pop(uid, None)
        self._pending.end(uid)

    async def find(self, mark: str) -> EbsSnapshot | Later | None:
        """The snapshot that was taken under a mark; None: certainly none was.

        Raises:
            StorageError: EC2 could not be asked.
        """
        if mark in self._certain:
            return None
        found = await self._lookups.find(mark)
        usable = [each for each in found if each.state is not SnapshotState.ERROR]
        if usable:
            return min(usable, key=lambda each: each.snapshot_id)
        if self.missing_for_s(mark) < CONSISTENCY_S:
            return Later(LOOK_AGAIN_S)
        self._certain.add(mark)
        return None

    async def take(
        self, move: VolumeMove, source: MoveSource, number: int = 0
    ) -> EbsSnapshot | Later:
        """A snapshot of the old volume, just begun or begun before.

        Args:
            move: whose snapshot it is.
            source: its old volume.
            number: of one that is taken while pods run, from 1 on; 0 for the one that counts.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        mark = mark_of(move.uid, number)
        found = await self.find(mark)
        if found is not None:
            return found
        turns, now_s = self._snapshots.turns, clock.now_s()
        wait_s = turns.waits_s(source.volume_id, now_s) or self._pending.waits_s(move.uid, now_s)
        if wait_s > 0:
            return Later(wait_s)
        self._certain.discard(mark)  # until EC2 has answered
        self._looking_since_s.pop(mark, None)
        rests = True
        turns.begin(source.volume_id)
        self._pending.begin(move.uid)
        try:
            taken = await self._snapshots.create(_request(move, source, mark), patient=True)
        except StorageError as error:
            rests = rests_after(error)
            if error.outcome is not Outcome.UNKNOWN:
                self._certain.add(mark)
            if error.reason is Reason.SNAPSHOT_RATE:
                return Later(self._pending.refused(move.uid, clock.now_s()))
            self._pending.end(move.uid)
            raise
        finally:
            turns.end(source.volume_id, clock.now_s(), rests=rests)
        return taken

    def follow(self, uid: str, snapshot_id: str) -> Sighting[EbsSnapshot] | None:
        """What the last look at a snapshot has shown; the move is woken when that changes.

        Returns:
            None: EC2 has not been looked at since it is followed.

        Raises:
            StorageError: EC2 cannot be looked at.
        """
        watched = self._watched.get(uid, snapshot_id)
        if watched != snapshot_id:
            self._watcher.forget(watched, _who(uid))
        self._watched[uid] = snapshot_id
        self._passed_s[uid] = clock.now_s()
        self._watcher.watch(snapshot_id, _who(uid), lambda: self._seen(uid))
        trouble = self._watcher.trouble_with(snapshot_id)
        if trouble is not None:
            raise trouble
        sighting = self._watcher.sighting(snapshot_id)
        found = sighting.found if sighting is not None else None
        if found is None or found.state is SnapshotState.PENDING:
            self._pending.begin(uid)  # the process that took it may have been another
        else:
            self._pending.end(uid)
        return sighting

    def _seen(self, uid: str) -> None:
        snapshot_id = self._watched.get(uid, "")
        sighting = self._watcher.sighting(snapshot_id)
        found = sighting.found if sighting is not None else None
        passed_s = clock.now_s() - self._passed_s.get(uid, 0.0)
        is_pending = found is not None and found.state is SnapshotState.PENDING
        trouble = self._watcher.trouble_with(snapshot_id)
        if trouble is not None or not is_pending or passed_s >= PENDING_AGAIN_S:
            self._wake(uid)

    def missing_for_s(self, mark: str) -> float:
        """For how long EC2 has not shown the snapshot of a mark."""
        now_s = clock.now_s()
        return now_s - self._looking_since_s.setdefault(mark, now_s)

    async def delete(self, snapshot_id: str) -> bool:
        """Delete it; whether there was such a snapshot.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        return await self._snapshots.delete(snapshot_id, patient=True)

    async def delete_known(self, move: VolumeMove) -> None:
        """Delete the snapshots that the move names: all there are, once it is in Swapping.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        for snapshot_id in (*move.told.warm, move.told.snapshot):
            if snapshot_id:
                await self.delete(snapshot_id)

    async def delete_new(self, move: VolumeMove) -> Later | None:
        """Delete all snapshots of a move that is undone; None once there is none.

        The last one may just have been taken: its id may not be written down, and EC2 may not know
        it yet. A deletion is then answered as for nothing.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        self.leave(move.uid)
        marks, gone = _may_be_there(move), self._gone
        for mark, snapshot_id in marks.items():
            if snapshot_id and mark not in gone and await self.delete(snapshot_id):
                gone.add(mark)
        # What is written down was taken, whatever this process was certain of before.
        left = [m for m in marks if m not in gone and (marks[m] or m not in self._certain)]
        if not left:
            return None
        for each in await self._snapshots.find_any(MOVE_SNAPSHOT, left):
            await self.delete(each.snapshot_id)
            gone.add(each.tags.get(MOVE_SNAPSHOT, ""))
        missing = [self.missing_for_s(mark) for mark in left if mark not in gone]
        return Later(LOOK_AGAIN_S) if any(each < CONSISTENCY_S for each in missing) else None


def _may_be_there(move: VolumeMove) -> dict[str, str]:
    """What an aborted move may have taken: the marks, and the ids as far as they are known."""
    uid, told = move.uid, move.told
    marks = {mark_of(uid, at + 1): each for at, each in enumerate(told.warm)}
    if told.undone_from == Phase.WARMING:
        marks[mark_of(uid, len(told.warm) + 1)] = ""
    elif told.undone_from != Phase.HELD:
        marks[uid] = told.snapshot
    return marks


def lost(snapshot: EbsSnapshot) -> Undo:
    """No volume can be made from it any more."""
    state = f"is in state {snapshot.state} {snapshot.message}".rstrip()
    return Undo(f"snapshot {snapshot.snapshot_id} of the move {state}; create another move")


def unseen(snapshot_id: str) -> StorageError:
    """EC2 knew it once; in an outage it may show it again."""
    message = f"EC2 does not show snapshot {snapshot_id} of the move; if it is gone, abort the move"
    return StorageError(Reason.SNAPSHOT_NOT_FOUND, message, retry_after_s=60.0)


def waiting(source: MoveSource) -> str:
    """Why no snapshot is taken yet."""
    text = f"waiting to take a snapshot of volume {source.volume_id}"
    return f"{text}: EBS allows an account only so many at once"


def _who(uid: str) -> str:
    """Of those that watch a snapshot."""
    return f"move {uid}"


def _request(move: VolumeMove, source: MoveSource, mark: str) -> SnapshotRequest:
    tags = dict((move.told.request or {}).get("tags") or ())
    kept = {key: value for key, value in tags.items() if key not in _OF_VOLUMES}
    return SnapshotRequest(
        source.volume_id,
        f"Temporary: VolumeMove {move.key} of volume {source.volume_id}",
        tuple(sorted((kept | {MOVE_SNAPSHOT: mark}).items())),
    )
