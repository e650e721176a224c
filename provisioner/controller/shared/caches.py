"""Caches: one informer for each kind, and live reads where a missing object proves nothing."""

import asyncio
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import structlog

from provisioner import clock
from provisioner.controller.shared.registered_nodes import RegisteredNodes
from provisioner.kube.client import KubeClient, find
from provisioner.kube.informer import Informer
from provisioner.kube.resources import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    STORAGE_CLASSES,
    VOLUME_MOVES,
    VOLUME_SNAPSHOTS,
    Projection,
    Resource,
    T,
    whole,
)
from provisioner.kube.store import Indexer
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.model.names import VOLUME_ID
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.pod import Pod, using_claims
from provisioner.model.storage_class import StorageClass, VolumeAttributesClass
from provisioner.model.volume import normalised_handle
from provisioner.model.volume_move import VolumeMove
from provisioner.model.volume_snapshot import (
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)
from provisioner.tell_once import TellOnce

_DISCOVER_AGAIN_S = 2.0
_MISSING_AGAIN_S = 15.0
# If the first list of an optional kind fails for this long, it is not waited for.
_OPTIONAL_S = 15.0
_NO_SNAPSHOTS = (
    "no snapshot is taken or restored; install the CRDs and the snapshot-controller of "
    "external-snapshotter"
)
# Kinds that a cluster may lack, and may get while we run: CRDs, and what is new in 1.34; and what
# is left out until then.
_OPTIONAL: Mapping[Resource[Any], str] = {
    **dict.fromkeys((VOLUME_SNAPSHOTS, SNAPSHOT_CONTENTS, SNAPSHOT_CLASSES), _NO_SNAPSHOTS),
    # Before 1.34 there is v1beta1, off by default: then the API server drops what a claim says.
    # EKS has it on since 1.31 (aws/containers-roadmap 2412, read 2026-11-23).
    ATTRIBUTES_CLASSES: (
        "a claim's volumeAttributesClassName changes no volume; Kubernetes serves the kind as v1 "
        "from 1.34 on, so upgrade, or use annotations (--modify-annotations)"
    ),
    VOLUME_MOVES: "no claim is moved; install manifests/volume-moves/crd.yaml",
}
# The proofs for one decision may be this far apart in time.
_TOGETHER_S = 5.0
# After a restore of etcd, other informers may notice it themselves for this long.
_RESTORE_HOLDS_S = 300.0
_WRITTEN = (CLAIMS, PERSISTENT_VOLUMES, ATTACHMENTS, VOLUME_SNAPSHOTS, SNAPSHOT_CONTENTS)


def _unless(is_over: object, value: str) -> Iterable[str]:
    return () if is_over or not value else (value,)


def _has_bound_phase(claim: Claim) -> bool:
    return claim.status is not None and claim.status.phase == "Bound"


# Indexes besides names.
CLAIMS_BY: Mapping[str, Indexer[Claim]] = {
    "uid": lambda claim: (claim.uid,),
    # What a claim is made of is of no concern once it has its volume, and nearly all have.
    "class": lambda claim: () if claim.spec.volume_name else (claim.class_name,),
    "attributes_class": lambda claim: _unless(claim.spec.volume_name, claim.attributes_class_name),
    "source": lambda claim: _unless(_has_bound_phase(claim), claim.source_key),
}
ATTACHMENTS_BY: Mapping[str, Indexer[Attachment]] = {
    "persistent_volume": lambda each: (each.spec.source.persistent_volume_name or "",),
    "node": lambda each: (each.spec.node_name,),
    "volume": lambda each: (each.annotations.get(VOLUME_ID, ""),),
}
CONTENTS_BY: Mapping[str, Indexer[VolumeSnapshotContent]] = {
    "snapshot_uid": lambda each: (each.snapshot_uid,),
    "snapshot": lambda each: (each.snapshot_id,),
    "volume": lambda each: (normalised_handle(each.volume_id),),
    "class": lambda each: (each.class_name,),
}
MOVES_BY: Mapping[str, Indexer[VolumeMove]] = {
    "uid": lambda move: (move.uid,),
    "claim": lambda move: (move.claim_key,),
    "phase": lambda move: (move.told.phase,),
}
PERSISTENT_VOLUMES_BY: Mapping[str, Indexer[PersistentVolume]] = {
    "volume": lambda each: filter(None, (each.named_volume,))
}

NODES_BY: Mapping[str, Indexer[Node]] = {"instance": lambda node: (node.instance_id,)}
_NODES: Projection[Node] = Projection(NODES, whole, Node.as_cached)

log = structlog.get_logger(__name__)


_Cached = TypeVar("_Cached", Claim, PersistentVolume, CsiNode)


def _asked(obj: _Cached, *, driver: str) -> _Cached:
    return obj.as_cached(driver)


class Caches:
    """Informers of everything that the flows read.

    The indexes: claims by ``uid``, ``class`` and ``attributes_class`` (both of those without a
    volume) and ``source`` (of those that are not Bound), persistent volumes by ``volume`` (under
    whichever driver they name it), attachments by ``persistent_volume``, ``node`` and recorded
    ``volume``, pods by ``claim``, contents by ``snapshot_uid``, ``snapshot``, ``volume`` and
    ``class``, moves by ``uid``, ``claim`` and ``phase``, nodes by the ``instance`` that they name
    ("" of those that name none), CSINodes by the one as which the driver is registered. Of pods
    there are only those that are pending and use claims; moves only if it ``follows_moves``.
    ``registered``: where the nodes with the driver are.

    A kind that is not served at first is discovered later, at a steady pace, and followed from then
    on; its subscribers see all its objects as new.
    """

    def __init__(
        self, client: KubeClient, metrics: Metrics, driver: str, *, follows_moves: bool = False
    ) -> None:
        self._client = client
        self._driver = driver
        trim = functools.partial(_asked, driver=driver)
        claims: Projection[Claim] = Projection(CLAIMS, whole, trim)
        volumes: Projection[PersistentVolume] = Projection(PERSISTENT_VOLUMES, whole, trim)
        self.claims = Informer(client, claims, metrics, indexers=CLAIMS_BY)
        self.persistent_volumes = Informer(client, volumes, metrics, indexers=PERSISTENT_VOLUMES_BY)
        self.attachments: Informer[Attachment] = Informer(
            client, ATTACHMENTS, metrics, indexers=ATTACHMENTS_BY
        )
        self.classes: Informer[StorageClass] = Informer(client, STORAGE_CLASSES, metrics)
        self.attributes_classes = Informer(client, ATTRIBUTES_CLASSES, metrics)
        csi_nodes: Projection[CsiNode] = Projection(CSI_NODES, whole, trim)
        self.nodes = Informer(client, _NODES, metrics, indexers=NODES_BY)
        self.csi_nodes = Informer(
            client, csi_nodes, metrics, indexers={"instance": lambda each: each.instances(driver)}
        )
        self.pods: Informer[Pod] = Informer(
            client,
            Projection(PODS, using_claims),
            metrics,
            indexers={"claim": lambda pod: pod.claim_keys},
            field_selector="status.phase=Pending",
        )
        self.snapshots = Informer(client, VOLUME_SNAPSHOTS, metrics)
        self.contents = Informer(client, SNAPSHOT_CONTENTS, metrics, indexers=CONTENTS_BY)
        self.snapshot_classes = Informer(client, SNAPSHOT_CLASSES, metrics)
        self.moves = Informer(client, VOLUME_MOVES, metrics, indexers=MOVES_BY)
        self._kinds = self._followed(without=() if follows_moves else (VOLUME_MOVES,))
        self._restore_told_s = -_RESTORE_HOLDS_S
        self._served: list[Informer[Any]] = []
        # Served at the start: nothing is decided before these are full. Later ones delay nothing.
        self._first: tuple[Informer[Any], ...] = ()
        self._discovered = asyncio.Event()
        self._told = TellOnce()  # why it is not known which kinds are served
        self.registered = RegisteredNodes(self.nodes, self.csi_nodes, driver)

    def _followed(self, without: Collection[Resource[Any]]) -> dict[Resource[Any], Informer[Any]]:
        """The informers by kind, each told what to do after a restore of etcd."""
        informers = [each for each in vars(self).values() if isinstance(each, Informer)]
        kinds = {each.resource: each for each in informers if each.resource not in without}
        for informer in kinds.values():
            informer.on_restore = functools.partial(self._restored, informer)
        return kinds

    async def run(self) -> None:
        """Discover which kinds the API server serves, then follow them until cancelled."""
        while not self._discovered.is_set():
            if await self._discover(_DISCOVER_AGAIN_S):
                self._first = tuple(self._served)
                self._tell_missing()
                self._discovered.set()
        async with asyncio.TaskGroup() as tasks:
            for informer in self._served:
                tasks.create_task(informer.run())
            while len(self._served) < len(self._kinds):
                await asyncio.sleep(_MISSING_AGAIN_S)
                known = len(self._served)
                await self._discover(_MISSING_AGAIN_S)
                for informer in self._served[known:]:
                    tasks.create_task(informer.run())

    async def _discover(self, again_s: float) -> bool:
        """Note which kinds are served now; False, after a pause, if that cannot be read."""
        try:
            served = await self._client.served()
        except KubeError as error:
            if self._told.is_news("served", error.message):
                log.warning("cannot ask the API server which kinds it serves", error=error.message)
            await asyncio.sleep(error.retry_after_s or again_s)
            return False
        self._told.clear()
        for resource, informer in self._kinds.items():
            is_served = (resource.api_version, resource.plural) in served
            if is_served and informer not in self._served:
                self._served.append(informer)
                if self._discovered.is_set():
                    log.info("the API server serves a kind now", kind=resource.kind)
        return True

    def _tell_missing(self) -> None:
        """Log missing kinds: their caches are empty, and what needs them is off."""
        for resource, informer in self._kinds.items():
            if informer not in self._served:
                tell = log.info if resource in _OPTIONAL else log.warning
                tell(
                    "the API server does not serve a kind; features that need it are off until it "
                    "does",
                    kind=resource.kind,
                    api=f"{resource.api_version} {resource.plural}",
                    left_out=_OPTIONAL.get(resource),
                )

    async def synced(self) -> None:
        """Return once every cache has had its first list: before that nothing may be decided.

        A kind that was removed meanwhile, as a CRD can be, is not waited for. Nor is an optional
        kind that cannot be listed: its conversion webhook is down, or RBAC forbids it.
        """
        await self._discovered.wait()
        for resource, informer in self._kinds.items():
            while informer in self._first and not await _is_set(informer.synced):
                if resource in _OPTIONAL and informer.fails_for_s >= _OPTIONAL_S:
                    _tell_off(resource)
                elif await self._is_served(resource):
                    continue
                self._first = tuple(each for each in self._first if each is not informer)

    @property
    def is_synced(self) -> bool:
        """Whether every cache has had its first list."""
        return self._discovered.is_set() and all(i.synced.is_set() for i in self._first)

    async def refresh(self) -> None:
        """Catch up with all that was written before this call, of all kinds that a leader writes.

        Raises:
            KubeError: that is not certain.
        """
        await asyncio.gather(*(self._refresh(resource) for resource in _WRITTEN))

    async def _refresh(self, resource: Resource[Any]) -> None:
        informer = self._kinds[resource]
        if not informer.synced.is_set():
            return  # not served, or not yet
        try:
            await informer.catch_up()
        except KubeError:
            if not await self._is_served(resource):
                return  # its CRD is gone, and all objects with it
            if resource not in _OPTIONAL:
                raise
            await informer.forget()  # it may be older than the previous leader's last writes
            self._first = tuple(each for each in self._first if each is not informer)
            _tell_off(resource)

    async def certain(self, *informers: Informer[Any]) -> None:
        """Return once what these caches lack is proof: it did not exist before this call.

        Raises:
            KubeError: that is not certain; nothing may be concluded.
        """
        await self.catch_up(*informers)
        self.check_readable(*informers)

    async def catch_up(self, *informers: Informer[Any]) -> None:
        """``certain``, but for objects that cannot be read.

        One cache may take a minute longer than another. Those that were ready long before it catch
        up once more, so that together they show one moment.

        Raises:
            KubeError: that is not certain.
        """
        shown_at_s: dict[Informer[Any], float] = {}

        async def show(informer: Informer[Any]) -> None:
            await informer.catch_up()
            shown_at_s[informer] = clock.now_s()

        await asyncio.gather(*map(show, informers))
        old_s = clock.now_s() - _TOGETHER_S
        await asyncio.gather(*(show(each) for each in informers if shown_at_s[each] < old_s))

    def check_readable(self, *informers: Informer[Any]) -> None:
        """Refuse to conclude anything from what these lack while some object cannot be read.

        Raises:
            KubeError: UNREADABLE, with the object's name and what would help.
        """
        odd = sorted(f"{each.resource.kind} {key}" for each in informers for key in each.unreadable)
        if odd:
            message = (
                f"{odd[0]} cannot be read (a log line names the field), so it is not certain which "
                "volumes and snapshots are in use; none is deleted or taken over until the object "
                "is corrected or deleted"
            )
            raise KubeError(Reason.UNREADABLE, message)

    async def catch_up_moves(self) -> None:
        """``catch_up`` of the moves. Where none is served, or moves are off, there are none.

        Raises:
            KubeError: there may be some, and they cannot be listed.
        """
        if self.moves not in self._served:
            return
        try:
            if not self.moves.synced.is_set():
                raise KubeError(Reason.UNREACHABLE, "they have not been listed yet")
            await self.catch_up(self.moves)
        except KubeError as error:
            if await self._is_served(VOLUME_MOVES):
                message = (
                    f"VolumeMoves cannot be listed ({error.message}), so it is not certain which "
                    "volumes they have made; none is deleted until they can be"
                )
                raise KubeError(error.reason, message) from error

    async def nobody_names(self, volume_id: str) -> None:
        """The last check before a volume without a persistent volume is deleted.

        Raises:
            KubeError: a persistent volume names it, or that is not certain.
        """
        await self.certain(self.persistent_volumes)
        named = self.persistent_volumes.keyed("volume", volume_id)
        if named:
            name = min(each.name for each in named)
            message = f"PersistentVolume {name} names volume {volume_id}, so it is kept"
            raise KubeError(Reason.CONFLICT, message)

    def _restored(self, by: Informer[Any]) -> None:
        """Have all other kinds listed again: their caches may be from before the restore."""
        now_s = clock.now_s()
        if now_s < self._restore_told_s + _RESTORE_HOLDS_S:
            return
        self._restore_told_s = now_s
        log.warning(
            "etcd was restored from a backup; listing all kinds again", kind=by.resource.kind
        )
        for informer in self._served:
            if informer is not by:
                informer.list_soon()

    async def introduce(self, subscribe: Callable[[], None]) -> None:
        """Have many subscribe, and pass them all objects without blocking the event loop."""
        for informer in self._kinds.values():
            informer.hold_back()
        subscribe()
        for informer in self._kinds.values():
            await informer.introduce()

    async def _is_served(self, resource: Resource[Any]) -> bool:
        """Whether a kind is still served, as far as is known; CRDs can be deleted."""
        if resource not in _OPTIONAL:
            return True
        try:
            is_served = (resource.api_version, resource.plural) in await self._client.served()
        except KubeError:
            return True
        if not is_served:
            log.warning("the API server no longer serves a kind", kind=resource.kind)
        return is_served

    def move(self, uid: str) -> VolumeMove | None:
        """The move with this UID; none where moves are off."""
        return next(iter(self.moves.keyed("uid", uid)), None)

    def claim(self, uid: str) -> Claim | None:
        """The claim with this UID."""
        return next(iter(self.claims.keyed("uid", uid)), None)

    def pods_of(self, claim: Claim) -> tuple[Pod, ...]:
        """The pending pods that use a claim, but for those on their way out."""
        pods = self.pods.keyed("claim", claim.key)
        return tuple(pod for pod in pods if not pod.deleting)

    async def storage_class(self, name: str) -> StorageClass | None:
        """A class; None only when the API server has none of that name."""
        return self.classes.get(name) or await self._find(STORAGE_CLASSES, name)

    async def attributes_class(self, name: str) -> VolumeAttributesClass | None:
        """A VolumeAttributesClass; None only when the API server has none of that name."""
        return self.attributes_classes.get(name) or await self._find(ATTRIBUTES_CLASSES, name)

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

    async def snapshot(self, namespace: str, name: str) -> VolumeSnapshot | None:
        """A snapshot; None only when the API server has none of that name."""
        cached = self.snapshots.get(f"{namespace}/{name}")
        return cached or await self._find(VOLUME_SNAPSHOTS, name, namespace)

    async def content(self, name: str) -> VolumeSnapshotContent | None:
        """A snapshot's content; None only when the API server has none of that name."""
        return self.contents.get(name) or await self._find(SNAPSHOT_CONTENTS, name)

    @property
    def has_attributes_classes(self) -> bool:
        """Whether the API server has VolumeAttributesClasses, as far as is known."""
        return self.attributes_classes in self._served

    @property
    def has_snapshots(self) -> bool:
        """Whether the API server has VolumeSnapshots and lets us list them, as far as is known."""
        return self.snapshots in self._served and self.snapshots.synced.is_set()

    async def named_claim(self, namespace: str, name: str) -> Claim | None:
        """A claim; None only when the API server has none of that name."""
        return self.claims.get(f"{namespace}/{name}") or await self._find(CLAIMS, name, namespace)

    async def snapshot_class(self, name: str) -> VolumeSnapshotClass | None:
        """A snapshot class; None only when the API server has none of that name."""
        return self.snapshot_classes.get(name) or await self._find(SNAPSHOT_CLASSES, name)

    async def _find(self, resource: Resource[T], name: str, namespace: str = "") -> T | None:
        return await find(self._client, resource, name, namespace) if name else None


def _tell_off(resource: Resource[Any]) -> None:
    log.warning(
        "cannot list a kind that the API server serves; what needs it is off until that works",
        kind=resource.kind,
        api=f"{resource.api_version} {resource.plural}",
    )


async def _is_set(event: asyncio.Event) -> bool:
    """Whether an event is set, after some seconds at the latest."""
    try:
        async with asyncio.timeout(_DISCOVER_AGAIN_S):
            return await event.wait()
    except TimeoutError:
        return False
