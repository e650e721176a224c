"""The time by which flows wait: that of the event loop."""

import asyncio


def now_s() -> float:
    """Seconds on the running loop's clock, which no change of the wall clock moves."""
    return asyncio.get_running_loop().time()
