"""Programs such as mkfs, fsck and mount, each run to its end.

A killed mkfs or fsck does damage, so nothing here ever kills one: if the waiter is cancelled, the
program continues. Each has a session of its own, so that no signal to ours reaches it, and ignores
SIGPIPE: it survives the end of this process. It does not survive the end of its PID namespace, so
the end of a container kills it; therefore SIGTERM leaves it time (``app``). It is always reaped, by
its pidfd (Linux 5.3). asyncio's own subprocesses are not used, because they kill the program when
their transport is closed or collected.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from provisioner import clock
from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.operations import shielded

# Fixed, so that the same programs are found however this process was started.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How much of the beginning and of the end of a stream is kept.
_KEPT_BYTES = 32 * 1024
_READ_BYTES = 64 * 1024
_SUMMARY_CHARACTERS = 400
_PACKAGES = {
    "blkid": "util-linux",
    "debugfs": "e2fsprogs",
    "e2fsck": "e2fsprogs",
    "env": "coreutils",
    "mkfs.ext3": "e2fsprogs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mount": "mount (util-linux)",
    "resize2fs": "e2fsprogs",
    "sync": "coreutils",
    "umount": "mount (util-linux)",
    "xfs_growfs": "xfsprogs",
}


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended; a negative exit code is the signal that ended it."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        return f"ended by {signal.Signals(-self.exit_code).name}"

    @property
    def output(self) -> str:
        """Its stderr, or its stdout if that is empty."""
        return self.stderr.strip() or self.stdout.strip()

    @property
    def summary(self) -> str:
        """The end of its output, in one line."""
        text = " ".join(self.output.split())
        if len(text) > _SUMMARY_CHARACTERS:
            text = f"… {text[-_SUMMARY_CHARACTERS:]}"
        return text or "no output"


@dataclass(frozen=True, slots=True)
class Running:
    """A running program: its name, its purpose, its process, and for how many seconds it runs."""

    name: str
    why: str
    pid: int
    lasting_s: float


def check_kernel() -> None:
    """Check that the kernel has pidfds.

    Raises:
        NodeError: NOT_SUPPORTED, it has not.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise NodeError(
            Reason.NOT_SUPPORTED,
            f"pidfd_open fails on this node's kernel, Linux {os.uname().release} "
            f"({error.strerror}): the node plugin needs Linux 5.3, or 5.10 for xfs without "
            "--legacy-xfs; if it is newer, a seccomp profile refuses pidfd_open",
        ) from error


class Programs:
    """Runs programs; knows which are running.

    Args:
        path: the PATH to find them in, and their own.
    """

    def __init__(self, path: str = PATH) -> None:
        self._path = path
        self._running: set[_Program] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, *argv: str | Path, why: str) -> ProgramResult:
        """Run a program to its end.

        Cancelling this wait does not stop the program; within an operation, a cancellation waits
        for the program's end.

        Args:
            argv: the program and its arguments.
            why: its purpose and object: "to format /dev/nvme1n1".

        Raises:
            NodeError: PROGRAM_MISSING, it is not installed, or cannot be started.
            CancelledError: no call waits for the operation any more; nothing was started.
        """
        name = str(argv[0])
        with shielded(f"{name} {why}"):
            process = self._start([str(word) for word in argv])
            program = _Program(process, name, why, self._ended)
            self._running.add(program)
            self._idle.clear()
            return await asyncio.shield(program.end)

    def running(self) -> tuple[Running, ...]:
        """The programs that run now, the oldest first."""
        found = [program.view() for program in self._running]
        return tuple(sorted(found, key=lambda one: -one.lasting_s))

    async def idle(self) -> None:
        """Wait until no program runs."""
        await self._idle.wait()

    def _ended(self, program: "_Program") -> None:
        self._running.discard(program)
        if not self._running:
            self._idle.set()

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        executable = shutil.which(argv[0], path=self._path)
        if executable is None:
            package = _PACKAGES.get(argv[0])
            raise NodeError(
                Reason.PROGRAM_MISSING,
                f"program {argv[0]} is not installed (not found in {self._path}); "
                + (f"install the package {package}" if package else "install it"),
            )
        try:
            return subprocess.Popen(
                argv,
                executable=executable,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": self._path, "LC_ALL": "C"},
                cwd="/",  # not to keep busy the directory in which this process was started
                start_new_session=True,
                restore_signals=False,  # Python ignores SIGPIPE, and so does the program
            )
        except OSError as error:
            raise NodeError(
                Reason.PROGRAM_MISSING, f"program {executable} cannot be started: {error.strerror}"
            ) from error


class _Program:
    """A running program. The event loop reaps it, whether or not something waits for it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        name: str,
        why: str,
        when_ended: Callable[["_Program"], None],
    ) -> None:
        self._process = process
        self._name, self._why, self._when_ended = name, why, when_ended
        self._loop = asyncio.get_running_loop()
        self._since_s = clock.now_s()
        self.pid = process.pid
        self.end: asyncio.Future[ProgramResult] = self._loop.create_future()
        assert process.stdout is not None  # noqa: S101 -- both are pipes
        assert process.stderr is not None  # noqa: S101
        self._streams = (_Stream(process.stdout, self._loop), _Stream(process.stderr, self._loop))
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._collect)

    def view(self) -> Running:
        lasting_s = clock.now_s() - self._since_s
        return Running(self._name, self._why, self.pid, lasting_s)

    def _collect(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        exit_code = self._process.wait()  # it has ended, so this does not block
        # If it has left children, what they still write is not waited for.
        stdout, stderr = (stream.closed() for stream in self._streams)
        self._when_ended(self)
        self.end.set_result(ProgramResult(exit_code, stdout, stderr))


class _Stream:
    """An output stream of a program: read all the time, kept in part."""

    def __init__(self, pipe: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._pipe, self._loop = pipe, loop
        self._head, self._tail = b"", b""
        self._is_cut = False
        os.set_blocking(pipe.fileno(), False)
        loop.add_reader(pipe.fileno(), self._read)

    def closed(self) -> str:
        """Read what is there and close; the text, with a gap in the middle if it was too long."""
        while self._read():
            pass
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        gap = b"\n[...]\n" if self._is_cut else b""
        return (self._head + gap + self._tail).decode(errors="replace")

    def _read(self) -> bool:
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._pipe.fileno())
            return False
        room = _KEPT_BYTES - len(self._head)
        self._head += data[:room]
        tail = self._tail + data[room:]
        self._is_cut = self._is_cut or len(tail) > _KEPT_BYTES
        self._tail = tail[-_KEPT_BYTES:]
        return True
