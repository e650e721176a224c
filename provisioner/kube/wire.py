"""Bytes of the API into structs: pages, lines of a watch, single objects, what is served."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Generic, Union, get_args, get_origin

import msgspec
import structlog
from msgspec.structs import fields, force_setattr

from provisioner.kube import failures
from provisioner.kube.failures import Attempt
from provisioner.kube.resources import Resource, T, whole
from provisioner.model import depth
from provisioner.model.attachment import AttachmentSource
from provisioner.model.claim import ClaimSpec
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject, ObjectMeta, ObjectReference, UnlabelledMeta
from provisioner.model.names import LED_SINCE, MODIFICATIONS, OUR_PREFIX, PINNED_ZONE, VOLUME_ID
from provisioner.model.node import (
    HOSTNAME_LABEL,
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    NodeMeta,
    NodeStatus,
)
from provisioner.model.persistent_volume import CsiSource

# etcd refuses objects above 1.5 MiB; a line that never ends must not fill the memory.
MAX_LINE_BYTES = 32 * 2**20
_SLICE = 100  # objects that are decoded before others may go on: up to 7 ms
_LONGEST = 1024  # bytes; long values are hardly ever equal
_LONGEST_COMMON = 63  # characters: no value of a label has more
_encode = msgspec.json.Encoder().encode
# Fields that tell an object from all others of its kind.
_OWN = frozenset(
    {"name", "uid", "resource_version", "creation_timestamp", "volume_name", "volume_handle"}
    | {"persistent_volume_name", "provider_id", "node_id", "kept_node_uid", "address"}
    | {"deletion_timestamp", "renew_time"}
)
# Of those, the ones that objects of other kinds name too: kept once for all of them. A claim's UID
# is in its PersistentVolume, a Node's in its CSINode; a PersistentVolume's name is in the claim and
# in each VolumeAttachment.
_NAMED_ELSEWHERE = frozenset(
    {
        (UnlabelledMeta, "uid"),  # a claim's
        (ObjectReference, "uid"),
        (ObjectMeta, "name"),
        (ClaimSpec, "volume_name"),
        (AttachmentSource, "persistent_volume_name"),
        (CsiSource, "volume_handle"),
        (CsiNodeDriver, "node_id"),
        (NodeMeta, "uid"),
        (CsiNode, "kept_node_uid"),
    }
)
# Of the elements of a list, nearly always: then these are entered.
_LISTS_WITH_OWN = frozenset({(CsiNodeSpec, "drivers"), (NodeStatus, "addresses")})
# Labels and annotations whose values do the same, so that hardly two objects have equal ones.
_OWN_KEYS = frozenset(
    {VOLUME_ID, HOSTNAME_LABEL, PINNED_ZONE, MODIFICATIONS, LED_SINCE}
    | {"kubectl.kubernetes.io/last-applied-configuration"}
)
# Aggregated discovery, stable since Kubernetes 1.30: two requests instead of one per group.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

log = structlog.get_logger(__name__)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata`` of a list."""

    resource_version: str = ""
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """One page of a list; its items still undecoded, so that an odd one harms only itself."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class WatchLine(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    resources: list[_Resource] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    versions: list[_Version] | None = None


class _ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class _Groups(msgspec.Struct, frozen=True):
    kind: str
    items: list[_Group] | None = None


_PAGE = msgspec.json.Decoder(Page)
_LINE = msgspec.json.Decoder(WatchLine)
_GROUPS = msgspec.json.Decoder(_Groups)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Objects of a kind at one moment.

    Attributes:
        items: the objects that could be read.
        resource_version: the moment; a watch continues from here.
        unreadable_keys: the objects that are there but could not be decoded.
        is_all: whether there are no others.
    """

    items: list[T]
    resource_version: str
    unreadable_keys: tuple[str, ...] = ()
    is_all: bool = True

    @property
    def unreadable(self) -> int:
        """How many objects could not be decoded: above 0, the list is not the whole truth."""
        return len(self.unreadable_keys)


class PageReader(Generic[T]):
    """Gathers a listing from its pages; each page's raw JSON goes once it was read.

    Attributes:
        token: asks for the next page; "" after the last.
    """

    def __init__(
        self,
        resource: Resource[T],
        keep: Callable[[T], Any] = whole,
        trim: Callable[[T], Any] = whole,
    ) -> None:
        self._resource = resource
        self._keep = keep
        self._trim = trim
        self._items: list[T] = []
        self._unreadable: list[str] = []
        self._resource_version = ""
        self.token = ""

    def read(self, data: bytes) -> None:
        """Take one page.

        Raises:
            KubeError: UNREADABLE when the page is no list at all.
        """
        for _ in self.reading(data):
            pass

    def reading(self, data: bytes) -> Iterator[None]:
        """``read``, a slice of objects at a time: a whole page of 500 takes up to 35 ms."""
        plural = self._resource.plural
        try:
            page = depth.decode(_PAGE, data)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise KubeError(Reason.UNREADABLE, f"cannot read a list of {plural}: {exc}") from exc
        for number, raw in enumerate(page.items or (), 1):
            if number % _SLICE == 0:
                yield
            try:
                kept = self._keep(decode_object(self._resource, raw, self._trim))
            except KubeError as exc:
                log.warning("skipped an object that cannot be read", error=exc.message)
                self._unreadable.append(decode_metadata(raw).key)
            else:
                if kept is not None:
                    self._items.append(kept)
        self._resource_version = page.metadata.resource_version
        self.token = page.metadata.token

    def listing(self, *, is_all: bool = True) -> Listing[T]:
        """What was gathered."""
        return Listing(self._items, self._resource_version, tuple(self._unreadable), is_all)


@cache
def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, made once."""
    return msgspec.json.Decoder(type_)


def decode_object(
    resource: Resource[T], data: bytes | msgspec.Raw, trim: Callable[[T], Any] = whole
) -> T:
    """One object, of which ``trim`` leaves what is asked for.

    Raises:
        KubeError: UNREADABLE, with the object's name and the field that is odd.
    """
    try:
        found: T = depth.decode(decoder(resource.type), data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        name = decode_metadata(data).key or "without a name"
        message = f"cannot read {resource.kind} {name}: {exc}"
        raise KubeError(Reason.UNREADABLE, message) from exc
    found = trim(found)
    share(found)
    return found


def decode_metadata(data: bytes | msgspec.Raw) -> KubeObject:
    """As much of an object as every kind has; an empty one when not even that can be read."""
    try:
        found: KubeObject = depth.decode(decoder(KubeObject), data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return KubeObject()
    return found


def is_status(data: bytes) -> bool:
    """Whether an answer is a bare success instead of an object."""
    return failures.read_status(data).kind == "Status"


def decode_line(attempt: Attempt, line: bytes) -> WatchLine:
    """One line of a watch.

    Raises:
        KubeError: what an ERROR line says; UNREADABLE for what is no watch line.
    """
    try:
        decoded = depth.decode(_LINE, line)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise KubeError(Reason.UNREADABLE, f"cannot read the answer to {attempt}: {exc}") from exc
    if decoded.type == "ERROR":
        raise failures.of_status(attempt, bytes(decoded.object))
    return decoded


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The complete, non-empty lines of a stream, however its chunks are cut.

    A last line without its end is dropped: the stream broke inside it.

    Raises:
        KubeError: UNREADABLE when a line is longer than ``MAX_LINE_BYTES``.
    """
    pending: list[bytes] = []
    size = 0
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = b"".join((*pending, piece)) if pending else piece
            pending.clear()
            size = 0
            if line.strip():
                yield line
        if rest:
            pending.append(rest)
            size += len(rest)
        if size > MAX_LINE_BYTES:
            raise KubeError(Reason.UNREADABLE, f"a watch line is longer than {MAX_LINE_BYTES} B")


def share(obj: msgspec.Struct) -> None:
    """Replace parts of an object that was just decoded by equal ones seen lately.

    Thousands of persistent volumes differ in names and ids; their annotations, finalizers, node
    affinities, class names and statuses are the same few. What is shared must never be changed in
    place. What no two objects have alike is left out: each would push a common part out of the
    table, and stay there when its object is gone.
    """
    kind = type(obj)
    plan = _plan_of(kind)
    for name in plan.named_elsewhere:
        if value := getattr(obj, name):
            force_setattr(obj, name, sys.intern(value))
    for name in plan.texts:
        if value := getattr(obj, name):
            force_setattr(obj, name, _text(value))
    for name in plan.structs:
        if (value := getattr(obj, name)) is not None:
            share(value)
    for name in plan.lists:
        for each in getattr(obj, name) or ():
            share(each)
    for name in plan.parts:
        if (value := getattr(obj, name)) is not None:
            force_setattr(obj, name, _shared(kind, name, value))


def _shared(kind: type[msgspec.Struct], name: str, value: Any) -> Any:
    """A part, or an equal one that was seen lately."""
    if isinstance(value, dict) and not _OWN_KEYS.isdisjoint(value):
        return _with_common_texts(value)
    encoded = _encode(value)
    if len(encoded) <= _LONGEST:
        return _value(kind, name, encoded)
    if isinstance(value, msgspec.Struct):
        share(value)
    return value


@dataclass(frozen=True, slots=True)
class _Plan:
    """What ``share`` does with the fields of a kind; the others hold numbers, or its own ids."""

    named_elsewhere: tuple[str, ...]
    texts: tuple[str, ...]
    structs: tuple[str, ...]  # those with ids of their own: no two are equal
    lists: tuple[str, ...]  # of such structs
    parts: tuple[str, ...]  # other structs, lists, and texts by keys; nothing that is free-form


@cache
def _plan_of(kind: type[msgspec.Struct]) -> _Plan:
    named, texts, structs, lists, parts = [], [], [], [], []
    for field in fields(kind):
        types = _either(field.type)
        if field.name in _OWN:
            named += [field.name] if (kind, field.name) in _NAMED_ELSEWHERE else []
        elif (kind, field.name) in _LISTS_WITH_OWN:
            lists.append(field.name)
        elif types == {str}:
            texts.append(field.name)
        elif any(_is_struct(each) and _has_own(each) for each in types):
            structs.append(field.name)
        elif not types & {bool, int, float, datetime} and not any(map(_is_free, types)):
            parts.append(field.name)
    return _Plan(*map(tuple, (named, texts, structs, lists, parts)))


def _either(found: Any) -> set[Any]:
    """The types of a field that may be one of several; those within a list are none of them."""
    is_union = get_origin(found) in (Union, UnionType)
    return {*(get_args(found) if is_union else (found,))} - {NoneType}


def _is_free(found: Any) -> bool:
    """Whether it is any JSON object, as the whole ``spec`` of a kind: hardly two are equal."""
    return get_origin(found) is dict and get_args(found)[1] is not str


def _has_own(kind: type[msgspec.Struct]) -> bool:
    plan = _plan_of(kind)
    return bool(plan.structs or plan.lists) or not _OWN.isdisjoint(kind.__struct_fields__)


def _is_struct(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, msgspec.Struct)


def adopt(new: msgspec.Struct, old: msgspec.Struct) -> None:
    """Replace parts of an object by equal ones of the version before it, names and ids too.

    What refers to those parts (keys of caches, indexes) would otherwise keep the old ones alive
    beside the new. As after ``share``, nothing may be changed in place. In free-form JSON, 1 and
    true are equal and not the same.
    """
    for name in new.__struct_fields__:
        mine, known = getattr(new, name), getattr(old, name, None)
        if mine is known or type(mine) is not type(known):
            continue
        if mine == known and (type(mine) is str or _encode(mine) == _encode(known)):
            force_setattr(new, name, known)
        elif isinstance(mine, msgspec.Struct) and isinstance(known, msgspec.Struct):
            adopt(mine, known)


@lru_cache(maxsize=32768)  # as many nodes, instances and namespaces as there may be
def _text(value: str) -> str:
    return value


@lru_cache(maxsize=4096)  # 300 sizes alone are 900 parts, of claims and persistent volumes
def _value(kind: type[msgspec.Struct], name: str, encoded: bytes) -> Any:
    value = _field_decoder(kind, name).decode(encoded)
    return _with_common_texts(value) if isinstance(value, dict) else value


def _with_common_texts(value: dict[str, Any]) -> dict[str, Any]:
    """What is in it may be common where it is not as a whole.

    A text that only this object has cannot be told from one that others have, so it stays for a
    while when the object is gone. A hostname is the name that claims and attachments have of a
    Node.
    """
    return {_text(key): _common(key, each) for key, each in value.items()}


def _common(key: str, value: Any) -> Any:
    if type(value) is not str or len(value) > _LONGEST_COMMON:
        return value
    if key == VOLUME_ID:
        return sys.intern(value)
    return value if key.startswith(OUR_PREFIX) else _text(value)  # ours names a UID


@cache
def _field_decoder(kind: type[msgspec.Struct], name: str) -> msgspec.json.Decoder[Any]:
    (found,) = (field.type for field in fields(kind) if field.name == name)
    return msgspec.json.Decoder(found)


def read_version(data: bytes) -> str:
    """The version in an answer of ``/version``.

    Raises:
        KubeError: UNREADABLE.
    """
    try:
        return msgspec.json.decode(data, type=_ServerVersion).git_version
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise KubeError(Reason.UNREADABLE, f"cannot read the server's version: {exc}") from exc


def read_served(data: bytes) -> set[tuple[str, str]]:
    """The kinds in an aggregated discovery document, as (apiVersion, plural).

    Raises:
        KubeError: UNREADABLE for any other document, so that nothing is switched off by mistake.
    """
    try:
        groups = _GROUPS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        message = f"cannot read what the API server serves: {exc}"
        raise KubeError(Reason.UNREADABLE, message) from exc
    if groups.kind != "APIGroupDiscoveryList":
        message = f"expected aggregated discovery (Kubernetes 1.30 or later), got {groups.kind}"
        raise KubeError(Reason.UNREADABLE, message)
    return {
        (f"{group.metadata.name}/{version.version}".lstrip("/"), found.resource)
        for group in groups.items or ()
        for version in group.versions or ()
        for found in version.resources or ()
    }
