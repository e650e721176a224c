"""The namespaces of a node and its agent, with no kubelet in them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import agent
from provisioner.sandbox.real_node.requirements import missing
from tests.node.loop_disks import run
from tests.sandbox.host_world import (
    World,
    opened,
    output,
    printed,
)

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as world:
        yield world


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


async def test_what_the_machine_unmounts_stays_mounted_on_no_node(tmp_path: Path) -> None:
    """Its disk would be in use for as long as the node runs, and nobody could say by whom."""
    shared, disk = tmp_path / "shared", tmp_path / "shared/disk"
    disk.mkdir(parents=True)
    run("mount", "--bind", shared, shared)
    try:
        run("mount", "--make-shared", shared)  # as all of the machine is where systemd runs
        run("mount", "-t", "tmpfs", "none", disk)
        async with opened(tmp_path) as world:
            assert any(f" {disk} " in line for line in world.host.mounts())
            run("umount", disk)
            assert not any(f" {disk} " in line for line in world.host.mounts())
    finally:
        run("umount", "--recursive", shared)


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


async def test_a_program_that_is_not_there_is_a_failure_that_says_so(
    world: World, tmp_path: Path
) -> None:
    world.log("nothing")

    with pytest.raises(SandboxError, match=r"nothing cannot be started on a node: .*No such file"):
        await world.start("nothing", str(tmp_path / "nothing"))


async def test_a_command_that_takes_too_long_is_ended_and_named(world: World) -> None:
    with pytest.raises(SandboxError, match=r"^sleep 60 did not end within 0\.1 s$"):
        await world.host.run("sleep", "60", timeout_s=0.1)


async def test_its_disk_outlives_it_and_the_rest_does_not(world: World) -> None:
    await output(world, "echo kept > /var/lib/file; echo lost > /run/file")
    await world.host.off()
    await world.host.on()

    assert await output(world, "cat /var/lib/file; ls /run") == "kept"


def test_the_agent_loads_nothing_but_the_standard_library() -> None:
    script = f"import sys, {agent.__name__}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded <= sys.stdlib_module_names | {"__main__", "provisioner"}
