"""Processes of ours that are started again when they end, as a kubelet has it.

Not in the sandbox's crew, for which a part that ends by itself is the end of everything: a leader
that cannot renew its leases exits.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from provisioner.sandbox import processes
from provisioner.sandbox.control_plane import free_port
from tests.bench.processes import cpu_s, memory_mib

_FIRST_PAUSE_S, _MOST_PAUSE_S = 1.0, 20.0
_LIVES_S = 60.0  # after so long a pause begins anew
_ENDS_S = 15.0
_LOOK_S = 0.1
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class Kept:
    """One program.

    Attributes:
        name: of its log.
        starts: how often it was started.
    """

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str], logs: Path):
        self.name, self.starts = name, 0
        self._argv, self._environment = argv, dict(environment)
        self._log = logs / f"{name}.log"
        self.address = f"127.0.0.1:{free_port()}"
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
        pause_s = _FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            process = await self._start()
            try:
                await process.wait()
            finally:
                self._process = None
                if process.returncode is None:
                    await asyncio.shield(_end(process))
            long = time.monotonic() - began_s > _LIVES_S
            pause_s = _FIRST_PAUSE_S if long else min(2 * pause_s, _MOST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _start(self) -> asyncio.subprocess.Process:
        self.starts += 1
        argv = [*self._argv, "--metrics-address", self.address]
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *processes.dying_with_us(argv),
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
        """CPU seconds of all its lives, as far as somebody has asked while they lasted."""
        if self._process is not None:
            with suppress(OSError):
                self._cpu_s[self.starts] = cpu_s(self._process.pid)
        return sum(self._cpu_s.values())

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
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
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
