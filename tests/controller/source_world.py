"""A provisioner with sources: snapshots and claims in its caches, EC2 with volumes and snapshots."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from provisioner.controller.provisioning.flow import Provisioner
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.ceilings import Ceilings
from provisioner.ec2.lookups import NameLookUps, VolumeReads, ZoneNames
from provisioner.ec2.snapshots import Turns
from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.meta import UnlabelledObject
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import Volume
from tests.builders import (
    DRIVER,
    OTHER_INSTANCE,
    VOLUME,
    ZONE,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    a_volume,
)
from tests.controller.services import Ec2, Events, PromptWatcher, seconds
from tests.sources import a_content, a_snapshot, a_source, its_volume, replaced

OTHER_ZONE = "us-east-1b"
MADE = "vol-0fffffffffffffff1"


class ObjectStore:
    """An API server that keeps what is patched, in the caches themselves.

    Attributes:
        sent: what was written, in order.
        failures: raised by the next writes; those with True only once they were carried out.
    """

    def __init__(self) -> None:
        self.caches: Caches | None = None
        self.sent: list[tuple[str, str, Any]] = []
        self.failures: list[tuple[Exception, bool]] = []
        self._version = 100

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        found = self._informer(resource).get(f"{namespace}/{name}" if namespace else name)
        if found is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return found

    async def create(self, resource: Any, body: Any, namespace: str = "") -> Any:
        self.sent.append(("create", resource.plural, body))
        self._fail(is_done=True)
        return a_persistent_volume(body["metadata"]["name"])

    async def patch(
        self, resource: Any, name: str, body: Any, *, namespace: str = "", **_: Any
    ) -> Any:
        self.sent.append(("patch", resource.plural, body["metadata"]))
        self._fail(is_done=False)
        changed = self._changed(await self.get(resource, name, namespace), body["metadata"])
        self._informer(resource)._store.apply(changed)
        self._fail(is_done=True)
        return changed

    def _changed(self, found: UnlabelledObject, fields: dict[str, Any]) -> UnlabelledObject:
        self._version += 1
        both = {**found.annotations, **fields.get("annotations", {})}
        meta = replaced(
            found.metadata,
            resource_version=str(self._version),
            annotations={key: value for key, value in both.items() if value is not None},
            finalizers=fields.get("finalizers", found.finalizers),
        )
        return replaced(found, metadata=meta)

    def _fail(self, *, is_done: bool) -> None:
        if self.failures and self.failures[0][1] is is_done:
            raise self.failures.pop(0)[0]

    def _informer(self, resource: Any) -> Any:
        assert self.caches is not None
        return self.caches._kinds[resource]


@dataclass
class SourceEc2(Ec2):
    """EC2 that also knows volumes by id."""

    known: dict[str, Volume] = field(default_factory=dict)

    async def describe(self, ids: Sequence[str], **_: Any) -> dict[str, Volume]:
        return {each: self.known[each] for each in ids if each in self.known}


@dataclass
class SnapshotsInEc2:
    """Snapshots. ``answers``: of CreateSnapshot; ``there``: by id; ``asked``, ``deleted``: calls."""

    answers: list[EbsSnapshot | Exception] = field(default_factory=list)
    there: dict[str, EbsSnapshot] = field(default_factory=dict)
    asked: list[SnapshotRequest] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    searches: int = 0

    async def create(self, request: SnapshotRequest, *, gate: Any) -> EbsSnapshot:
        gate()
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        tagged = dataclasses.replace(answer, tags=dict(request.tags))
        self.there[answer.snapshot_id] = tagged
        return tagged

    def complete(self) -> None:
        self.there = {
            each.snapshot_id: dataclasses.replace(each, state=SnapshotState.COMPLETED)
            for each in self.there.values()
        }

    async def describe(self, ids: Sequence[str], **_: Any) -> dict[str, EbsSnapshot]:
        return {each: self.there[each] for each in ids if each in self.there}

    async def find_any(self, key: str, values: Sequence[str], **_: Any) -> list[EbsSnapshot]:
        self.searches += 1
        return [each for each in self.there.values() if each.tags.get(key) in values]

    async def delete(self, snapshot_id: str) -> None:
        self.deleted.append(snapshot_id)
        self.there.pop(snapshot_id, None)


class SourceWorld:
    """A provisioner; a ready snapshot and a bound claim to clone are there, two zones have nodes."""

    def __init__(
        self,
        claim: Claim,
        storage_class: StorageClass | None = None,
        *,
        source: Volume | None = None,
        cluster_id: str = "prod",
    ) -> None:
        self.kube, self.ec2, self.snapshots = ObjectStore(), SourceEc2(), SnapshotsInEc2()
        self.events, self._version = Events(), 1000
        self.ec2.known[VOLUME] = source or a_volume()
        kube, volumes = cast("KubeClient", self.kube), cast("Volumes", self.ec2)
        metrics = Metrics()
        self.caches = self.kube.caches = Caches(kube, metrics, DRIVER)
        self.fill(claim, storage_class or a_class())
        services = SimpleNamespace(
            settings=Settings(cluster_id=cluster_id),
            client=kube,
            caches=self.caches,
            volumes=volumes,
            ceilings=Ceilings(volumes, cluster_id=cluster_id, extra_tags=()),
            lookups=NameLookUps(volumes),
            volume_reads=VolumeReads(volumes),
            snapshots=self.snapshots,
            zone_names=ZoneNames(cast("Ec2Calls", None)),
            watcher=PromptWatcher(self.ec2, metrics),
            unclaimed=UnclaimedTags(volumes, self.caches, cluster_id=""),
            events=self.events,
            metrics=metrics,
        )
        self.provisioner = Provisioner(cast("Services", services), identity="test")

    def fill(self, claim: Claim, storage_class: StorageClass) -> None:
        """Have the caches show what is there."""
        caches = self.caches
        caches._served = list(caches._kinds.values())
        for informer in caches._served:
            informer.synced.set()
        for cache, found in (
            (caches.claims, claim),
            (caches.claims, a_source()),
            (caches.classes, storage_class),
            (caches.snapshots, a_snapshot()),
            (caches.contents, a_content()),
            (caches.persistent_volumes, its_volume()),
        ):
            cast("Any", cache)._store.apply(found)
        for name, zone, instance in (
            ("node-1", ZONE, "i-1"),
            ("node-2", OTHER_ZONE, OTHER_INSTANCE),
        ):
            caches.nodes._store.apply(a_node(name, zone=zone))
            caches.csi_nodes._store.apply(a_csi_node(name, instance=instance))

    def show(self, informer: Any, found: UnlabelledObject) -> None:
        """Have a cache see another version of an object, and tell it."""
        self._version += 1
        meta = replaced(found.metadata, resource_version=str(self._version))
        informer.observe(replaced(found, metadata=meta))

    def looks_at(self) -> list[str]:
        """The claims that are to be looked at since this was asked last."""
        queue = self.provisioner.queue
        found = sorted(queue._entries)
        queue.narrow(lambda _: False)
        queue.narrow(lambda _: True)
        return found

    def written(self) -> list[str]:
        """What was written, in order and in short."""
        return [f"{verb} {kind} {_shortly(body)}".strip() for verb, kind, body in self.kube.sent]


def _shortly(body: Any) -> str:
    if "annotations" in body:
        return " ".join(sorted(key.partition("/")[2] for key in body["annotations"]))
    return "finalizers" if "finalizers" in body else ""


def a_copy(**changed: Any) -> Volume:
    """What EC2 answers: a volume that was made, usable at once."""
    return dataclasses.replace(a_volume(MADE), **changed)


async def until_told(world: SourceWorld, uid: str) -> None:
    """Look at a claim for as long as it has to wait, until it is settled or refused."""
    while True:
        try:
            wait_s = seconds(await world.provisioner.reconcile(uid))
        except StorageError:
            return
        if wait_s is None:
            return
        await asyncio.sleep(wait_s)
