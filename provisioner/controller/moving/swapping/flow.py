"""Swapping: the claim gets its other PersistentVolume. Once it is deleted, there is no way back."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, assert_never

import msgspec

from provisioner.controller.moving import form_rules, freshness_rules, phase_rules, plan_rules
from provisioner.controller.moving.creation import MoveVolumes
from provisioner.controller.moving.pace import LOOK_AGAIN_S
from provisioner.controller.moving.pods import consumer_rules, interference_rules
from provisioner.controller.moving.pods.interference_rules import Change
from provisioner.controller.moving.pods.restart_rules import Evict
from provisioner.controller.moving.pods.stopping import Stopping
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.moving.swapping import rules
from provisioner.controller.moving.together.companions import Companions
from provisioner.controller.shared.services import Services
from provisioner.model.claim import foreign_finalizer
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, Later, Next
from provisioner.model.document import Document
from provisioner.model.errors import Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.model.volume_move import Phase, VolumeMove

Json = dict[str, Any]


class Swapping:
    """The phase Swapping, and what decides to begin it. Its methods raise ``StorageError``."""

    def __init__(
        self,
        services: Services,
        record: MoveRecord,
        volumes: MoveVolumes,
        companions: Companions,
        stopping: Stopping,
    ) -> None:
        self._caches = services.caches
        self._volume_reads = services.volume_reads
        self._driver = services.settings.driver
        self._record = record
        self._volumes = volumes
        self._companions = companions
        self._stopping = stopping
        self._counting = asyncio.Lock()

    async def begin_with_object(self, move: VolumeMove, old: PersistentVolume) -> Next:
        """Try the object of a volume that is there out, while the move can be aborted."""
        await self._record.try_volume_object(move)
        body = move.told.persistent_volume or {}
        if move.keeps_volume:
            body = form_rules.with_policy_of(move, body, old)
        volume_id = move.existing_volume_id
        return await self.begin(move, old, volume=volume_id, persistentVolume=body)

    async def begin(self, move: VolumeMove, old: PersistentVolume, **fields: Any) -> Next:
        """Write the phase, if all is as it should be just before.

        The claim was there after the old PersistentVolume had Retain, so whoever deletes the claim
        in Swapping does not have the volume deleted. ``old`` is only known: it is written, or read
        again.
        """
        waits = await self._wait_for_others(move)
        if waits is not None:
            return waits
        kept = await self._kept(move, old)
        why = freshness_rules.outdated(move, kept, self._driver) if move.copies else None
        if kept is None or why is not None:
            return await self._record.abort(
                move, phase_rules.Undo(why or freshness_rules.gone(move))
            )
        claim = await self._record.claim(move)
        undo = phase_rules.broken(move.source, claim)
        if undo is not None or claim is None:
            return await self._record.abort(move, undo or phase_rules.Undo("the claim is gone"))
        return await self._enter(move, kept, claim, fields)

    async def _enter(
        self, move: VolumeMove, kept: PersistentVolume, claim: Document, fields: Json
    ) -> Next:
        """Write the phase, unless the claim would not end, or not be let in again."""
        keeper = foreign_finalizer(claim)
        if keeper:
            return await self._record.wait(
                move,
                f"claim {claim.key} has the finalizer {keeper} since the plan was made: it is "
                "exchanged once that is removed; remove it, or abort the move",
            )
        record = phase_rules.record(claim)
        if not await self._record.may_create_claim(move, record):
            return await self._record.wait(
                move, "its namespace is being deleted: the claim stays as it is"
            )
        source = msgspec.to_builtins(phase_rules.at_swap(move.source, kept))
        changes = await self._changes(move, record, claim)
        quotas = await self._record.quotas(move)
        takes_more = interference_rules.take_more(changes, quotas)
        # Of moves that take more, each is to see what the ones before it will take.
        async with self._counting if takes_more else nullcontext():
            others: list[Change] = []
            if takes_more:
                # A claim may end after it was read: the quotas of before count it, at least.
                before = await self._record.quotas(move)
                others = await self._under_way(move)
                quotas = [*before, *await self._record.quotas(move)]
            said = interference_rules.no_room(quotas, *changes, others=others)
            if said is not None:
                way_out = "" if move.is_promised else ", or abort the move"
                raise StorageError(Reason.FORBIDDEN, f"{said}{way_out}")
            fields |= await self._retained(move, kept)
            await self._record.advance(move, Phase.SWAPPING, claim=record, source=source, **fields)
        return AGAIN

    async def _retained(self, move: VolumeMove, kept: PersistentVolume) -> Json:
        """Who has set the old volume of a copy to Retain since the plan wants the new one kept.

        A class that is asked for has a policy of its own. Of a volume that stays, the new
        PersistentVolume is not there yet.
        """
        body = move.told.persistent_volume or {}
        if not form_rules.is_to_be_retained(move, body, kept):
            return {}
        new = await self._record.persistent_volume(move.persistent_volume_name)
        if new is not None:
            await self._record.set_policy(new, "Retain")
        return {"persistentVolume": form_rules.with_policy_of(move, body, kept)}

    async def _changes(self, move: VolumeMove, record: str, claim: Document) -> list[Change]:
        """What its claim is to take of quotas, and those of the moves that swap because it does.

        A dry run says nothing of it: a quota counts the claim beside itself.
        """
        own = rules.still_takes(move, record, claim)
        led = await self._to_swap(await self._companions.led_by(move))
        return [own, *led] if own is not None else led

    async def _to_swap(self, moves: Iterable[VolumeMove]) -> list[Change]:
        """The same of moves whose claims are still there."""
        changes = []
        for each in moves:
            found = await self._record.claim(each)
            if found is not None:
                changes.append(rules.still_takes(each, phase_rules.record(found), found))
        return [each for each in changes if each is not None]

    async def _under_way(self, move: VolumeMove) -> list[Change]:
        """The same of other moves in the namespace that swap, or have to, and have not come to it.

        One that has promised to swap does not wait for others that have: each was counted when the
        first of its group began, and they would wait for each other for ever.
        """
        going = [
            each
            for phase in (Phase.SWAPPING, Phase.CLEANING)
            for each in self._caches.moves.keyed("phase", phase)
            if each.metadata.namespace == move.metadata.namespace
        ]
        swapping = [each for each in going if each.phase is Phase.SWAPPING]
        claims = await asyncio.gather(*(self._record.claim(each) for each in swapping))
        changes = [
            rules.still_takes(other, other.told.claim, claim)
            for other, claim in zip(swapping, claims, strict=True)
        ]
        found = [each for each in changes if each is not None]
        if move.is_promised:
            return found
        promised = {
            each.uid: each for first in going for each in self._companions.promised_to(first)
        }
        return found + await self._to_swap(promised.values())

    async def _kept(self, move: VolumeMove, old: PersistentVolume) -> PersistentVolume | None:
        """The old PersistentVolume as it is now, with Retain; None if it is gone."""
        if old.reclaim_policy != "Retain" and phase_rules.is_kept(move, old):
            return await self._record.retain(old)
        found = await self._record.persistent_volume(old.name)
        if found is None or found.reclaim_policy == "Retain":
            return found
        return await self._record.retain(found) if phase_rules.is_kept(move, found) else found

    async def _wait_for_others(self, move: VolumeMove) -> Next | None:
        """All moves that go together swap, or none; None if they can."""
        match await self._companions.before_swap(move):
            case phase_rules.Undo() as why:
                return await self._record.abort(move, why)
            case phase_rules.Await(message=message):
                if not move.told.ready:
                    await self._record.write(move, {"message": message, "ready": True})
                    return AGAIN
                return await self._record.wait(move, message)
            case None:
                return None

    # -- it goes on to its end

    async def advance(self, move: VolumeMove) -> Next:
        """One step of a move that is swapping; it only turns back while the claim is there."""
        claim = await self._record.known_claim(move)
        if claim is not None and not phase_rules.is_enough(move, claim):
            claim = await self._record.claim(move)
        uses = await self._record.uses(move) if phase_rules.waits_for_pods(move, claim) else ()
        new = made = None
        if not move.copies or phase_rules.waits_to_be_bound(move, claim):
            new = await self._record.known_volume(move, move.persistent_volume_name)
            # Of a volume that stays, the object is there whatever EC2 shows: see ``_guarded``.
            if new is not None and move.copies:
                self._volumes.seen(move.uid)
            elif move.copies:
                made = await self._volume_reads.volume(move.told.volume)
        old = await self._record.known_volume(move, move.source.persistent_volume)
        step = phase_rules.next_swap_step(move, old, claim, uses, new, made=made)
        if freshness_rules.may_lose(step):
            old = await self._record.persistent_volume(move.source.persistent_volume)
            step = phase_rules.next_swap_step(move, old, claim, uses, new, made=made)
        safe = await self._guarded(move, step, claim, old)
        match safe:
            case freshness_rules.TurnBack(message=message):
                return await self._turn_back(move, claim, message)
            case phase_rules.Await(message=message):
                return await self._wait_for_swap(move, uses, message)
            case phase_rules.Swapped():
                await self._record.advance(move, Phase.CLEANING)
            case phase_rules.Retain():
                if old is not None:
                    await self._record.set_policy(old, "Retain")
            case phase_rules.Introduce():
                return await self._introduce(move, made)
            case _:
                return await self._exchange(move, safe)
        return AGAIN

    async def _guarded(
        self,
        move: VolumeMove,
        step: phase_rules.SwapStep,
        claim: phase_rules.SeenClaim | None,
        old: PersistentVolume | None,
    ) -> phase_rules.SwapStep | freshness_rules.TurnBack:
        """EC2 may say for a while that it does not know a volume which it has just shown."""
        made = None
        if isinstance(step, phase_rules.RemoveEmpty) and claim is not None:
            new = await self._record.persistent_volume(move.persistent_volume_name)
            return rules.may_go(step, claim, new, _age_s(claim))
        if freshness_rules.may_lose(step):
            new = await self._record.known_volume(move, move.persistent_volume_name)
            restored = new.volume_id(self._driver) if new is not None else None
            volume_id = restored or move.told.volume
            made = await self._volume_reads.volume(volume_id)
            if made is not None:
                self._volumes.seen(move.uid)
            elif self._volumes.missing_for_s(move.uid) < CONSISTENCY_S:
                return phase_rules.Await(f"EC2 does not show volume {volume_id}")
        attached = await self._attached(move) if move.changes_driver else ()
        return freshness_rules.guarded(
            move, step, claim, old, made=made, driver=self._driver, attached=attached
        )

    async def _attached(self, move: VolumeMove) -> Sequence[str]:
        """The nodes that have the old PersistentVolume, or are to have it."""
        await self._caches.certain(self._caches.attachments)
        name = move.source.persistent_volume
        found = self._caches.attachments.keyed("persistent_volume", name)
        return [each.spec.node_name for each in found]

    async def _turn_back(
        self, move: VolumeMove, claim: phase_rules.SeenClaim | None, message: str
    ) -> Next:
        if claim is not None and claim.uid == move.source.claim_uid:
            await self._record.keep_claim(move, claim)
        return await self._record.abort(move, phase_rules.Undo(message))

    async def _introduce(self, move: VolumeMove, made: Volume | None) -> Next:
        """That of a copy was there before; its volume may just be deleted with it."""
        body = move.told.persistent_volume or {}
        if made is not None:
            if self._volumes.missing_for_s(move.uid) < CONSISTENCY_S:
                name = move.persistent_volume_name
                text = f"PersistentVolume {name} was deleted: it is created again within a minute"
                return await self._record.wait(move, text)
            self._volumes.forget(move.uid)
            body = plan_rules.with_volume(body, made)
        await self._record.create_volume_object(body)
        return AGAIN

    async def _wait_for_swap(
        self, move: VolumeMove, uses: Sequence[phase_rules.Use], message: str
    ) -> Next:
        """It cannot be aborted any more, so what does not stay away is named."""
        stopped = await self._stopping.stop(move) if uses else None
        if isinstance(stopped, consumer_rules.ScaleDown | Evict):
            return AGAIN
        return await self._record.wait(move, stopped.message if stopped is not None else message)

    async def _exchange(self, move: VolumeMove, step: phase_rules.ClaimStep) -> Next:
        """What is done to the claim itself; its end, and its binding, wake the move."""
        match step:
            case phase_rules.Record():
                claim = await self._record.claim(move)
                if claim is not None and claim.uid == move.source.claim_uid:
                    await self._record.write(move, {"claim": phase_rules.record(claim)})
            case (
                phase_rules.Remove(uid=uid, resource_version=version)
                | phase_rules.RemoveEmpty(uid=uid, resource_version=version)
            ):
                await self._record.remove_claim(move, uid, version)
                return Later(LOOK_AGAIN_S)
            case phase_rules.Recreate():
                if not await self._record.create_claim(move):
                    text = "its namespace is being deleted: the claim is not created again"
                    await self._record.advance(move, Phase.CLEANING, text)
            case _:
                assert_never(step)
        return AGAIN


def _age_s(claim: phase_rules.SeenClaim) -> float:
    created_at = claim.metadata.creation_timestamp
    return (datetime.now(UTC) - created_at).total_seconds() if created_at else float("inf")
