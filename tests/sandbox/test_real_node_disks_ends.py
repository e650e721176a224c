"""What the disk backer leaves behind: nothing, and no more bytes than were written."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
from pathlib import Path

import pytest

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import loops
from provisioner.sandbox.real_node.disk_files import copy_sparse
from provisioner.sandbox.real_node.disks import Disks
from provisioner.sandbox.real_node.plugs import Machine
from provisioner.sandbox.strict_ec2.client import StrictEc2, leave_disks
from tests.sandbox.disk_room import GIB, MIB, loop_files, needs_loops, read, until
from tests.sandbox.lab import Lab


def test_holes_stay_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as written:
        written.truncate(64 * GIB)
        for offset in (0, 3 * GIB, 64 * GIB - 4096):
            written.seek(offset)
            written.write(b"x" * 4096)

    copy_sparse(source, target)

    assert target.stat().st_size == 64 * GIB
    assert target.stat().st_blocks * 512 < MIB
    for offset in (0, 3 * GIB, 64 * GIB - 4096):
        assert read(target, 4096, offset) == b"x" * 4096


KILLED = """
import asyncio, sys
from pathlib import Path
from provisioner.sandbox.real_node.disks import Disks
from provisioner.sandbox.real_node.plugs import Machine

async def main():
    root = Path(sys.argv[2])
    async with Disks(sys.argv[1], root / "disks") as disks:
        await disks.plug_in(Machine(sys.argv[3], root / "dev", root / "block"))
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@needs_loops
async def test_no_loop_device_outlives_a_sandbox_that_is_killed(
    strict_ec2: StrictEc2, strict_lab: Lab, tmp_path: Path
) -> None:
    instance, volume = strict_lab.instance(), strict_lab.volume()
    for name in ("dev", "block"):
        (tmp_path / name).mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, strict_ec2.endpoint, str(tmp_path), instance),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    await asyncio.to_thread(strict_lab.attach, volume, instance)
    await until(lambda: loop_files(tmp_path))

    process.kill()
    await process.wait()
    leave_disks(strict_ec2.endpoint)  # or the snapshots of later tests wait for the dead

    await until(lambda: not loop_files(tmp_path))


@needs_loops
async def test_disks_that_cannot_go_on_say_so(
    strict_ec2: StrictEc2, strict_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: Path) -> None:
        raise OSError(errno.ENOSPC, "no loop device is left")

    monkeypatch.setattr(loops, "make", none_left)
    instance, volume = strict_lab.instance(), strict_lab.volume()
    (tmp_path / "dev").mkdir()
    async with Disks(strict_ec2.endpoint, tmp_path / "disks") as disks:
        await disks.plug_in(Machine(instance, tmp_path / "dev", tmp_path / "block"))
        disks.check()
        await asyncio.to_thread(strict_lab.attach, volume, instance)

        def stopped() -> bool:
            with contextlib.suppress(SandboxError):
                disks.check()
                return False
            return True

        await until(stopped)
        with pytest.raises(SandboxError, match=r"the disks have stopped.*no loop device is left"):
            disks.check()


@needs_loops
async def test_a_machine_that_has_died_holds_nobody_up(
    strict_ec2: StrictEc2, strict_lab: Lab, tmp_path: Path
) -> None:
    instances, volumes = strict_lab.instances(2), [strict_lab.volume() for _ in range(2)]
    for name in ("dev", "block"):
        (tmp_path / name).mkdir()
    async with Disks(strict_ec2.endpoint, tmp_path / "disks") as disks:
        await disks.plug_in(Machine(instances[0], tmp_path / "gone" / "dev", tmp_path / "block"))
        await disks.plug_in(Machine(instances[1], tmp_path / "dev", tmp_path / "block"))
        for volume, instance in zip(volumes, instances, strict=True):
            await asyncio.to_thread(strict_lab.attach, volume, instance)

        await until(lambda: list((tmp_path / "dev").glob("nvme*")))
        await asyncio.to_thread(strict_lab.detach, volumes[0])
        await until(lambda: disks.in_use == {volumes[1]})
        disks.check()
        assert disks.torn == []
