"""What ends with a node, with its keeper, and with a program of it: all that belongs to it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import leftovers
from provisioner.sandbox.real_node.requirements import missing
from tests.sandbox.host_world import (
    ENVIRONMENT,
    World,
    groups_of,
    opened,
    output,
    printed,
    shown_by,
)

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as world:
        yield world


async def test_only_the_program_is_killed_and_not_what_it_has_started(world: World) -> None:
    log = world.log("parent")
    await world.start("parent", "sh", "-c", "sleep 1000 & echo child $!; wait")
    await printed(log, "child")
    child = log.read_text().split()[-1]

    await world.host.kill("parent")

    assert world.lost == []
    assert "sleep" in await output(world, f"cat /proc/{child}/cmdline")
    # It is the agent's now, who reaps it when it ends.
    assert await output(world, f"grep PPid /proc/{child}/status") == "PPid:\t1"
    await output(world, f"kill -9 {child}; while [ -e /proc/{child} ]; do sleep 0.01; done")


async def test_what_a_contained_program_has_started_ends_with_it(world: World) -> None:
    log = world.log("plugin")
    script = "echo I am $$; setsid sleep 7654321 & wait"

    async def runs() -> bool:
        return "sleep\0007654321\0" in await output(world, "cat /proc/[0-9]*/cmdline || true")

    for life in (1, 2):
        await world.host.start("plugin", ["sh", "-c", script], ENVIRONMENT, contained=True)
        async with asyncio.timeout(10):
            await until(runs)
        assert log.read_text().count("I am 1\n") == life

        await world.host.kill("plugin")

        assert not await runs()
    assert world.lost == []


async def test_nothing_is_left_of_a_node_that_is_switched_off(world: World) -> None:
    pid, group = world.host.pid, world.host.cgroup
    world.log("it")
    await world.start("it", "sleep", "1000")
    # As a kubelet does for a block volume: a loop device of something in /dev.
    file = f"/dev/block-of-{group}"
    loop = await output(world, f"truncate -s 1M {file}; losetup --find --show {file}")
    assert groups_of(group)
    assert group in shown_by(Path(loop).name)

    await world.host.off()

    assert not Path(f"/proc/{pid}").exists()
    assert groups_of(group) == []
    assert group not in shown_by(Path(loop).name)
    assert world.lost == []


async def test_a_keeper_that_is_killed_takes_the_node_with_it(world: World) -> None:
    pid, group = world.host.pid, world.host.cgroup
    file = f"/dev/block-of-{group}"
    loop = await output(world, f"truncate -s 1M {file}; losetup --find --show {file}")
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)

    async def told() -> bool:
        return bool(world.lost)

    async with asyncio.timeout(10):
        await until(told)
    assert world.lost[0].startswith("a node ended")
    # Nobody was left to remove its groups and loop devices: the next node does it.
    assert groups_of(group)
    assert group in shown_by(Path(loop).name)
    with pytest.raises(SandboxError, match="left something behind"):
        await world.host.off()
    await world.host.on()
    assert groups_of(group) == []
    assert group not in shown_by(Path(loop).name)


async def test_a_loop_device_of_who_got_the_number_of_a_dead_node_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_DEAD_WITHIN_S", 0.1)
    script = (
        f"mount -t tmpfs none {tmp_path} && truncate -s 1M {tmp_path}/file"
        f" && losetup --find --show {tmp_path}/file && stat -c %d {tmp_path} && read end"
    )
    stranger = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert stranger.stdout is not None
    loop = Path((await stranger.stdout.readline()).decode().strip())
    dev = int(await stranger.stdout.readline())
    assert leftovers.clear_loops(dev) == []
    assert shown_by(loop.name)

    await stranger.communicate(b"end\n")

    assert leftovers.clear_loops(dev) == [loop.name]
    assert not shown_by(loop.name)


OWNER = """
import asyncio, pathlib, sys
from provisioner.sandbox.real_node.host import Host
async def main():
    folder = pathlib.Path(sys.argv[1])
    host = Host(folder / "node", [folder, pathlib.Path(sys.prefix)], print)
    await host.on()
    host.log_of("it", folder / "it.log")
    await host.start("it", ["sleep", "1000"], {"PATH": "/bin:/usr/bin"})
    print(host.pid, host.cgroup, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


async def test_nothing_is_left_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    pid, group = (await asyncio.wait_for(owner.stdout.readline(), 20)).decode().split()
    owner.kill()
    await owner.wait()

    async def gone() -> bool:
        return not Path(f"/proc/{pid}").exists() and not groups_of(group)

    async with asyncio.timeout(10):
        await until(gone)
