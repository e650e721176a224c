"""Reads what is around one object: by name where names are known, as little as the rules need."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain import key_rules, snapshot_rules
from provisioner.inspect.explain.gathering import told
from provisioner.inspect.explain.gathering.controller import controller
from provisioner.inspect.explain.gathering.node import node_view
from provisioner.inspect.explain.gathering.volume import GOING, Volumes
from provisioner.inspect.explain.refusal_rules import EVENTS as REFUSALS
from provisioner.inspect.explain.scheduling import full_rules, held_rules, scheduling_rules
from provisioner.inspect.explain.view_rules import (
    ClaimView,
    NodeView,
    SnapshotView,
    View,
    object_of,
)
from provisioner.inspect.object_name_rules import ObjectName
from provisioner.inspect.reading.gap_rules import GROUPS
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.reading.kinds import WATCHED_PODS, WATCHED_SNAPSHOTS
from provisioner.kube.resources import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    PLACED_VOLUMES,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    STORAGE_CLASSES,
    VOLUME_MOVES,
)
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError

_GROUP = "snapshot.storage.k8s.io"
_NO_EC2 = "EC2"
_PLURALS = {
    "pod": "pods",
    "pvc": "persistentvolumeclaims",
    "pv": "persistentvolumes",
    "node": "nodes",
    "snapshot": "volumesnapshots",
}


class Gatherer:
    """Reads for one question; all that can be asked at once is."""

    def __init__(self, readers: Readers, driver: str, lease_namespace: str) -> None:
        self._cluster = readers.cluster
        self._cloud = readers.cloud
        self._driver = driver
        self._lease_namespace = lease_namespace
        self._volumes = Volumes(readers, driver)

    async def view(self, target: ObjectName) -> View:
        """All that is known around the object.

        Raises:
            KubeError: the object itself could not be read.
        """
        start = View(target, self._driver, await self._cluster.now())
        around = {
            "pod": self._of_pod,
            "pvc": self._of_claim,
            "pv": self._of_volume,
            "node": self._of_node,
            "snapshot": self._of_snapshot,
        }[target.kind]
        found, working = await asyncio.gather(
            around(start),
            controller(self._cluster, self._driver, self._lease_namespace, start.now),
        )
        self._check_read(target, found)
        unread = {each.what for each in (*self._cluster.gaps, *self._cloud.gaps)}
        unread |= {_NO_EC2} if self._cloud.calls is None else set()
        region = self._cloud.region
        return replace(found, controller=working, unread=frozenset(unread), region=region)

    def _check_read(self, target: ObjectName, found: View) -> None:
        """Raise why the object itself could not be read: then nothing can be said of it."""
        plural, of_it = _PLURALS[target.kind], object_of(found)
        for gap in self._cluster.gaps:
            if of_it is None and gap.what == f"get {plural}":
                raise KubeError(gap.reason, gap.message)

    def _is_unread(self, what: str) -> bool:
        return any(each.what == what for each in self._cluster.gaps)

    async def _of_pod(self, view: View) -> View:
        target = view.target
        pod = await self._cluster.one(WATCHED_PODS, target.name, target.namespace)
        if pod is None:
            return await self._with_refusals(view)
        said, claims, node = await asyncio.gather(
            told.about(self._cluster, str(target), pod),
            asyncio.gather(*(self._claim(key, node=pod.node_name) for key in pod.claim_keys)),
            node_view(self._cluster, self._cloud, self._driver, pod.node_name)
            if pod.node_name
            else asyncio.sleep(0),
        )
        found = replace(view, pod=pod, pod_said=said, claims=tuple(claims), node=node)
        if any(each.claim is None for each in claims):
            found = await self._with_refusals(found)
        if pod.node_name:
            return await self._with_users(found, pod)
        if held_rules.is_held(pod):
            return await self._with_move(found, held_rules.move_of(pod))
        return await self._with_nodes(found)

    async def _of_claim(self, view: View) -> View:
        target = view.target
        found = await self._claim(f"{target.namespace}/{target.name}")
        if found.claim is None:
            return await self._with_refusals(replace(view, claims=(found,)))
        phase = found.claim.status.phase if found.claim.status else ""
        if found.claim.deleting or phase != "Bound":
            found = replace(found, users=await self._users(found.key))
        around = replace(view, claims=(found,))
        unplaced = any(not each.node_name for each in found.users)
        return await self._with_nodes(around) if unplaced else around

    async def _of_volume(self, view: View) -> View:
        volume = await self._volumes.view(view.target.name, whole=True)
        found = volume.persistent_volume
        if found is None or not (found.deleting or found.phase in GOING):
            return replace(view, volume=volume)
        nodes = await self._nodes({each.spec.node_name for each in volume.attachments})
        return replace(view, volume=volume, other_nodes=nodes)

    async def _nodes(self, names: Iterable[str]) -> Mapping[str, NodeView]:
        """Nodes by name, with what tells whether they live."""
        every = await asyncio.gather(
            *(node_view(self._cluster, self._cloud, self._driver, name) for name in sorted(names))
        )
        return {each.name: each for each in every}

    async def _of_node(self, view: View) -> View:
        found = await node_view(
            self._cluster, self._cloud, self._driver, view.target.name, whole=True
        )
        return replace(view, node=found)

    async def _of_snapshot(self, view: View) -> View:
        return replace(view, snapshot=await self._snapshot(view.target.namespace, view.target.name))

    async def _with_move(self, view: View, key: str) -> View:
        """The VolumeMove that a pod names; "" for none."""
        if not await self._cluster.serves(VOLUME_MOVES):  # see _snapshot
            return replace(view, serves_moves=False)
        namespace, _, name = key.partition("/")
        move = await self._cluster.one(VOLUME_MOVES, name, namespace) if name else None
        return replace(view, move=move)

    async def _with_refusals(self, view: View) -> View:
        said = await told.refusals(self._cluster, view.target.namespace, REFUSALS)
        return replace(view, refusals=said)

    async def _with_nodes(self, view: View) -> View:
        """For a pod without a node: where it could run."""
        nodes, csi_nodes = await asyncio.gather(
            self._cluster.every(NODES), self._cluster.every(CSI_NODES)
        )
        by_name = {each.name: each for each in csi_nodes}
        found = replace(view, nodes=tuple(nodes), csi_nodes=by_name)
        pods = [view.pod] if view.pod else [u for each in view.claims for u in each.users]
        waiting = [each for each in pods if scheduling_rules.full_nodes(found, each)]
        return await self._with_attached(found, waiting[0]) if waiting else found

    async def _with_attached(self, view: View, pod: WatchedPod) -> View:
        """What is attached to all nodes, and the claims of that on the full ones."""
        every = await self._cluster.every(ATTACHMENTS)
        mine = tuple(each for each in every if each.spec.attacher == self._driver)
        found = replace(view, asked_attachments=True, attachments=mine)
        attached = full_rules.on_node(found)
        names = {
            each.spec.source.persistent_volume_name
            for node in scheduling_rules.full_nodes(found, pod)
            for each in attached.get(node, [])
        }
        volumes = await asyncio.gather(
            *(self._cluster.one(PERSISTENT_VOLUMES, name) for name in sorted(filter(None, names)))
        )
        claim_of = {
            each.name: f"{ref.namespace}/{ref.name}"
            for each in volumes
            if each is not None and (ref := each.spec.claim_ref) is not None
        }
        return replace(found, claim_of=claim_of)

    async def _with_users(self, view: View, pod: WatchedPod) -> View:
        """Who else uses its volumes, and where, if one is attached to another node."""
        others = {
            a.spec.node_name
            for each in view.claims
            if each.volume
            for a in each.volume.attachments
            if a.spec.node_name != pod.node_name
        }
        if not others:
            return view
        claims = [replace(each, users=await self._users(each.key)) for each in view.claims]
        return replace(view, claims=tuple(claims), other_nodes=await self._nodes(others))

    async def _users(self, key: str) -> tuple[WatchedPod, ...]:
        """The pods that name a claim and have not ended."""
        namespace = key.partition("/")[0]
        pods: Sequence[WatchedPod] = await self._cluster.every(WATCHED_PODS, namespace=namespace)
        return tuple(each for each in pods if key in each.claim_keys and not each.is_over)

    async def _claim(self, key: str, *, node: str = "") -> ClaimView:
        namespace, _, name = key.partition("/")
        claim = await self._cluster.one(CLAIMS, name, namespace)
        if claim is None:
            return ClaimView(key)
        attributes = claim.attributes_class_name
        said, storage_class, attributes_class, volume, sources = await asyncio.gather(
            told.about(self._cluster, f"pvc {key}", claim),
            self._cluster.one(STORAGE_CLASSES, claim.class_name)
            if claim.class_name
            else asyncio.sleep(0),
            self._cluster.one(ATTRIBUTES_CLASSES, attributes) if attributes else asyncio.sleep(0),
            self._volumes.view(claim.spec.volume_name, node=node)
            if claim.spec.volume_name
            else asyncio.sleep(0),
            self._sources(ClaimView(key, claim), claim),
        )
        conditions = (claim.status.conditions or ()) if claim.status else ()
        of_status = tuple(
            told.of_status(f"pvc {key}", f"condition {each.type}", each.message)
            for each in conditions
            if each.message
        )
        found = replace(
            sources,
            storage_class=storage_class,
            attributes_class=attributes_class,
            said=(*said, *of_status),
            volume=volume,
        )
        if volume is None and key_rules.uses_default_key(found):
            return await self._with_default_key(found)
        return found

    async def _with_default_key(self, found: ClaimView) -> ClaimView:
        """The account's default key, and whether it is used without being asked for."""
        if not key_rules.asks_for_encryption(found.storage_class):
            found = replace(found, encrypts_by_default=await self._cloud.encrypts_by_default())
        if key_rules.is_unencrypted(found):
            return found
        return replace(found, default_key=await self._cloud.default_key())

    async def _sources(self, view: ClaimView, claim: Claim) -> ClaimView:
        """What its volume would be made from, as long as it has none."""
        source, namespace = claim.source, claim.metadata.namespace
        if source is None or claim.spec.volume_name:
            return view
        if source.is_snapshot:
            return replace(view, snapshot=await self._snapshot(namespace, source.name))
        if not source.is_claim:
            return view
        cloned = await self._cluster.one(CLAIMS, source.name, namespace)
        name = cloned.spec.volume_name if cloned else ""
        volume = await self._cluster.one(PLACED_VOLUMES, name) if name else None
        return replace(view, source_claim=cloned, source_volume=volume)

    async def _snapshot(self, namespace: str, name: str) -> SnapshotView:
        versions = await self._cluster.versions(_GROUP)
        found = SnapshotView(f"{namespace}/{name}", versions=versions)
        if snapshot_rules.SERVED not in versions and not self._is_unread(GROUPS):
            return found  # a question about a kind that is not served has no clear answer
        snapshot = await self._cluster.one(WATCHED_SNAPSHOTS, name, namespace)
        if snapshot is None:
            return found
        source = snapshot.spec.source.persistent_volume_claim_name
        said, content, snapshot_class, claim = await asyncio.gather(
            told.about(self._cluster, f"snapshot {found.key}", snapshot),
            self._cluster.one(SNAPSHOT_CONTENTS, snapshot.content_name)
            if snapshot.content_name
            else asyncio.sleep(0),
            self._cluster.one(SNAPSHOT_CLASSES, snapshot.spec.volume_snapshot_class_name)
            if snapshot.spec.volume_snapshot_class_name
            else asyncio.sleep(0),
            self._cluster.one(CLAIMS, source, namespace) if source else asyncio.sleep(0),
        )
        of_content = (
            await told.about(self._cluster, f"content {content.name}", content) if content else ()
        )
        snapshot_id = content.snapshot_id if content else ""
        ebs = (await self._cloud.snapshots([snapshot_id])).get(snapshot_id) if snapshot_id else None
        return replace(
            found,
            snapshot=snapshot,
            content=content,
            snapshot_class=snapshot_class,
            source=claim,
            ebs=ebs,
            said=(*said, *of_content),
        )
