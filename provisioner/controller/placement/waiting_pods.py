"""The pods that wait for claims, and what the cluster says of where they can run."""

import asyncio
from dataclasses import dataclass, field

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.claims.source_rules import of_claim
from provisioner.controller.placement import consumer_rules as rules
from provisioner.controller.placement.consumer_rules import Consumers, SiblingVolumes, Topology
from provisioner.controller.placement.eligible_node_rules import NO_NODES, EligibleNodes
from provisioner.controller.shared.caches import Caches
from provisioner.ec2.lookups import VolumeReads
from provisioner.kube.client import KubeClient, find
from provisioner.kube.resources import PLACED_VOLUMES
from provisioner.model.claim import Claim
from provisioner.model.data_source import Source
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import Place


class WaitingPods:
    """Pending pods by the claims that they use, with all that holds them somewhere."""

    def __init__(
        self, client: KubeClient, caches: Caches, driver: str, reads: VolumeReads | None = None
    ) -> None:
        self._client = client
        self._reads = reads
        self._caches = caches
        self._driver = driver
        # By the topologies that classes allow: most have the same. Reading each of 10,000 nodes
        # would cost each claim 0.1 s.
        self._eligible: dict[Topology, _EligibleNodes] = {}
        caches.classes.subscribe(self._class_changed)
        caches.nodes.subscribe(self._node_changed)
        caches.csi_nodes.subscribe(self._registration_changed)

    def siblings(self, claim: Claim) -> list[Claim]:
        """The other claims of its pods."""
        keys = dict.fromkeys(key for pod in self._caches.pods_of(claim) for key in pod.claim_keys)
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
            reads = (find(self._client, PLACED_VOLUMES, name) for name in names.values())
            found = await asyncio.gather(*reads)
            if names == self._bound(claim):  # or one was bound meanwhile
                each = zip(names, found, strict=True)
                # One that is gone constrains no pod.
                return {key: volume for key, volume in each if volume is not None}

    async def clones(self, claim: Claim) -> dict[str, Place]:
        """Where those siblings will be made that are clones: in the places of their sources.

        By the siblings' keys; without those that may come to other zones, and those whose place
        is not known yet.

        Raises:
            Ec2Error: EC2 could not be asked where the sources are.
        """
        volume_ids = {each.key: self._cloned_id(each) for each in self.siblings(claim)}
        volume_ids = {key: volume_id for key, volume_id in volume_ids.items() if volume_id}
        if self._reads is None or not volume_ids:
            return {}
        found = await asyncio.gather(*map(self._reads.volume, volume_ids.values()))
        there = zip(volume_ids, found, strict=True)
        return {key: volume.place for key, volume in there if volume is not None}

    def consumers(
        self, claim: Claim, sibling_volumes: SiblingVolumes, read_class: ReadClass | None = None
    ) -> Consumers:
        """The pods that wait for a claim; with a class, also the nodes that they could run on."""
        made = frozenset(sibling_volumes.in_creation.values())
        return Consumers(
            self._caches.pods_of(claim),
            self.eligible_nodes(read_class) if read_class is not None else NO_NODES,
            tuple(sibling_volumes.volumes.values()),
            made,
        )

    def eligible_nodes(self, read_class: ReadClass) -> EligibleNodes:
        """The nodes that could take a volume of a class.

        Only nodes that have changed are judged again.
        """
        topology = rules.topology_of(read_class)
        known = self._eligible.get(topology)
        if known is None:
            known = self._eligible[topology] = _EligibleNodes(read_class)
            known.changed.update(node.name for node in self._caches.nodes.values())
        if known.changed:
            known.update(self._caches)
        return known.found

    def _cloned_id(self, claim: Claim) -> str:
        """The volume beside which a claim's own will be made, "" if nothing says so."""
        source, of_class = claim.source, self._caches.classes.get(claim.class_name)
        if claim.spec.volume_name or source is None or not source.is_claim:
            return ""
        if of_class is None or not of_class.is_of(self._driver) or of_class.clones_across_zones:
            return ""
        cloned = self._caches.claims.get(f"{claim.metadata.namespace}/{source.name}")
        name = cloned.spec.volume_name if cloned is not None else ""
        volume = self._caches.persistent_volumes.get(name)
        found = of_claim(claim, cloned, volume, driver=self._driver)
        return found.volume_id if isinstance(found, Source) else ""

    def _bound(self, claim: Claim) -> dict[str, str]:
        siblings = self.siblings(claim)
        return {each.key: each.spec.volume_name for each in siblings if each.spec.volume_name}

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Forget all, as no class may have the old topologies any more."""
        if old is not None and (new is None or old.allowed_topologies != new.allowed_topologies):
            self._eligible.clear()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or _told(old) != _told(new):
            self._changed(old, new)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        before, after = (each and each.driver(self._driver) for each in (old, new))
        if (before is None) is not (after is None):
            self._changed(old, new)

    def _changed(self, old: Node | CsiNode | None, new: Node | CsiNode | None) -> None:
        changed = new or old
        for known in self._eligible.values():
            known.changed.add(changed.name if changed is not None else "")


@dataclass(slots=True)
class _EligibleNodes:
    """What is known of the nodes; ``read_class``: any that allows these topologies."""

    read_class: ReadClass
    found: EligibleNodes = NO_NODES
    changed: set[str] = field(default_factory=set)

    def update(self, caches: Caches) -> None:
        here = [node for name in self.changed if (node := caches.nodes.get(name)) is not None]
        nodes = [(node, caches.registered.place(node.name)) for node in here]
        self.found = self.found.but(self.changed, rules.eligible_nodes(self.read_class, nodes))
        self.changed.clear()


def _told(node: Node) -> tuple[object, ...]:
    """What an eligible node is chosen by; a node also changes with every report of its kubelet."""
    return node.labels, node.spec, node.deleting
