"""The keyed cache behind an informer: which of two versions is newer, indexes, who is told.

No I/O. Versions are etcd revisions, which the API promises to be comparable (KEP-5504); one that
is no number is never taken for newer.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import structlog

from provisioner.kube.resources import T, key_of
from provisioner.kube.wire import Listing, adopt

U = TypeVar("U")
Indexer = Callable[[T], Iterable[str]]
Handler = Callable[[T | None, T | None], None]

# Objects that are taken in, or told to subscribers, before others may go on: some milliseconds.
SLICE = 250

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
        found = self._keys.get(value, ())
        return (found,) if isinstance(found, str) else tuple(found)


class Store(Generic[T]):
    """Objects by key, as the API server last showed them."""

    def __init__(self, indexers: Mapping[str, Indexer[T]]) -> None:
        self._objects: dict[str, T] = {}
        self._indexers = dict(indexers)
        self._indexes = {name: Index() for name in indexers}
        self._handlers: list[Handler[T]] = []
        self._waiting: list[Handler[T]] | None = None  # for ``introducing``
        self._newcomers: list[Handler[T]] = []
        self._untold: dict[str, None] = {}  # what the newcomers have not been told yet
        self.unreadable: dict[str, str] = {}  # key -> version: there, in a form we cannot read
        self.version = ""  # up to here all changes of all objects are known
        self.newest = ""  # of all versions that were seen, those of own writes too
        self.restores = 0  # lists that proved that etcd had been restored from a backup
        self._floor = ""  # an object of up to here that is not here is gone, or in a list's rest

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
        if self._waiting is not None:
            self._waiting.append(handler)
            return
        for obj in list(self._objects.values()):
            _tell(handler, None, obj)
        self._handlers.append(handler)

    def hold_back(self) -> None:
        """Have those who subscribe from now on told by ``introducing`` only."""
        self._waiting = []

    def introducing(self) -> Iterator[None]:
        """Tell those who were held back what is there, a slice of objects at a time.

        What changes between two slices is told to them as it was, then as it is.
        """
        self._newcomers, self._waiting = self._waiting or [], None
        self._untold = dict.fromkeys(self._objects if self._newcomers else ())
        for keys in _slices(list(self._untold)):
            for key in keys:
                if key in self._untold:
                    self._introduce(key, self._objects[key])
            yield
        self._handlers += self._newcomers
        self._newcomers, self._untold = [], {}  # an emptied dict keeps its size

    def _introduce(self, key: str, obj: T) -> None:
        del self._untold[key]
        for handler in self._newcomers:
            _tell(handler, None, obj)

    def advance(self, version: str) -> None:
        """All changes up to this version are known; never backwards, see ``apply``."""
        if not is_past(self.version, version):
            self.version = self._floor = version
            self._seen(version)

    def _seen(self, version: str) -> None:
        if is_above(version, self.newest):
            self.newest = version

    def apply(self, obj: T) -> None:
        """A watch showed this object.

        Two watches may run beside each other; of what the other one has shown already, an object
        that is not here was deleted since.
        """
        key, version = key_of(obj), obj.metadata.resource_version
        self._reads(key, version)
        old = self._objects.get(key)
        if old is None and is_past(self.version, version):
            return
        if old is None or is_newer(obj, old):
            self._put(old, obj)

    def remove(self, key: str, version: str) -> None:
        """A watch showed that an object was deleted at this version."""
        self._reads(key, version)
        old = self._objects.get(key)
        # An object that was made again under the name, and observed already, is a newer one.
        if old is not None and not is_above(old.metadata.resource_version, version):
            self._drop(key, old)

    def cannot_read(self, key: str, version: str) -> None:
        """A watch showed an object that cannot be read; what was readable before is kept."""
        old = self._objects.get(key)
        known = self.unreadable.get(key, old.metadata.resource_version if old else self.version)
        if not is_past(known, version):
            self.unreadable[key] = version

    def _reads(self, key: str, version: str) -> None:
        if key in self.unreadable and not is_above(self.unreadable[key], version):
            del self.unreadable[key]

    def observe(self, obj: T) -> None:
        """Take the answer to an own write, unless it is older than what is known.

        An object that is not here although the watch, or the list that is taken in, is already past
        its version was deleted since, so it is not brought back.
        """
        self._seen(obj.metadata.resource_version)
        old = self._objects.get(key_of(obj))
        if old is None and not is_above(obj.metadata.resource_version, self._floor):
            return
        if old is None or is_newer(obj, old):
            self._put(old, obj)

    def replace(self, listing: Listing[T], asked_at: str = "") -> None:
        """Take a full list in place of everything; tell the differences, lost deletions too."""
        for _ in self.replacing(listing, asked_at):
            pass

    def replacing(self, listing: Listing[T], asked_at: str = "") -> Iterator[None]:
        """``replace``, a slice of objects at a time; its version is known at the end.

        A list is never older than its request (API concepts, "Resource versions"), and no object
        goes back to an older version. So a list from before ``asked_at`` (``newest`` as it was when
        the list was asked for), or an older version of an object of which it has to know the newer
        one, proves that etcd was restored from a backup. The revision tells nothing: it can have
        passed ours by now, and ``etcdutl snapshot restore --bump-revision`` raises it.
        """
        at = listing.resource_version
        is_back = is_above(asked_at or self.version, at)
        is_restored = is_back and bool(at)  # without a version it is no list: the cache is emptied
        if is_restored or is_above(at, self.newest):
            self.newest = at
        self._floor = at

        def knows(known: T) -> bool:
            return is_back or not is_above(known.metadata.resource_version, at)

        here = set(listing.unreadable_keys)  # in a form we cannot read: keep what we had
        for objects in _slices(listing.items if self._objects else ()):
            here.update(key_of(obj) for obj in objects)
            yield
        for keys in _slices(list(self._objects)):
            for key in keys:
                old = self._objects[key]
                if key not in here and knows(old):
                    self._drop(key, old)
            yield
        for objects in _slices(listing.items):
            for obj in objects:
                known = self._objects.get(key_of(obj))
                if known is None or (obj is not known and knows(known) and obj != known):
                    is_restored = is_restored or (known is not None and is_newer(known, obj))
                    self._put(known, obj)
            yield
        self.unreadable = dict.fromkeys(listing.unreadable_keys, at)
        self.version = at
        self.restores += is_restored

    def _put(self, old: T | None, new: T) -> None:
        if old is not None:  # whose name is the key, and whose texts the indexes hold
            adopt(new, old)
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
        self._tell_all(key, old, new)

    def _drop(self, key: str, old: T) -> None:
        del self._objects[key]
        for name, indexer in self._indexers.items():
            for value in indexer(old):
                self._indexes[name].remove(value, key)
        self._tell_all(key, old, None)

    def _tell_all(self, key: str, old: T | None, new: T | None) -> None:
        if key in self._untold and old is not None:
            self._introduce(key, old)
        for handler in (*self._handlers, *self._newcomers):
            _tell(handler, old, new)


def is_newer(obj: T, known: T) -> bool:
    """Whether an object is a later version of the one that is known."""
    return is_above(obj.metadata.resource_version, known.metadata.resource_version)


def is_past(version: str, other: str) -> bool:
    """Whether all that happened up to the other version is known at a version."""
    return version.isdecimal() and other.isdecimal() and int(version) >= int(other)


def is_above(version: str, other: str) -> bool:
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


def _slices(items: Sequence[U]) -> Iterator[Sequence[U]]:
    return (items[at : at + SLICE] for at in range(0, len(items), SLICE))
