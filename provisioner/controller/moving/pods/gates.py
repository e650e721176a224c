"""Gates: let pods that wait for a move go on, once no move holds their claims any more.

Each pod that waits is looked at when it appears and when a move of its claims changes: so one that
was gated late, by a webhook with an old cache, or for a move that is gone, does not wait for ever.
"""

from http import HTTPStatus

import structlog

from provisioner.controller.moving.pods import gate_rules as rules
from provisioner.controller.moving.record import suppress_gone
from provisioner.controller.shared.services import Services
from provisioner.kube.client import Patch, find
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import PODS, VOLUME_MOVES
from provisioner.model.decision import SETTLED, Later, Next
from provisioner.model.errors import KubeError
from provisioner.model.pod import Pod
from provisioner.model.volume_move import VolumeMove

# A move that our cache does not have yet wakes nobody if the cache cannot be filled.
_LOOK_AGAIN_S = 30.0

log = structlog.get_logger(__name__)


class Gates:
    """The flow of pods with our scheduling gate; keys are ``namespace/name``."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._caches = services.caches
        self.queue = KeyedQueue("gate", self.reconcile, services.metrics)

    def subscribe(self) -> None:
        """Have pods examined when they get the gate, and when a move of their claims changes."""
        self._caches.pods.subscribe(self._pod_changed)
        self._caches.moves.subscribe(self._move_changed)

    def _pod_changed(self, _: Pod | None, new: Pod | None) -> None:
        if new is not None and rules.is_gated(new):
            self.queue.add(new.key)

    def _move_changed(self, old: VolumeMove | None, new: VolumeMove | None) -> None:
        changed = new or old
        if changed is None or (new is not None and new.holds_pods):
            return
        for pod in self._caches.pods.keyed("claim", changed.claim_key):
            if rules.is_gated(pod):
                self.queue.add(pod.key)

    async def reconcile(self, key: str) -> Next:
        """Remove the gate of a pod that no move holds; else the end of that move wakes it."""
        pod = self._caches.pods.get(key)
        if pod is None or not rules.is_gated(pod):
            return SETTLED
        known = [
            each for claim in pod.claim_keys for each in self._caches.moves.keyed("claim", claim)
        ]
        if rules.is_held(pod, known):
            return SETTLED
        named = await self._named(pod)
        if named is not None and rules.is_held(pod, [named]):
            return Later(_LOOK_AGAIN_S)
        namespace = pod.metadata.namespace
        with suppress_gone():
            body = rules.ungated(pod)
            made = await self._client.patch(
                PODS, pod.name, body, kind=Patch.STRATEGIC, namespace=namespace
            )
            log.info("removed the gate of a pod: no move holds its claims", pod=made.key)
        return SETTLED

    async def _named(self, pod: Pod) -> VolumeMove | None:
        """The move that the pod names, as it is now: our cache may be older than the webhook's."""
        namespace, name = rules.named_move(pod)
        if not name:
            return None
        try:
            return await find(self._client, VOLUME_MOVES, name, namespace)
        except KubeError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None  # the kind is gone, and all moves with it; the volume's own hold stays
