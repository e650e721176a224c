"""Have the pods of a claim end, as its move says."""

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods.consumer_rules import GiveUp, ScaleDown
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.controller.moving.pods.restart_rules import Evict
from provisioner.controller.moving.pods.restarts import Restarts
from provisioner.model.volume_move import VolumeMove


class Stopping:
    """Both ways in which pods are stopped."""

    def __init__(self, consumers: Consumers, restarts: Restarts) -> None:
        self._consumers = consumers
        self._restarts = restarts

    async def stop(self, move: VolumeMove) -> ScaleDown | Evict | GiveUp | Await | None:
        """Scale one owner of pods down, or evict one pod; None if the move stops none.

        Raises:
            KubeError: the API server cannot say who uses the claim, or refuses.
        """
        if move.restarts:
            return await self._restarts.stop(move)
        return await self._consumers.stop(move) if move.scales_down else None
