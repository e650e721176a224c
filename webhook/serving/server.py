"""The HTTPS server that the API servers call: it bounds what comes in, and answers in time.

aiohttp speaks HTTP. Anyone who can reach the port can send anything at all, so what all callers
share (connections, bytes of bodies, reviews at once) is shared by address:
``webhook.model.fair_share``. And in a round of the event loop each address is heard once
(``Rounds``): a crowd waits for itself.
"""

import asyncio
import hmac
import logging
import re
import selectors
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from weakref import WeakValueDictionary

import structlog
from aiohttp import hdrs, web

from provisioner import clock, process
from provisioner.model.errors import Reason, StorageError
from webhook.metrics import WebhookMetrics
from webhook.model.fair_share import FairShares
from webhook.model.review import BEGINNING, parts_at_most, uid_of
from webhook.serving.dispatch import Dispatcher, Reply
from webhook.settings import Callers

log = structlog.get_logger(__name__)

_BACKLOG = 512
# What the other side has for its half of TLS's farewell.
_FAREWELL_S = 1.0
# After an accept that failed, most likely because no file descriptor was left.
_PAUSE_S = 0.1
_OK = 200
# Of what others send, in a line of the log.
_SHOWN_CHARACTERS = 128
# aiohttp's own names its version and Python's.
_SERVER = "ebs-webhook"
# aiohttp would log a traceback for each request that is no HTTP, and anybody can send those. Not
# even access is logged: an audit log is the API server's business.
_SILENT = logging.Logger("webhook.http", logging.CRITICAL + 1)  # noqa: LOG001 -- nobody else's

# What a webhook configuration has without timeoutSeconds, and the most that it can have.
DEFAULT_TIMEOUT_S = 10.0
MOST_TIMEOUT_S = 30.0
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"(\d{1,9}(?:\.\d{0,9})?)(h|ms|m|s|us|µs|ns)"
_DURATION = re.compile(f"(?:{_PART})+", re.ASCII)
_PARTS = re.compile(_PART, re.ASCII)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server; sizes in bytes, times in seconds.

    Attributes:
        body: the largest body. What etcd stores, 1.5 MiB of protobuf, is six times as much JSON
            if all of it is "<".
        small: up to so much a body is a small one; nearly all are.
        bodies: all larger bodies that are being read or answered, together; decoded, the worst of
            them take five times as much.
        small_bodies: the same of the small ones: no larger body ever takes their room.
        parts: objects, lists and their members in all bodies that are being answered, together.
            Decoded, one takes up to 112 bytes, thirty times what was sent.
        body_s: the longest that a body may take, however long the API server says that it waits.
        handshake_s: the longest TLS handshake.
        connections: open at once, with those in their handshake. asyncio takes 256 KiB for each.
        idle_s: how long a connection may wait for its next request; more than the 90 s after which
            the API server (Go) closes it, for it does not send a POST twice.
        age_s: after this, a connection is closed with its next answer, so that the API servers'
            connections spread over the replicas.
        notice_s: while ending, how long connections are still accepted: until no API server is
            sent to this replica any more.
        drain_s: while ending, how long answers under way are waited for.
    """

    body: int = 10 << 20
    small: int = 256 << 10
    bodies: int = 16 << 20
    small_bodies: int = 8 << 20
    parts: int = 800_000
    body_s: float = 5.0
    handshake_s: float = 5.0
    connections: int = 256
    idle_s: float = 120.0
    age_s: float = 300.0
    notice_s: float = 8.0
    drain_s: float = MOST_TIMEOUT_S + 2.0


class RefusedError(Exception):
    """A request that is no call of a webhook: an HTTP status, and a sentence for who sent it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(slots=True)
class _Owned:
    """Whose an open file is, and in which round it was heard last, or opened."""

    peer: str
    heard: int


class Rounds(selectors.DefaultSelector):
    """Gives the event loop its work for a round: of each address, one connection's.

    A handshake or a request takes a third of a millisecond, 250 of them may come at once, and a
    review goes through several rounds: an API server would wait for all of them each time. What is
    left out is told in the next round, as the kernel goes on telling it.

    Attributes:
        number: of rounds so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owned: dict[int, _Owned] = {}
        self.number = 0

    def add(self, fd: int, peer: str) -> Callable[[], None]:
        """An open file is this address's from now on; returns what to call when it is closed."""
        mine = self._owned[fd] = _Owned(peer, self.number)

        def remove() -> None:
            if self._owned.get(fd) is mine:  # else the number is another's by now
                del self._owned[fd]

        return remove

    def owner(self, fd: int) -> str:
        """Whose an open file is, "" for nobody's in particular."""
        return owned.peer if (owned := self._owned.get(fd)) else ""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; of each address, that which was not heard for longest."""
        ready = super().select(timeout)
        self.number += 1
        chosen: dict[str | int, tuple[selectors.SelectorKey, int]] = {}
        heard: dict[str, _Owned] = {}
        for each in ready:
            owned = self._owned.get(each[0].fd)
            if owned is None:
                chosen[each[0].fd] = each
            elif owned.peer not in heard or owned.heard < heard[owned.peer].heard:
                heard[owned.peer], chosen[owned.peer] = owned, each
        for owned in heard.values():
            owned.heard = self.number
        return list(chosen.values())


class _Connection(web.RequestHandler):
    """One connection after its handshake; aiohttp speaks HTTP on it."""

    __slots__ = ("gone", "opened")

    def __init__(self, server: web.Server, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_s,
            access_log=_SILENT,
            logger=_SILENT,
            lingering_time=limits.body_s,
            auto_decompress=False,
        )
        self.gone = asyncio.Event()
        self.opened = clock.now_s()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.gone.set()


class Front:
    """Serves a dispatcher's answers; in its context it listens, and ``serve`` also ends it well.

    Args:
        dispatcher: gives the answers.
        context: for the server's side of TLS; certificates may be swapped in it at any time.
        listen: "host:port", ":port" for all interfaces; port 0 chooses a free one.
        metrics: where connections and refused requests are counted.
        callers: who may ask at all.
        limits: of sizes and times.
        rounds: the event loop's selector; None where nobody needs to be kept from a crowd.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        context: ssl.SSLContext,
        *,
        listen: str,
        metrics: WebhookMetrics,
        callers: Callers | None = None,
        limits: Limits | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._listen = listen
        self._metrics = metrics
        self._callers = callers or Callers()
        self._limits = limits or Limits()
        self.numbers = rounds or Rounds()
        self._room = FairShares(self._limits.connections)
        self._bodies = FairShares(self._limits.bodies)
        self._small_bodies = FairShares(self._limits.small_bodies)
        self._parts = FairShares(self._limits.parts)
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        self._tasks = set[asyncio.Task[None]]()
        self._listener: socket.socket | None = None
        self._answering = 0
        self._ending = False
        self._ended = asyncio.Event()
        metrics.connections.set_function(lambda: self._room.held)

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            StorageError: NOT_SUPPORTED in one line, when the address is malformed or in use.
        """
        self._server = web.Server(self._answer, handler_cancellation=True)
        self._listener = _bound(self._listen)
        self._accepting = asyncio.create_task(self._accept(self._listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, answer what is under way, and close all connections."""
        self._ending = True
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        try:
            async with asyncio.timeout(self._limits.drain_s):
                if self._answering:  # aiohttp would read no more of a body that is half here
                    await self._ended.wait()
                self._server.pre_shutdown()
                await self._server.shutdown(self._limits.drain_s)
        except TimeoutError:
            log.warning("some reviews were not answered", reviews=self._answering)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._dispatcher.aclose()

    @property
    def port(self) -> int:
        """The port it listens at."""
        if self._listener is None:
            raise RuntimeError("the server does not listen")
        port: int = self._listener.getsockname()[1]
        return port

    def problem(self) -> str:
        """Why no API server should be sent here, for /readyz; "" when nothing speaks against it."""
        if self._listener is None or self._accepting.done():
            return "the webhook does not listen"
        return "the webhook is shutting down" if self._ending else ""

    async def serve(self, stop: asyncio.Event) -> None:
        """Listen until told to stop, then end so that no API server notices.

        First it is not ready any more and answers with ``Connection: close``; when by then nobody
        should be sent here, it stops accepting, answers what is under way, and closes.
        """
        async with self:
            log.info("listening", port=self.port)
            await stop.wait()
            self._ending = True
            await asyncio.sleep(self._limits.notice_s)

    async def _accept(self, listener: socket.socket) -> None:
        """Accept here, not in aiohttp's sites: those do not count a connection in its handshake."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                wire, address = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("cannot accept a connection", error=str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            self._admit(wire, address[0])
            # A crowd at the door must not keep those inside waiting; and a task that has begun
            # closes what it was given when it is cancelled.
            await asyncio.sleep(0)

    def _admit(self, wire: socket.socket, peer: str) -> None:
        share = self._room.take(peer)
        if share is None:
            wire.close()
            self._metrics.connections_ended.labels("Refused").inc()
            return
        leave = self.numbers.add(wire.fileno(), peer)
        task = asyncio.create_task(self._hold(wire))
        self._tasks.add(task)

        def evict() -> None:
            self._metrics.connections_ended.labels("Evicted").inc()
            task.cancel()

        def end(_: object) -> None:
            leave()
            self._room.release(share)
            self._tasks.discard(task)

        share.on_evict = evict
        task.add_done_callback(end)

    async def _hold(self, wire: socket.socket) -> None:
        """Shake hands, and stay until the connection is gone."""
        connection = _Connection(self._server, self._limits)
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                wire,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_s,
                ssl_shutdown_timeout=_FAREWELL_S,
            )
        except OSError:  # TLS's errors are such
            self._metrics.connections_ended.labels("HandshakeFailed").inc()
            return
        try:
            await connection.gone.wait()
        finally:
            transport.abort()  # nothing, where it is gone by itself

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        peer = request.remote or ""
        self._answering += 1
        try:
            reply = await self._replied(request, peer)
        except RefusedError as refusal:
            reply = Reply(refusal.status, f"{refusal}\n".encode())
        except ConnectionError:
            raise  # the client has left
        except Exception:  # unless there is a mistake in this file, nothing comes here
            path = request.path[:_SHOWN_CHARACTERS]
            log.exception("a request could not be answered", path=path)
            reply = Reply(500, b"the webhook failed; its log says why\n")
        finally:
            self._answering -= 1
            if self._ending and not self._answering:
                self._ended.set()
        if reply.status != _OK:
            self._metrics.refused_requests.labels(reply.status).inc()
        response = web.Response(body=reply.body, status=reply.status, headers=_headers(reply))
        connection = request.protocol
        assert isinstance(connection, _Connection)  # noqa: S101 -- there are no others
        age_s = clock.now_s() - connection.opened
        if self._ending or age_s > self._limits.age_s or not request.content.is_eof():
            response.force_close()
        return response

    async def _replied(self, request: web.BaseRequest, peer: str) -> Reply:
        arrived = clock.now_s()
        size = request.content_length
        is_small = size is not None and size <= self._limits.small
        self._check_caller(request)
        path, timeout_s = target_of(request.raw_path)
        if not self._dispatcher.knows(path):
            raise RefusedError(404, "there is no webhook at this path")
        check_head(request)
        if size is None:  # the API server always says it
            raise RefusedError(411, "the length of the body must be declared")
        if size > self._limits.body:
            return await self._too_large(request, path)
        room = self._small_bodies if is_small else self._bodies
        try:
            async with asyncio.timeout(None) as whole:
                with _held(room, peer, size, whole):
                    body = await self._body(request, timeout_s)
                    with _held(self._parts, peer, parts_at_most(body), whole):
                        left_s = timeout_s - (clock.now_s() - arrived)
                        turn = partial(self._turn, peer)
                        return await self._dispatcher.answer(path, body, left_s, peer, turn)
        except TimeoutError:
            raise _crowded() from None

    async def _turn(self, peer: str) -> None:
        """Return in a round of the loop in which nothing else is written for this peer."""
        async with self._turns.setdefault(peer, asyncio.Lock()):
            await asyncio.sleep(0)

    def _check_caller(self, request: web.BaseRequest) -> None:
        certificate = request.get_extra_info("peercert")
        token = request.headers.get(hdrs.AUTHORIZATION, "")
        if problem := problem_of(self._callers, certificate, token):
            raise RefusedError(401, problem)

    async def _body(self, request: web.BaseRequest, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(min(self._limits.body_s, timeout_s)) as patient:
                return await request.content.read()
        except TimeoutError:
            if patient.expired():
                raise RefusedError(408, "the body was not complete in time") from None
            raise
        except web.RequestPayloadError as error:
            raise RefusedError(400, "the body does not match its headers") from error

    async def _too_large(self, request: web.BaseRequest, path: str) -> Reply:
        """Answer a review that is not read: by policy, if its beginning has the uid."""
        sentence = f"the body has more than {self._limits.body} bytes"
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_s):
                beginning = b""
                while len(beginning) < BEGINNING and not request.content.at_eof():
                    beginning += await request.content.read(BEGINNING)
                    if uid := uid_of(beginning):
                        return self._dispatcher.unread(path, uid, sentence)
        raise RefusedError(413, sentence)


def read_timeout_s(timeout: str) -> float:
    """How long the API server waits, by the query of its call; at most 30 s, 10 s if it is none.

    Source: Kubernetes 1.36, ``?timeout=5s``: the time left, rounded up to a whole second and
    written as a Go duration (time.Duration.String).
    """
    if not _DURATION.fullmatch(timeout):
        return DEFAULT_TIMEOUT_S
    named = sum(float(number) * _UNITS_S[unit] for number, unit in _PARTS.findall(timeout))
    return min(named, MOST_TIMEOUT_S)


# The API server sends a handful of different ones.
@lru_cache(maxsize=64)
def target_of(raw: str) -> tuple[str, float]:
    """Read a target as sent, ``/validate/pods?timeout=5s``: path, and how long the caller waits."""
    try:
        parts = urlsplit(raw)
        query = parse_qs(parts.query)
    except ValueError:  # what looks like an IPv6 address and is none, or too many fields
        return "", DEFAULT_TIMEOUT_S
    return parts.path, read_timeout_s(query.get("timeout", [""])[0])


def problem_of(callers: Callers, certificate: Mapping[str, Any] | None, authorization: str) -> str:
    """Why a caller is refused, "" if it is not.

    Args:
        callers: who may send reviews.
        certificate: the caller's, as ``getpeercert`` gives it.
        authorization: the header.
    """
    if callers.authority and callers.names and not callers.names & _names_in(certificate or {}):
        return "the name in your client certificate is not allowed here"
    wanted = f"Bearer {callers.token}".encode()
    if callers.token and not hmac.compare_digest(authorization.encode(errors="replace"), wanted):
        return "a valid bearer token is required"
    return ""


def _names_in(certificate: Mapping[str, Any]) -> set[str]:
    subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
    names = {name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"}
    return names | {subject.get("commonName", "")}


def check_head(request: web.BaseRequest) -> None:
    """Refuse all but a POST of plain JSON.

    Raises:
        RefusedError: with what would have been expected.
    """
    headers = request.headers
    if request.method != hdrs.METH_POST:
        raise RefusedError(405, f"{request.method} is not allowed here, only POST")
    if request.content_type.lower() != "application/json" or hdrs.CONTENT_TYPE not in headers:
        raise RefusedError(415, "the body must be application/json")
    encodings = ",".join(headers.getall(hdrs.CONTENT_ENCODING, [])).lower().split(",")
    if {each.strip() for each in encodings} - {"", "identity"}:
        raise RefusedError(415, "the body must not be compressed")
    if hdrs.UPGRADE in headers:
        raise RefusedError(400, "this connection cannot be upgraded")


@contextmanager
def _held(room: FairShares, peer: str, size: int, whole: asyncio.Timeout) -> Iterator[None]:
    """Hold a share of a room; if it is taken away, ``whole`` is over.

    Raises:
        RefusedError: nothing is left for this peer.
    """
    share = room.take(peer, size)
    if share is None:
        raise _crowded()

    def end() -> None:
        if not whole.expired():  # as it is once another of its shares was taken away
            whole.reschedule(clock.now_s())

    share.on_evict = end
    try:
        yield
    finally:
        room.release(share)


def _crowded() -> RefusedError:
    return RefusedError(503, "the webhook is overloaded; try again")


def _headers(reply: Reply) -> dict[str, str]:
    kind = "application/json" if reply.status == _OK else "text/plain; charset=utf-8"
    headers: dict[str, str] = {hdrs.CONTENT_TYPE: kind, hdrs.SERVER: _SERVER}
    match reply.status:
        case 401:
            headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
        case 405:
            headers[hdrs.ALLOW] = hdrs.METH_POST
        case 503:
            headers[hdrs.RETRY_AFTER] = "1"
    return headers


def _bound(address: str) -> socket.socket:
    host, port = process.host_and_port(address)
    try:
        listener = _everywhere(port) if host is None else _at(host, port)
    except OSError as exc:
        message = f"cannot serve the webhook on {address}: {exc.strerror or exc}"
        raise StorageError(Reason.NOT_SUPPORTED, message) from exc
    listener.settimeout(0)
    return listener


def _at(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        # A kernel that knows IPv6 may still have it switched off.
        with suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
            )
    return _at("", port)
