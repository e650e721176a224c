"""The owners of the pods that use a claim: scaled down for its move, and back afterwards.

All is read from the API server as it is. What an owner had is written to the move before it is
scaled, and it is scaled only at the very version that was read.
"""

from collections.abc import Sequence

import msgspec
import structlog
from msgspec import structs

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods import consumer_rules as rules
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.shared.services import Services
from provisioner.kube.client import Patch, find
from provisioner.kube.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, VOLUME_MOVES
from provisioner.model.volume_move import MoveConsumer, VolumeMove
from provisioner.model.workload import ControlledPod, Workload

# A pod's ReplicaSet and its Deployment; what users write as owners may go in circles.
_MOST_OWNERS = 3

log = structlog.get_logger(__name__)


class Consumers:
    """Reads and scales owners. All raise ``KubeError``."""

    def __init__(self, services: Services, record: MoveRecord) -> None:
        self._client = services.client
        self._caches = services.caches
        self._record = record

    async def look(self, pods: Sequence[ControlledPod]) -> list[rules.Consumer]:
        """Who makes these pods."""
        return [await self._consumer(each) for each in pods]

    async def _consumer(self, pod: ControlledPod) -> rules.Consumer:
        owner, workload = pod.metadata.controller, None
        for _ in range(_MOST_OWNERS):
            if owner is None or not owner.is_scaled:
                break
            found = await self._read(owner.kind, owner.name, pod.metadata.namespace)
            workload = found if found is not None and found.uid == owner.uid else None
            above = workload.metadata.controller if workload is not None else None
            if above is None or not above.is_scaled:
                return rules.Consumer(
                    pod.name, pod.claim_keys, owner, workload, above, has_ended=pod.has_ended
                )
            owner, workload = above, None
        return rules.Consumer(pod.name, pod.claim_keys, owner, workload, has_ended=pod.has_ended)

    async def stop(self, move: VolumeMove) -> rules.ScaleDown | rules.GiveUp | None:
        """Scale the next owner down that is not; None if all are, so that pods end.

        Returns:
            What was done, or why nothing can be.
        """
        pods = await self._record.pods(move)
        found = rules.to_scale(await self.look(pods))
        known = rules.merged(move.told.consumers, found)
        for at, each in enumerate(known):
            workload = await self._read(each.kind, each.name, move.metadata.namespace)
            step = rules.next_stop(rules.lowered(each, found, workload), workload)
            if workload is None or step is None:
                continue
            if isinstance(step, rules.ScaleDown):
                known[at] = step.consumer
                if known != move.told.consumers:
                    await self._announce(move, step.consumer, known)
                await self._scale(step.consumer, workload, step.consumer.scale_to)
            return step
        return None

    async def bring_back(
        self, move: VolumeMove, *, is_settled: bool
    ) -> tuple[VolumeMove, Await | None]:
        """Give the owners the numbers of replicas that they had.

        Args:
            move: whose owners they are.
            is_settled: no request of before can come any more; until then, an owner that one could
                still scale down is left for later (see ``rules.is_owed``).

        Returns:
            The move as it is then, and the other move that has to give an owner back first.
        """
        known = list(move.told.consumers)
        waits: Await | None = None
        for at, each in enumerate(known):
            if each.replicas is None or each.is_back:
                continue
            workload = await self._read(each.kind, each.name, move.metadata.namespace)
            if not is_settled and rules.may_be_scaled_yet(each, workload):
                continue
            if workload is not None and rules.is_further_down(each, workload):
                first = await self._gives_back_first(move, each)
                if first is not None:
                    waits = first
                    continue
                again = await self._read(each.kind, each.name, move.metadata.namespace)
                if not rules.is_unchanged(workload, again):
                    continue  # it is not of the moment in which no other move was in the way
            if workload is not None and rules.is_to_come_back(each, workload):
                await self._scale(each, workload, each.replicas)
            known[at] = structs.replace(each, is_back=True)
        if known != move.told.consumers:
            move = await self._remember(move, known)
        return move, waits

    async def _gives_back_first(self, move: VolumeMove, consumer: MoveConsumer) -> Await | None:
        """See ``consumer_rules``; to wait, a cache is enough: many may wait for one."""
        known = rules.gives_back_first(move, consumer, self._caches.moves.values())
        if known is not None:
            return known
        listing = await self._client.list(VOLUME_MOVES, namespace=move.metadata.namespace)
        return rules.gives_back_first(move, consumer, listing.items)

    async def _announce(
        self, move: VolumeMove, consumer: MoveConsumer, known: Sequence[MoveConsumer]
    ) -> None:
        """Name the owner before it is scaled down: the plan may not have known it."""
        plan = move.told.plan
        is_planned = rules.is_planned(consumer, plan.stops if plan is not None else ())
        text = rules.announced(consumer, is_planned=is_planned)
        fields = {"consumers": msgspec.to_builtins(known)}
        await self._record.announce(
            move, text, reason="MoveScaleDown", warning=not is_planned, **fields
        )

    async def _remember(self, move: VolumeMove, known: Sequence[MoveConsumer]) -> VolumeMove:
        return await self._record.write(move, {"consumers": msgspec.to_builtins(known)})

    async def _read(self, kind: str, name: str, namespace: str) -> Workload | None:
        match kind:
            case "StatefulSet":
                return await find(self._client, STATEFUL_SETS, name, namespace)
            case "Deployment":
                return await find(self._client, DEPLOYMENTS, name, namespace)
            case "ReplicaSet":
                return await find(self._client, REPLICA_SETS, name, namespace)
            case _:
                return None

    async def _scale(self, consumer: MoveConsumer, seen: Workload, replicas: int) -> None:
        name, space = seen.name, seen.metadata.namespace
        meta = {"uid": seen.uid, "resourceVersion": seen.metadata.resource_version}
        body = {"metadata": meta, "spec": {"replicas": replicas}}
        patch, kind = self._client.patch, Patch.MERGE
        match consumer.kind:
            case "StatefulSet":
                await patch(
                    STATEFUL_SETS, name, body, kind=kind, namespace=space, subresource="scale"
                )
            case "Deployment":
                await patch(
                    DEPLOYMENTS, name, body, kind=kind, namespace=space, subresource="scale"
                )
            case "ReplicaSet":
                await patch(
                    REPLICA_SETS, name, body, kind=kind, namespace=space, subresource="scale"
                )
        log.info("scaled", kind=consumer.kind, name=name, replicas=replicas, was=seen.replicas)
