"""Publishing raw devices: their node is bound onto a file."""

import os
import stat

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import Unpublish
from tests.node.machine import OTHER, VOLUME, Machine

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


def number_at(machine: Machine) -> str:
    status = machine.target().stat()
    assert stat.S_ISBLK(status.st_mode)
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


async def publish(machine: Machine, *, read_only: bool = False) -> None:
    await machine.publisher.publish(
        machine.publish(is_block=True, read_only=read_only), time_left_s=0.2
    )


async def test_the_pod_sees_the_device(machine):
    disk = machine.attach()

    await publish(machine)

    assert number_at(machine) == disk.number


async def test_publishing_twice_mounts_once(machine):
    machine.attach()
    await publish(machine)
    machine.restart()
    await publish(machine)

    assert len(machine.mounts_below()) == 1


async def test_what_is_there_otherwise_is_made_anew(machine):
    machine.attach()
    await publish(machine)
    await publish(machine, read_only=True)

    (mount,) = machine.mounts_below()
    assert "ro" in mount.options


async def test_an_earlier_device_of_the_volume_makes_room(machine):
    """Detached and attached again while the pod's path was left: by another name and number."""
    disk = machine.attach()
    await publish(machine)
    machine.detach(disk, frees_number=False)
    again = machine.attach()

    await publish(machine)

    assert number_at(machine) == again.number
    assert len(machine.mounts_below()) == 1


async def test_a_file_left_without_a_mount_is_mounted_on(machine):
    disk = machine.attach()
    machine.target().parent.mkdir(parents=True)
    machine.target().touch()

    await publish(machine)

    assert number_at(machine) == disk.number


async def test_a_directory_where_a_file_should_be_is_told(machine):
    machine.attach()
    machine.target().mkdir(parents=True)

    with pytest.raises(NodeError, match="exists and is not a file") as refused:
        await publish(machine)

    assert refused.value.reason is Reason.MOUNT_FAILED


async def test_a_missing_device_is_told(machine):
    with pytest.raises(NodeError) as missing:
        await publish(machine)

    assert missing.value.reason is Reason.DEVICE_NOT_FOUND
    assert not machine.target().exists()


async def test_a_wrong_serial_is_told(machine):
    disk = machine.attach()
    serial = machine.dirs.sys / "dev/block" / disk.number / "device/serial"
    serial.write_text(OTHER.replace("-", ""))

    with pytest.raises(NodeError) as wrong:
        await publish(machine)

    assert wrong.value.reason is Reason.WRONG_DEVICE
    assert not machine.target().exists()


async def test_unpublishing_removes_the_file(machine):
    machine.attach()
    await publish(machine)
    for _ in range(2):
        await machine.publisher.unpublish(Unpublish(VOLUME, str(machine.target())))

    assert machine.mounts_below() == []
    assert not machine.target().exists()


async def test_unpublishing_leaves_a_file_with_something_in_it(machine):
    machine.target().parent.mkdir(parents=True)
    machine.target().write_text("not ours")

    await machine.publisher.unpublish(Unpublish(VOLUME, str(machine.target())))

    assert machine.target().read_text() == "not ours"


async def test_a_device_that_is_open_cannot_be_taken_from_a_pod(machine):
    machine.attach()
    await machine.stager.stage(machine.stage(is_block=True))
    await machine.publisher.publish(machine.publish(is_block=True))
    held = os.open(machine.target(), os.O_RDONLY)
    try:
        with pytest.raises(NodeError, match="is in use") as refused:
            await machine.publisher.unpublish(Unpublish(VOLUME, str(machine.target())))
    finally:
        os.close(held)

    assert refused.value.reason is Reason.TARGET_BUSY
