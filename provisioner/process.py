"""What each long-running program of ours does: end when it is told to, and show how it is.

The HTTP server for kubelet and Prometheus has /healthz, /readyz and /metrics.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from provisioner.model.errors import Reason, StorageError

# Says what is wrong in a few words; "" when nothing is.
Check = Callable[[], str]

# Brings up to date what is not counted as it happens.
Measure = Callable[[], Awaitable[None]]

_SHUTDOWN_S = 1.0

log = structlog.get_logger(__name__)


async def nothing_to_measure() -> None:
    """For programs that count all as it happens."""


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, in place of what they usually do."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    return stop


async def first(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Run until the work is done (True) or a stop is requested (False: the work is cancelled)."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for pending in (task, stopping):
            pending.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def show(
    stack: AsyncExitStack,
    address: str,
    *,
    registry: CollectorRegistry,
    ready: Check,
    measure: Measure = nothing_to_measure,
    written: Callable[[], bytes] = bytes,
) -> None:
    """Serve probes and metrics until the stack is closed; not at all for an address of "".

    Raises:
        StorageError: NOT_SUPPORTED in one line, when the address is malformed or in use.
    """
    if not address:
        return
    port = await stack.enter_async_context(
        # An event loop that answers is alive; all else is tried again.
        serve(
            address,
            registry=registry,
            healthy=lambda: "",
            ready=ready,
            measure=measure,
            written=written,
        )
    )
    log.info("serving probes and metrics", port=port)


@asynccontextmanager
async def serve(
    address: str,
    *,
    registry: CollectorRegistry,
    healthy: Check,
    ready: Check,
    measure: Measure = nothing_to_measure,
    written: Callable[[], bytes] = bytes,
) -> AsyncGenerator[int]:
    """Serve the probes and metrics for as long as the context lasts; gives the port.

    Args:
        address: "host:port", ":port" for all interfaces; port 0 chooses a free one.
        registry: what /metrics shows.
        healthy: asked by /healthz; kubelet restarts the container when it objects.
        ready: asked by /readyz.
        measure: waited for before /metrics answers; has a limit of its own.
        written: what /metrics shows besides, which is text already.

    Raises:
        StorageError: NOT_SUPPORTED in one line, when the address is malformed or in use.
    """
    host, port = host_and_port(address)

    app = web.Application()
    app.router.add_get("/healthz", _answering(healthy))
    app.router.add_get("/readyz", _answering(ready))
    app.router.add_get("/metrics", _showing(registry, measure, written))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as exc:
            message = f"cannot serve probes and metrics on {address}: {exc.strerror or exc}"
            raise StorageError(Reason.NOT_SUPPORTED, message) from exc
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answering(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    return answer


def _showing(
    registry: CollectorRegistry, measure: Measure, written: Callable[[], bytes]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def metrics(_: web.Request) -> web.Response:
        await measure()
        text = generate_latest(registry) + written()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return metrics


def host_and_port(address: str) -> tuple[str | None, int]:
    """Read an address; the host is None for all interfaces.

    Raises:
        StorageError: NOT_SUPPORTED, it is malformed.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 -- TCP
        message = f'"{address}" is no address; expected host:port or :port'
        raise StorageError(Reason.NOT_SUPPORTED, message)
    return host.strip("[]") or None, int(port)
