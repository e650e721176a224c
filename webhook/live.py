"""What one review knows: the caches, and over them what it has read from the API server itself.

A cache may be some seconds late, so it may let through but not refuse: what a denial rests on is
read before it is spoken.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from provisioner.kube.client import KubeClient, find
from provisioner.kube.resources import CLAIMS, NODES, PLACED_VOLUMES, Resource
from provisioner.model.meta import KubeObject
from webhook import projections
from webhook.caches import Caches
from webhook.decide import readings
from webhook.decide.readings import Basis, Readings, Wanted
from webhook.model.review import Json
from webhook.model.views import ClaimView, NodeView, VolumeView

# A node attaches some forty volumes; a pod that names hundreds is not worth as many reads.
MOST_READS = 256


class TooManyReadsError(Exception):
    """So many objects would have to be read that the API server is spared them."""


class PodDocument(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod with all of its ``spec``, as the rules take it."""

    spec: dict[str, Any] | None = None

    @property
    def document(self) -> Json:
        """What the rules look at."""
        meta = self.metadata
        return {"metadata": {"name": meta.name, "namespace": meta.namespace}, "spec": self.spec}


PODS = Resource("", "v1", "pods", "Pod", PodDocument)


class LiveView:
    """Looks into the caches for what it has not read."""

    def __init__(self, client: KubeClient, caches: Caches, driver: str) -> None:
        self._client = client
        self._caches = caches
        self._driver = driver
        self._claims: dict[str, ClaimView | None] = {}
        self._volumes: dict[str, VolumeView | None] = {}
        self._nodes: dict[str, NodeView | None] = {}

    def readings(self, wanted: Wanted, zones: Mapping[str, str]) -> Readings:
        """All that is known by now of what a rule wants."""
        nodes: Mapping[str, NodeView | None] = self._caches.nodes_by_name
        return readings.gathered(
            wanted,
            claim=self._claim,
            volume=self._volume,
            backed_by=self._caches.backed_by,
            storage_class=self._caches.storage_class,
            nodes={**nodes, **self._nodes} if self._nodes else nodes,
            zones=zones,
        )

    def lacking(self, wanted: Wanted, node: str) -> Basis:
        """What a rule wants and the caches do not have: it may be too new for them."""
        bound = [view.volume_name for key in wanted.claims if (view := self._claim(key))]
        volumes = {name for name in bound if name}
        return self.unread(
            Basis(
                claims=frozenset(key for key in wanted.claims if self._claim(key) is None),
                volumes=frozenset(name for name in volumes if self._volume(name) is None),
                nodes=frozenset({node} if node and self._caches.node(node) is None else ()),
            )
        )

    def unread(self, basis: Basis) -> Basis:
        """Those of the objects that were not read yet."""
        return Basis(
            claims=basis.claims - self._claims.keys(),
            volumes=basis.volumes - self._volumes.keys(),
            nodes=basis.nodes - self._nodes.keys(),
        )

    async def read(self, basis: Basis) -> None:
        """Read these objects; one that is not there is known to be not there.

        Raises:
            KubeError: one of them could not be read.
            TooManyReadsError: nothing was read.
        """
        if len(basis.claims) + len(basis.volumes) + len(basis.nodes) > MOST_READS:
            raise TooManyReadsError
        reads = (
            *map(self._read_claim, basis.claims),
            *map(self._read_volume, basis.volumes),
            *map(self._read_node, basis.nodes),
        )
        for failure in await asyncio.gather(*reads, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _read_claim(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        found = await find(self._client, CLAIMS, name, namespace)
        self._claims[key] = None if found is None else projections.claim_view(found)

    async def _read_volume(self, name: str) -> None:
        found = await find(self._client, PLACED_VOLUMES, name)
        self._volumes[name] = (
            None if found is None else projections.volume_view(found, self._driver)
        )

    async def _read_node(self, name: str) -> None:
        found = await find(self._client, NODES, name)
        # Whether the driver is there does not matter to where the node is.
        self._nodes[name] = (
            None if found is None else projections.node_view(found, has_driver=False)
        )

    def _claim(self, key: str) -> ClaimView | None:
        return self._claims[key] if key in self._claims else self._caches.claim(key)

    def _volume(self, name: str) -> VolumeView | None:
        return self._volumes[name] if name in self._volumes else self._caches.volume(name)
