"""The product's controller, which notes what holds up its event loop: ``PASSES`` names the file.

One JSON line for each pass of the loop that took more than 20 ms of CPU: when it ended, its CPU,
and the slowest of its callbacks. Not the time on the clock: that is the machine's, if it is busy.
"""

import asyncio
import gc
import os
import time
from asyncio import events
from pathlib import Path
from typing import Any, cast

import msgspec

from provisioner import cli

PASSES = "BENCH_PASSES"
_WORTH_S = 0.02


class Pass(msgspec.Struct):
    """A pass of the event loop.

    Attributes:
        at_s: when it ended, in seconds since the epoch.
        cpu_ms: of the loop's thread.
        callback: which took the most of it.
        callback_ms: its CPU.
        garbage_ms: of the pass, spent on collecting garbage.
    """

    at_s: float
    cpu_ms: float
    callback: str
    callback_ms: float
    garbage_ms: float = 0.0


def read(path: Path) -> list[Pass]:
    """All that were noted."""
    decode = msgspec.json.Decoder(Pass).decode
    return [decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class _Loop(asyncio.SelectorEventLoop):
    """Its passes; ``select`` is waited for in one, but costs no CPU."""

    slowest: tuple[float, Any] = (0.0, None)
    garbage_s = collecting_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        gc.callbacks.append(self._collect)
        self._notes = Path(os.environ[PASSES]).open("ab", buffering=0)  # noqa: SIM115 -- for its life

    def _run_once(self) -> None:
        _Loop.slowest = (0.0, None)
        self.garbage_s = 0.0
        began_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        took_s = time.thread_time() - began_s
        if took_s >= _WORTH_S:
            slow_s, callback = _Loop.slowest
            note = Pass(
                time.time(), took_s * 1000, _name(callback), slow_s * 1000, self.garbage_s * 1000
            )
            self._notes.write(msgspec.json.encode(note) + b"\n")

    def _collect(self, phase: str, _: Any) -> None:
        if phase == "start":
            self.collecting_s = time.thread_time()
        else:
            self.garbage_s += time.thread_time() - self.collecting_s


def _name(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()}: {owner.get_coro()}"
    return repr(callback)


_run = events.Handle._run  # nothing public tells one callback from another


def _measured(handle: Any) -> None:
    began_s, callback = time.thread_time(), handle._callback
    _run(handle)
    took_s = time.thread_time() - began_s
    if took_s > _Loop.slowest[0]:
        _Loop.slowest = (took_s, callback)


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop()


def main() -> None:
    """Run it."""
    cast("Any", events.Handle)._run = _measured
    asyncio.set_event_loop_policy(_Policy())
    cli.main()


if __name__ == "__main__":
    main()
