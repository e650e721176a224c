"""Measuring volumes: against statvfs; raw devices; what is not there; a look that hangs."""

import os
import threading
from functools import partial

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import Stats, Usage
from tests.node.machine import MIB, OTHER, VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


def stats(machine: Machine, volume_id: str = VOLUME) -> Stats:
    return Stats(volume_id, str(machine.target()))


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_file_system_is_measured(machine, file_system):
    machine.attach()
    await machine.stager.stage(machine.stage(file_system=file_system))
    await machine.publisher.publish(machine.publish())
    before = await machine.usages.of(stats(machine))
    (machine.target() / "file").write_bytes(b"x" * 10 * MIB)
    run("sync", machine.target() / "file")

    after = await machine.usages.of(stats(machine))

    total, block, available = run("stat", "-f", "-c", "%b %S %a", machine.target()).split()
    assert after.total_bytes == before.total_bytes
    assert 400 * MIB < after.total_bytes <= 512 * MIB
    assert int(total) * int(block) == after.total_bytes
    assert after.used_bytes is not None
    assert before.used_bytes is not None
    assert 10 * MIB <= after.used_bytes - before.used_bytes < 11 * MIB
    assert after.available_bytes == int(available) * int(block)
    assert after.used_inodes == (before.used_inodes or 0) + 1
    assert after.total_inodes == (after.used_inodes or 0) + (after.free_inodes or 0)


async def test_of_a_raw_device_only_the_size_is_known(machine):
    machine.attach()
    await machine.publisher.publish(machine.publish(is_block=True))

    assert await machine.usages.of(stats(machine)) == Usage(512 * MIB)


async def test_what_is_not_mounted_is_not_measured(machine):
    """Else the root disk's numbers would be told as the volume's."""
    machine.attach()
    machine.target().mkdir(parents=True)

    with pytest.raises(NodeError) as missing:
        await machine.usages.of(stats(machine))

    assert missing.value.reason is Reason.VOLUME_NOT_STAGED


async def test_another_volumes_mount_is_not_measured(machine):
    machine.attach()
    machine.attach(OTHER)
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())

    with pytest.raises(NodeError) as wrong:
        await machine.usages.of(stats(machine, OTHER))

    assert wrong.value.reason is Reason.WRONG_DEVICE


async def test_a_dead_file_system_is_told(machine, monkeypatch):
    machine.attach()
    await machine.stager.stage(machine.stage(file_system="xfs"))
    await machine.publisher.publish(machine.publish())

    def fails(path: str) -> os.statvfs_result:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fails)  # xfs answers it from memory even when dead
    with pytest.raises(NodeError, match="cannot be measured: Input/output error") as dead:
        await machine.usages.of(stats(machine))

    assert dead.value.reason is Reason.MOUNT_FAILED


async def test_it_is_measured_while_another_operation_runs(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())

    async def measured() -> Usage:
        usage: Usage = await machine.usages.of(stats(machine))
        return usage

    found = await machine.operations.run(VOLUME, "expand", measured, what="Expanding volume vol-1")

    assert found.total_bytes > 400 * MIB


async def test_a_look_that_hangs_costs_one_thread_and_no_more(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())
    back = threading.Event()
    machine.blocking._timeout_s = 0.05
    hanging = partial(
        machine.blocking.call, f"usage of {machine.target()}", back.wait, what="measuring it"
    )
    before = threading.active_count()
    with pytest.raises(NodeError, match="measuring it has been hanging for 0 s"):
        await hanging()

    with pytest.raises(NodeError) as hangs:
        await machine.usages.of(stats(machine))

    assert hangs.value.reason is Reason.TIMED_OUT
    assert threading.active_count() <= before + 1
    back.set()
    machine.blocking._timeout_s = 5
    assert (await machine.usages.of(stats(machine))).total_bytes > 400 * MIB


async def test_a_disk_that_came_back_under_its_name_is_not_the_one_that_is_mounted(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    machine.detach(disk, frees_number=False)
    again = machine.attach(name=disk.node.name)
    assert again.number != disk.number

    with pytest.raises(NodeError, match=f"device {disk.number} is mounted where") as wrong:
        await machine.usages.of(Stats(VOLUME, str(machine.staging())))

    assert wrong.value.reason is Reason.WRONG_DEVICE
