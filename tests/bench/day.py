"""A day of simulated life: see ``tests/day``. In a process of its own, whose clocks are the day's."""

import asyncio
import sys
from pathlib import Path

import msgspec

from tests.bench.hands import BenchError
from tests.day import report
from tests.day.report import Found

_ROOT = Path(__file__).parents[2]
HOURS = 24.0


async def measure(volumes: int, hours: float = HOURS) -> Found:
    """Have so many volumes live through a day; each hour is told on standard error.

    Raises:
        BenchError: it came to no end.
    """
    command = [sys.executable, "-m", "tests.day", f"--volumes={volumes}", f"--hours={hours}"]
    running = await asyncio.create_subprocess_exec(
        *command, cwd=_ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    if running.returncode:
        raise BenchError(f"the day ended with {running.returncode}")
    return msgspec.json.decode(out, type=Found)


markdown = report.markdown
