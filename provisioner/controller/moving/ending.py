"""How a move ends: after the swap what it does not need goes, and an aborted one is undone."""

from datetime import UTC, datetime, timedelta

from msgspec import to_builtins

from provisioner.controller.moving import form_rules, phase_rules
from provisioner.controller.moving.copying.flow import Copier
from provisioner.controller.moving.creation import MoveVolumes
from provisioner.controller.moving.going_back import rules as back_rules
from provisioner.controller.moving.pace import LOOK_AGAIN_S, phase_age_s
from provisioner.controller.moving.pods import consumer_rules
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.moving.snapshot import MoveSnapshots
from provisioner.controller.moving.together.companions import Companions
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import Phase, VolumeMove

_AGAIN_AT_MOST_S = 3600.0
_HELD_AGAIN_S = 30.0
# ``keepSource`` is in whole hours; the moments of its end and of the phase are taken one by one.
_SAME_MOMENT_S = 60.0
# The API server ends a request after that (Kubernetes 1.36 kube-apiserver --request-timeout).
_LATEST_REQUEST_S = 60.0
# A pod that comes back has its volume within a minute or two, also if its image is missing: the
# kubelet waits for volumes first. One for which no node has room never has.
# Source: Kubernetes 1.36 pkg/kubelet/kubelet.go SyncPod.
_POD_WITHIN_S = 600.0


class MoveEnding:
    """The phases after the swap, and those of an aborted move. All raise ``StorageError``."""

    def __init__(
        self,
        record: MoveRecord,
        consumers: Consumers,
        snapshots: MoveSnapshots,
        volumes: MoveVolumes,
        *,
        copier: Copier,
        companions: Companions,
    ) -> None:
        self._record = record
        self._consumers = consumers
        self._companions = companions
        self._snapshots = snapshots
        self._volumes = volumes
        self._copier = copier

    def forget(self, uid: str) -> None:
        """Drop what this process knows of a move that has ended."""
        self._snapshots.forget(uid)
        self._volumes.forget(uid)
        self._copier.forget(uid)

    async def clean(self, move: VolumeMove) -> Next:
        """The claim has its new volume: pods first, then what the move does not need any more."""
        waits = await self._companions.before_return(move)
        if waits is not None:
            await self._record.tell(move, waits.message)
            return Later(LOOK_AGAIN_S)
        source, move = move.source, await self._bring_back(move)
        if consumer_rules.is_owed(move.told.consumers):
            return Later(LOOK_AGAIN_S)
        lacks_pod = self._lacks_pod(move)
        if lacks_pod and phase_age_s(move) < _POD_WITHIN_S:
            text = "waiting until a pod has the new volume, for ten minutes at most"
            await self._record.tell(move, text)
            return Later(LOOK_AGAIN_S)
        left = await self._leftover(move) if move.runs_pod else None
        if left is not None:
            return left
        if not (move.copies_files or move.keeps_volume):
            await self._snapshots.delete_known(move)
        if move.goes_back:
            await self._remove_kept(move)
        old = await self._record.known_volume(move, source.persistent_volume)
        if old is not None and HELD_FOR_MOVE not in old.annotations:
            # A process before us has held it, which a cache may not show: it would stay held.
            old = await self._record.persistent_volume(source.persistent_volume)
        # A pod that was kept from the old volume may be gone, and its attachment not yet.
        is_soon = phase_age_s(move) < _LATEST_REQUEST_S
        if old is not None and is_soon and await self._record.is_to_be_attached(old):
            return Later(LOOK_AGAIN_S)
        await self._record.let_go(move, old)
        until = datetime.now(UTC) + timedelta(seconds=move.spec.keep_source_s)
        kept_until = until.isoformat(timespec="seconds") if old is not None else ""
        message = phase_rules.kept(move, source, kept_until, is_there=old is not None)
        no_pod = "no pod has had the new volume yet" if lacks_pod else ""
        notes = (no_pod, await self._companions.not_moved(move), message)
        message = "; ".join(filter(None, notes))
        await self._record.advance(move, Phase.DONE, message, sourceKeptUntil=kept_until)
        return AGAIN

    def _lacks_pod(self, move: VolumeMove) -> bool:
        """Whether it has stopped pods, and none of them has the new volume.

        Another driver's attachments are its own affair; whoever aborts too late is not kept.
        """
        is_ours = move.has_stopped_pods and not move.changes_driver and not move.is_to_end
        return is_ours and not self._record.is_attached(move.persistent_volume_name)

    async def keep_source(self, move: VolumeMove) -> Next:
        """Give the old PersistentVolume its policy back in the end, unless the move was deleted."""
        source, told = move.source, move.told
        if move.deleting or not told.source_kept_until:
            return await self.release(move)
        until = _kept_until(move)
        if until != told.source_kept_until:
            message = told.message.replace(told.source_kept_until, until)
            conditions = to_builtins(move.conditions_in(Phase.DONE, message, told.phase_since))
            status = {"message": message, "sourceKeptUntil": until, "conditions": conditions}
            await self._record.write(move, status)
            return AGAIN
        left_s = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
        if left_s > 0:
            return Later(min(left_s, _AGAIN_AT_MOST_S))
        old = await self._record.persistent_volume(source.persistent_volume)
        if old is not None and HELD_FOR_MOVE in old.annotations:
            return Later(_HELD_AGAIN_S)  # another move goes back to it, or away from it
        if old is not None and phase_rules.is_to_be_released(source, old):
            return Later(LOOK_AGAIN_S)
        message = phase_rules.let_go(source, old)
        if move.keeps_volume:
            message = await self._remove_old_form(move, old)
        elif old is not None and phase_rules.may_let_source_go(source, old):
            await self._record.set_policy(old, source.reclaim_policy)
        await self._record.write(move, {"message": message, "sourceKeptUntil": ""})
        return AGAIN

    async def _remove_kept(self, move: VolumeMove) -> None:
        """The claim has another object of the same volume: the one that kept it may go."""
        found = await self._record.persistent_volume(move.kept.persistent_volume)
        new = await self._record.persistent_volume(move.persistent_volume_name)
        if found is None:
            return
        if form_rules.may_remove(back_rules.source_of(move.kept), found, new):
            await self._record.remove_volume_object(found)
        else:
            await self._record.let_go(move, found)

    async def _remove_old_form(self, move: VolumeMove, old: PersistentVolume | None) -> str:
        """Delete the old PersistentVolume of a volume that stays, as long as it has Retain."""
        new = await self._record.persistent_volume(move.persistent_volume_name)
        if old is None:
            return "the old PersistentVolume is gone; the volume stays"
        if not form_rules.may_remove(move.source, old, new):
            return (
                f"PersistentVolume {old.name} was left as it is: it was taken since, or no other "
                "names the volume"
            )
        await self._record.remove_volume_object(old)
        return f"PersistentVolume {old.name} was deleted; the volume stays"

    async def undo(self, move: VolumeMove) -> Next:
        """Pods first: the claim has its volume, and may be used once no copy has it any more.

        A claim that is created again meanwhile, as its user has deleted it, is not to be bound to
        files that are only half copied.
        """
        source, taken = move.source, None
        if move.copies_files and phase_rules.may_have_made_volume(move):
            taken = await self._volumes.withdraw(move)
        left = await self._copier.remove(move) if move.copies_files else None
        if left is not None:
            await self._record.tell(move, f"{_why(move)}; {left.message}")
            return Later(LOOK_AGAIN_S)
        old = await self._record.persistent_volume(source.persistent_volume)
        policy = form_rules.policy_before(old) if old is not None else ""
        await self._not_held(move, old, policy)
        if move.goes_back:
            kept = await self._record.persistent_volume(move.kept.persistent_volume)
            await self._not_held(move, kept)
        move = await self._bring_back(move)
        if consumer_rules.is_owed(move.told.consumers):
            return Later(LOOK_AGAIN_S)
        if phase_rules.has_made_nothing(move):
            await self._record.advance(move, Phase.ABORTED, _why(move))
            return AGAIN
        # What its pod had names the new volume, and would keep it from being deleted.
        waits = await self._leftover(move) if move.runs_pod else None
        if waits is not None:
            return waits
        if phase_rules.may_have_made_volume(move):
            waits = await self._volumes.undo(move)
            if waits is not None:
                return waits
        waits = await self._snapshots.delete_new(move) if not move.copies_files else None
        if waits is not None:
            return waits
        notes = (_why(move), _half_copied(move, taken))
        await self._record.advance(move, Phase.ABORTED, "; ".join(filter(None, notes)))
        return AGAIN

    async def _not_held(
        self, move: VolumeMove, found: PersistentVolume | None, policy: str = ""
    ) -> None:
        """Neither now nor by a request that is under way yet: only in Held one is sent."""
        may_come = phase_age_s(move) < _LATEST_REQUEST_S
        if move.told.undone_from == Phase.HELD and may_come:
            await self._record.leave(move, found)
        await self._record.let_go(move, found, policy)

    async def _leftover(self, move: VolumeMove) -> Later | None:
        """What another process had sent for the pod may come yet, and goes too."""
        left = await self._copier.remove(move)
        if left is not None and move.told.phase == Phase.ABORTING:
            await self._record.tell(move, f"{_why(move)}; {left.message}")
        may_come = self._copier.may_come(move) and phase_age_s(move) < _LATEST_REQUEST_S
        return Later(LOOK_AGAIN_S) if left is not None or may_come else None

    async def _bring_back(self, move: VolumeMove) -> VolumeMove:
        is_settled = phase_age_s(move) >= _LATEST_REQUEST_S
        move, waits = await self._consumers.bring_back(move, is_settled=is_settled)
        if waits is None:
            return move
        undone = f"{_why(move)}; " if move.told.phase == Phase.ABORTING else ""
        return await self._record.tell(move, f"{undone}{waits.message}")

    async def release(self, move: VolumeMove) -> Next:
        """Let the move itself be deleted."""
        await self._record.release(move)
        self.forget(move.uid)
        return SETTLED


def _kept_until(move: VolumeMove) -> str:
    """Until when the old volume is kept, by what the spec says now: it may be changed until then.

    What was written when the move was done, if the spec says the same.
    """
    told = move.told
    try:
        done = datetime.fromisoformat(told.phase_since)
        until = done + timedelta(seconds=move.spec.keep_source_s)
        off_s = abs((until - datetime.fromisoformat(told.source_kept_until)).total_seconds())
    except (ValueError, TypeError):  # as in ``pace.passed_s``
        return told.source_kept_until
    return until.isoformat(timespec="seconds") if off_s > _SAME_MOMENT_S else told.source_kept_until


def _why(move: VolumeMove) -> str:
    """Why a move is undone, without what the end of its pod waited for since."""
    return move.told.message.partition("; waiting until ")[0]


def _half_copied(move: VolumeMove, new: PersistentVolume | None) -> str:
    """What a human has to know of a claim that came to an unfinished copy; "" if none did."""
    if new is None or phase_rules.is_unused(new) or move.told.copied is not None:
        return ""
    return (
        f"claim {move.claim_key} was created again, and is bound to PersistentVolume {new.name}, "
        "to which not all files were copied: delete the claim"
    )
