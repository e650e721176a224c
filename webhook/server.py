"""The HTTPS server that the API servers call: it bounds what comes in, and answers in time.

aiohttp speaks HTTP, on connections that are accepted here: its own sites, like ``create_server``,
neither count a connection before its handshake is over nor can end one then.
"""

import asyncio
import socket
import ssl
from asyncio import sslproto
from contextlib import AsyncExitStack, suppress
from typing import Self

import structlog
from aiohttp import hdrs, web

from provisioner import probes
from provisioner.model.errors import Reason, StorageError
from webhook.connections import SERVER_NAME, Connection, Connections
from webhook.dispatch import Dispatcher, Reply
from webhook.intake import Bodies, Limits, RefusedError, check_head, target_of
from webhook.metrics import WebhookMetrics

log = structlog.get_logger(__name__)

_BACKLOG = 512
# What the other side has for its half of TLS's farewell.
_FAREWELL_S = 1.0
# Of one connection, from before its handshake on; a TLS record has no more. asyncio takes 256 KiB,
# which is 128 MiB for as many idle connections as may be open.
_TLS_BUFFER = 16 << 10
# After an accept that failed, for want of files most likely.
_PAUSE_S = 0.1
_OK = 200
# Of what others send, in a line of the log.
_SHOWN_CHARACTERS = 128


class Front:
    """Serves a dispatcher's answers; in its context it listens, and ``serve`` also ends it well.

    Args:
        dispatcher: gives the answers.
        context: for the server's side of TLS; certificates may be swapped in it at any time.
        listen: "host:port", ":port" for all interfaces; port 0 chooses a free one.
        metrics: where connections and refused requests are counted.
        limits: of sizes and times.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        context: ssl.SSLContext,
        *,
        listen: str,
        metrics: WebhookMetrics,
        limits: Limits | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._listen = listen
        self._metrics = metrics
        self._limits = limits or Limits()
        self._bodies = Bodies(self._limits)
        self._connections = Connections(self._limits, metrics)
        self._listener: socket.socket | None = None
        self._ending = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            StorageError: NOT_SUPPORTED in one line, when the address is malformed or in use.
        """
        # asyncio offers no other way; all of this process's connections get it.
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        self._server = web.Server(self._answer, handler_cancellation=True)
        self._listener = _bound(self._listen)
        self._stack.callback(self._listener.close)
        self._accepting = asyncio.create_task(self._accept(self._listener))
        for task in (self._accepting, asyncio.create_task(self._connections.sweep())):
            self._stack.push_async_callback(_ended, task)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, answer what is under way, and close all connections."""
        self._ending = True
        await self._stack.aclose()
        self._listener = None
        try:
            async with asyncio.timeout(self._limits.drain_s):
                await self._connections.drained()
        except TimeoutError:
            log.warning("some reviews were not answered", connections=len(self._connections))
        finally:
            for connection in self._connections:
                connection.drop("Ending")
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
        return "the webhook is ending" if self._ending else ""

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
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as handshakes:
            while True:
                try:
                    wire, _ = await loop.sock_accept(listener)
                except OSError as error:
                    log.warning("cannot accept a connection", error=str(error))
                    await asyncio.sleep(_PAUSE_S)
                    continue
                try:
                    await self._connections.room()
                except asyncio.CancelledError:
                    wire.close()
                    raise
                connection = Connection(self._server, self._connections, self._limits)
                self._connections.add(connection)
                connection.handshake = handshakes.create_task(self._shake_hands(wire, connection))
                # A crowd at the door must not keep those inside waiting; and a task that has begun
                # closes what it was given when it is cancelled.
                await asyncio.sleep(0)

    async def _shake_hands(self, wire: socket.socket, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: connection,
                wire,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_s,
                ssl_shutdown_timeout=_FAREWELL_S,
            )
        except OSError:  # TLS's errors are such
            self._metrics.connections_ended.labels("HandshakeFailed").inc()
        except Exception:  # whatever it is, others go on shaking hands
            log.exception("a handshake failed in an unforeseen way")
        finally:
            if not connection.connected:
                self._connections.forget(connection)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        connection = request.protocol
        assert isinstance(connection, Connection)  # noqa: S101 -- there are no others
        connection.begin()
        try:
            reply = await self._replied(request, connection)
        except Exception:  # unless there is a mistake in this file, nothing comes here
            path = request.path[:_SHOWN_CHARACTERS]
            log.exception("a request could not be answered", path=path)
            reply = Reply(500, b"the webhook failed; its log says how\n")
        finally:
            connection.end()
        if reply.status != _OK:
            self._metrics.refused_requests.labels(reply.status).inc()
        response = web.Response(body=reply.body, status=reply.status, headers=_headers(reply))
        age_s = asyncio.get_running_loop().time() - connection.opened
        if self._ending or age_s > self._limits.age_s or not request.content.is_eof():
            response.force_close()
        return response

    async def _replied(self, request: web.BaseRequest, connection: Connection) -> Reply:
        arrived = asyncio.get_running_loop().time()
        target = target_of(request.raw_path)
        try:
            if not self._dispatcher.knows(target.path):
                raise RefusedError(404, "there is no webhook at this path")
            check_head(request)
            body = await self._bodies.read(request, arrived + target.timeout_s)
        except RefusedError as refusal:
            return Reply(refusal.status, f"{refusal}\n".encode())
        connection.work()
        try:
            spent_s = asyncio.get_running_loop().time() - arrived
            return await self._dispatcher.answer(target.path, body, target.timeout_s - spent_s)
        finally:
            self._bodies.release(body)


def _headers(reply: Reply) -> dict[str, str]:
    kind = "application/json" if reply.status == _OK else "text/plain; charset=utf-8"
    headers: dict[str, str] = {hdrs.CONTENT_TYPE: kind, hdrs.SERVER: SERVER_NAME}
    match reply.status:
        case 405:
            headers[hdrs.ALLOW] = hdrs.METH_POST
        case 503:
            headers[hdrs.RETRY_AFTER] = "1"
    return headers


def _bound(address: str) -> socket.socket:
    host, port = probes.host_and_port(address)
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


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
