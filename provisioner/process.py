"""What each long-running program of ours does: end when it is told to, and show how it is."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from provisioner import probes

log = structlog.get_logger(__name__)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, in place of what they usually do."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    return stop


async def first(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Run until the work is done (True) or a stop is asked for (False: the work is cancelled)."""
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
    ready: probes.Check,
    measure: probes.Measure = probes.nothing_to_measure,
) -> None:
    """Serve probes and metrics until the stack is closed; not at all for an address of "".

    Raises:
        StorageError: NOT_SUPPORTED in one line, when the address is malformed or in use.
    """
    if not address:
        return
    port = await stack.enter_async_context(
        # An event loop that answers is alive; all else is tried again.
        probes.serve(address, registry=registry, healthy=lambda: "", ready=ready, measure=measure)
    )
    log.info("serving probes and metrics", port=port)
