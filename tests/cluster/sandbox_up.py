"""``sandbox up`` as a process of its own, and how its user ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ENDS_WITHIN_S = 30


@asynccontextmanager
async def started(temporary: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A ``sandbox up`` whose temporary files are in a folder; killed if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "sandbox", "up", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended_by_ctrl_c(process: asyncio.subprocess.Process) -> None:
    """Ctrl-C, and a good end."""
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(ENDS_WITHIN_S):
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
