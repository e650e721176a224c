"""Process 1 of a real node, and its keeper: ``python -m …agent FOLDER PARENT VISIBLE...``.

The keeper stays outside: it makes the node's control groups, starts the agent as process 1 of a
new pid namespace, and tidies up when that is dead: the kernel then has killed all the node's
processes and unmounted what they had mounted. It ends the agent by SIGKILL when its own parent
dies. The agent makes the node's mount namespace, then starts and kills programs as it is told on
its standard input, a JSON object a line; it tells what happens on its standard output; it ends
when its input does.

Commands: {"do": "start", "name", "argv", "env", "log", "contained"}, {"do": "kill", "name",
"signal"}. What is contained ends as a container does: all that it has started ends with it.
Events: {"event": "kept", "pid", "cgroup"} of the keeper, then {"event": "ready"} and for each
program {"event": "started", "name", "pid"} or {"event": "failed", "name", "why"}, and at last
{"event": "ended", "name", "status"} with a negative signal or an exit code.

The standard library only, as it is to be small: 10 MiB a process.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.real_node import cgroups, leftovers, namespace, syscalls

_CHUNK_BYTES: Final = 65536


def tell(**event: Any) -> None:
    """Write one event; whole, as it is shorter than a pipe's buffer."""
    with suppress(BrokenPipeError):
        os.write(1, (json.dumps(event) + "\n").encode())


class Agent:
    """Runs a node's programs, and reaps them and all their orphans."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._rest = b""

    def serve(self) -> None:
        """Do as commanded until the commands end."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            tell(event="ready")
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if woken in ready:
                    os.read(woken, _CHUNK_BYTES)
                    self._reap()
                if 0 in ready:
                    chunk = os.read(0, _CHUNK_BYTES)
                    if not chunk:
                        return
                    for command in self._commands(chunk):
                        self._obey(command)

    def _commands(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        yield from map(json.loads, lines)

    def _obey(self, command: dict[str, Any]) -> None:
        name = command["name"]
        if command["do"] == "kill":
            with suppress(KeyError, ProcessLookupError):
                # It alone: what it has started may outlive it, as containers do. If it is
                # contained it is a process 1 itself, whose end is that of its namespace.
                os.kill(self._running[name], command["signal"])
            return
        try:
            spawn = _spawn_contained if command["contained"] else _spawn
            self._running[name] = pid = spawn(command)
        except OSError as problem:
            tell(event="failed", name=name, why=str(problem))
        else:
            tell(event="started", name=name, pid=pid)

    def _reap(self) -> None:
        names = {pid: name for name, pid in self._running.items()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if name := names.get(pid):
                del self._running[name]
                tell(event="ended", name=name, status=os.waitstatus_to_exitcode(status))


def _spawn_contained(command: dict[str, Any]) -> int:
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
        try:
            return _spawn(command)
        finally:
            syscalls.enter_namespace(ours, syscalls.CLONE_NEWPID)
    finally:
        os.close(ours)


def _spawn(command: dict[str, Any]) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        command["argv"][0],
        command["argv"],
        command["env"],
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, command["log"], flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
    )


def keep(folder: Path, parent: int, visible: list[str]) -> None:
    """Keep a node: start its agent, wait for its end, and leave nothing behind.

    Raises:
        OSError: the kernel refuses a namespace or the control groups.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    syscalls.die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        return
    for abandoned in cgroups.abandoned():
        with suppress(OSError):  # another keeper is quicker, or something still runs there
            _tidy(abandoned)
    name = cgroups.name_for(os.getpid())
    try:
        cgroups.make(name)
        syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            _be_process_1(folder, visible, name)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.close(0)
        tell(event="kept", pid=pid, cgroup=name)
        os.waitpid(pid, 0)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _tidy(name)


def _tidy(name: str) -> None:
    """Remove what outlives a dead node's processes."""
    dev = cgroups.noted_dev(name)
    if dev is not None:
        leftovers.clear_loops(dev)
    cgroups.remove(name)


def _be_process_1(folder: Path, visible: list[str], name: str) -> None:
    status = 1
    try:
        syscalls.die_with_parent(signal.SIGKILL)
        namespace.enter(folder, visible)
        cgroups.note_dev(name, leftovers.dev_number())
        Agent().serve()
        status = 0
    except OSError as problem:
        print(f"the node's namespace cannot be had: {problem}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
