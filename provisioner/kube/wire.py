"""Bytes of the API into structs: pages of a list, lines of a watch, single objects."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic

import msgspec
import structlog

from provisioner import kube_failures as failures
from provisioner.kube.resources import Resource, T, whole
from provisioner.kube.sharing import share
from provisioner.kube_failures import Attempt
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject

# etcd refuses objects above 1.5 MiB; a line that never ends must not fill the memory.
MAX_LINE_BYTES = 32 * 2**20

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


_PAGE = msgspec.json.Decoder(Page)
_LINE = msgspec.json.Decoder(WatchLine)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a kind at one moment.

    Attributes:
        items: the objects that could be read.
        resource_version: the moment; a watch continues from here.
        unreadable_keys: the objects that are there but could not be decoded.
    """

    items: list[T]
    resource_version: str
    unreadable_keys: tuple[str, ...] = ()

    @property
    def unreadable(self) -> int:
        """How many objects could not be decoded: above 0, the list is not the whole truth."""
        return len(self.unreadable_keys)


class PageReader(Generic[T]):
    """Gathers a listing from its pages; each page's raw JSON goes once it was read."""

    def __init__(self, resource: Resource[T], keep: Callable[[T], Any] = whole) -> None:
        self._resource = resource
        self._keep = keep
        self._items: list[T] = []
        self._unreadable: list[str] = []
        self._resource_version = ""

    def read(self, data: bytes) -> str:
        """Take one page.

        Returns:
            The token that asks for the next page, "" after the last.

        Raises:
            KubeError: UNREADABLE when the page is no list at all.
        """
        plural = self._resource.plural
        try:
            page = _PAGE.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise KubeError(Reason.UNREADABLE, f"cannot read a list of {plural}: {exc}") from exc
        for raw in page.items or ():
            try:
                kept = self._keep(decode_object(self._resource, raw))
            except KubeError as exc:
                log.warning("skipped an object that cannot be read", error=exc.message)
                self._unreadable.append(decode_metadata(raw).key)
            else:
                if kept is not None:
                    self._items.append(kept)
        self._resource_version = page.metadata.resource_version
        return page.metadata.token

    def listing(self) -> Listing[T]:
        """What was gathered."""
        return Listing(self._items, self._resource_version, tuple(self._unreadable))


@cache
def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, made once."""
    return msgspec.json.Decoder(type_)


def decode_object(resource: Resource[T], data: bytes | msgspec.Raw) -> T:
    """One object.

    Raises:
        KubeError: UNREADABLE, with the object's name and the field that is odd.
    """
    try:
        found: T = decoder(resource.type).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        name = decode_metadata(data).key or "without a name"
        message = f"cannot read {resource.kind} {name}: {exc}"
        raise KubeError(Reason.UNREADABLE, message) from exc
    share(found)
    return found


def decode_metadata(data: bytes | msgspec.Raw) -> KubeObject:
    """As much of an object as every kind has; an empty one when not even that can be read."""
    try:
        found: KubeObject = decoder(KubeObject).decode(data)
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
        decoded = _LINE.decode(line)
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
