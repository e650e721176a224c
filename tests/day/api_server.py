"""An API server in memory: what its HTTP answers, without sockets, in virtual time.

It stands where ``provisioner.kube.client.Transport`` does: paths, methods, bodies and statuses in,
bytes out; clients, informers and decoders above are the real ones. It keeps each object as JSON,
tells changes late, forgets old versions (410 Gone), sends bookmarks as informers expect them
(``tests/cluster/test_kube_contract.py`` holds those expectations to a real one), refuses what is
written to another version than the writer saw, and can be away.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from tests.day.clocks import NOW, wall_clock
from tests.day.documents import Json, strategic
from tests.json_patch import MismatchError, applied, merged

_KEPT_S = 300.0  # so long old versions can be watched from: etcd's compaction
_SNAPSHOTS = 20  # lists that are read page by page at once
_WITH_STATUS = frozenset(
    {"persistentvolumes", "persistentvolumeclaims", "volumeattachments", "nodes"}
)
_PROTECTIONS = {
    "persistentvolumes": "kubernetes.io/pv-protection",
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
}
_FIRST_STATUS: dict[str, Json] = {
    "persistentvolumes": {"phase": "Pending"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "volumeattachments": {"attached": False},
}
_UNWATCHED = frozenset({"events", "leases"})
_MOST_EVENTS = 10_000  # they live for an hour
_STRATEGIC, _JSON = "application/strategic-merge-patch+json", "application/json-patch+json"

T = TypeVar("T")
Hook = Callable[[str, Json], None]  # "ADDED", "MODIFIED", "DELETED"; the object, not to be changed


class RefusedError(Exception):
    """A Status other than success."""

    def __init__(self, code: int, reason: str, name: str = "", message: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.body = msgspec.json.encode(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": code,
                "reason": reason,
                "message": message or f'"{name}": {reason}',
                "details": {"name": name},
            }
        )


@dataclass(slots=True)
class Change:
    """One line of a watch."""

    version: int
    at_s: float
    line: bytes


@dataclass(slots=True)
class Kind:
    """The objects of a kind by their keys, and what has changed lately."""

    group_version: str
    plural: str
    kind: str
    objects: dict[str, bytes] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)  # that any of them has had; "" of none
    changes: deque[Change] = field(default_factory=deque)
    forgotten: int = 0  # the newest version from which on nothing can be watched any more
    progress: int = 0  # how far its cache knows etcd to be
    waiting: set[asyncio.Future[None]] = field(default_factory=set)
    hooks: list[Hook] = field(default_factory=list)

    def put(self, obj: Json, raw: bytes) -> None:
        """Store an object."""
        self.objects[key_of(obj)] = raw
        self.namespaces.add(obj["metadata"].get("namespace", ""))

    def named(self, name: str) -> list[bytes]:
        """The objects of a name, in any namespace."""
        keys = (f"{space}/{name}" if space else name for space in self.namespaces)
        return [self.objects[key] for key in keys if key in self.objects]

    def since(self, version: int) -> list[Change]:
        """What came after a version."""
        at = bisect_right(self.changes, version, key=lambda each: each.version)
        return [self.changes[n] for n in range(at, len(self.changes))]


@dataclass(frozen=True, slots=True)
class Path:
    """Where a request goes."""

    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """Of the object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def read(cls, path: str) -> Path:
        """From ``/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE``."""
        parts = [unquote(each) for each in path.strip("/").split("/")]
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = [*rest, "", ""][:3]
        return cls(plural, namespace, name, subresource)


def key_of(obj: Json) -> str:
    """As informers have it."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _page(version: int, found: list[bytes], token: str) -> bytes:
    meta = msgspec.json.encode({"resourceVersion": str(version), "continue": token})
    return b'{"kind":"List","metadata":%s,"items":[%s]}' % (meta, b",".join(found))


class ApiServer:
    """The objects, and requests on them; each is carried out at once.

    Attributes:
        is_down: nobody reaches it.
        requests: by verb and kind.
    """

    def __init__(self, kinds: list[tuple[str, str, str]]) -> None:
        self.kinds = {plural: Kind(version, plural, kind) for version, plural, kind in kinds}
        self.is_down = False
        self.version = 1
        self.requests: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()  # watches that were answered with 410, by kind
        self._uids = 0
        self._snapshots: dict[str, tuple[int, list[bytes]]] = {}

    # What others in the cluster do -------------------------------------------------------------

    def hook(self, plural: str, hook: Hook) -> None:
        """Have somebody in the cluster see each change of a kind, at once."""
        self.kinds[plural].hooks.append(hook)

    def load(self, plural: str, obj: Json) -> None:
        """Store an object as it is, before the day begins."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.kinds[plural].put(obj, msgspec.json.encode(obj))

    def find(self, plural: str, key: str) -> Json | None:
        """An object as it is now."""
        raw = self.kinds[plural].objects.get(key)
        return None if raw is None else msgspec.json.decode(raw)

    def all(self, plural: str, view: type[T]) -> Iterator[T]:
        """All objects of a kind, and of each what the view names, before anything is written."""
        return map(msgspec.json.Decoder(view).decode, self.kinds[plural].objects.values())

    def change(self, plural: str, key: str, patch: Json) -> Json | None:
        """Somebody's merge patch of object and status; None where there is no such object."""
        found = self.find(plural, key)
        return None if found is None else self._replace(plural, found, merged(found, patch))

    def drop_finalizer(self, plural: str, key: str, finalizer: str) -> None:
        """Take a finalizer off, where it is."""
        found = self.find(plural, key)
        if found is None or finalizer not in found["metadata"].get("finalizers", ()):
            return
        left = [each for each in found["metadata"]["finalizers"] if each != finalizer]
        self._replace(plural, found, merged(found, {"metadata": {"finalizers": left}}))

    def create(self, plural: str, obj: Json) -> Json:
        """A new object.

        Raises:
            RefusedError: (409) there is one of its name.
        """
        kind, key = self.kinds[plural], key_of(obj)
        if key in kind.objects:
            raise RefusedError(409, "AlreadyExists", obj["metadata"]["name"])
        self._uids += 1
        meta = {
            **obj["metadata"],
            "uid": f"{self._uids:08x}-0000-4000-8000-{self.version:012x}",
            "creationTimestamp": wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if plural in _PROTECTIONS:
            meta["finalizers"] = [*meta.get("finalizers", ()), _PROTECTIONS[plural]]
        made = {"apiVersion": kind.group_version, "kind": kind.kind, **obj, "metadata": meta}
        if plural in _FIRST_STATUS:
            made["status"] = _FIRST_STATUS[plural]
        return self._write(kind, "ADDED", made)

    def delete(self, plural: str, key: str) -> Json | None:
        """Delete an object, or begin to where finalizers keep it; None where there is none."""
        found = self.find(plural, key)
        if found is None:
            return None
        if not found["metadata"].get("finalizers"):
            del self.kinds[plural].objects[key]
            return self._write(self.kinds[plural], "DELETED", found)
        if found["metadata"].get("deletionTimestamp"):
            return found
        at = wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._replace(plural, found, merged(found, {"metadata": {"deletionTimestamp": at}}))

    def _replace(self, plural: str, old: Json, new: Json) -> Json:
        if new == old:
            return old
        kind, meta = self.kinds[plural], new["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del kind.objects[key_of(old)]
            return self._write(kind, "DELETED", new)
        return self._write(kind, "MODIFIED", new)

    def _write(self, kind: Kind, what: str, obj: Json) -> Json:
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        raw = msgspec.json.encode(obj)
        if what != "DELETED":
            kind.put(obj, raw)
        if kind.plural in _UNWATCHED:
            while len(kind.objects) > _MOST_EVENTS:
                del kind.objects[next(iter(kind.objects))]
            return obj
        line = b'{"type":"%s","object":%s}' % (what.encode(), raw)
        kind.changes.append(Change(self.version, NOW.s, line))
        kind.progress = self.version
        while kind.changes[0].at_s < NOW.s - _KEPT_S:
            kind.forgotten = kind.changes.popleft().version
        for waiter in kind.waiting:
            if not waiter.done():
                waiter.set_result(None)
        for hook in kind.hooks:
            hook(what, obj)
        return obj

    # The outage ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Nobody reaches it any more; watches break off."""
        self.is_down = True
        for kind in self.kinds.values():
            for waiter in kind.waiting:
                if not waiter.done():
                    waiter.set_exception(ConnectionResetError("the API server is away"))

    def start(self) -> None:
        """It is back, with an empty watch cache."""
        self.is_down = False
        for kind in self.kinds.values():
            kind.changes.clear()
            kind.forgotten = self.version

    # HTTP ----------------------------------------------------------------------------------------

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str
    ) -> bytes:
        """Carry out one request.

        Raises:
            RefusedError: with the Status of the answer.
        """
        if path in {"/api", "/apis"}:
            return self._served(is_core=path == "/api")
        at = Path.read(path)
        if at.plural not in self.kinds:
            raise RefusedError(404, "NotFound", message="the server could not find the resource")
        self.requests[f"{method if at.name or method == 'POST' else 'LIST'} {at.plural}"] += 1
        match method:
            case "GET" if at.name:
                return self._got(at)
            case "GET":
                return self._list(at, query)
            case "POST":
                obj = dict(msgspec.json.decode(msgspec.json.encode(body)))
                if at.namespace:
                    obj["metadata"] = {**obj["metadata"], "namespace": at.namespace}
                return msgspec.json.encode(self.create(at.plural, obj))
            case "PATCH":
                return msgspec.json.encode(self._patch(at, body, content_type))
            case "DELETE":
                return self._delete(at, body or {})
        raise RefusedError(405, "MethodNotAllowed", at.name)

    def _got(self, at: Path) -> bytes:
        raw = self.kinds[at.plural].objects.get(at.key)
        if raw is None:
            raise RefusedError(404, "NotFound", at.name)
        return raw

    def _patch(self, at: Path, body: Any, content_type: str) -> Json:
        old: Json = msgspec.json.decode(self._got(at))
        # What is sent must be JSON, and must not be shared with what is stored.
        body = msgspec.json.decode(msgspec.json.encode(body))
        if content_type == _JSON:
            try:
                new = applied(old, body)
            except (MismatchError, LookupError) as error:
                raise RefusedError(422, "Invalid", at.name) from error
        else:
            wanted = body.get("metadata", {})
            if wanted.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
                raise RefusedError(422, "Invalid", at.name)  # that field cannot be changed
            self._check(old, wanted, at.name)
            new = (strategic if content_type == _STRATEGIC else merged)(old, body)
        if at.plural in _WITH_STATUS:
            other = "spec" if at.subresource else "status"
            new = {**new, other: old[other]} if other in old else new
        if at.plural == "volumeattachments" and at.subresource:
            new = {**new, "metadata": old["metadata"]}
        new["metadata"] = {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}
        return self._replace(at.plural, old, new)

    def _delete(self, at: Path, body: Json) -> bytes:
        found: Json = msgspec.json.decode(self._got(at))
        self._check(found, body.get("preconditions", {}), at.name)
        return msgspec.json.encode(self.delete(at.plural, at.key))

    @staticmethod
    def _check(found: Json, wanted: Json, name: str) -> None:
        """Refuse what was meant for another object or version."""
        for each in ("uid", "resourceVersion"):
            if each in wanted and wanted[each] != found["metadata"].get(each):
                raise RefusedError(409, "Conflict", name)

    def _list(self, at: Path, query: Mapping[str, str]) -> bytes:
        kind, most = self.kinds[at.plural], int(query.get("limit", "0")) or None
        token = query.get("continue")
        if token:
            if token not in self._snapshots:
                raise RefusedError(410, "Expired", message="the continue token is too old")
            version, found = self._snapshots.pop(token)
        else:
            kind.progress = version = self.version
            is_plain = not at.namespace and "fieldSelector" not in query
            if most == 1 and is_plain and len(kind.objects) > 1:
                # Asks for the version, and hardly for more: a copy of all was a quarter of a day's
                # CPU. Whoever goes on is told that the token is too old.
                return _page(version, [next(iter(kind.objects.values()))], "no copy was made")
            found = self._selected(kind, at.namespace, query.get("fieldSelector", ""))
        page, rest = found[:most], found[most:] if most else []
        more = ""
        if rest:
            more = f"{version}.{random.getrandbits(64):x}"
            self._snapshots[more] = (version, rest)
            while len(self._snapshots) > _SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
        return _page(version, page, more)

    @staticmethod
    def _selected(kind: Kind, namespace: str, selector: str) -> list[bytes]:
        if not namespace and not selector:
            return list(kind.objects.values())
        if selector.startswith("metadata.name=") and not namespace:
            return kind.named(selector.partition("=")[2])
        assert not selector or not kind.objects, f"{kind.plural} by {selector}"
        return [raw for key, raw in kind.objects.items() if key.startswith(f"{namespace}/")]

    def _served(self, *, is_core: bool) -> bytes:
        groups: dict[str, dict[str, list[Json]]] = {}
        for each in self.kinds.values():
            group, _, version = each.group_version.rpartition("/")
            if (not group) == is_core:
                there = groups.setdefault(group, {}).setdefault(version, [])
                there.append({"resource": each.plural})
        items = [
            {
                "metadata": {"name": group},
                "versions": [{"version": v, "resources": found} for v, found in versions.items()],
            }
            for group, versions in groups.items()
        ]
        return msgspec.json.encode({"kind": "APIGroupDiscoveryList", "items": items})
