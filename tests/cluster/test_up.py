"""``sandbox up`` as its user runs it: what is left when it ends, in each way that it can end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.sandbox import workdir
from provisioner.sandbox.control_plane import until
from tests.cluster import sandbox_up

PROGRAMS = {
    *("etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kwok"),
    "snapshot-contro",
}
"""As the kernel names them: 15 characters."""


@dataclass(frozen=True, slots=True)
class Up:
    process: asyncio.subprocess.Process
    temporary: Path
    children: dict[str, int]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def name_of(pid: str) -> str:
    """As the kernel names it; ours are all Python, and named by what they run."""
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    if arguments[1:3] == ["-m", "provisioner.cli"]:
        return arguments[3]
    return Path(f"/proc/{pid}/comm").read_text().strip()


def children_of(pid: int) -> dict[str, int]:
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {name_of(pid): int(pid) for pid in pids}


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def all_dead(up: Up) -> None:
    async def dead() -> bool:
        return all(state(pid) in "ZX" for pid in up.children.values())

    async with asyncio.timeout(60):
        await until(dead)


@asynccontextmanager
async def up(temporary: Path, *options: str) -> AsyncIterator[Up]:
    """A running ``sandbox up`` whose temporary files are in a folder."""
    async with sandbox_up.started(temporary, *options) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"export KUBECONFIG=" + bytes(temporary))
        children = children_of(process.pid)
        assert children.keys() > PROGRAMS
        assert ("controller" in children) is not ("--no-controller" in options)
        yield Up(process, temporary, children)


async def by_ctrl_c(up: Up) -> None:
    await sandbox_up.ended_by_ctrl_c(up.process)


async def by_the_death_of_a_part(up: Up) -> None:
    os.kill(up.children["kube-scheduler"], signal.SIGKILL)
    async with asyncio.timeout(60):
        _, errors = await up.process.communicate()
    assert up.process.returncode == 1
    assert b"kube-scheduler ended by signal 9; the end of its log:" in errors


async def by_the_death_of_the_controller(up: Up) -> None:
    os.kill(up.children["controller"], signal.SIGKILL)
    async with asyncio.timeout(60):
        _, errors = await up.process.communicate()
    assert up.process.returncode == 1
    assert b"controller ended by signal 9; the end of its log:" in errors


async def by_being_killed(up: Up) -> None:
    up.process.kill()
    await up.process.wait()
    # Nobody was left to tidy up: the next start does it.
    assert len(workdir.remove_abandoned(up.temporary)) == 1


@pytest.mark.parametrize(
    ("end", "options"),
    [
        (by_ctrl_c, ()),
        (by_the_death_of_a_part, ("--no-controller",)),
        (by_the_death_of_the_controller, ()),
        (by_being_killed, ("--no-controller",)),
    ],
)
async def test_no_process_and_no_file_is_left_when_it_ends(
    tmp_path: Path, end: Callable[[Up], Awaitable[None]], options: tuple[str, ...]
) -> None:
    async with up(tmp_path, *options) as running:
        await end(running)
        await all_dead(running)

    assert left_in(tmp_path) == []
