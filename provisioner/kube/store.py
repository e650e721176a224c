"""The keyed cache behind an informer: which of two versions is newer, indexes, who is told.

No I/O. Versions are etcd revisions, which the API promises to be comparable (KEP-5504); one that
is no number is never taken for newer.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic

import structlog

from provisioner.kube.resources import T, key_of
from provisioner.kube.wire import Listing

Indexer = Callable[[T], Iterable[str]]
Handler = Callable[[T | None, T | None], None]

log = structlog.get_logger(__name__)


class Index:
    """Keys by value. One key is held bare: a set each would cost 216 bytes per object."""

    def __init__(self) -> None:
        self._keys: dict[str, str | dict[str, None]] = {}

    def add(self, value: str, key: str) -> None:
        """Note that an object has a value."""
        match self._keys.get(value):
            case None:
                self._keys[value] = key
            case str(other):
                if other != key:
                    self._keys[value] = {other: None, key: None}
            case many:
                many[key] = None

    def remove(self, value: str, key: str) -> None:
        """Forget that an object has a value."""
        match self._keys.get(value):
            case str(other) if other == key:
                del self._keys[value]
            case dict() as many:
                many.pop(key, None)
                if not many:
                    del self._keys[value]

    def keys(self, value: str) -> Sequence[str]:
        """The objects with a value, oldest first."""
        match self._keys.get(value):
            case None:
                return ()
            case str(key):
                return (key,)
            case many:
                return tuple(many)


class Store(Generic[T]):
    """Objects by key, as the API server last showed them."""

    def __init__(self, indexers: Mapping[str, Indexer[T]]) -> None:
        self._objects: dict[str, T] = {}
        self._indexers = dict(indexers)
        self._indexes = {name: Index() for name in indexers}
        self._handlers: list[Handler[T]] = []
        self.version = ""  # up to here all changes of all objects are known

    def get(self, key: str) -> T | None:
        """One object."""
        return self._objects.get(key)

    def values(self) -> Collection[T]:
        """All objects: a live view, so use it before the next await."""
        return self._objects.values()

    def keyed(self, index: str, value: str) -> Sequence[T]:
        """The objects for which the named indexer gave the value."""
        return [self._objects[key] for key in self._indexes[index].keys(value)]

    def subscribe(self, handler: Handler[T]) -> None:
        """Tell a handler (None, object) for all that is there, then of each change."""
        for obj in list(self._objects.values()):
            _tell(handler, None, obj)
        self._handlers.append(handler)

    def apply(self, obj: T) -> None:
        """A watch showed this object."""
        old = self._objects.get(key_of(obj))
        if old is None or is_newer(obj, old):
            self._put(old, obj)

    def remove(self, key: str, version: str) -> None:
        """A watch showed that an object was deleted at this version."""
        old = self._objects.get(key)
        # An object that was made again under the name, and observed already, is a newer one.
        if old is not None and not _above(old.metadata.resource_version, version):
            self._drop(key, old)

    def observe(self, obj: T) -> None:
        """Take the answer to an own write, unless it is older than what is known.

        An object that is not here although the watch is already past its version was deleted
        since, so it is not brought back.
        """
        old = self._objects.get(key_of(obj))
        if old is None and not _above(obj.metadata.resource_version, self.version):
            return
        if old is None or is_newer(obj, old):
            self._put(old, obj)

    def replace(self, listing: Listing[T]) -> None:
        """Take a full list in place of everything; tell the differences, lost deletions too."""
        at = listing.resource_version
        # Versions that run backwards mean a restored etcd: nothing known before counts.
        restored = _above(self.version, at)
        found = {key_of(obj): obj for obj in listing.items}
        kept = set(listing.unreadable_keys)  # there, in a form we cannot read: keep what we had
        for key, old in list(self._objects.items()):
            observed_since = not restored and _above(old.metadata.resource_version, at)
            if key not in found and key not in kept and not observed_since:
                self._drop(key, old)
        for key, obj in found.items():
            known = self._objects.get(key)
            if known is None or is_newer(obj, known) or (restored and obj != known):
                self._put(known, obj)
        self.version = at

    def _put(self, old: T | None, new: T) -> None:
        key = key_of(new)
        self._objects[key] = new
        for name, indexer in self._indexers.items():
            before = () if old is None else tuple(indexer(old))
            after = tuple(indexer(new))
            if before != after:
                index = self._indexes[name]
                for value in before:
                    index.remove(value, key)
                for value in after:
                    index.add(value, key)
        self._tell_all(old, new)

    def _drop(self, key: str, old: T) -> None:
        del self._objects[key]
        for name, indexer in self._indexers.items():
            for value in indexer(old):
                self._indexes[name].remove(value, key)
        self._tell_all(old, None)

    def _tell_all(self, old: T | None, new: T | None) -> None:
        for handler in self._handlers:
            _tell(handler, old, new)


def is_newer(obj: T, known: T) -> bool:
    """Whether an object is a later version of the one that is known."""
    return _above(obj.metadata.resource_version, known.metadata.resource_version)


def _above(version: str, other: str) -> bool:
    """Whether a version is later than another; "" is before all, no number is never later."""
    if not version.isdecimal():
        return False
    return not other or (other.isdecimal() and int(version) > int(other))


def _tell(handler: Handler[T], old: T | None, new: T | None) -> None:
    try:
        handler(old, new)
    except Exception:  # one subscriber's mistake must not stop the cache for all others
        changed = new or old
        log.exception("a subscriber failed", key=changed.key if changed else "")
