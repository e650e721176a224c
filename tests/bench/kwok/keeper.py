"""Processes that are started again when they end, as a kubelet has it.

Not in the sandbox's crew, for which a part that ends by itself is the end of everything: a leader
that cannot renew its leases exits, and so does kube-scheduler when its cache is wrong.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from provisioner.sandbox import processes
from provisioner.sandbox.control_plane import free_port
from provisioner.sandbox.crew import Part
from provisioner.sandbox.errors import SandboxError
from tests.bench.processes import cpu_s, forget_peak, memory_mib

_ENDS_S = 15.0
_LOOK_S = 0.1
_NOTE_S = 0.2
_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait before a program that has ended is started again.

    Attributes:
        each_s: in their order; the last one again and again.
        lives_s: a program that has run for so long begins with the first one again.
    """

    each_s: Sequence[float]
    lives_s: float

    def after(self, ends: int) -> float:
        """The pause when it has ended so often without living long in between."""
        return self.each_s[min(ends, len(self.each_s)) - 1]


IN_A_HURRY = Pauses((1.0, 2.0, 4.0, 8.0, 16.0, 20.0), 60.0)
KUBELETS = Pauses((0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0), 600.0)
"""Of containers: the first start is at once, then the back-off (CrashLoopBackOff) begins."""


class Kept:
    """One program.

    Args:
        name: of its log.
        argv: without the address of its metrics.
        environment: of it.
        logs: the folder for its log.
        pauses: before it is started again.
        is_ours: it takes ``--metrics-address``, and tells there what ``metrics`` and ``ready``
            ask.

    Attributes:
        name: of its log.
        log: what it prints.
        starts: how often it was started.
        peak_mib: resident at most, in any of its lives.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        logs: Path,
        pauses: Pauses = IN_A_HURRY,
        *,
        is_ours: bool = True,
    ) -> None:
        self.name, self.starts, self.peak_mib = name, 0, 0.0
        self._environment, self._pauses = dict(environment), pauses
        self.log = logs / f"{name}.log"
        self.address = f"127.0.0.1:{free_port()}"
        self._argv = [*argv, *(["--metrics-address", self.address] if is_ours else [])]
        self._process: asyncio.subprocess.Process | None = None
        self._cpu_s: dict[int, float] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Kept"]:
        """Keep it running for the time of the block; nothing of it is left then."""
        task = asyncio.create_task(self._keep(), name=f"keep {self.name}")
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _keep(self) -> None:
        ends = 0
        while True:
            began_s = time.monotonic()
            process = await self._start()
            try:
                await self._ended(process)
            finally:
                self._process = None
                if process.returncode is None:
                    await asyncio.shield(_end(process))
            ends = 1 if time.monotonic() - began_s > self._pauses.lives_s else ends + 1
            await asyncio.sleep(self._pauses.after(ends))

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it has; what it has used is noted meanwhile, as the kernel forgets it then."""
        waiting = asyncio.create_task(process.wait())
        try:
            while not waiting.done():
                self._note()
                await asyncio.wait({waiting}, timeout=_NOTE_S)
        finally:
            waiting.cancel()

    async def _start(self) -> asyncio.subprocess.Process:
        self.starts += 1
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *processes.dying_with_us(self._argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )
        return self._process

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    def rss_mib(self) -> float:
        """Resident memory; 0 while it does not run."""
        with suppress(OSError, KeyError):
            if self._process is not None:
                return memory_mib(self._process.pid)[0]
        return 0.0

    def cpu_s(self) -> float:
        """CPU seconds of all its lives, but for the last moment of each that has ended."""
        self._note()
        return sum(self._cpu_s.values())

    def forget_peak(self) -> None:
        """Let ``peak_mib`` be that of the time from now on."""
        if self._process is not None:
            forget_peak(self._process.pid)
        self.peak_mib = 0.0

    def part(self) -> Part:
        """The process that runs now.

        Raises:
            SandboxError: none does.
        """
        if self._process is None:
            raise SandboxError(f"{self.name} does not run")
        return Part(self.name, self._process, self.log)

    def _note(self) -> None:
        with suppress(OSError, KeyError):
            if self._process is not None:
                self._cpu_s[self.starts] = cpu_s(self._process.pid)
                self.peak_mib = max(self.peak_mib, memory_mib(self._process.pid)[1])

    async def metrics(self) -> dict[str, float]:
        """Sums over labels, by name without its prefix; empty while it does not answer."""
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(f"http://{self.address}/metrics") as reply,
            ):
                return sums(await reply.text())
        except (aiohttp.ClientError, TimeoutError):
            return {}

    async def ready(self, within_s: float) -> None:
        """Wait until it says that it is ready.

        Raises:
            TimeoutError: it did not.
        """
        async with asyncio.timeout(within_s), aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"http://{self.address}/readyz") as reply:
                        if reply.ok:
                            return
                await asyncio.sleep(_LOOK_S)

    def complaints(self) -> list[str]:
        """What only a bug says: lines of its log that tell of an exception."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line for line in lines if "Traceback" in line or '"level": "critical"' in line]


def sums(text: str) -> dict[str, float]:
    """Of each family of metrics the sum over all labels, without the programs' prefix."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        name = family.name.removeprefix("ebs_provisioner_")
        found[name] = sum(each.value for each in family.samples if each.name == family.name)
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _ENDS_S)
            return
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
