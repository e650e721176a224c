"""What is read of a request, within bounds: the path, the time that is left, the body.

A handler sees neither a body of more than 8 MiB, nor one that stops half-way, nor anything that the
API server would not send; whoever can reach the port can send anything at all.
"""

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, urlsplit

from aiohttp import StreamReader, hdrs, web
from multidict import CIMultiDictProxy

from webhook.model import patience


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server; sizes in bytes, times in seconds.

    Attributes:
        body: the largest body. The API server takes 3 MiB from a client, holds two versions of the
            object in a review, and writes JSON for what came as protobuf.
        bodies: what has come of all larger bodies that are being read or answered, together;
            decoded, the worst of them take five times as much.
        small: up to so much a body is a small one; nearly all are.
        small_bodies: as ``bodies``, for the small ones: no larger body ever takes their room.
        read_s: the longest pause within a body, or within the head of a request.
        body_s: the longest that a body may take, however long the API server says that it waits.
        handshake_s: the longest TLS handshake.
        connections: open at once, with those in their handshake.
        idle_s: how long a connection may wait for its next request; more than the 90 s after which
            the API server (Go) closes it, for it does not send a POST twice.
        age_s: after this, a connection is closed with its next answer, so that the API servers'
            connections spread over the replicas.
        notice_s: while ending, how long connections are still accepted: until nobody is told of
            this replica any more.
        drain_s: while ending, how long answers under way are waited for.
    """

    body: int = 8 << 20
    bodies: int = 16 << 20
    small: int = 256 << 10
    small_bodies: int = 4 << 20
    read_s: float = 3.0
    body_s: float = 5.0
    handshake_s: float = 5.0
    connections: int = 512
    idle_s: float = 120.0
    age_s: float = 300.0
    notice_s: float = 8.0
    drain_s: float = patience.MOST_S + 2.0


class RefusedError(Exception):
    """A request that is no call of a webhook: an HTTP status, and a sentence for who sent it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Target:
    """A request's target: its path, and how long the API server waits for the answer."""

    path: str
    timeout_s: float


# The API server sends a handful of different ones.
@lru_cache(maxsize=64)
def target_of(raw: str) -> Target:
    """Read a target as sent: ``/validate/pods?timeout=5s``."""
    try:
        parts = urlsplit(raw)
        query = parse_qs(parts.query)
    except ValueError:  # what looks like an IPv6 address and is none, or too many fields
        return Target("", patience.DEFAULT_S)
    return Target(parts.path, patience.seconds(query.get("timeout", [""])[0]))


def check_head(request: web.BaseRequest) -> None:
    """Refuse all but a POST of plain JSON.

    Raises:
        RefusedError: with what would have been expected.
    """
    headers = request.headers
    if request.method != hdrs.METH_POST:
        raise RefusedError(405, f"{request.method} is not allowed here, only POST")
    kind = headers.get(hdrs.CONTENT_TYPE, "")
    if kind != "application/json" and _media_type(kind) != "application/json":
        raise RefusedError(415, "the body must be application/json")
    if hdrs.CONTENT_ENCODING in headers and _encodings(headers) - {"", "identity"}:
        raise RefusedError(415, "the body must not be compressed")
    if hdrs.UPGRADE in headers:
        raise RefusedError(400, "this connection cannot be upgraded")


class Bodies:
    """Reads bodies, each within its limit, and all within others until they are answered.

    What counts is what has come, for anybody can declare anything. Where there is no room for more
    of it, the largest body that is not whole yet has to go.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = {False: 0, True: 0}  # by whether the body is a small one
        self._most = {False: limits.bodies, True: limits.small_bodies}
        self._growing: set[_Growing] = set()

    @property
    def held(self) -> int:
        """How many bytes are held by now."""
        return sum(self._held.values())

    async def read(self, request: web.BaseRequest, deadline: float) -> bytes:
        """The whole body; it counts as held until it is given to ``release``.

        Args:
            request: its head has been checked.
            deadline: the loop's time by which it must be whole, however steadily it comes.

        Raises:
            RefusedError: 413, too large; 408, too slow; 503, too much at once; 400, not as its own
                headers say; 417, it is held back for what this server does not know.
            ConnectionError: the client has left.
        """
        content = request.content
        self._check_size(request.content_length or 0)
        deadline = min(deadline, asyncio.get_running_loop().time() + self._limits.body_s)
        body = _Growing()
        self._growing.add(body)
        try:
            if not content.is_eof():  # most come together with their head
                await _continue(request)
            while not content.at_eof():
                part = await self._part(content, body, deadline)
                self._grow(body, part, whole=content.at_eof())
        except BaseException:
            self._drop(body)
            raise
        finally:
            self._growing.discard(body)
        return body.whole()

    def release(self, body: bytes) -> None:
        """Forget a body that has been answered."""
        self._held[self._is_small(len(body))] -= len(body)

    def _is_small(self, size: int) -> bool:
        return size <= self._limits.small

    def _check_size(self, size: int) -> None:
        if size > self._limits.body:
            raise RefusedError(413, f"the body has more than {self._limits.body} bytes")

    def _grow(self, body: "_Growing", part: bytes, *, whole: bool) -> None:
        """Take in what came of a body; once it is whole, nobody else's need ends it."""
        if body.dropped:
            raise _crowded()
        size = body.size + len(part)
        self._check_size(size)
        if whole:
            self._growing.discard(body)
        small, before = self._is_small(size), self._is_small(body.size)
        more = len(part) if small == before else size
        while self._held[small] + more > self._most[small]:
            rivals = [each for each in self._growing if self._is_small(each.size) == small]
            largest = max(rivals, key=lambda each: each.size, default=None)
            if largest is None or largest is body or (not whole and largest.size < size):
                raise _crowded()
            self._drop(largest)
        self._held[before] -= body.size
        self._held[small] += size
        body.add(part)

    def _drop(self, body: "_Growing") -> None:
        self._held[self._is_small(body.size)] -= body.size
        self._growing.discard(body)
        body.drop()

    async def _part(self, content: StreamReader, body: "_Growing", deadline: float) -> bytes:
        if content.is_eof():  # no waiting
            return content.read_nowait()
        by = min(deadline, asyncio.get_running_loop().time() + self._limits.read_s)
        try:
            async with asyncio.timeout_at(by) as body.patience:
                return await content.readany()
        except TimeoutError:
            if body.dropped:
                raise _crowded() from None
            raise RefusedError(408, "the body stopped half-way") from None
        except web.RequestPayloadError as error:
            raise RefusedError(400, "the body is not as its headers say") from error
        finally:
            body.patience = None


class _Growing:
    """A body that is being read.

    Attributes:
        size: of what has come, in bytes.
        dropped: whether it had to go.
        patience: for its next part, while that is waited for.
    """

    def __init__(self) -> None:
        self.size = 0
        self.dropped = False
        self.patience: asyncio.Timeout | None = None
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        """Take in what came."""
        self._parts.append(part)
        self.size += len(part)

    def drop(self) -> None:
        """Let go of what came, and wait for no more."""
        self.size = 0
        self.dropped = True
        self._parts.clear()
        if self.patience is not None and not self.patience.expired():
            self.patience.reschedule(0.0)

    def whole(self) -> bytes:
        """All of it; never less than was declared, or the parser would have complained."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def _crowded() -> RefusedError:
    return RefusedError(503, "too many bodies are held at once; try again")


async def _continue(request: web.BaseRequest) -> None:
    """Tell a client that asks first (curl does, for large bodies) to send its body."""
    expected = request.headers.get(hdrs.EXPECT)
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise RefusedError(417, "nothing but 100-continue can be expected")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # that was no part of the answer


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def _encodings(headers: CIMultiDictProxy[str]) -> set[str]:
    named = ",".join(headers.getall(hdrs.CONTENT_ENCODING))
    return {part.strip().lower() for part in named.split(",")}
