"""The pods that use a claim: evicted for its move, so that their successors wait for its end.

Eviction, and no deletion: PodDisruptionBudgets hold for it. Nothing has to be brought back:
``gates`` lets the successors go on.
"""

import structlog

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods import gate_rules
from provisioner.controller.moving.pods import restart_rules as rules
from provisioner.controller.moving.pods.consumer_rules import GiveUp
from provisioner.controller.moving.record import MoveRecord, suppress_gone
from provisioner.controller.shared.services import Services
from provisioner.kube.client import KubeClient, find
from provisioner.kube.resources import EVICTIONS, MUTATING_CONFIGURATIONS
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume_move import VolumeMove
from provisioner.model.workload import ControlledPod

# Answered as a failure (500). Source: Kubernetes 1.36 pkg/registry/core/pod/storage/eviction.go.
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_WEBHOOK = "ebs-webhook"  # as manifests/webhook names it

log = structlog.get_logger(__name__)


class Restarts:
    """Evicts pods. All raise ``KubeError``."""

    def __init__(self, services: Services, record: MoveRecord) -> None:
        self._client: KubeClient = services.client
        self._record = record

    async def has_hold(self, namespace: str) -> bool:
        """Whether the API server asks our webhook about new pods of a namespace."""
        found = await find(self._client, MUTATING_CONFIGURATIONS, _WEBHOOK)
        webhooks = (found.webhooks if found is not None else None) or ()
        return gate_rules.holds_pods_of(webhooks, namespace)

    async def stop(self, move: VolumeMove) -> rules.Evict | GiveUp | Await | None:
        """Evict the next pod that is neither ending nor held back; None if there is none.

        Returns:
            What was done, or what is in the way.
        """
        step = rules.next_eviction(move, await self._record.pods(move))
        if not isinstance(step, rules.Evict):
            return step
        if list(step.restarts) != move.told.restarts:
            warning = not rules.is_planned(move, step.pod)
            await self._record.announce(
                move,
                step.text,
                reason="MoveRestart",
                warning=warning,
                restarts=list(step.restarts),
                podsBefore=step.pods_before,
            )
        try:
            await self._evict(step.pod)
        except KubeError as error:
            if error.reason is not Reason.THROTTLED and _TWO_BUDGETS not in error.message:
                raise
            return rules.not_evicted(step.pod, error.message)
        return step

    async def _evict(self, pod: ControlledPod) -> None:
        """Exactly this pod; one that is gone needs no eviction."""
        namespace = pod.metadata.namespace
        body = {
            "apiVersion": "policy/v1",
            "kind": EVICTIONS.kind,
            "metadata": {"name": pod.name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        with suppress_gone():
            await self._client.create(
                EVICTIONS, body, namespace, name=pod.name, subresource="eviction"
            )
            log.info("evicted", pod=pod.key)
