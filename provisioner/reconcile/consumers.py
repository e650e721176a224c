"""The pods that wait for claims, and what the cluster says of where they can run."""

import asyncio
from collections.abc import Iterable

from provisioner.decide import consumers as rules
from provisioner.decide.consumers import Consumers
from provisioner.decide.storage_class import ReadClass
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PLACED_VOLUMES
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.model.placed_volume import PlacedVolume
from provisioner.model.pod import Pod
from provisioner.reconcile.caches import Caches


class WaitingPods:
    """Pending pods by the claims that they use, with all that holds them somewhere."""

    def __init__(self, client: KubeClient, caches: Caches, driver: str) -> None:
        self._client = client
        self._caches = caches
        self._driver = driver

    def node_of(self, claim: Claim) -> str:
        """The node on which a pod is that needs the claim, "" if the scheduler has to choose.

        The scheduler binds a pod after its claims, so such a pod came to its node without it.
        """
        return next((pod.node_name for pod in self._pods(claim) if pod.node_name), "")

    def siblings(self, claim: Claim) -> list[Claim]:
        """The other claims of its pods."""
        keys = dict.fromkeys(key for pod in self._pods(claim) for key in pod.claim_keys)
        found = [self._caches.claims.get(key) for key in keys if key != claim.key]
        return [each for each in found if each is not None]

    async def volumes(self, claim: Claim) -> tuple[PlacedVolume, ...]:
        """The persistent volumes of the siblings that are bound, as the API server has them now.

        Raises:
            KubeError: one of them could not be read.
        """
        while True:
            names = self._bound(claim)
            found = await asyncio.gather(*(self._read(name) for name in names))
            if names == self._bound(claim):  # or one was bound meanwhile
                return tuple(each for each in found if each is not None)

    def consumers(
        self, claim: Claim, volumes: Iterable[PlacedVolume], in_making: rules.InMaking
    ) -> Consumers:
        """The pods that wait for a claim, without the nodes that they could run on."""
        return Consumers(self._pods(claim), (), tuple(volumes), in_making)

    def homes(self, read_class: ReadClass) -> tuple[rules.Home, ...]:
        """The nodes that could take a volume of a class: a look at every node."""
        nodes = [(n, self._caches.csi_nodes.get(n.name)) for n in self._caches.nodes.values()]
        return rules.homes(read_class, self._driver, nodes)

    def _pods(self, claim: Claim) -> tuple[Pod, ...]:
        pods = self._caches.pods.keyed("claim", claim.key)
        return tuple(pod for pod in pods if not pod.deleting)

    def _bound(self, claim: Claim) -> list[str]:
        siblings = self.siblings(claim)
        return [each.spec.volume_name for each in siblings if each.spec.volume_name]

    async def _read(self, name: str) -> PlacedVolume | None:
        """One that is gone holds nobody any more."""
        try:
            return await self._client.get(PLACED_VOLUMES, name)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise
