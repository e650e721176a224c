"""A machine that can be switched on and off: the namespaces of a real node and its programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import namespace

_AGENT: Final = "provisioner.sandbox.real_node.agent"
_ANSWERS_WITHIN_S: Final = 20.0
_RUN_TIMEOUT_S: Final = 60.0
_LAST_LINES: Final = 12


class Host:
    """Process 1 of a node's namespaces, commanded from here.

    Attributes:
        folder: what the node writes; it outlives an end and a new beginning, as a disk does.
        pid: of process 1, as seen from here; 0 while the machine is off.
        cgroup: the name of its control groups; another one at each beginning.
        revive: is asked first of a program that nobody has ended, with its status; true if it is
            about to be started again.
    """

    def __init__(self, folder: Path, visible: Sequence[Path], lost: Callable[[str], None]) -> None:
        """Prepare a machine that is off.

        Args:
            folder: made if need be.
            visible: folders that its programs need, wherever they are.
            lost: is told in a sentence when a program, or all of it, ends that nobody has ended.
        """
        self.folder = folder
        self.pid = 0
        self.cgroup = ""
        self._visible = [str(path) for path in (folder, *visible)]
        self._lost = lost
        self.revive: Callable[[str, int], bool] = lambda *_: False
        self._keeper: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._logs: dict[str, Path] = {}
        self._pids: dict[str, int] = {}
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    @property
    def root(self) -> Path:
        """The node's root folder, with its own /dev, /run, /var/lib and /var/log, from outside."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def sys_dev_block(self) -> Path:
        """The folder that the node has as /sys/dev/block."""
        return namespace.folder_of_devices(self.folder)

    def runs(self, name: str) -> bool:
        """Whether a program runs there."""
        return name in self._pids

    def mounts(self) -> list[str]:
        """The lines of the node's mountinfo."""
        return Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()

    async def on(self) -> None:
        """Switch it on; nothing runs there yet.

        Raises:
            SandboxError: the kernel refuses the namespaces or the control groups.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(namespace.prepare, self.folder)
        log = self.folder / "agent.log"
        with log.open("wb") as errors:
            self._keeper = await asyncio.create_subprocess_exec(
                *(sys.executable, "-S", "-m", _AGENT, str(self.folder), str(os.getpid())),
                *self._visible,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={"PYTHONPATH": _package_root(), "PATH": os.defpath},
                start_new_session=True,
            )
        kept, ready = self._expect("kept"), self._expect("ready")
        self._reader = asyncio.create_task(self._read(self._keeper), name="node's events")
        await self._answer("its start", asyncio.gather(kept, ready))
        self.pid, self.cgroup = kept.result()["pid"], kept.result()["cgroup"]

    async def off(self) -> None:
        """Switch it off as a power cut does; returns when nothing of it is left but its folder.

        Raises:
            SandboxError: something of it could not be removed.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        with suppress(ProcessLookupError):
            keeper.terminate()
        status = await keeper.wait()
        if self._reader is not None:
            await self._reader
        self.pid = 0
        self._pids.clear()
        if status:
            raise SandboxError(f"the end of a node left something behind: {self._said()}")

    async def start(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        contained: bool = False,
    ) -> None:
        """Start a program there, in a session of its own.

        Args:
            name: of the program.
            argv: what is run.
            environment: all that it has.
            contained: whether all that it starts ends when it does, as in a container; it is
                process 1 of a pid namespace then.

        Raises:
            SandboxError: it cannot be started, or runs already.
        """
        if name in self._pids:
            raise SandboxError(f"{name} runs already")
        log = self._logs[name]
        started = self._expect(f"started {name}")
        self._command(
            do="start",
            name=name,
            argv=[*argv],
            env={**environment},
            log=str(log),
            contained=contained,
        )
        event = await self._answer(f"the start of {name}", started)
        if event["event"] == "failed":
            raise SandboxError(f"{name} cannot be started on a node: {event['why']}")

    def log_of(self, name: str, path: Path) -> None:
        """Say where a program's output goes; before its first start."""
        self._logs[name] = path

    async def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End one program, by SIGKILL for example, and return when it has.

        What it has started goes on, unless it was started as contained.

        Raises:
            SandboxError: it does not end.
        """
        if self._pids.pop(name, None) is None:
            return
        ended = self._expect(f"ended {name}")
        self._command(do="kill", name=name, signal=int(number))
        await self._answer(f"the end of {name}", ended)

    async def run(self, *argv: str, timeout_s: float = _RUN_TIMEOUT_S) -> tuple[int, str, str]:
        """Run a program in the node's namespaces; its exit code, output and errors.

        Raises:
            SandboxError: it took more than ``timeout_s``; it is killed then.
        """
        namespaces = (f"--target={self.pid}", "--mount", "--pid", "--net")
        process = await asyncio.create_subprocess_exec(
            *("nsenter", *namespaces, "--", *argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_s):
                output, errors = await process.communicate()
        except TimeoutError as late:
            what = " ".join(argv)
            raise SandboxError(f"{what} did not end within {timeout_s:g} s") from late
        finally:
            if process.returncode is None:
                # Its group: nsenter has forked, and the command holds the pipes.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return process.returncode or 0, output.decode(), errors.decode()

    # -- the agent

    def _command(self, **command: Any) -> None:
        if self._keeper is None or self._keeper.stdin is None:
            raise SandboxError("the node is off")
        self._keeper.stdin.write((json.dumps(command) + "\n").encode())

    def _expect(self, what: str) -> asyncio.Future[dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[what] = future
        return future

    async def _answer(self, what: str, answer: asyncio.Future[Any]) -> Any:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                return await answer
        except TimeoutError as late:
            raise SandboxError(
                f"a node's agent did not answer within {_ANSWERS_WITHIN_S:g} s: {what}"
            ) from late

    async def _read(self, keeper: asyncio.subprocess.Process) -> None:
        assert keeper.stdout is not None
        async for line in keeper.stdout:
            self._happened(json.loads(line))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxError(f"a node ended: {self._said()}"))
        self._waiting.clear()
        if self._keeper is keeper:
            self._lost(f"a node ended: {self._said()}")

    def _happened(self, event: dict[str, Any]) -> None:
        what, name = event["event"], event.get("name", "")
        if what == "started":
            # At once: its end may be the next line.
            self._pids[name] = event["pid"]
        about = {"failed": "started"}.get(what, what)
        future = self._waiting.pop(f"{about} {name}".strip(), None)
        if future is not None and not future.done():
            future.set_result(event)
        elif what == "ended" and self._pids.pop(name, None) is not None:
            status = event["status"]
            if self.revive(name, status):
                return
            how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
            end = last_lines(self._logs[name])
            self._lost(f"{name} ended {how}; the end of its log:\n{end}")

    def _said(self) -> str:
        return last_lines(self.folder / "agent.log").strip() or "it said nothing"


def last_lines(log: Path) -> str:
    """Return the end of a log."""
    with suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
    return "  (its log is gone)"


def _package_root() -> str:
    return str(Path(__file__).parents[3])
