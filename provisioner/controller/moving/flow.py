"""Moving: carry VolumeMoves on, one phase after the other.

Each pass looks at the move, its claim and both PersistentVolumes, decides by ``plan_rules`` and
``phase_rules``, and acts. What a phase needs is written before it begins, so that any process can
go on. Caches are enough to wait, and for a write to the very version that they show; what undoes a
move, stops pods, or takes the claim one step away from its old volume is read first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.controller.moving import (
    form_rules,
    freshness_rules,
    patience_rules,
    phase_rules,
    shape_rules,
)
from provisioner.controller.moving.copying.flow import Copier
from provisioner.controller.moving.creation import MoveVolumes, grown, request_of
from provisioner.controller.moving.ending import MoveEnding
from provisioner.controller.moving.going_back.flow import GoingBack
from provisioner.controller.moving.pace import (
    LOOK_AGAIN_S,
    SLOWEST_S,
    longest_s,
    phase_age_s,
    waits_for_others,
)
from provisioner.controller.moving.patience_rules import Patience
from provisioner.controller.moving.planning import Planning
from provisioner.controller.moving.pods import consumer_rules
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.controller.moving.pods.restart_rules import Evict
from provisioner.controller.moving.pods.restarts import Restarts
from provisioner.controller.moving.pods.stopping import Stopping
from provisioner.controller.moving.record import MoveRecord, broken
from provisioner.controller.moving.snapshot import (
    PENDING_AGAIN_S,
    MoveSnapshots,
    lost,
    progress_of,
    unseen,
    waiting,
)
from provisioner.controller.moving.swapping.flow import Swapping
from provisioner.controller.moving.together.companions import Companions
from provisioner.controller.moving.warming.flow import Warming
from provisioner.controller.shared.services import Services
from provisioner.kube.queue import KeyedQueue
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, SETTLED, Later, Next, Settled
from provisioner.model.ebs_snapshot import SnapshotState
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason, StorageError
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import ABORTABLE, IN_PROGRESS, Phase, StopPolicy, VolumeMove

# A move that starts goes through these phases at a stretch, with few others beside it: so the first
# ones ask EC2 for their snapshots at once, instead of all when the last one is planned, and claims
# of others find the API server free. With 16, EC2 waited for plans (200 moves, 2026-11-28).
_ANY = frozenset(Phase)
_STARTING = frozenset({Phase.NEW, Phase.PLANNED, Phase.HELD})
_MOST_STARTING = 40
# In these, a move acts at once when its claim changes: once it is gone, the next one of its name is
# bound to the new PersistentVolume, and is not to be if the files are only half copied. That is
# there, and empty, before Copying is written.
_AWAKE = frozenset({Phase.CREATING, Phase.COPYING, Phase.SWAPPING})
# So long after the phase Held was written, webhooks have heard of it.
_HEARD_S = 2.0

log = structlog.get_logger(__name__)


class Mover:
    """The flow of moves. Keys are UIDs: a move that is created again under its name is another."""

    def __init__(self, services: Services) -> None:
        self._services, self._driver = services, services.settings.driver
        self._caches = services.caches
        self._record = MoveRecord(services)
        self._consumers = Consumers(services, self._record)
        self._patience = Patience()
        self._copier = Copier(services, self._record, self._patience)
        self._companions = Companions(services)
        self._restarts = Restarts(services, self._record)
        self.queue = KeyedQueue("move", self.reconcile, services.metrics, cap_s=SLOWEST_S)
        self._starting = asyncio.Semaphore(_MOST_STARTING)
        self._used: set[str] = set()  # moves whose claim pods used when it was last looked at
        self._snapshots = MoveSnapshots(services, self.queue.add)
        self._volumes = MoveVolumes(services, self._record, self.queue.add)
        self._ending = MoveEnding(
            *(self._record, self._consumers, self._snapshots, self._volumes),
            copier=self._copier,
            companions=self._companions,
        )
        self._warming = Warming(services, self._record, self._snapshots, self._companions)
        self._going_back = GoingBack(services, self._record)
        self._stopping = Stopping(self._consumers, self._restarts)
        self._swapping = Swapping(
            *(services, self._record, self._volumes), self._companions, self._stopping
        )
        self._planning = Planning(
            *(services, self._record, self._consumers, self._restarts),
            copier=self._copier,
            companions=self._companions,
            going_back=self._going_back,
        )
        self._passes = self._by_phase()
        self._metrics = services.metrics

    def _by_phase(self) -> Mapping[Phase, Callable[[VolumeMove], Awaitable[Next]]]:
        return {
            Phase.NEW: self._planning.plan,
            Phase.REFUSED: self._ending.release,
            Phase.PLANNED: self._begin,
            Phase.WARMING: self._warm,
            Phase.HELD: self._hold,
            Phase.SNAPSHOTTING: self._take_snapshot,
            Phase.CREATING: self._create,
            Phase.CHECKING: self._work_in_pod,
            Phase.COPYING: self._work_in_pod,
            Phase.SWAPPING: self._swapping.advance,
            Phase.CLEANING: self._ending.clean,
            Phase.DONE: self._ending.keep_source,
            Phase.ABORTING: self._ending.undo,
            Phase.ABORTED: self._ending.release,
        }

    def _show_ages(self) -> None:
        for phase in IN_PROGRESS:
            for policy in StopPolicy:
                self._metrics.move_phase_seconds.labels(phase.value, policy.value).set_function(
                    partial(self._longest_s, phase, policy)
                )

    def _longest_s(self, phase: Phase, policy: StopPolicy) -> float:
        """What a move waits for that waits for others, their own ages tell."""
        return longest_s(
            move
            for move in self._caches.moves.keyed("phase", phase)
            if self._is_ours(move)
            and move.spec.consumers.policy is policy
            and not waits_for_others(move, self._moved_with(move))
            and not consumer_rules.waits_to_give_back(move, self._caches.moves.values())
        )

    def _moved_with(self, move: VolumeMove) -> list[VolumeMove]:
        namespace = move.metadata.namespace
        keys = [f"{namespace}/{name}" for name in move.spec.moved_with]
        return [other for key in keys for other in self._caches.moves.keyed("claim", key)]

    def subscribe(self) -> None:
        """Queue moves when they change, or their claims do, and once volumes are detached.

        From now on, metrics say how long moves are in their phases. A replica that does not lead
        may be cut off, and know of none that has gone on.
        """
        self._show_ages()
        self._caches.moves.subscribe(self._changed)
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.attachments.subscribe(self._attachment_changed)

    async def close(self) -> None:
        """Stop asking EC2."""
        await self._volumes.close()

    def _changed(self, old: VolumeMove | None, new: VolumeMove | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._ending.forget(old.uid)
            self._record.doubt(old.uid)
            self._patience.forget(old.uid)
            self._used.discard(old.uid)
        if new is not None and (old is None or _is_news(old, new)):
            self.queue.add(new.uid)
        if old is not None and new is not None and new.spec.moved_with:
            self._wake_others(old, new)

    def _wake_others(self, old: VolumeMove, new: VolumeMove) -> None:
        """The leader of moves that go together waits for the others, and they for its swap."""
        is_ready = new.told.ready and not old.told.ready
        swaps = new.told.phase == Phase.SWAPPING and old.told.phase != Phase.SWAPPING
        names = new.spec.moved_with if swaps and new.leads else ()
        for name in [min(new.spec.moved_with)] if is_ready and not new.leads else names:
            for move in self._caches.moves.keyed("claim", f"{new.metadata.namespace}/{name}"):
                self.queue.add(move.uid)

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        changed = new or old
        is_ending = new is not None and new.deleting  # it wakes when it is gone
        if changed is not None and not is_ending:
            for move in self._caches.moves.keyed("claim", changed.key):
                if move.told.phase in _AWAKE:
                    self.queue.add(move.uid)

    def _attachment_changed(self, old: Attachment | None, new: Attachment | None) -> None:
        """A move in Held goes on when its volume is detached, as its pods are down meanwhile."""
        name = old.spec.source.persistent_volume_name if old is not None else None
        found = self._caches.persistent_volumes.get(name) if name and new is None else None
        holder = found.spec.claim_ref if found is not None else None
        if holder is None:
            return
        for move in self._caches.moves.keyed("claim", f"{holder.namespace}/{holder.name}"):
            if move.told.phase == Phase.HELD:
                self.queue.add(move.uid)

    async def reconcile(self, uid: str) -> Next:
        """Carry one move on as far as it goes now."""
        try:
            return await self._go_on(uid)
        except StorageError as error:
            self._record.doubt(uid)
            if isinstance(error, KubeError) and error.reason in CHANGED_MEANWHILE:
                return Later(LOOK_AGAIN_S)  # somebody has changed what was read: look at it again
            if await self._gives_up(uid, error):
                return AGAIN
            raise

    async def _go_on(self, uid: str) -> Next:
        known = self._record.written_move(uid)
        # Whoever aborts a move does not wait for others.
        if known is not None and known.phase in _STARTING and not known.is_to_end:
            async with self._starting:
                following = await self._advance(uid, _STARTING)
            if following != AGAIN:
                return following
        return await self._advance(uid, _ANY)

    async def _advance(self, uid: str, phases: frozenset[Phase]) -> Next:
        """One pass after the other, as long as it is in one of the phases.

        What was only known and is not so any more is read at once.
        """
        following: Next = AGAIN
        move = await self._record.known_move(uid)
        while move is not None and following == AGAIN and move.phase in phases:
            try:
                following = await self._pass(move)
            except KubeError as error:
                if error.reason not in CHANGED_MEANWHILE or not self._record.is_trusted(uid):
                    raise
                self._record.doubt(uid)
                move = await self._record.known_move(uid)
                continue
            self._record.trust(uid)
            move = self._record.written_move(uid)
        return SETTLED if move is None else following

    async def _pass(self, move: VolumeMove) -> Next:
        bind_contextvars(move=move.key, claim=move.claim_key)
        phase = move.phase
        if not self._is_ours(move):
            return SETTLED
        if move.is_to_end and phase in ABORTABLE and not await self._goes_on(move):
            if phase is Phase.PLANNED:
                await self._record.advance(move, Phase.ABORTED, "aborted before anything was done")
                return AGAIN
            return await self._record.abort(move, phase_rules.Undo("aborted by its user"))
        return await self._passes[phase](move)

    def _is_ours(self, move: VolumeMove) -> bool:
        """Whether its volume is of this driver; before the plan, any controller may find out."""
        return move.told.source is None or move.told.source.driver == self._driver

    async def _goes_on(self, move: VolumeMove) -> bool:
        """Whether another one may have swapped, as this one has promised to do the same."""
        return move.is_promised and await self._companions.is_led(move)

    async def _gives_up(self, uid: str, error: StorageError) -> bool:
        """Undo a move that is refused for too long; else show in the status why it waits.

        That this fails too is no reason to hide what was refused.
        """
        try:
            move = await self._record.move(uid)
            if move is None or not self._is_ours(move):
                return False
            lasts = patience_rules.is_refused(error) and self._patience.is_out(move, clock.now_s())
            if not lasts or await self._goes_on(move):
                await self._record.tell(move, f"{error.reason}: {error.message}")
                return False
            await self._record.abort(move, patience_rules.undone(error.message))
        except KubeError as failure:
            log.warning("cannot write why a move waits", error=failure.message)
            return False
        return True

    # -- until the swap, the claim has its old volume

    async def _begin(self, move: VolumeMove) -> Next:
        if move.spec.dry_run:
            return SETTLED
        others = self._caches.moves.keyed("claim", move.claim_key)
        second = phase_rules.second(move, others)
        if second is not None:
            await self._record.advance(move, Phase.ABORTED, second.message)
            return AGAIN
        waits: phase_rules.Await | phase_rules.Undo | None
        waits = await self._companions.before_begin(move)
        if waits is None and not move.warms:
            waits = await self._companions.before_stop(move)
        if isinstance(waits, phase_rules.Await):
            return await self._record.wait(move, waits.message)
        if waits is not None:
            await self._record.advance(move, Phase.ABORTED, waits.message)
            return AGAIN
        move = await self._record.keep(move)
        if move.warms:
            await self._warming.begin(move)
        else:
            await self._record.advance(move, Phase.HELD)
        return AGAIN

    async def _warm(self, move: VolumeMove) -> Next:
        done = await self._warming.advance(move)
        return await self._record.abort(move, done) if isinstance(done, phase_rules.Undo) else done

    async def _hold(self, move: VolumeMove) -> Next:
        why = await broken(self._record, move) or await self._companions.undone(move)
        old = await self._record.known_volume(move, move.source.persistent_volume)
        if why is not None or old is None:
            return await self._record.abort(move, why or _lost(move))
        if move.restarts and phase_age_s(move) < _HEARD_S:
            return Later(_HEARD_S)
        held = await self._hold_kept(move, old) or await self._stop_before_swap(move)
        if held is not None:
            return held
        old = await self._held_volume(move, old)
        if old is None:
            return await self._record.abort(move, _lost(move))
        seen = await self._in_use(move, old)
        (self._used.add if seen.uses else self._used.discard)(move.uid)
        step = phase_rules.next_held_step(move, seen)
        match step:
            case phase_rules.Hold():
                await self._record.hold(move, old, self._driver)
                return AGAIN
            case phase_rules.LetGo(message=message):
                await self._record.let_go(move, old, form_rules.policy_before(old))
            case phase_rules.Await(message=message):
                pass
            case phase_rules.Undo():
                return await self._record.abort(move, step)
            case phase_rules.GoOn() if not move.copies:
                return await self._swapping.begin_with_object(move, old)
            case phase_rules.GoOn() if move.copies_files:
                await self._record.advance(move, Phase.CREATING)
                self._volumes.begin(move.uid)
                return AGAIN
            case phase_rules.GoOn():
                await self._record.advance(move, Phase.SNAPSHOTTING)
                self._snapshots.begin(move.uid)
                return AGAIN
            case _:
                assert_never(step)
        return await self._record.wait(move, message)

    async def _held_volume(
        self, move: VolumeMove, old: PersistentVolume
    ) -> PersistentVolume | None:
        """The old PersistentVolume as it is now, held if nobody seems to use it; None: it is gone.

        So one look at who uses it is enough: the one after the hold, which decides.
        """
        if _is_held(move, old) or not move.copies or move.uid in self._used:
            return await self._record.persistent_volume(old.name)
        if await self._record.is_to_be_attached(old):
            return old
        return await self._record.hold(move, old, self._driver)

    async def _hold_kept(self, move: VolumeMove, newer: PersistentVolume) -> Next | None:
        """Have the volume that a move goes back to stay as it is; None once it does."""
        step = await self._going_back.hold(move, newer) if move.goes_back else None
        match step:
            case phase_rules.Undo():
                return await self._record.abort(move, step)
            case phase_rules.Await(message=message):
                return await self._record.wait(move, message)
            case _:
                return step

    async def _stop_before_swap(self, move: VolumeMove) -> Next | None:
        """Have pods end, or abort if they do not stay away; None if nothing is left to do.

        One that has promised to go by another does not give up: that one may have swapped.
        """
        match await self._stopping.stop(move):
            case consumer_rules.GiveUp() if await self._goes_on(move):
                return None
            case consumer_rules.GiveUp(message=message):
                return await self._record.abort(move, phase_rules.Undo(message))
            case phase_rules.Await(message=message):
                return await self._record.wait(move, message)
            case consumer_rules.ScaleDown() | Evict():
                return AGAIN
            case None:
                return None

    async def _in_use(self, move: VolumeMove, old: PersistentVolume) -> phase_rules.InUse:
        """Who has the old volume; none comes once it is held, so the order of the looks is free."""
        source = move.source
        volume, uses, _ = await asyncio.gather(
            self._services.volume_reads.volume(source.volume_id),
            self._record.uses(move),
            self._caches.certain(self._caches.attachments),
        )
        namesakes: frozenset[str] = frozenset()
        if move.keeps_volume:
            await self._caches.certain(self._caches.persistent_volumes)
            named = self._caches.persistent_volumes.keyed("volume", source.volume_id)
            ours = {old.name, move.persistent_volume_name}
            namesakes = frozenset(each.name for each in named) - ours
        attached = self._caches.attachments.keyed("persistent_volume", old.name)
        return phase_rules.InUse(
            held=_is_held(move, old),
            uses=uses,
            nodes=[
                each.spec.node_name
                for each in attached
                if freshness_rules.is_in_the_way(move, each)
            ],
            volume=volume,
            namesakes=namesakes,
            touched=freshness_rules.was_attached(old, self._driver),
        )

    async def _broken(self, move: VolumeMove) -> phase_rules.Undo | None:
        """Why a copy is not worth going on with."""
        undo = await broken(self._record, move) or await self._companions.undone(move)
        if undo is not None:
            return undo
        name = move.source.persistent_volume
        old = await self._record.known_volume(move, name)
        why = freshness_rules.outdated(move, old, self._driver)
        if why is not None:
            old = await self._record.persistent_volume(name)
            why = freshness_rules.outdated(move, old, self._driver)
        return phase_rules.Undo(why) if why else None

    async def _take_snapshot(self, move: VolumeMove) -> Next:
        source = move.source
        undo = await self._broken(move)
        if undo is not None:
            return await self._record.abort(move, undo)
        snapshot_id = move.told.snapshot
        if not snapshot_id:
            taken = await self._snapshots.take(move, source)
            if isinstance(taken, Later):
                await self._record.wait(move, waiting(source))
                return taken
            text = f"snapshot {taken.snapshot_id} of volume {source.volume_id} is being taken"
            await self._record.tell(move, text, snapshot=taken.snapshot_id)
            return AGAIN
        sighting = self._snapshots.follow(move.uid, snapshot_id)
        seen = sighting.found if sighting is not None else None
        if sighting is None or (seen is None and sighting.missing_for_s < CONSISTENCY_S):
            return Later(LOOK_AGAIN_S)
        if seen is not None and seen.state is SnapshotState.PENDING:
            await self._record.wait(move, move.told.message, **progress_of(seen))
            return Later(PENDING_AGAIN_S)
        if seen is None:
            raise unseen(snapshot_id)
        if seen.state is not SnapshotState.COMPLETED:
            return await self._record.abort(move, lost(seen))
        self._snapshots.leave(move.uid)
        more = grown(move, seen)
        await self._record.advance(move, Phase.CREATING, "", **progress_of(seen), **more)
        self._volumes.begin(move.uid)
        return AGAIN

    async def _create(self, move: VolumeMove) -> Next:
        request = request_of(move, move.told.snapshot)
        undo = await self._broken(move)
        if undo is not None:
            return await self._record.abort(move, undo)
        new = None
        if not self._volumes.is_under_way(move.uid):
            new = await self._record.known_volume(move, move.persistent_volume_name)
        if new is None:
            done = await self._volumes.advance(move, request)
            return AGAIN if isinstance(done, Settled) else done
        volume_id = new.volume_id(self._driver) or ""
        made = self._volumes.shown(move.uid, volume_id)
        made = made or await self._services.volume_reads.volume(volume_id)
        if made is None:
            raise StorageError(Reason.VOLUME_NOT_FOUND, f"EC2 does not show volume {volume_id}")
        wrong = shape_rules.not_as_planned(request, made)
        if wrong is not None:
            return await self._record.abort(move, phase_rules.Undo(wrong))
        stopping = await self._stop_before_swap(move)
        if stopping is not None:
            return stopping
        if move.runs_pod:
            following = Phase.COPYING if move.copies_files else Phase.CHECKING
            await self._record.advance(move, following, volume=volume_id)
            self._copier.begin(move.uid)
            return AGAIN
        old = await self._record.known_volume(move, move.source.persistent_volume)
        if old is None:
            return await self._record.abort(move, _lost(move))
        return await self._swapping.begin(move, old, volume=volume_id)

    async def _work_in_pod(self, move: VolumeMove) -> Next:
        """Have a pod copy the files, or check the new volume.

        Whoever uses the claim while files are copied has the copy thrown away.
        """
        undo = await self._broken(move)
        if undo is not None:
            return await self._record.abort(move, undo)
        old = await self._record.persistent_volume(move.source.persistent_volume)
        if old is None:
            return await self._record.abort(move, _lost(move))
        step = await self._copier.advance(move)
        if isinstance(step, phase_rules.GoOn) and move.copies_files:
            step = phase_rules.next_copied_step(move, await self._in_use(move, old))
        match step:
            case None:
                return AGAIN
            case phase_rules.Await(message=message):
                return await self._record.wait(move, message)
            case phase_rules.Undo():
                return await self._record.abort(move, step)
            case phase_rules.GoOn():
                stopping = await self._stop_before_swap(move)
                return stopping or await self._swapping.begin(move, old)
            case _:
                assert_never(step)


def _lost(move: VolumeMove) -> phase_rules.Undo:
    return phase_rules.Undo(freshness_rules.gone(move))


def _is_held(move: VolumeMove, old: PersistentVolume) -> bool:
    return old.annotations.get(HELD_FOR_MOVE) == move.key


def _is_news(old: VolumeMove, new: VolumeMove) -> bool:
    """Whether somebody else has changed it: our own writing must not cut a pause short."""
    return (old.uid, old.spec, old.deleting) != (new.uid, new.spec, new.deleting)
