"""The disk backer against a strict EC2, with plain folders for what machines have of their own."""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.sandbox.disk_room import (
    GIB,
    MIB,
    Room,
    link_of,
    needs_loops,
    opened,
    read,
    size_of,
    until,
    write,
)

pytestmark = needs_loops


@pytest.fixture
async def room(strict_ec2: StrictEc2, strict_client: object, tmp_path: Path) -> AsyncIterator[Room]:
    async with opened(strict_ec2, strict_client, tmp_path) as room:
        yield room


async def test_an_attached_volume_is_an_nvme_disk_with_its_serial(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)

    device = await room.attached(volume, machine)

    assert device.parent == machine.dev
    assert device.name.startswith("nvme")
    assert device.name.endswith("n1")
    seen = device.stat()
    assert stat.S_ISBLK(seen.st_mode)
    place = machine.sys_dev_block / f"{os.major(seen.st_rdev)}:{os.minor(seen.st_rdev)}"
    assert (place / "device" / "serial").read_text() == f"{volume.replace('-', '')}\n"
    assert (place / "device" / "model").read_text() == f"{'Amazon Elastic Block Store':40}\n"
    assert {"size", "ro", "queue"} <= {each.name for each in place.iterdir()}
    assert size_of(device) == 10 * GIB
    assert read(device, MIB, 5 * GIB) == bytes(MIB)


async def test_what_one_machine_writes_the_next_one_reads(room: Room) -> None:
    one, other = await room.machine(), await room.machine()
    volume = await room.call(room.lab.volume)
    content = random.Random(7).randbytes(MIB)
    device = await room.attached(volume, one)
    write(device, content, 3 * GIB)

    await room.detached(volume, one)

    assert list(one.dev.glob("nvme*")) == list((one.dev / "disk" / "by-id").iterdir()) == []
    assert [p for p in one.sys_dev_block.iterdir() if not p.is_symlink()] == []
    assert room.disks.in_use == set()
    assert read(await room.attached(volume, other), MIB, 3 * GIB) == content
    assert room.disks.torn == []


async def test_names_tell_nothing_and_are_not_those_of_the_last_time(room: Room) -> None:
    one, other = await room.machine(), await room.machine()
    volume = await room.call(room.lab.volume)
    names = []
    for _ in range(3):
        for machine in (one, other):
            names.append((await room.attached(volume, machine)).name)
            await room.detached(volume, machine)

    assert len(set(names)) > 2
    assert names != sorted(names)
    assert "nvme0n1" not in names


async def test_a_running_machine_sees_its_volume_grow(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    with device.open("rb") as mounted:  # as a file system has it
        await room.call(room.lab.modify, volume, Size=25)

        await until(lambda: mounted.seek(0, os.SEEK_END) == 25 * GIB)
    sectors = machine.sys_dev_block / f"7:{os.minor(device.stat().st_rdev)}" / "size"
    assert sectors.is_symlink()
    assert sectors.readlink().as_posix().startswith("../../../devices/virtual/block/loop")


async def test_a_volume_grown_without_a_machine_is_larger_at_the_next(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    write(await room.attached(volume, machine), b"kept")
    await room.detached(volume, machine)
    await room.call(room.lab.modify, volume, Size=25)

    device = await room.attached(volume, machine)

    assert (size_of(device), read(device, 4)) == (25 * GIB, b"kept")


async def test_a_snapshot_holds_what_there_was_when_it_was_taken(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    write(device, b"before", GIB)
    snapshot = await room.call(room.lab.snapshot, volume)
    write(device, b"after!", GIB)
    made = await room.call(room.lab.create, SnapshotId=snapshot, Size=12)
    await room.call(room.lab.ec2.delete_snapshot, SnapshotId=snapshot)

    restored = await room.attached(made["VolumeId"], machine)

    assert (read(restored, 6, GIB), size_of(restored)) == (b"before", 12 * GIB)
    assert read(device, 6, GIB) == b"after!"


async def test_a_copy_of_a_volume_holds_what_that_had(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    write(device, b"before")
    copied = await room.call(room.lab.copy, volume)
    write(device, b"after!")

    assert read(await room.attached(copied, machine), 6) == b"before"


async def test_a_snapshot_of_what_was_never_used_restores_to_zeros(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    snapshot = await room.call(room.lab.snapshot, volume)
    made = await room.call(room.lab.create, SnapshotId=snapshot)

    assert read(await room.attached(made["VolumeId"], machine), MIB) == bytes(MIB)


async def test_a_deleted_volume_leaves_no_file(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    write(await room.attached(volume, machine), b"secret")
    await room.detached(volume, machine)
    files = room.folder / "disks"
    assert [each.name for each in files.iterdir()] == [volume]

    await room.call(room.lab.ec2.delete_volume, VolumeId=volume)
    await room.settled()

    assert list(files.iterdir()) == []


async def test_a_machine_that_comes_back_finds_what_is_attached_to_it(room: Room) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    write(await room.attached(volume, machine), b"kept")

    await room.disks.pull_plug(machine.instance_id)
    assert not link_of(machine, volume).is_symlink()
    assert room.disks.in_use == set()
    late = await room.call(room.lab.volume)
    await room.call(room.lab.attach, late, machine.instance_id, device="/dev/xvdcc")
    await room.settled()
    await room.plugged_in(machine.instance_id)

    assert read(await room.device(volume, machine), 4) == b"kept"
    assert size_of(await room.device(late, machine)) == 10 * GIB


async def test_a_machine_said_to_be_gone_that_holds_a_device_is_told(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.sandbox.real_node.disks._MACHINE_GONE_S", 0.1)
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    device = await room.attached(volume, machine)
    with device.open("rb"), pytest.raises(SandboxError, match=f"{volume} is still open in"):
        await room.disks.pull_plug(machine.instance_id)


async def test_two_machines_see_one_volume_at_once(room: Room) -> None:
    one, other = await room.machine(), await room.machine()
    made = await room.call(
        room.lab.create, VolumeType="io2", Iops=100, Size=10, MultiAttachEnabled=True
    )
    volume = made["VolumeId"]
    first, second = await room.attached(volume, one), await room.attached(volume, other)
    write(first, b"shared")

    assert read(second, 6) == b"shared"
    await room.detached(volume, one)
    write(second, b"alone!")
    await room.detached(volume, other)
    assert read(await room.attached(volume, one), 6) == b"alone!"
    assert room.disks.torn == []


async def test_machines_see_a_device_only_some_time_after_ec2_says_attached(room: Room) -> None:
    room.disks.appears_after_s = 0.4
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    await room.call(room.lab.attach, volume, machine.instance_id)
    said_s = time.monotonic()
    assert await room.call(room.lab.attachment_state, volume) == "attached"

    await room.device(volume, machine)

    assert time.monotonic() - said_s >= 0.35


async def test_a_reset_takes_everything_away(room: Room, strict_ec2: StrictEc2) -> None:
    machine, volume = await room.machine(), await room.call(room.lab.volume)
    await room.attached(volume, machine)

    await room.call(strict_ec2.reset)

    await until(lambda: not link_of(machine, volume).is_symlink())
    await until(lambda: not list((room.folder / "disks").iterdir()))
    assert room.disks.torn == []


async def test_many_volumes_come_and_go_at_once(room: Room) -> None:
    machine = await room.machine()
    volumes = [await room.call(room.lab.volume) for _ in range(20)]
    with ThreadPoolExecutor(4) as pool:
        names = [f"/dev/xvd{a}{b}" for a in "bc" for b in "abcdefghij"]
        list(pool.map(lambda v, n: room.lab.attach(v, machine.instance_id, n), volumes, names))
        devices = [await room.device(volume, machine) for volume in volumes]
        assert len({device.name for device in devices}) == 20
        for number, device in enumerate(devices):
            write(device, bytes([number + 1]) * 4096)
        list(pool.map(room.lab.detach, volumes))
        await until(lambda: not room.disks.in_use)
        list(pool.map(lambda v, n: room.lab.attach(v, machine.instance_id, n), volumes, names))
    for number, volume in enumerate(volumes):
        assert read(await room.device(volume, machine), 4096) == bytes([number + 1]) * 4096
    assert room.disks.torn == []
