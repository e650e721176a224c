"""A mkfs or a whole container that is killed: afterwards it is a file system, or formatted again.

What ever was mounted is never formatted.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.programs import PATH, Programs
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, run

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
ROUNDS = int(os.environ.get("KILL_ROUNDS", "8"))
STRIDE = int(os.environ.get("KILL_STRIDE", "16"))
LEAST_WRITES = 48
LONGEST_MKFS_S = 0.02
LONGEST_FORMAT_S = 0.15
ROOT = Path(__file__).parents[3]
CHECKS = {"ext4": ("e2fsck", "-fn"), "xfs": ("xfs_repair", "-n")}


def use(disk, folder):
    """Mount it and write; afterwards it has a user's data."""
    folder.mkdir(exist_ok=True)
    run("mount", disk.loop, folder)
    try:
        (folder / "file").write_bytes(os.urandom(MIB))
    finally:
        run("umount", folder)


async def check_that_it_serves_and_is_never_formatted_again(workshop, file_system, folder):
    found = await workshop.ensure(file_system)
    assert found.file_system == file_system
    assert not workshop.is_marked
    run(*CHECKS[file_system], workshop.disk.loop)
    use(workshop.disk, folder)
    assert not (await workshop.ensure(file_system)).is_new
    workshop.disk.write(0, bytes(MIB))  # somebody wipes its beginning: blkid finds nothing
    assert (await workshop.refusal(file_system)).reason is Reason.NOT_BLANK


async def kill_mkfs(workshop, file_system, after_s):
    """Format, and kill mkfs some time after it began; whether it was still running."""
    formatting = asyncio.create_task(workshop.ensure(file_system))
    pid = None
    while pid is None and not formatting.done():
        await asyncio.sleep(0)
        pid = next((p.pid for p in workshop.programs.running() if "mkfs" in p.name), None)
    if pid is None:
        await formatting
        return False
    time.sleep(after_s)  # noqa: ASYNC251 -- the moment is the test's input
    os.kill(pid, signal.SIGKILL)  # it cannot have been collected meanwhile: the loop has slept
    await asyncio.wait({formatting})
    ended = formatting.exception()
    if ended is None:
        return False
    assert isinstance(ended, NodeError)
    assert ended.reason is Reason.FORMAT_FAILED
    assert "ended by SIGKILL" in ended.message
    return True


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_mkfs_killed_at_any_time(workshop, file_system, tmp_path):
    chance = random.Random(7)
    killed = 0
    for turn in range(ROUNDS):
        workshop.disk.empty()
        for _ in range(chance.randint(1, 3)):  # the second one, too, may be killed
            after_s = chance.uniform(0, LONGEST_MKFS_S) if turn else 0.0
            killed += await kill_mkfs(workshop, file_system, after_s)
        await check_that_it_serves_and_is_never_formatted_again(
            workshop, file_system, tmp_path / "mounted"
        )
    assert killed


@pytest.mark.skipif(shutil.which("strace") is None, reason="this machine has no strace")
@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_mkfs_killed_at_a_certain_write(workshop, file_system, tmp_path):
    """At its first, and at each ``STRIDE``-th from there on, until it gets to its end."""
    real = shutil.which(f"mkfs.{file_system}", path=PATH)
    program = tmp_path / f"mkfs.{file_system}"
    killed = 0
    for write in count(1, STRIDE):
        workshop.disk.empty()
        program.write_text(
            f"#!/bin/sh\nexec strace -o /dev/null -e inject=pwrite64:signal=KILL:when={write} "
            f'{real} "$@"\n'
        )
        program.chmod(0o755)
        workshop.programs = Programs(f"{tmp_path}:{PATH}")
        formatting = asyncio.create_task(workshop.ensure(file_system))
        await asyncio.wait({formatting})
        if (ended := formatting.exception()) is None:
            break
        assert "ended by SIGKILL" in str(ended)
        killed += 1
        workshop.programs = Programs()
        await check_that_it_serves_and_is_never_formatted_again(
            workshop, file_system, tmp_path / "mounted"
        )
    assert killed * STRIDE >= LEAST_WRITES


def kill_container(workshop, file_system, after_s):
    """Format in a PID namespace, and end it at once, mkfs and all, as a container's runtime does."""
    container = subprocess.Popen(
        [
            *("unshare", "--pid", "--fork", "--kill-child", sys.executable),
            *("-m", "tests.node.format_once", workshop.machine.folder, file_system),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert container.stdout is not None
    with container:
        assert container.stdout.readline() == "it begins\n"
        time.sleep(after_s)
        container.kill()
        return "it ends" not in container.stdout.read()


async def wait_until_nobody_holds(disk):
    """The kernel takes a moment to end what was killed."""
    async with asyncio.timeout(10):
        while True:
            try:
                os.close(os.open(disk.loop, os.O_RDONLY | os.O_EXCL))
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_container_killed_at_any_time(workshop, file_system, tmp_path):
    chance = random.Random(7)
    killed = 0
    for turn in range(max(2, ROUNDS // 3)):
        workshop.disk.empty()
        after_s = chance.uniform(0, LONGEST_FORMAT_S) if turn else 0.0
        killed += await asyncio.to_thread(kill_container, workshop, file_system, after_s)
        await wait_until_nobody_holds(workshop.disk)
        await check_that_it_serves_and_is_never_formatted_again(
            workshop, file_system, tmp_path / "mounted"
        )
    assert killed
