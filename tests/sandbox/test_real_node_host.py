"""The namespaces of a node, its agent and its keeper, with no kubelet in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import agent, cgroups, leftovers
from provisioner.sandbox.real_node.host import Host
from provisioner.sandbox.real_node.requirements import missing

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())

ENVIRONMENT = {"PATH": os.defpath}


class World:
    def __init__(self, folder: Path) -> None:
        self.lost: list[str] = []
        self.folder = folder
        visible = (Path(sys.prefix), Path(sys.base_prefix), folder)
        self.host = Host(folder / "node", visible, self.lost.append)

    def log(self, name: str) -> Path:
        path = self.folder / f"{name}.log"
        self.host.log_of(name, path)
        return path

    async def start(self, name: str, *argv: str) -> None:
        await self.host.start(name, argv, ENVIRONMENT)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.host.on()
    yield world
    await world.host.off()


def groups_of(name: str) -> list[Path]:
    return [*cgroups.ROOT.glob(f"*/{name}"), *cgroups.ROOT.glob(name)]


def shown_by(loop: str) -> str:
    """The file that a loop device is of, "" if it is none's."""
    with contextlib.suppress(FileNotFoundError):
        return Path("/sys/block", loop, "loop/backing_file").read_text().strip()
    return ""


async def printed(log: Path, text: str) -> None:
    async def there() -> bool:
        return log.exists() and text in log.read_text()

    async with asyncio.timeout(10):
        await until(there)


async def output(world: World, script: str) -> str:
    code, out, errors = await world.host.run("sh", "-c", script)
    assert code == 0, errors
    return out.strip()


async def test_a_node_has_folders_of_its_own(world: World) -> None:
    await output(world, "for d in /dev /run /var/lib /var/log; do echo hello > $d/seen; done")

    for folder in ("dev", "run", "var/lib", "var/log"):
        assert (world.host.root / folder / "seen").read_text() == "hello\n"
        assert not Path("/", folder, "seen").exists()
    # The machine's disks are none of its business, loop devices are.
    blocks = await output(world, "find /dev -type b ! -name 'loop*'")
    assert blocks == ""
    assert "/dev/loop7" in await output(world, "ls /dev/loop7 /dev/loop-control /dev/kmsg")


async def test_a_mount_of_a_node_is_seen_nowhere_else(world: World) -> None:
    await output(world, "mkdir /run/here && mount -t tmpfs none /run/here")

    assert any(" /run/here " in line for line in world.host.mounts())
    assert " /run/here " not in Path("/proc/self/mountinfo").read_text()


async def test_what_it_looks_up_of_devices_is_a_folder_of_ours(world: World) -> None:
    (world.host.sys_dev_block / "7:999").mkdir()

    assert "7:999" in await output(world, "ls /sys/dev/block")
    assert not Path("/sys/dev/block/7:999").exists()
    # The others still lead where they lead.
    other = next(Path("/sys/dev/block").iterdir())
    assert await output(world, f"cd {other} && pwd -P") == str(other.resolve())


async def test_the_kernels_settings_stay_the_machines(world: World) -> None:
    before = Path("/proc/sys/kernel/panic").read_text()

    assert (
        await output(world, "echo 77 > /proc/sys/kernel/panic; cat /proc/sys/kernel/panic") == "77"
    )

    assert Path("/proc/sys/kernel/panic").read_text() == before


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


async def test_a_killed_program_can_be_started_again(world: World) -> None:
    log = world.log("it")
    for life in ("first", "second"):
        await world.start("it", "sh", "-c", f"echo {life}; exec sleep 1000")
        await printed(log, life)
        await world.host.kill("it")

    assert log.read_text() == "first\nsecond\n"
    assert world.lost == []


async def test_a_program_that_ends_by_itself_is_told_with_its_last_words(world: World) -> None:
    world.log("ill")
    await world.start("ill", "sh", "-c", "echo my last words; exit 3")

    async def told() -> bool:
        return bool(world.lost)

    async with asyncio.timeout(10):
        await until(told)
    assert world.lost == ["ill ended with exit status 3; the end of its log:\n  my last words"]


async def test_a_program_that_is_not_there_is_a_failure_that_says_so(world: World) -> None:
    world.log("nothing")

    with pytest.raises(SandboxError, match=r"nothing cannot be started on a node: .*No such file"):
        await world.start("nothing", "/nonexistent")


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


async def test_its_disk_outlives_it_and_the_rest_does_not(world: World) -> None:
    await output(world, "echo kept > /var/lib/file; echo lost > /run/file")
    await world.host.off()
    await world.host.on()

    assert await output(world, "cat /var/lib/file; ls /run") == "kept"


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


def test_the_agent_loads_nothing_but_the_standard_library() -> None:
    script = f"import sys, {agent.__name__}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert loaded <= sys.stdlib_module_names | {"__main__", "provisioner"}
