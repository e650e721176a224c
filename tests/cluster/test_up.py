"""``sandbox up`` as its user runs it: what is left when it ends, in each way that it can end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.sandbox import workdir
from provisioner.sandbox.control_plane import until

PROGRAMS = {"etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kwok"}
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


def children_of(pid: int) -> dict[str, int]:
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {Path(f"/proc/{pid}/comm").read_text().strip(): int(pid) for pid in pids}


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def all_dead(up: Up) -> None:
    async def dead() -> bool:
        return all(state(pid) in "ZX" for pid in up.children.values())

    async with asyncio.timeout(5):
        await until(dead)


@asynccontextmanager
async def up(temporary: Path) -> AsyncIterator[Up]:
    """A running ``sandbox up``, without a controller, whose temporary files are in a folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "sandbox", "up", "--no-controller"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"export KUBECONFIG=" + bytes(temporary))
        children = children_of(process.pid)
        assert children.keys() > PROGRAMS
        yield Up(process, temporary, children)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def by_ctrl_c(up: Up) -> None:
    up.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(2):
        assert await up.process.wait() == 0


async def by_the_death_of_a_part(up: Up) -> None:
    os.kill(up.children["kube-scheduler"], signal.SIGKILL)
    async with asyncio.timeout(2):
        _, errors = await up.process.communicate()
    assert up.process.returncode == 1
    assert b"kube-scheduler ended by signal 9; the end of its log:" in errors


async def by_being_killed(up: Up) -> None:
    up.process.kill()
    await up.process.wait()
    # Nobody was left to tidy up: the next start does it.
    assert len(workdir.remove_abandoned(up.temporary)) == 1


@pytest.mark.parametrize("end", [by_ctrl_c, by_the_death_of_a_part, by_being_killed])
async def test_no_process_and_no_file_is_left_when_it_ends(
    tmp_path: Path, end: Callable[[Up], Awaitable[None]]
) -> None:
    async with up(tmp_path) as running:
        await end(running)
        await all_dead(running)

    assert left_in(tmp_path) == []
