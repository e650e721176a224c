"""The pods that wait for claims, and what the cluster says of where they can run."""

import asyncio
from collections.abc import Mapping

from provisioner.decide import consumers as rules
from provisioner.decide.consumers import Consumers
from provisioner.decide.storage_class import ReadClass
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PLACED_VOLUMES
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.model.node import CsiNode, Node
from provisioner.model.placed_volume import PlacedVolume
from provisioner.model.pod import Pod
from provisioner.model.zone import Place
from provisioner.reconcile.caches import Caches


class WaitingPods:
    """Pending pods by the claims that they use, with all that holds them somewhere."""

    def __init__(self, client: KubeClient, caches: Caches, driver: str) -> None:
        self._client = client
        self._caches = caches
        self._driver = driver
        # Those of each class's newest revision; a look at every node would cost each claim 0.1 s.
        self._homes: dict[str, tuple[ReadClass, tuple[rules.Home, ...]]] = {}
        caches.nodes.subscribe(self._node_changed)
        caches.csi_nodes.subscribe(self._registration_changed)

    def node_of(self, claim: Claim) -> str:
        """The node on which a pod is that needs the claim, "" if the scheduler has to choose.

        The scheduler binds a pod after its claims, so such a pod came to its node without it.
        """
        return next((pod.node_name for pod in self.pods(claim) if pod.node_name), "")

    def settled_node_of(self, claim: Claim) -> str:
        """The same, "" while the scheduler has to choose for any of its pods."""
        nodes = [pod.node_name for pod in self.pods(claim)]
        return nodes[0] if nodes and all(nodes) else ""

    def siblings(self, claim: Claim) -> list[Claim]:
        """The other claims of its pods."""
        keys = dict.fromkeys(key for pod in self.pods(claim) for key in pod.claim_keys)
        found = [self._caches.claims.get(key) for key in keys if key != claim.key]
        return [each for each in found if each is not None]

    async def volumes(self, claim: Claim) -> dict[str, PlacedVolume]:
        """The persistent volumes of the siblings that are bound, as the API server has them now.

        By the siblings' keys.

        Raises:
            KubeError: one of them could not be read.
        """
        while True:
            names = self._bound(claim)
            found = await asyncio.gather(*(self._read(name) for name in names.values()))
            if names == self._bound(claim):  # or one was bound meanwhile
                each = zip(names, found, strict=True)
                return {key: volume for key, volume in each if volume is not None}

    def consumers(
        self, claim: Claim, volumes: Mapping[str, PlacedVolume], in_making: Mapping[str, Place]
    ) -> Consumers:
        """The pods that wait for a claim, without the nodes that they could run on."""
        made = frozenset(in_making.values())
        return Consumers(self.pods(claim), (), tuple(volumes.values()), made)

    def homes(self, read_class: ReadClass) -> tuple[rules.Home, ...]:
        """The nodes that could take a volume of a class: a look at every node after a change."""
        known = self._homes.get(read_class.name)
        if known is None or known[0] is not read_class:
            nodes = [(n, self._caches.csi_nodes.get(n.name)) for n in self._caches.nodes.values()]
            known = read_class, rules.homes(read_class, self._driver, nodes)
            self._homes[read_class.name] = known
        return known[1]

    def pods(self, claim: Claim) -> tuple[Pod, ...]:
        """The pending pods that use a claim, but for those on their way out."""
        pods = self._caches.pods.keyed("claim", claim.key)
        return tuple(pod for pod in pods if not pod.deleting)

    def _bound(self, claim: Claim) -> dict[str, str]:
        siblings = self.siblings(claim)
        return {each.key: each.spec.volume_name for each in siblings if each.spec.volume_name}

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or _told(old) != _told(new):
            self._homes.clear()

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        before, after = (each and each.driver(self._driver) for each in (old, new))
        if (before is None) is not (after is None):
            self._homes.clear()

    async def _read(self, name: str) -> PlacedVolume | None:
        """One that is gone holds nobody any more."""
        try:
            return await self._client.get(PLACED_VOLUMES, name)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise


def _told(node: Node) -> tuple[object, ...]:
    """What a home is chosen by; a node also changes with every report of its kubelet."""
    return node.labels, node.spec, node.deleting
