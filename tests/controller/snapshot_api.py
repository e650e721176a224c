"""An API server that has snapshots, their contents and classes, for one process at a time."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from provisioner.controller.shared.caches import Caches
from provisioner.kube.resources import Resource
from provisioner.kube.wire import Listing
from provisioner.model import volume_snapshot
from provisioner.model.errors import KubeError, Reason
from tests.controller.snapshot_cloud import Mortal

WRITE_S = 0.01


class Kube:
    """An API server; caches of the process see every change at once, after its reply.

    Attributes:
        is_watch_behind: they see none any more, but what the process asks for and writes itself.
    """

    def __init__(self, mortal: Mortal) -> None:
        self.mortal = mortal
        self.objects: dict[str, dict[str, Any]] = {}
        self.caches: Caches | None = None
        self.writes: list[tuple[str, Any]] = []
        self.is_watch_behind = False
        self._version = 10

    def put(self, key: str, found: dict[str, Any]) -> dict[str, Any]:
        """Write an object, as whoever; without finalizers, a deleted one goes."""
        before = self.objects.get(key)
        meta = found["metadata"]
        if before == found:
            return found
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self.objects[key] = found
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self.objects[key]
        self._tell(key, found)
        return found

    def _tell(self, key: str, found: dict[str, Any]) -> None:
        if self.caches is None or self.is_watch_behind:
            return
        store: Any = self._informer(key)._store
        if key in self.objects:
            store.apply(self.decoded(key))
        else:
            store.remove(key.partition(" ")[2], found["metadata"]["resourceVersion"])
        store.version = found["metadata"]["resourceVersion"]

    def _informer(self, key: str) -> Any:
        assert self.caches is not None
        kind = key.partition(" ")[0]
        return {
            "volumesnapshotcontents": self.caches.contents,
            "volumesnapshots": self.caches.snapshots,
            "volumesnapshotclasses": self.caches.snapshot_classes,
        }[kind]

    def decoded(self, key: str) -> Any:
        types: dict[str, Any] = {
            "volumesnapshotcontents": volume_snapshot.VolumeSnapshotContent,
            "volumesnapshots": volume_snapshot.VolumeSnapshot,
            "volumesnapshotclasses": volume_snapshot.VolumeSnapshotClass,
        }
        return msgspec.convert(self.objects[key], types[key.partition(" ")[0]])

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        key = _key(resource, name, namespace)

        def read() -> Any:
            if key not in self.objects:
                raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {key}")
            return self.decoded(key)

        return await self.mortal.carry_out(f"get {resource.plural}", WRITE_S, read)

    async def list(self, resource: Resource[Any], *, most: int = 0, **_: Any) -> Listing[Any]:
        def read() -> Listing[Any]:
            keys = [key for key in self.objects if key.startswith(f"{resource.plural} ")]
            return Listing([self.decoded(key) for key in keys], str(self._version))

        what = "page of" if most else "list"
        return await self.mortal.carry_out(f"{what} {resource.plural}", WRITE_S, read)

    async def patch(
        self, resource: Resource[Any], name: str, body: Any, *, subresource: str = "", **_: Any
    ) -> Any:
        key = _key(resource, name, "")
        what = "status" if subresource else _written(body)

        def write() -> Any:
            if key not in self.objects:
                raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {key}")
            found = deepcopy(self.objects[key])
            for field_, given in body["metadata"].items():
                if field_ in ("uid", "resourceVersion") and found["metadata"][field_] != given:
                    raise KubeError(Reason.CONFLICT, f"{key} has changed")
            merge(found, body)
            self.writes.append((what, body))
            after = self.put(key, found)
            return msgspec.convert(after, resource.type)

        return await self.mortal.carry_out(f"patch {what}", WRITE_S, write)


def _written(body: Any) -> str:
    annotations = body["metadata"].get("annotations")
    if annotations is None:
        return "finalizers"
    if volume_snapshot.BEING_CREATED not in annotations:
        return "grant"
    return "announce" if annotations[volume_snapshot.BEING_CREATED] else "withdraw"


def _key(resource: Resource[Any], name: str, namespace: str) -> str:
    return f"{resource.plural} {namespace}/{name}" if namespace else f"{resource.plural} {name}"


def merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """A JSON merge patch (RFC 7396)."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            inner = into.get(key)
            into[key] = inner if isinstance(inner, dict) else {}
            merge(into[key], value)
        else:
            into[key] = value
