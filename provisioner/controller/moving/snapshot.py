"""The snapshot of a move: taken once, found again after a lost reply, deleted at the end.

CreateSnapshot has no client token. The phase is written before it is sent, and whoever did not
write the phase, or has lost a reply, looks by tag for as long as EC2 may take to show a snapshot.
"""

from provisioner import clock
from provisioner.controller.shared.services import Services
from provisioner.ec2.snapshots import rests_after
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
from provisioner.model.volume_move import MoveSource, VolumeMove

_OF_VOLUMES = frozenset({VOLUME_NAME, PERSISTENT_VOLUME_NAME, UNCLAIMED})


class MoveSnapshots:
    """The snapshots of moves, by the move's UID."""

    def __init__(self, services: Services) -> None:
        self._snapshots = services.snapshots
        # Of these it is certain that no snapshot exists that is not known.
        self._certain: set[str] = set()
        self._looking_since_s: dict[str, float] = {}

    def begin(self, uid: str) -> None:
        """This process has written the phase: nothing was sent before."""
        self._certain.add(uid)

    def forget(self, uid: str) -> None:
        """The move has ended."""
        self._certain.discard(uid)
        self._looking_since_s.pop(uid, None)

    async def find(self, uid: str) -> EbsSnapshot | Later | None:
        """The snapshot that was taken for a move; None: certainly none was.

        Raises:
            StorageError: EC2 could not be asked.
        """
        if uid in self._certain:
            return None
        found = await self._snapshots.find_any(MOVE_SNAPSHOT, [uid])
        usable = [each for each in found if each.state is not SnapshotState.ERROR]
        if usable:
            return min(usable, key=lambda each: each.snapshot_id)
        now_s = clock.now_s()
        if now_s - self._looking_since_s.setdefault(uid, now_s) < CONSISTENCY_S:
            return Later(LOOK_AGAIN_S)
        self._certain.add(uid)
        return None

    async def take(self, move: VolumeMove, source: MoveSource) -> EbsSnapshot | Later:
        """The snapshot of the old volume, just begun or begun before.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        found = await self.find(move.uid)
        if found is not None:
            return found
        turns, now_s = self._snapshots.turns, clock.now_s()
        wait_s = turns.waits_s(source.volume_id, now_s)
        if wait_s > 0:
            return Later(wait_s)
        self._certain.discard(move.uid)  # until EC2 has answered
        self._looking_since_s.pop(move.uid, None)
        rests = True
        turns.begin(source.volume_id)
        try:
            taken = await self._snapshots.create(_request(move, source))
        except StorageError as error:
            rests = rests_after(error)
            if error.outcome is not Outcome.UNKNOWN:
                self._certain.add(move.uid)
            raise
        finally:
            turns.end(source.volume_id, clock.now_s(), rests=rests)
        return taken

    async def see(self, snapshot_id: str) -> EbsSnapshot | None:
        """A snapshot as EC2 shows it now; None if it does not, perhaps not yet.

        Raises:
            StorageError: EC2 could not be asked.
        """
        found = (await self._snapshots.describe([snapshot_id])).get(snapshot_id)
        if isinstance(found, StorageError):
            raise found
        return found

    def missing_for_s(self, uid: str) -> float:
        """For how long EC2 has not shown the snapshot of a move."""
        now_s = clock.now_s()
        return now_s - self._looking_since_s.setdefault(uid, now_s)

    async def delete(self, snapshot_id: str) -> bool:
        """Delete it; whether there was such a snapshot.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        return await self._snapshots.delete(snapshot_id)

    async def delete_new(self, uid: str, snapshot_id: str) -> Later | None:
        """Delete the snapshot of a move that may just have been taken; None once there is none.

        Args:
            uid: of the move.
            snapshot_id: its snapshot, "" if none is known.

        Raises:
            StorageError: EC2 refuses it, or its answer was lost.
        """
        if snapshot_id and await self.delete(snapshot_id):
            return None
        # EC2 may not know yet what it has just made: a deletion is then answered as for nothing.
        found = await self.find(uid)
        if isinstance(found, EbsSnapshot):
            await self.delete(found.snapshot_id)
            return None
        return found


def lost(snapshot: EbsSnapshot | None, snapshot_id: str) -> StorageError:
    """Why no volume can be made from it."""
    state = f"is in state {snapshot.state} {snapshot.message}".rstrip() if snapshot else "is gone"
    message = f"snapshot {snapshot_id} of the move {state}; abort the move and create another one"
    return StorageError(Reason.SNAPSHOT_STATE, message, retry_after_s=60.0)


def _request(move: VolumeMove, source: MoveSource) -> SnapshotRequest:
    tags = dict((move.told.request or {}).get("tags") or ())
    kept = {key: value for key, value in tags.items() if key not in _OF_VOLUMES}
    return SnapshotRequest(
        source.volume_id,
        f"Temporary: VolumeMove {move.key} of volume {source.volume_id}",
        tuple(sorted((kept | {MOVE_SNAPSHOT: move.uid}).items())),
    )
