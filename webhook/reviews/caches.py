"""What is known of the cluster: one informer a kind, of which only views are kept.

The decoded structs live as long as a page of a list or a line of a watch; what stays is a view of
``webhook.model.cluster_view`` with the object's name and version. Views that many objects share
are kept once.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog
from msgspec import structs

from provisioner.classes.storage_class_rules import read
from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import (
    CLAIMS,
    CSI_NODES,
    NODES,
    PLACED_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_MOVES,
    Projection,
    Resource,
    whole,
)
from provisioner.metrics import SharedMetrics
from provisioner.model.claim import Claim
from provisioner.model.driver import AUTO_MODE_DRIVER
from provisioner.model.errors import KubeError
from provisioner.model.ids import is_volume_id
from provisioner.model.meta import KubeObject, ObjectMeta
from provisioner.model.node import (
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    Node,
    NodeMeta,
    NodeSpec,
    OwnedMeta,
)
from provisioner.model.node_affinity import PLACE_KEYS, names_zone, zones_named
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume_move import VolumeMove
from provisioner.model.zone import ZONE_KEYS, allowed_zones
from webhook.model.cluster_view import ClaimView, ClassView, NodeView, VolumeView, Zones

V = TypeVar("V")

_TOPOLOGY = ("topology.", "failure-domain.beta.kubernetes.io/")
_MISSING_AGAIN_S = 15.0
# If VolumeMoves cannot be listed for so long, they are not waited for.
_PATIENCE_S = 15.0

log = structlog.get_logger(__name__)

_encode = msgspec.json.Encoder(order="deterministic").encode


class _Meta(msgspec.Struct, frozen=True, gc=False):
    """What a cache asks of ``metadata``, the name once: of a claim it would take 144 bytes more."""

    key: str
    resource_version: str

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        return self.key.rpartition("/")[0]


class Kept(KubeObject, Generic[V], frozen=True, gc=False, kw_only=True):
    """A view, under its object's name and version."""

    view: V

    @property
    def key(self) -> str:
        """As in the cache: one text for both."""
        return cast("_Meta", self.metadata).key


def claims(driver: str) -> Projection[Kept[ClaimView]]:
    """Every claim."""
    return _projection(CLAIMS, claim_view, lambda claim: claim.as_cached(driver))


def volumes(driver: str) -> Projection[Kept[VolumeView]]:
    """The persistent volumes on EBS, nothing of others."""
    return _projection(
        PLACED_VOLUMES,
        lambda volume: volume_view(volume, driver),
        lambda volume: volume.as_cached(driver),
    )


def classes(driver: str) -> Projection[Kept[ClassView]]:
    """The classes of EBS volumes, nothing of others."""
    return _projection(STORAGE_CLASSES, lambda found: class_view(found, driver))


def nodes() -> Projection[Kept[NodeView]]:
    """Every node, as if it lacked the driver: that is told by CSINodes."""
    return _projection(NODES, lambda node: node_view(node, has_driver=False), _seen_of_node)


def registrations(driver: str) -> Projection[Kept[bool]]:
    """The nodes on which the driver is registered."""
    return _projection(
        CSI_NODES,
        lambda found: has_driver(found, driver) or None,
        lambda found: _seen_of_registration(found, driver),
    )


def held_claims() -> Projection[Kept[str]]:
    """The names of the claims that a VolumeMove holds; nothing of other moves."""
    return _projection(VOLUME_MOVES, held_claim)


def held_claim(move: VolumeMove) -> str | None:
    """The claim of a move that holds its pods back, None if it does not."""
    return move.spec.claim_name if move.holds_pods else None


def claim_view(claim: Claim) -> ClaimView:
    """What counts of a claim.

    Nothing of one that is being deleted, a new one may take its name; and nothing of one that only
    asks for a persistent volume by name: that may be another claim's, or another tenant's. That it
    is bound anybody can write: ``ClusterView.volume_of`` holds it against the persistent volume.
    """
    if claim.deleting or (claim.spec.volume_name and not claim.is_bound):
        return ClaimView("", "")
    # Only a bound one is held against a persistent volume.
    return ClaimView(
        claim.spec.volume_name, claim.class_name, claim.uid if claim.spec.volume_name else ""
    )


def volume_view(volume: PlacedVolume, driver: str) -> VolumeView | None:
    """What counts of a persistent volume; None if it is not on EBS.

    One that is being deleted says nothing of zones: another may take its name.
    """
    # Of Auto Mode's it is only read where they are, for pods that use both.
    volume_id = volume.volume_id(driver) or volume.volume_id(AUTO_MODE_DRIVER)
    if not volume_id:
        return None
    holder = volume.spec.claim_ref
    return VolumeView(
        volume_id,
        _shared(_proved_zones(volume)),
        sys.intern(holder.namespace) if holder else "",
        holder.uid if holder else "",
        _placement(volume, driver),
    )


def _placement(volume: PlacedVolume, driver: str) -> bytes:
    """Thousands have the same few: each is kept once, as the document that the repairs judge."""
    if volume.deleting or not is_volume_id(volume.volume_id(driver) or ""):
        return b""
    labels = {key: value for key, value in volume.labels.items() if key in PLACE_KEYS}
    spec = {"nodeAffinity": volume.spec.node_affinity}
    return _same_placement(_encode({"metadata": {"labels": labels}, "spec": spec}))


def class_view(found: StorageClass, driver: str) -> ClassView | None:
    """What counts of a class; None if its volumes are not on EBS."""
    if not found.is_of(driver):
        return None
    try:
        terms = read(found).allowed_topologies  # an in-tree class may say them in parameters
    except ValueError:
        terms = tuple(found.allowed_topologies or ())
    zones = allowed_zones(terms)
    known = None if zones is None else _same_zones(zones)
    return ClassView(found.waits_for_consumer, known, found.clones_across_zones)


def node_view(node: Node, *, has_driver: bool) -> NodeView:
    """What counts of a node."""
    labels = {key: value for key, value in node.labels.items() if key.startswith(_TOPOLOGY)}
    return same_node(
        NodeView(
            labels=tuple(sorted(labels.items())),
            zone=_zone_of_node(labels),
            schedulable=not node.spec.unschedulable,
            has_driver=has_driver,
        )
    )


def _seen_of_node(node: Node) -> Node:
    """What ``node_view`` reads: of all else, nothing may stay in the tables of common parts."""
    labels = {key: value for key, value in node.labels.items() if key.startswith(_TOPOLOGY)}
    version = node.metadata.resource_version
    return Node(
        metadata=NodeMeta(name=node.name, resource_version=version, labels=labels),
        spec=NodeSpec(unschedulable=node.spec.unschedulable),
    )


def _seen_of_registration(found: CsiNode, driver: str) -> CsiNode:
    """The same of ``has_driver``."""
    version = found.metadata.resource_version
    drivers = [CsiNodeDriver(name=driver)] if has_driver(found, driver) else None
    return CsiNode(
        metadata=OwnedMeta(name=found.name, resource_version=version),
        spec=CsiNodeSpec(drivers=drivers),
    )


def has_driver(found: CsiNode, driver: str) -> bool:
    """Whether a driver is registered on a node."""
    return found.driver(driver) is not None


@lru_cache(maxsize=1024)
def same_node(view: NodeView) -> NodeView:
    """An equal view that is kept already, if there is one: nodes of one zone hardly differ."""
    return view


def _shared(zones: Zones | None) -> Zones | None:
    return None if zones is None else _same_zones(zones)


@lru_cache(maxsize=1024)
def _same_zones(zones: Zones) -> Zones:
    return zones


@lru_cache(maxsize=4096)
def _same_placement(placement: bytes) -> bytes:
    return placement


def _proved_zones(volume: PlacedVolume) -> Zones | None:
    # An in-tree one's label becomes its affinity (csi-translation-lib). Of a CSI one nothing is
    # proved by a label: VolumeZone lets nodes without zone labels pass, and so does a nodeName.
    is_labelled_only = volume.spec.csi is not None and zones_named(volume.terms) is None
    zones = None if volume.deleting or is_labelled_only else volume.zones
    return zones if zones is None or all(map(names_zone, zones)) else None


def _zone_of_node(labels: Mapping[str, str]) -> str | None:
    """The zone that a node's zone keys tell, as far as they name zones of AWS, and agree.

    A rack or a word of somebody's own under one of them says nothing.
    """
    told = {labels[key] for key in ZONE_KEYS if names_zone(labels.get(key, ""))}
    return told.pop() if len(told) == 1 else None


def _projection(
    resource: Resource[Any],
    view_of: Callable[[Any], V | None],
    trim: Callable[[Any], Any] = whole,
) -> Projection[Kept[V]]:
    def keep(obj: KubeObject) -> Kept[V] | None:
        view = view_of(obj)
        if view is None:
            return None
        small = _Meta(obj.key, obj.metadata.resource_version)
        return Kept(metadata=cast("ObjectMeta", small), view=view)

    return Projection(resource, keep, trim)


class HeldClaims:
    """The claims that VolumeMoves hold. A cluster may get the kind at any time, and may lack it.

    Attributes:
        settled: set once it is known which are held: all of them, or none without the kind. Also
            after some seconds without a list, since no pod depends on being held back by us.
    """

    def __init__(self, client: KubeClient, metrics: SharedMetrics) -> None:
        self._client = client
        by_claim = {"claim": lambda kept: (f"{kept.metadata.namespace}/{kept.view}",)}
        self._moves: Informer[Kept[str]] = Informer(
            client, held_claims(), metrics, indexers=by_claim
        )
        self.settled = asyncio.Event()

    async def run(self) -> None:
        """Wait until the API server serves the kind, then follow it."""
        while True:
            if await self._is_served():
                break
            await asyncio.sleep(_MISSING_AGAIN_S)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._moves.run())
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._moves.synced.wait()
            except TimeoutError:
                log.warning("cannot list VolumeMoves, so no pod is held back for one yet")
            self.settled.set()

    async def _is_served(self) -> bool:
        try:
            served = await self._client.served()
        except KubeError as error:
            log.warning("cannot ask the API server which kinds it serves", error=error.message)
            return False
        if (VOLUME_MOVES.api_version, VOLUME_MOVES.plural) in served:
            return True
        if not self.settled.is_set():
            log.info("the API server does not serve VolumeMoves; waiting until it does")
        self.settled.set()
        return False

    def move_of(self, claim_key: str) -> str:
        """The move that holds a claim, both as ``namespace/name``; "" for none."""
        found = self._moves.keyed("claim", claim_key)
        return min(each.key for each in found) if found else ""


class Caches:
    """Views by name. What is not here may exist all the same: a cache is always a little late.

    Attributes:
        held: which claims VolumeMoves hold.
        volumes: the persistent volumes on EBS, for who follows their changes.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics: SharedMetrics,
        driver: str,
        *,
        follows_moves: bool = False,
    ) -> None:
        self.held = HeldClaims(client, metrics)
        self._follows_moves = follows_moves
        self._claims = Informer(client, claims(driver), metrics)
        by_volume = {"volume": lambda kept: (kept.view.volume_id,)}
        self.volumes: Informer[Kept[VolumeView]] = Informer(
            client, volumes(driver), metrics, indexers=by_volume
        )
        self._classes = Informer(client, classes(driver), metrics)
        self._nodes = Informer(client, nodes(), metrics)
        self._registrations = Informer(client, registrations(driver), metrics)
        self._informers: tuple[Informer[Any], ...] = (
            self._claims,
            self.volumes,
            self._classes,
            self._nodes,
            self._registrations,
        )
        self._joined: dict[str, NodeView] = {}
        self._node_views: Counter[NodeView] = Counter()
        self._nodes.subscribe(self._join)
        self._registrations.subscribe(self._join)

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            if self._follows_moves:
                tasks.create_task(self.held.run())

    async def synced(self) -> None:
        """Return once every cache has had its first list: before that nothing may be judged."""
        for informer in self._informers:
            await informer.synced.wait()
        if self._follows_moves:
            await self.held.settled.wait()

    async def synced_by(self, deadline: float) -> bool:
        """Whether that is so by a loop time; it is after the first seconds of the process."""
        if not self.is_synced:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.synced()
            except TimeoutError:
                return False
        return True

    @property
    def is_synced(self) -> bool:
        """Whether every cache has had its first list."""
        is_known = self.held.settled.is_set() or not self._follows_moves
        return is_known and all(informer.synced.is_set() for informer in self._informers)

    def claim(self, key: str) -> ClaimView | None:
        """A claim by ``namespace/name``."""
        return _view(self._claims.get(key))

    def volume(self, name: str) -> VolumeView | None:
        """A persistent volume; None also for one that is not on EBS."""
        return _view(self.volumes.get(name))

    def backed_by(self, volume_id: str) -> tuple[str, ...]:
        """The names of the persistent volumes on this EBS volume; rarely more than one."""
        return tuple(each.name for each in self.volumes.keyed("volume", volume_id))

    def storage_class(self, name: str) -> ClassView | None:
        """A class; None also for one whose volumes are not on EBS."""
        return _view(self._classes.get(name))

    def node(self, name: str) -> NodeView | None:
        """A node."""
        return self._joined.get(name)

    def node_views(self) -> Collection[NodeView]:
        """The views of all nodes, those that are alike once.

        To look through 10,000 nodes takes half a millisecond, for each claim of a pod. It is live,
        so use it before the next await.
        """
        return self._node_views.keys()

    @property
    def nodes_by_name(self) -> Mapping[str, NodeView]:
        """All nodes, as live."""
        return self._joined

    def _join(self, old: Kept[Any] | None, new: Kept[Any] | None) -> None:
        """Put together what Node and CSINode of one name say."""
        changed = new or old
        assert changed is not None  # noqa: S101 -- an informer tells of a change of something
        name = changed.name
        before, now = self._joined.pop(name, None), self._node_view(name)
        if now is not None:
            self._joined[name] = now
            self._node_views[now] += 1
        if before is not None:
            self._node_views[before] -= 1
            if not self._node_views[before]:
                del self._node_views[before]

    def _node_view(self, name: str) -> NodeView | None:
        node = self._nodes.get(name)
        if node is None or self._registrations.get(name) is None:
            return node.view if node is not None else None
        return same_node(structs.replace(node.view, has_driver=True))


def _view(kept: Kept[V] | None) -> V | None:
    return None if kept is None else kept.view
