"""An API server whose long watches are behind: only who asks it anew sees what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from provisioner.kube.resources import Resource
from provisioner.kube.wire import Listing, WatchLine
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject, ObjectMeta

_LONG_S = 60


@dataclass
class Behind:
    """``lag_s``: so late long watches show a change; None: never. ``takes_s``: of each answer."""

    lag_s: float | None = None
    takes_s: float = 0.0
    list_takes_s: float = 0.0  # of a whole list, besides
    besides_s: dict[str, float] = field(default_factory=dict)  # plural -> of its answers, besides
    has_bookmarks: bool = True
    failure: KubeError | None = None
    get_failure: KubeError | None = None
    serves: tuple[Resource[Any], ...] = ()
    version: int = 10
    objects: dict[tuple[str, str], Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    asked_of: list[tuple[str, str]] = field(default_factory=list)  # namespace, selector
    carried: int = 0  # objects in answers
    restores: int = 0  # of etcd, at each of which all watches break
    _changes: list[tuple[str, int, str, Any]] = field(default_factory=list)

    def put(self, resource: Resource[Any], obj: Any) -> Any:
        """Somebody's write, accepted now."""
        self.version += 1
        key = (resource.plural, obj.key)
        made = replace(obj, metadata=replace(obj.metadata, resource_version=str(self.version)))
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = made
        self._changes.append((resource.plural, self.version, kind, made))
        return made

    def end(self, resource: Resource[Any], obj: Any) -> None:
        """An object is deleted now."""
        self.version += 1
        gone = self.objects.pop((resource.plural, obj.key))
        gone = replace(gone, metadata=replace(gone.metadata, resource_version=str(self.version)))
        self._changes.append((resource.plural, self.version, "DELETED", gone))

    def restore(self, version: int, *lost: str) -> None:
        """Etcd is restored from a backup of a version, in which objects of these names are not."""
        self.version = version
        self.objects = {key: obj for key, obj in self.objects.items() if key[1] not in lost}
        self._changes.clear()
        self.restores += 1

    async def list(
        self,
        resource: Resource[Any],
        *,
        most: int = 0,
        field_selector: str = "",
        namespace: str = "",
        **_: Any,
    ) -> Listing[Any]:
        self.asked.append(f"page of {most}" if most else "list")
        self.asked_at.append(_now_s())
        self.asked_of.append((namespace, field_selector))
        here = [obj for (plural, _), obj in self.objects.items() if plural == resource.plural]
        if field_selector:
            here = [each for each in here if f"metadata.name={each.name}" == field_selector]
        if namespace:
            here = [each for each in here if each.metadata.namespace == namespace]
        shown = here[: most or None]
        listing = Listing(shown, str(self.version), is_all=len(shown) == len(here))
        besides_s = self.besides_s.get(resource.plural, 0.0)
        await asyncio.sleep(self.takes_s + besides_s + (0.0 if most else self.list_takes_s))
        if self.failure is not None:
            raise self.failure
        self.carried += len(shown)
        return listing

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        if self.get_failure is not None:
            raise self.get_failure
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return found

    async def delete(self, resource: Resource[Any], name: str, **_: Any) -> Any:
        found = self.objects[resource.plural, name]
        self.end(resource, found)
        return replace(found, metadata=replace(found.metadata, finalizers=()))

    async def patch(self, resource: Resource[Any], name: str, _: Any, **__: Any) -> Any:
        return self.objects[resource.plural, name]

    async def served(self) -> frozenset[tuple[str, str]]:
        return frozenset((each.api_version, each.plural) for each in self.serves)

    async def watch(
        self, resource: Resource[Any], *, resource_version: str, timeout_s: int, **_: Any
    ) -> AsyncGenerator[WatchLine]:
        seen, is_long = int(resource_version), timeout_s > _LONG_S
        self.asked.append("long watch" if is_long else "short watch")
        if is_long and self.lag_s is None:
            await asyncio.Event().wait()
        began_s, restores = _now_s(), self.restores
        while _now_s() < began_s + timeout_s - 2:
            if self.restores != restores:
                raise KubeError(Reason.UNREACHABLE, "the connection was closed")
            await asyncio.sleep(self.lag_s or 0.0 if is_long else 0.01)
            for plural, version, kind, obj in list(self._changes):
                if plural == resource.plural and version > seen:
                    seen = version
                    yield _line(kind, obj)
            await asyncio.sleep(0.01)
        if self.has_bookmarks:
            meta = ObjectMeta(name="", resource_version=str(self.version))
            yield _line("BOOKMARK", KubeObject(metadata=meta))
        await asyncio.sleep(2)


def after(delay_s: float, happens: Callable[[], object]) -> None:
    """Have something happen later."""
    asyncio.get_running_loop().call_later(delay_s, happens)


def _line(kind: str, obj: Any) -> WatchLine:
    return WatchLine(kind, msgspec.Raw(msgspec.json.encode(obj)))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
