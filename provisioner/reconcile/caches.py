"""The cached world: one informer a kind, and live reads where "not here" is not proof enough."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Projection,
    Resource,
    T,
)
from provisioner.kube.store import Indexer
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.pod import Pod, using_claims
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import Place, place_of

_DISCOVER_AGAIN_S = 2.0
_CLAIMS_BY: Mapping[str, Indexer[Claim]] = {
    "uid": lambda claim: (claim.uid,),
    "class": lambda claim: (claim.class_name,),
}
_ATTACHMENTS_BY: Mapping[str, Indexer[Attachment]] = {
    "persistent_volume": lambda each: (each.spec.source.persistent_volume_name or "",),
    "node": lambda each: (each.spec.node_name,),
}

log = structlog.get_logger(__name__)


def _volume_of(persistent_volume: PersistentVolume) -> Iterable[str]:
    volume_id = persistent_volume.named_volume
    return (volume_id,) if volume_id else ()


class Caches:
    """Informers of everything that the flows read.

    The indexes: claims by ``uid`` and ``class``, persistent volumes by ``volume`` (under whichever
    driver they name it), attachments by ``persistent_volume`` and ``node``, pods by ``claim``. Of
    pods there are only those that are pending and use claims: what else runs is nothing to us.
    """

    def __init__(self, client: KubeClient, metrics: Metrics, driver: str) -> None:
        self._client = client
        self._driver = driver
        self.claims: Informer[Claim] = Informer(client, CLAIMS, metrics, indexers=_CLAIMS_BY)
        self.persistent_volumes: Informer[PersistentVolume] = Informer(
            client, PERSISTENT_VOLUMES, metrics, indexers={"volume": _volume_of}
        )
        self.attachments: Informer[Attachment] = Informer(
            client, ATTACHMENTS, metrics, indexers=_ATTACHMENTS_BY
        )
        self.classes: Informer[StorageClass] = Informer(client, STORAGE_CLASSES, metrics)
        self.nodes: Informer[Node] = Informer(client, NODES, metrics)
        self.csi_nodes: Informer[CsiNode] = Informer(client, CSI_NODES, metrics)
        self.pods: Informer[Pod] = Informer(
            client,
            Projection(PODS, using_claims),
            metrics,
            indexers={"claim": lambda pod: pod.claim_keys},
            field_selector="status.phase=Pending",
        )

        self._kinds: dict[Resource[Any], Informer[Any]] = {
            CLAIMS: self.claims,
            PERSISTENT_VOLUMES: self.persistent_volumes,
            ATTACHMENTS: self.attachments,
            STORAGE_CLASSES: self.classes,
            NODES: self.nodes,
            CSI_NODES: self.csi_nodes,
            PODS: self.pods,
        }
        self._served: list[Informer[Any]] = []
        self._discovered = asyncio.Event()
        # Asked for by every claim that binds at once, and hardly ever another.
        self._places: frozenset[Place] | None = None
        self.nodes.subscribe(self._node_changed)
        self.csi_nodes.subscribe(self._registration_changed)

    async def run(self) -> None:
        """Find out what the API server has, then follow all of it for ever."""
        while not self._discovered.is_set():
            try:
                await self._discover()
            except KubeError as error:
                log.warning("cannot ask the API server what it serves", error=error.message)
                await asyncio.sleep(error.retry_after_s or _DISCOVER_AGAIN_S)
        async with asyncio.TaskGroup() as tasks:
            for informer in self._served:
                tasks.create_task(informer.run())

    async def _discover(self) -> None:
        """A kind that is missing leaves its cache empty; what needs it is off."""
        served = await self._client.served()
        for resource, informer in self._kinds.items():
            if (resource.api_version, resource.plural) in served:
                self._served.append(informer)
            else:
                log.warning(
                    "the API server does not serve a kind; what needs it is off",
                    kind=resource.kind,
                    api=f"{resource.api_version} {resource.plural}",
                )
        self._discovered.set()

    async def synced(self) -> None:
        """Return once every cache has had its first list: before that nothing may be decided."""
        await self._discovered.wait()
        for informer in self._served:
            await informer.synced.wait()

    @property
    def is_synced(self) -> bool:
        """Whether every cache has had its first list."""
        return self._discovered.is_set() and all(i.synced.is_set() for i in self._served)

    async def refresh(self) -> None:
        """Take in what live lists show, for all that a leader writes."""
        written: tuple[Resource[Any], ...] = (CLAIMS, PERSISTENT_VOLUMES, ATTACHMENTS)
        for resource in written:
            informer = self._kinds[resource]
            if informer in self._served:
                for found in (await self._client.list(resource)).items:
                    informer.observe(found)

    def claim(self, uid: str) -> Claim | None:
        """The claim with this UID."""
        return next(iter(self.claims.keyed("uid", uid)), None)

    async def storage_class(self, name: str) -> StorageClass | None:
        """A class; None only when the API server has none of that name."""
        return self.classes.get(name) or await self._find(STORAGE_CLASSES, name)

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        """A persistent volume; None only when the API server has none of that name."""
        return self.persistent_volumes.get(name) or await self._find(PERSISTENT_VOLUMES, name)

    async def node(self, name: str) -> Node | None:
        """A node; None only when the API server has none of that name."""
        return self.nodes.get(name) or await self._find(NODES, name)

    async def csi_node(self, name: str) -> CsiNode | None:
        """A node's drivers, ours among them if it is registered; None only when there are none."""
        cached = self.csi_nodes.get(name)
        if cached is not None and cached.driver(self._driver) is not None:
            return cached
        return await self._find(CSI_NODES, name)

    def registered_places(self) -> frozenset[Place]:
        """Where the nodes are on which the driver is registered: zones, and Outposts in them."""
        if self._places is None:
            self._places = self._registered_places()
        return self._places

    def _registered_places(self) -> frozenset[Place]:
        found = set()
        for csi_node in self.csi_nodes.values():
            node = self.nodes.get(csi_node.name)
            if node is not None and csi_node.driver(self._driver) is not None:
                found.add(place_of(node.labels))
        return frozenset(place for place in found if place is not None)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        before, after = (place_of(node.labels) if node else None for node in (old, new))
        if before != after:
            self._places = None

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        before, after = (node and node.driver(self._driver) for node in (old, new))
        if (before is None) is not (after is None):
            self._places = None

    async def _find(self, resource: Resource[T], name: str) -> T | None:
        if not name:
            return None
        try:
            return await self._client.get(resource, name)
        except KubeError as error:
            if error.reason is Reason.OBJECT_NOT_FOUND:
                return None
            raise
