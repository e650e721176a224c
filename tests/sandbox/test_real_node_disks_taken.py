"""What happens when EC2 detaches what a machine still uses, or does not have yet."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provisioner.sandbox.real_node.loops import Loop
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.sandbox.disk_room import Room, link_of, needs_loops, opened, read, until, write

pytestmark = needs_loops


@pytest.fixture
async def room(strict_ec2: StrictEc2, strict_client: object, tmp_path: Path) -> AsyncIterator[Room]:
    async with opened(strict_ec2, strict_client, tmp_path) as room:
        yield room


async def test_a_device_taken_while_it_is_used_is_told_and_what_is_written_later_is_lost(
    room: Room, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = await room.machine(), await room.machine()
    volume = await room.call(room.lab.volume)
    device = await room.attached(volume, one)
    write(device, b"before")
    with device.open("r+b", buffering=0) as held:
        await room.detached(volume, one)
        held.write(b"after!")
        os.fsync(held.fileno())
        assert read(await room.attached(volume, other), 6) == b"before"

    [torn] = room.disks.torn
    assert (torn.volume_id, torn.instance_id, torn.name) == (volume, one.instance_id, device.name)
    assert f"while that still used it as {device.name}: open in " in str(torn)
    assert f"({os.getpid()})" in str(torn)
    assert f"TORN: {torn}" in capsys.readouterr().err


async def test_a_mounted_device_that_is_taken_is_told_with_its_mount(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    # In a mount namespace of its own, which ends with the pipe.
    script = f"mkfs.ext4 -q {device} && mount {device} /mnt && echo mounted && read end"
    mounting = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", script), stdin=PIPE, stdout=PIPE
    )
    assert mounting.stdout is not None
    assert await mounting.stdout.readline() == b"mounted\n"
    number = device.stat().st_rdev
    in_sysfs = machine.sys_dev_block / f"{os.major(number)}:{os.minor(number)}"
    assert in_sysfs.exists()
    await room.call(room.lab.detach, volume, InstanceId=machine.instance_id)
    await until(lambda: volume not in room.disks.in_use)

    assert "mounted at /mnt" in str(room.disks.torn[0])
    assert not in_sysfs.exists()  # though it is still mounted
    await mounting.communicate(b"")  # and stdin is closed


async def test_a_mount_that_ends_soon_after_the_detachment_is_told_all_the_same(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.sandbox.real_node.disks._LET_GO_S", 10.0)
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    script = (
        f"mkfs.ext4 -q {device} && mount {device} /mnt && echo mounted && read end"
        " && umount /mnt && echo unmounted"
    )
    mounting = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", script), stdin=PIPE, stdout=PIPE
    )
    assert mounting.stdout is not None
    assert mounting.stdin is not None
    assert await mounting.stdout.readline() == b"mounted\n"
    await room.call(room.lab.detach, volume, InstanceId=machine.instance_id)
    await until(lambda: not device.exists())
    mounting.stdin.write(b"end\n")
    await mounting.communicate()
    await room.settled()

    [torn] = room.disks.torn
    assert "mounted at /mnt" in torn.holders


async def test_what_is_written_after_the_detachment_is_lost_also_by_who_ends_in_time(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.sandbox.real_node.disks._LET_GO_S", 10.0)
    one, other = await room.machine(), await room.machine()
    volume = await room.call(room.lab.volume)
    device = await room.attached(volume, one)
    write(device, b"before")
    file = room.disks.content_of(volume)
    held_file = file.stat().st_ino
    with device.open("r+b", buffering=0) as held:
        await room.call(room.lab.detach, volume, InstanceId=one.instance_id)
        await until(lambda: file.stat().st_ino != held_file)
        held.write(b"after!")
        os.fsync(held.fileno())

    assert read(await room.attached(volume, other), 6) == b"before"
    assert room.disks.torn == []


async def test_of_two_machines_with_one_volume_only_who_used_it_when_it_was_taken_is_told(
    room: Room,
) -> None:
    one, other = await room.machine(), await room.machine()
    made = await room.call(
        room.lab.create, VolumeType="io2", Iops=100, Size=10, MultiAttachEnabled=True
    )
    volume = made["VolumeId"]
    first, second = await room.attached(volume, one), await room.attached(volume, other)
    with second.open("rb"):
        with first.open("rb"):
            await room.detached(volume, one)
        [torn] = room.disks.torn
        assert (torn.instance_id, torn.name) == (one.instance_id, first.name)
        write(second, b"still")

        again = await room.attached(volume, one)
        assert read(again, 5) == b"still"
        await room.detached(volume, one)

    assert room.disks.torn == [torn]


async def test_a_device_that_is_awaited_holds_up_no_detachment(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    room.disks.appears_after_s = 30.0
    others = [await room.call(room.lab.volume) for _ in range(2)]
    await room.call(room.lab.attach, others[0], machine.instance_id, device="/dev/xvdda")

    await room.call(room.lab.detach, volume)
    await room.call(room.lab.attach, others[1], machine.instance_id, device="/dev/xvddb")

    async with asyncio.timeout(10):
        await until(lambda: not device.exists())
    assert not link_of(machine, others[0]).is_symlink()


async def test_a_device_detached_before_it_appears_never_does(room: Room) -> None:
    room.disks.appears_after_s = 0.2
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    await room.call(room.lab.attach, volume, machine.instance_id, device="/dev/xvdda")
    await room.call(room.lab.detach, volume)
    later = await room.call(room.lab.volume)

    await room.call(room.lab.attach, later, machine.instance_id, device="/dev/xvddb")

    await room.device(later, machine)
    assert not link_of(machine, volume).is_symlink()
    assert room.disks.in_use == {later}


async def test_disks_that_end_while_a_device_is_being_taken_let_go_of_it_once(
    strict_ec2: StrictEc2, strict_client: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, release = threading.Event(), Loop.release

    def slowly(loop: Loop, patience_s: float) -> bool:
        is_released = release(loop, patience_s)
        released.set()
        time.sleep(1.0)  # the plug is still there, and the disks end
        return is_released

    monkeypatch.setattr(Loop, "release", slowly)
    async with opened(strict_ec2, strict_client, tmp_path) as room:
        machine, volume = await room.machine(), await room.call(room.lab.volume)
        await room.attached(volume, machine)
        await room.call(room.lab.detach, volume, InstanceId=machine.instance_id)
        assert await asyncio.to_thread(released.wait, 15.0)
