"""The open connections: how many, which of them is in use, and which one has to go.

Idle connections cost memory and a file each, and anybody can open them. Beyond a limit each new one
takes the place of one on which nothing is being answered: of one that never sent a whole request if
there is any, for the API servers' connections have. So those stay, however many others come.
"""

import asyncio
import logging
from collections.abc import Iterator

from aiohttp import hdrs, web

from webhook.intake import Limits
from webhook.metrics import WebhookMetrics

# aiohttp would log a traceback for each request that is no HTTP, and anybody can send those; they
# are counted instead. Not even access is logged: an audit log is the API server's business.
_SILENT = logging.Logger("webhook.http", logging.CRITICAL + 1)  # noqa: LOG001 -- nobody else's

# aiohttp's own names its version and Python's.
SERVER_NAME = "ebs-webhook"


class Connection(web.RequestHandler):
    """One connection, from before its handshake; aiohttp speaks HTTP on it.

    Attributes:
        opened: the loop's time.
        handshake: the task that does it.
        reading: whether the body of a request is being read.
    """

    __slots__ = ("_all", "_half_since", "_wire", "handshake", "opened", "reading")

    def __init__(self, server: web.Server, everyone: "Connections", limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_s,
            access_log=_SILENT,
            logger=_SILENT,
            lingering_time=limits.read_s,
            auto_decompress=False,
        )
        self._all = everyone
        self._half_since: float | None = None
        self._wire: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None
        self.opened = loop.time()
        self.reading = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak HTTP."""
        super().connection_made(transport)
        self._wire = self.transport

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, for whatever reason."""
        super().connection_lost(exc)
        self._all.forget(self)

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and remember since when there is less than the head of a request."""
        waits = self.reading or self._all.is_busy(self)
        if data and self._half_since is None and not waits:
            self._half_since = self._loop.time()
        super().data_received(data)

    def pause_writing(self) -> None:
        """Remember since when an answer is not read."""
        super().pause_writing()
        self._half_since = self._loop.time()

    def resume_writing(self) -> None:
        """It is read."""
        super().resume_writing()
        self._half_since = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 -- aiohttp's signature
        message: str | None = None,  # noqa: ARG002 -- it quotes what was sent
    ) -> web.StreamResponse:
        """Answer what is no HTTP; failures of ours never come here."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has already begun")
        self._all.metrics.refused_requests.labels(status).inc()
        response = web.Response(
            status=status,
            text="this is no request that can be answered\n",
            headers={hdrs.SERVER: SERVER_NAME},
        )
        response.force_close()
        return response

    def begin(self) -> None:
        """A request has begun; its body has deadlines of its own."""
        self._half_since = None
        self.reading = True

    def work(self) -> None:
        """The request is whole: only now is this connection worth more than others."""
        self.reading = False
        self._all.work(self)

    def end(self) -> None:
        """It is answered, but for writing."""
        self._half_since = None
        self.reading = False
        self._all.end(self)

    def is_stalled(self, before: float) -> bool:
        """Whether it has sent half a head, or not read its answer, since before a time."""
        return self._half_since is not None and self._half_since < before

    def leave(self) -> None:
        """End it in good form; it is idle, or not yet open."""
        if self._wire is None and self.handshake is not None:
            self.handshake.cancel()
        self.force_close()

    def drop(self, reason: str) -> None:
        """End it at once, without waiting for the other side."""
        self._all.metrics.connections_ended.labels(reason).inc()
        if self._wire is not None:
            self._wire.abort()
        elif self.handshake is not None:
            self.handshake.cancel()
        self._all.forget(self)


class Connections:
    """All connections of one server, with those in their handshake."""

    def __init__(self, limits: Limits, metrics: WebhookMetrics) -> None:
        self.metrics = metrics
        self._limits = limits
        # Each in order of time: who has been there longest, who has been idle longest.
        self._unproven: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._busy: dict[Connection, None] = {}
        self._left = asyncio.Event()
        metrics.connections.set_function(self.__len__)

    def __len__(self) -> int:
        return len(self._unproven) + len(self._idle) + len(self._busy)

    def __iter__(self) -> Iterator[Connection]:
        return iter([*self._unproven, *self._idle, *self._busy])

    def add(self, connection: Connection) -> None:
        """Count a new one."""
        self._unproven[connection] = None

    def is_busy(self, connection: Connection) -> bool:
        """Whether it has a whole request that is not yet answered."""
        return connection in self._busy

    def work(self, connection: Connection) -> None:
        """It has a whole request."""
        self._unproven.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy[connection] = None

    def end(self, connection: Connection) -> None:
        """Its request is answered."""
        if connection in self._busy:  # else it was lost meanwhile
            del self._busy[connection]
            self._idle[connection] = None
        self._left.set()

    def forget(self, connection: Connection) -> None:
        """It is gone."""
        for state in (self._unproven, self._idle, self._busy):
            state.pop(connection, None)
        self._left.set()

    async def room(self) -> None:
        """Return when there is room for one more; who has no whole request may have to go."""
        while len(self) >= self._limits.connections:
            victim = next(iter(self._unproven or self._idle), None)
            if victim is not None:
                victim.drop("Evicted")
            else:
                await self._change()

    async def sweep(self) -> None:
        """Throw out, for ever, who stops half-way."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.read_s / 2)
            before = loop.time() - self._limits.read_s
            for connection in self:
                if connection.is_stalled(before):
                    connection.drop("Stalled")

    async def drained(self) -> None:
        """Close who is idle, and who becomes it, until nobody is left."""
        while len(self):
            for connection in [*self._unproven, *self._idle]:
                if not connection.reading:
                    connection.leave()
            if len(self):
                await self._change()

    async def _change(self) -> None:
        self._left.clear()
        await self._left.wait()
