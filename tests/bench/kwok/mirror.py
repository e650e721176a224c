"""What the API server has of one kind, kept by a watch that survives its outages."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import aiohttp
import msgspec

from tests.bench.hands import BenchError, Hands

_PAUSE_S: Final = 1.0
_PAGE: Final = 2000


class Meta(msgspec.Struct, rename="camel"):
    """As much of it as anybody asks for."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Source(msgspec.Struct, rename="camel"):
    """Of a VolumeAttachment."""

    persistent_volume_name: str = ""


class Csi(msgspec.Struct, rename="camel"):
    """Of a PersistentVolume."""

    volume_handle: str = ""


class Spec(msgspec.Struct, rename="camel"):
    """Of all kinds together."""

    volume_name: str = ""
    node_name: str = ""
    source: Source = msgspec.field(default_factory=Source)
    csi: Csi = msgspec.field(default_factory=Csi)


class Status(msgspec.Struct, rename="camel"):
    """Of all."""

    phase: str = ""
    attached: bool = False


class Thing(msgspec.Struct):
    """A claim, a PersistentVolume, a VolumeAttachment or a pod."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def key(self) -> str:
        """Namespace and name, as far as it has one."""
        return f"{self.metadata.namespace}/{self.metadata.name}".removeprefix("/")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Listing(msgspec.Struct):
    metadata: _ListMeta
    items: list[Thing]


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Mirror:
    """All objects of one kind.

    Attributes:
        things: by key.
        groups: keys by group, for a kind that has one.
    """

    def __init__(
        self, hands: Hands, path: str, group_of: Callable[[Thing], str] | None = None
    ) -> None:
        self._hands, self._path, self._group_of = hands, path, group_of
        self.things: dict[str, Thing] = {}
        self.groups: defaultdict[str, set[str]] = defaultdict(set)
        self._filled = asyncio.Event()
        self._version = ""

    async def filled(self) -> None:
        """Wait for the first list."""
        await self._filled.wait()

    async def run(self) -> None:
        """List, watch, and again, for ever."""
        while True:
            with suppress(aiohttp.ClientError, BenchError, TimeoutError):
                if not self._version:
                    await self._list()
                await self._watch()
                continue
            await asyncio.sleep(_PAUSE_S)

    async def _list(self) -> None:
        found: dict[str, Thing] = {}
        more = ""
        while True:
            answer = await self._hands.send("GET", f"{self._path}?limit={_PAGE}&continue={more}")
            listing = msgspec.json.decode(answer, type=_Listing)
            found |= {each.key: each for each in listing.items}
            more = listing.metadata.continue_
            if not more:
                break
        for each in [thing for key, thing in self.things.items() if key not in found]:
            self._take("DELETED", each)
        for each in found.values():
            self._take("MODIFIED", each)
        self._version = listing.metadata.resource_version
        self._filled.set()

    async def _watch(self) -> None:
        async with self._hands.lines(self._path, self._version) as reply:
            if not reply.ok:
                self._version = ""
                raise BenchError(f"watch of {self._path}: {reply.status}")
            async for text in reply.content:
                self.read(text)
                if not self._version:
                    return

    def read(self, text: bytes) -> None:
        """Take one line of a watch; after an error everything is listed anew."""
        line = msgspec.json.decode(text, type=_Line)
        if line.type == "ERROR":
            self._version = ""
            return
        thing = msgspec.json.decode(line.object, type=Thing)
        self._version = thing.metadata.resource_version
        if line.type != "BOOKMARK":
            self._take(line.type, thing)

    def _take(self, what: str, thing: Thing) -> None:
        if what == "DELETED":
            self.things.pop(thing.key, None)
        else:
            self.things[thing.key] = thing
        if self._group_of is not None:
            group = self._group_of(thing)
            if what != "DELETED":
                self.groups[group].add(thing.key)
            elif group in self.groups:
                self.groups[group].discard(thing.key)
                if not self.groups[group]:
                    del self.groups[group]

    def of_group(self, group: str) -> list[Thing]:
        """All of a group."""
        return [self.things[key] for key in self.groups.get(group, ())]
