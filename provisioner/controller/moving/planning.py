"""Planning: read what the plan of a move rests on, once, and write what is decided."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never

import msgspec
from msgspec import structs

from provisioner.classes import iops_rules
from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.moving import estimate_rules, form_rules, phase_rules, plan_rules
from provisioner.controller.moving.copying.flow import Copier
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.going_back.flow import GoingBack
from provisioner.controller.moving.going_back.rules import Kept
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.controller.moving.pods.restarts import Restarts
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.moving.shape_rules import no
from provisioner.controller.moving.staying import rules as stay_rules
from provisioner.controller.moving.together.companions import Companions
from provisioner.controller.shared.services import Services
from provisioner.kube.resources import AUTOSCALERS
from provisioner.model import volume_type
from provisioner.model.claim import Claim, LabelledClaim
from provisioner.model.decision import AGAIN, Later, Next, Refuse
from provisioner.model.document import Document
from provisioner.model.errors import NO_ANSWER, Ec2Error, KubeError
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import CreateRequest
from provisioner.model.volume_move import MoveEstimate, MovePlan, MoveSource, Phase, VolumeMove
from provisioner.prices import price_file

# After so long without a plan, the driver of the volume has no controller that moves.
_UNTAKEN_S = 600.0


class Planning:
    """The first pass of a move."""

    def __init__(
        self,
        services: Services,
        record: MoveRecord,
        consumers: Consumers,
        restarts: Restarts,
        *,
        copier: Copier,
        companions: Companions,
        going_back: GoingBack,
    ) -> None:
        self._services = services
        self._caches = services.caches
        self._driver = services.settings.driver
        self._record = record
        self._consumers = consumers
        self._restarts = restarts
        self._copier = copier
        self._companions = companions
        self._going_back = going_back

    async def plan(self, move: VolumeMove) -> Next:
        """Write the plan of a new move, or why there is none."""
        if move.is_to_end:
            await self._record.advance(move, Phase.ABORTED, "aborted before anything was done")
            return AGAIN
        facts = await self._facts(move)
        if stay_rules.is_of_another_driver(facts, self._driver):
            left_s = _UNTAKEN_S - _age_s(move)
            if left_s > 0:
                return Later(left_s)  # its own controller may be about to take it
        decision = await self._decided(facts)
        if isinstance(decision, plan_rules.Planned):
            decision = await self._not_again(facts, decision.plan) or decision
        match decision:
            case Refuse(message=message):
                is_as_asked = isinstance(decision, plan_rules.AsAsked)
                await self._record.advance(move, Phase.REFUSED, message, asAsked=is_as_asked)
            case plan_rules.Planned(
                plan=plan, source=source, request=request, body=body, kept=kept
            ):
                if request is not None:
                    plan = structs.replace(plan, estimate=await _estimate(move, plan, source))
                await self._record.advance(
                    move,
                    Phase.PLANNED,
                    "; ".join([*plan.stops, *plan.notes]),
                    plan=msgspec.to_builtins(plan),
                    source=msgspec.to_builtins(source),
                    kept=msgspec.to_builtins(kept),
                    request=msgspec.to_builtins(request),  # None: nothing is copied
                    persistentVolume=body,
                )
            case _:
                assert_never(decision)
        return AGAIN

    async def _decided(self, facts: Facts) -> plan_rules.Planned | Refuse:
        """The plan, with no more IOPS than the region gives, of a volume that EC2 would create.

        Raises:
            Ec2Error: EC2 could not be asked, so nothing may be planned.
        """
        decision = self._examined(facts)
        request = decision.request if isinstance(decision, plan_rules.Planned) else None
        if request is None:
            return decision
        if facts.move.spec.to.storage_class_name and iops_rules.depends_on_region(
            request.volume_type, request.iops
        ):
            ceiling = await self._services.ceilings.of(request)
            decision = self._examined(replace(facts, iops_ceiling=ceiling))
            request = decision.request if isinstance(decision, plan_rules.Planned) else None
        return await self._refused_by_ec2(request) or decision

    def _examined(self, facts: Facts) -> plan_rules.Planned | Refuse:
        settings = self._services.settings
        return plan_rules.examine(
            facts,
            driver=self._driver,
            cluster_id=settings.cluster_id,
            extra_tags=settings.extra_tags,
        )

    async def _not_again(self, facts: Facts, plan: MovePlan) -> Refuse | None:
        """Why the API server would not let the claim in again, once it is deleted."""
        move, claim = facts.move, facts.claim_document
        if claim is None:
            return None
        planned = structs.replace(move, status=structs.replace(move.told, plan=plan))
        try:
            may = await self._record.may_create_claim(planned, phase_rules.record(claim))
        except KubeError as error:
            if error.reason in NO_ANSWER:
                raise
            return no(f"the claim could not be created again: {error.message}")
        return None if may else no(f"namespace {move.metadata.namespace} is being deleted")

    async def _refused_by_ec2(self, request: CreateRequest | None) -> Refuse | None:
        """What EC2 has against a volume of which more is asked than every Region has.

        It is asked for no other: that would take from the quota of those that are created.
        """
        if request is None or not volume_type.is_beyond(
            *(request.volume_type, request.size_gib, request.iops, request.throughput_mibps)
        ):
            return None
        try:
            refusal = await self._services.volumes.dry_run(request)
        except Ec2Error as failure:
            if failure.reason in NO_ANSWER:
                raise
            return None  # it is not about the volume: told once it is created, if it still holds
        if refusal is None:
            return None
        return no(f"the new volume cannot be created: {refusal.message}")

    async def _facts(self, move: VolumeMove) -> Facts:
        client, namespace = self._services.client, move.metadata.namespace
        read = await self._record.claim(move)
        claim = _as_claim(read)
        name = claim.spec.volume_name if claim is not None else ""
        document = await self._record.volume_document(name)
        found = await self._record.volume_like(document)
        volume_id = self._volume_id(found)
        volume = await self._services.volume_reads.volume(volume_id) if volume_id else None
        kept = await self._going_back.look(move)
        class_name = kept.class_name if kept else plan_rules.target_class_name(move, claim)
        storage_class = await self._caches.storage_class(class_name)
        named = self._caches.persistent_volumes.keyed("volume", volume_id or "")
        pods = await self._record.pods(move)
        zone = _zone(move, kept)
        is_elsewhere = bool(pods and (zone or move.spec.to.storage_class_name))
        return Facts(
            move=move,
            claim=claim,
            claim_document=read,
            persistent_volume=found,
            document=document,
            volume=volume,
            class_name=class_name,
            storage_class=storage_class,
            read_class=_read(storage_class) if storage_class is not None else None,
            zones={place.zone for place in self._caches.registered.places},
            others=self._caches.moves.keyed("claim", move.claim_key),
            consumers=await self._consumers.look(pods),
            namesakes={each.name for each in named} - {name} if volume_id else (),
            pod_refused=await self._copier.why_not(move, document, volume),
            autoscalers=(await client.list(AUTOSCALERS, namespace=namespace)).items if pods else (),
            quotas=await self._record.quotas(move),
            moved_with=self._moved_with(move),
            pods=pods,
            companions=await self._companions.of_pods(move, pods, zone),
            nodes=self._nodes() if is_elsewhere else (),
            kept=kept,
            has_hold=await self._restarts.has_hold(namespace),
        )

    def _nodes(self) -> list[tuple[Node, CsiNode | None]]:
        csi_nodes = self._caches.csi_nodes
        return [(each, csi_nodes.get(each.name)) for each in self._caches.nodes.values()]

    def _moved_with(self, move: VolumeMove) -> list[Claim]:
        """As caches have them: all of them are counted once more before the swap."""
        others = sorted(move.claim_keys - {move.claim_key})
        return [each for key in others if (each := self._caches.claims.get(key)) is not None]

    def _volume_id(self, found: PersistentVolume | None) -> str | None:
        """The EBS volume of a PersistentVolume, whose driver may be another one."""
        is_of_ebs = found is not None and stay_rules.may_have(
            form_rules.driver_of(found), self._driver
        )
        return found.named_volume if found is not None and is_of_ebs else None


async def _estimate(move: VolumeMove, plan: MovePlan, source: MoveSource) -> MoveEstimate:
    prices = await asyncio.to_thread(price_file.shipped)
    return estimate_rules.estimate(move, plan, source.reclaim_policy, prices)


def _zone(move: VolumeMove, kept: Kept | None) -> str:
    """Where the claim's pods have to run afterwards; "" where they do now."""
    volume = kept.volume if kept is not None else None
    return volume.zone if volume is not None else move.spec.to.zone


def _age_s(move: VolumeMove) -> float:
    created_at = move.metadata.creation_timestamp
    return (datetime.now(UTC) - created_at).total_seconds() if created_at else _UNTAKEN_S


def _as_claim(read: Document | None) -> LabelledClaim | None:
    return msgspec.convert(msgspec.to_builtins(read), LabelledClaim) if read else None


def _read(storage_class: StorageClass) -> ReadClass | str:
    try:
        return read(storage_class)
    except ValueError as error:
        return str(error)
