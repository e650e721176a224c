"""The programs that make up a sandbox: started, watched and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from provisioner.sandbox import processes
from provisioner.sandbox.errors import SandboxError

T = TypeVar("T")

LAST_LINES = 12
"""How much of its log is quoted when a part dies."""


@dataclass(frozen=True, slots=True)
class Part:
    """One running program and the file that holds what it prints."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    def last_lines(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()
            return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])
        return "  (its log is gone)"


@dataclass(slots=True)
class Crew:
    """Everything that runs together; when one part ends by itself, all of it has failed.

    Use it as an async context manager; leaving it kills what still runs.
    """

    logs: Path
    parts: dict[str, Part] = field(default_factory=dict)
    _watchers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _failure: asyncio.Future[SandboxError] | None = None

    async def __aenter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._failure = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self._stop_all())

    async def start(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Part:
        """Start a program in a session of its own, so that Ctrl-C reaches it only through us.

        Raises:
            SandboxError: it cannot be started at all.
        """
        log = self.logs / f"{name}.log"
        try:
            with log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *processes.dying_with_us(argv),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=None if environment is None else dict(environment),
                    start_new_session=True,
                )
        except OSError as problem:
            raise SandboxError(f"{name} cannot be started: {problem}") from problem
        part = Part(name, process, log)
        self.parts[name] = part
        self._watchers[name] = asyncio.create_task(self._watch(part), name=f"watch {name}")
        return part

    async def _watch(self, part: Part) -> None:
        status = await part.process.wait()
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        message = f"{part.name} ended {how}; the end of its log:\n{part.last_lines()}"
        self.fail(message)

    def fail(self, message: str) -> None:
        """Take it for the death of a part: something that none of our children is has ended."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(SandboxError(message))

    async def failed(self) -> SandboxError:
        """Wait until a part ends that was not asked to, and return the news."""
        assert self._failure is not None
        return await asyncio.shield(self._failure)

    def check(self) -> None:
        """Raise SandboxError if a part has ended that was not asked to."""
        if self._failure is not None and self._failure.done():
            raise self._failure.result()

    async def unless_failed(self, work: Awaitable[T], timeout_s: float, what: str) -> T:
        """Return what ``work`` returns.

        Raises:
            SandboxError: a part died meanwhile, or it took more than ``timeout_s``.
        """
        task = asyncio.ensure_future(work)
        failure = asyncio.ensure_future(self.failed())
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait({task, failure}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as late:
            raise SandboxError(f"{what} took more than {timeout_s:g} s") from late
        finally:
            await _cancel(failure)
            if not task.done():
                await _cancel(task)
        if task.cancelled():
            self.check()
        return await task

    async def stop(self, name: str, grace_s: float = 0.0) -> None:
        """End one part on purpose: SIGTERM if it is given ``grace_s``, SIGKILL after that."""
        part = self.parts.pop(name, None)
        if part is None:
            return
        await _cancel(self._watchers.pop(name))
        with contextlib.suppress(ProcessLookupError):
            if grace_s > 0 and part.process.returncode is None:
                part.process.terminate()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(part.process.wait(), grace_s)
            if part.process.returncode is None:
                os.killpg(part.process.pid, signal.SIGKILL)
        await part.process.wait()

    async def _stop_all(self) -> None:
        # The last started first: nobody loses what it leans on before it is told to go.
        for name in reversed(list(self.parts)):
            await self.stop(name)


async def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
