"""A process that gets no CPU for a while, as if its machine had stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STOPPED_WITHIN_S = 10.0


@contextmanager
def held_still(pid: int) -> Iterator[None]:
    """Stop a process, wait until it has stopped, and let it go on afterwards.

    SIGSTOP takes effect once a thread of the process has had the CPU: up to 0.3 s later where
    ten processes want two cores. It went on working meanwhile.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        _wait_until_stopped(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _wait_until_stopped(pid: int) -> None:
    until_s = time.monotonic() + STOPPED_WITHIN_S
    while set(_states(pid)) != {"T"}:
        if time.monotonic() > until_s:
            raise AssertionError(f"process {pid} did not stop in {STOPPED_WITHIN_S:.0f} s")
        time.sleep(0.001)


def _states(pid: int) -> Iterator[str]:
    """The states of a process's threads (proc(5), ``/proc/PID/task/TID/stat``)."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]
