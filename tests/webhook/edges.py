"""An API server and an EC2 in memory: what a test has put there is listed, watched and read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from provisioner.ec2.volumes import Volumes
from provisioner.kube import wire
from provisioner.kube.client import KubeClient
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume import Volume
from tests.builders import a_volume
from webhook.model.review import Json

Doing = Callable[[], Awaitable[None]]


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return "/".join(filter(None, (meta.get("namespace"), meta["name"])))


@dataclass
class Kube:
    """Objects by plural and key, as JSON. ``first``: awaited before each GET is answered."""

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    first: Doing | None = None
    version: int = 10
    kinds: set[tuple[str, str]] = field(default_factory=set)  # that are served, of optional ones
    _watches: dict[str, list[asyncio.Queue[bytes]]] = field(default_factory=dict)
    _told: list[tuple[str, int, bytes]] = field(default_factory=list)

    @property
    def client(self) -> KubeClient:
        return cast("KubeClient", self)

    def put(self, plural: str, *objects: Json, unseen: bool = False) -> None:
        """Create or change; ``unseen``: no watch has told of it yet, so caches are stale."""
        for obj in objects:
            kind = "MODIFIED" if (plural, key_of(obj)) in self.objects else "ADDED"
            self.version += 1
            obj["metadata"]["resourceVersion"] = str(self.version)
            self.objects[plural, key_of(obj)] = obj
            if not unseen:
                self._tell(plural, kind, obj)

    def remove(self, plural: str, key: str, *, unseen: bool = False) -> None:
        obj = self.objects.pop((plural, key))
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        if not unseen:
            self._tell(plural, "DELETED", obj)

    async def list(self, resource: Any, *, keep: Any, trim: Any, **_: Any) -> wire.Listing[Any]:
        reader = wire.PageReader(resource, keep, trim)
        items = [obj for (plural, _), obj in self.objects.items() if plural == resource.plural]
        reader.read(
            msgspec.json.encode(
                {"metadata": {"resourceVersion": str(self.version)}, "items": items}
            )
        )
        return reader.listing()

    async def watch(
        self, resource: Any, *, resource_version: str = "", **_: Any
    ) -> AsyncIterator[wire.WatchLine]:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        for plural, version, line in self._told:  # what came between the list and this
            if plural == resource.plural and version > int(resource_version or 0):
                lines.put_nowait(line)
        self._watches.setdefault(resource.plural, []).append(lines)
        while True:
            yield msgspec.json.decode(await lines.get(), type=wire.WatchLine)

    async def served(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.kinds)

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        key = f"{namespace}/{name}" if namespace else name
        self.read.append(f"{resource.plural} {key}")
        if self.first is not None:
            await self.first()
        obj = self.objects.get((resource.plural, key))
        if obj is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {resource.plural} {key}")
        return wire.decode_object(resource, msgspec.json.encode(obj))

    def _tell(self, plural: str, kind: str, obj: Json) -> None:
        line = json.dumps({"type": kind, "object": obj}).encode()
        self._told.append((plural, self.version, line))
        for lines in self._watches.get(plural, ()):
            lines.put_nowait(line)


@dataclass
class Ec2:
    """Volumes by id, and each call that asked for some. ``first``: awaited before each answer."""

    zones: dict[str, str] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    first: Doing | None = None

    @property
    def volumes(self) -> Volumes:
        return cast("Volumes", self)

    async def look_for(self, volume_ids: list[str]) -> dict[str, Volume]:
        self.asked.append(list(volume_ids))
        await asyncio.sleep(0.1)
        if self.first is not None:
            await self.first()
        found = {each: self.zones[each] for each in volume_ids if each in self.zones}
        return {each: a_volume(each, zone=zone) for each, zone in found.items()}


def failing(error: Exception) -> Doing:
    async def fail() -> None:
        raise error

    return fail


def uid_of(claim: str) -> str:
    """The uid of a claim of this key."""
    return f"uid-{claim}"


def a_persistent_volume(
    name: str = "pv",
    *,
    volume: str = "vol-1",
    zone: str | None = "us-east-1a",
    driver: str = "ebs.csi.aws.com",
    claim: str = "shop/data",
    **more: Any,
) -> Json:
    """One that is pinned to a zone by its node affinity; ``zone=None``: by nothing.

    ``claim``: that it is bound to.
    """
    spec: Json = {"csi": {"driver": driver, "volumeHandle": volume}}
    if claim:
        namespace, _, of = claim.partition("/")
        spec["claimRef"] = {"namespace": namespace, "name": of, "uid": uid_of(claim)}
    if zone is not None:
        within = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [within]}]}}
    return {"metadata": {"name": name, **more}, "spec": spec}


def a_claim(
    name: str = "data",
    *,
    bound: str = "",
    asks_for: str = "",
    storage_class: str = "fast",
    namespace: str = "shop",
) -> Json:
    """A claim of class "fast"; ``bound`` to a persistent volume, or only asking for one."""
    spec: Json = {"storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    metadata: Json = {"name": name, "namespace": namespace, "uid": uid_of(f"{namespace}/{name}")}
    if bound:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    if bound or asks_for:
        spec["volumeName"] = bound or asks_for
    return {"metadata": metadata, "spec": spec}


def a_node(
    name: str = "node-1", *, zone: str | None = "us-east-1a", cordoned: bool = False
) -> Json:
    """A node with the label of its zone."""
    labels = {"kubernetes.io/hostname": name}
    if zone is not None:
        labels["topology.kubernetes.io/zone"] = zone
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": True} if cordoned else {},
    }


def a_csi_node(name: str = "node-1", *drivers: str) -> Json:
    """The drivers of a node; ours if none is named."""
    found = [{"name": each, "nodeID": "i-1"} for each in drivers or ("ebs.csi.aws.com",)]
    return {"metadata": {"name": name}, "spec": {"drivers": found}}


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """Something with ``run`` and ``synced``, for the time of a block."""
    task = asyncio.create_task(work.run())
    try:
        async with asyncio.timeout(60):  # against a hang: how long a list takes is the machine's
            await work.synced()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled() -> None:
    """Whatever was told by now has arrived."""
    for _ in range(10):
        await asyncio.sleep(0)
