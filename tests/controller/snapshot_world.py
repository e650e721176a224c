"""Snapshots in virtual time: an API server with contents, an EC2 with limits, both mortal.

Every request of the flow is a point: the process can die before it is carried out, or after it and
before the reply. A new process then goes on with what the API server and EC2 know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.settings import Settings
from provisioner.controller.snapshotting.flow import Snapshotter
from provisioner.ec2.snapshots import Turns
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model import volume_snapshot
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest
from provisioner.model.names import SNAPSHOT_NAME
from tests.builders import DELETED_AT, DRIVER, VOLUME
from tests.controller.snapshot_api import Kube, merge
from tests.controller.snapshot_cloud import EPOCH, Ec2, Mortal
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.snapshot_builders import a_content, a_snapshot, a_snapshot_class

if TYPE_CHECKING:
    from provisioner.controller.shared.services import Services

T = TypeVar("T")
ZONES = {"use1-az1": "us-east-1a", "use1-az2": "us-east-1b"}


@dataclass
class Told:
    """What people were told, each text once per object, without repetitions."""

    told: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, regarding: Any, *, reason: str, message: str, **_: Any) -> None:
        self.told.append((regarding.kind, reason, message))

    def of_users(self, reason: str = "") -> list[str]:
        return [m for kind, r, m in self.told if kind == "VolumeSnapshot" and reason in ("", r)]


class World:
    """An API server, EC2, and one process after the other."""

    def __init__(self, clock: Clock, mortal: Mortal | None = None) -> None:
        self.clock = clock
        self.mortal = mortal or Mortal()
        self.ec2, self.kube = Ec2(clock, self.mortal), Kube(self.mortal)
        self.events = Told()
        self.metrics = Metrics()
        self.snapshotter: Snapshotter
        self._tasks: list[asyncio.Task[None]] = []
        self.install_class()

    def install_class(self, parameters: Mapping[str, str] | None = None, name: str = "ebs") -> None:
        made = msgspec.to_builtins(a_snapshot_class(name, parameters=parameters))
        self.kube.put(f"volumesnapshotclasses {name}", made)

    def ask(self, number: int = 1, **given: Any) -> str:
        """snapshot-controller makes a content for a new VolumeSnapshot; the content's name."""
        uid = f"uid-{number}"
        owner = {"namespace": "shop", "name": f"daily-{number}", "uid": uid}
        name = f"snapcontent-{uid}"
        content = msgspec.to_builtins(a_content(name, **given))
        content["spec"]["volumeSnapshotRef"] = owner
        content = {key: value for key, value in content.items() if value is not None}
        content["metadata"]["creationTimestamp"] = self.now().isoformat()
        snapshot = msgspec.to_builtins(a_snapshot(owner["name"], uid=uid, content=name, ready=None))
        self.kube.put(f"volumesnapshots shop/{owner['name']}", snapshot)
        self.kube.put(f"volumesnapshotcontents {name}", content)
        return name

    def change(self, name: str, **metadata: Any) -> None:
        """Somebody else writes to a content."""
        key = f"volumesnapshotcontents {name}"
        found = deepcopy(self.kube.objects[key])
        merge(found, {"metadata": metadata})
        self.kube.put(key, found)

    def delete(self, number: int = 1) -> None:
        """snapshot-controller carries out the deletion of the VolumeSnapshot."""
        annotations = {volume_snapshot.BEING_DELETED: volume_snapshot.YES}
        self.change(
            f"snapcontent-uid-{number}", annotations=annotations, deletionTimestamp=DELETED_AT
        )

    def content(self, name: str) -> volume_snapshot.VolumeSnapshotContent | None:
        key = f"volumesnapshotcontents {name}"
        return self.kube.decoded(key) if key in self.kube.objects else None

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.clock())

    def begin(self, *, take_over: bool = False) -> None:
        """A process starts and works."""
        client = cast("KubeClient", self.kube)
        self.ec2.turns = Turns()
        caches = Caches(client, self.metrics, DRIVER)
        self.kube.caches = caches
        caches.contents._listed.set()  # as after the first list
        caches.contents.synced.set()
        for key in self.kube.objects:
            self.kube._informer(key)._store.apply(self.kube.decoded(key))
        watcher: Watcher[EbsSnapshot] = Watcher(
            cast("Any", self.ec2), metrics=self.metrics, kind="snapshots", clock=self.clock
        )
        services = SimpleNamespace(
            settings=Settings(cluster_id="prod"),
            client=client,
            caches=caches,
            events=self.events,
            metrics=self.metrics,
            snapshots=self.ec2,
            snapshot_lookups=self.ec2,
            zone_names=SimpleNamespace(by_id=self._zones),
            watchers=SimpleNamespace(snapshots=watcher),
        )
        self.snapshotter = Snapshotter(cast("Services", services), now=self.now)
        if take_over:
            self.snapshotter.take_over(None)
        self.snapshotter.queue._random = lambda: 1.0
        self.snapshotter.subscribe()
        runs = (watcher.run(), self.snapshotter.queue.run())
        self._tasks = [asyncio.create_task(run) for run in runs]
        self.watcher = watcher

    async def _zones(self) -> Mapping[str, str]:
        return ZONES

    async def end(self) -> None:
        """The process is killed."""
        self.kube.caches = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, holds: Callable[[], object], most_s: float = 600.0) -> float:
        """Let time pass until something holds; when that was."""
        async with asyncio.timeout(most_s):
            while not holds():  # noqa: ASYNC110 -- virtual time
                await asyncio.sleep(0.05)
        return self.clock()

    def is_ready(self, name: str) -> bool:
        found = self.content(name)
        return found is not None and found.is_ready


def in_world(story: Callable[[World], Coroutine[Any, Any, T]], mortal: Mortal | None = None) -> T:
    """Run a story in virtual time; the process that is left at its end is killed."""

    async def whole(clock: Clock) -> T:
        world = World(clock, mortal)
        try:
            return await story(world)
        finally:
            await world.end()

    return in_virtual_time(whole)


async def take_like_stock(world: World) -> str:
    request = SnapshotRequest(VOLUME, "", ((SNAPSHOT_NAME, "snapshot-uid-1"),))
    return (await world.ec2.create(request, gate=lambda: None)).snapshot_id
