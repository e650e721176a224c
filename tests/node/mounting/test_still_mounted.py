"""A stage or publish that fails while the volume is mounted: the kubelet is not told otherwise.

Else it never unmounts it, and the volume is detached under its mount.
"""

from collections.abc import Awaitable

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.server import code_of
from provisioner.node.requests import Unstage
from tests.node.csi.test_codes import MAY_BE_MOUNTED
from tests.node.machine import OTHER, VOLUME, Disk, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


async def larger_than_its_file_system(machine: Machine) -> Disk:
    disk = machine.attach(size_mib=320)
    run("mkfs.xfs", "-q", disk.node)
    disk.grow(420)
    return disk


def dies(machine: Machine) -> str:
    """What makes the file system unusable, in words of a shell."""
    return f"mount -o remount,ro {machine.staging()}"


async def may_be_mounted(call: Awaitable[None], method: str) -> NodeError:
    """The failure of a call, after which the kubelet has to unmount."""
    with pytest.raises(NodeError) as failed:
        await call
    assert code_of(failed.value, method) in MAY_BE_MOUNTED
    return failed.value


async def test_a_growth_that_fails_of_what_an_earlier_call_has_mounted(machine):
    """One whose deadline passed before it had grown, say."""
    disk = machine.attach(size_mib=320)
    await machine.stager.stage(machine.stage(file_system="xfs"))
    disk.grow(420)
    machine.fake("xfs_growfs", f"{dies(machine)}; echo no room >&2; exit 1")

    call = machine.stager.stage(machine.stage(file_system="xfs"))
    error = await may_be_mounted(call, "NodeStageVolume")

    assert error.reason is Reason.GROW_FAILED
    assert "ended with exit code 1: no room" in error.message
    assert error.message.endswith(f"volume {VOLUME} is still mounted at {machine.staging()}")


async def test_a_growth_that_fails_with_the_new_mount_in_use_at_once(machine):
    await larger_than_its_file_system(machine)
    machine.fake("xfs_growfs", f"{dies(machine)}; echo no room >&2; exit 1")
    machine.fake("umount", "echo 'umount: target is busy.' >&2; exit 32")

    call = machine.stager.stage(machine.stage(file_system="xfs", origin="snap-1"))
    error = await may_be_mounted(call, "NodeStageVolume")

    assert error.reason is Reason.GROW_FAILED  # what failed, and not that it cannot be undone
    assert machine.mounts.at(str(machine.staging())) is not None


async def test_a_device_that_went_while_it_was_staged_and_shown(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())
    machine.detach(disk, frees_number=False)

    call = machine.stager.stage(machine.stage(), time_left_s=0.1)
    staging = await may_be_mounted(call, "NodeStageVolume")
    publishing = await may_be_mounted(
        machine.publisher.publish(machine.publish()), "NodePublishVolume"
    )

    assert staging.reason is publishing.reason is Reason.DEVICE_NOT_FOUND


async def test_a_raw_device_that_went_while_it_was_shown(machine):
    disk = machine.attach()
    await machine.publisher.publish(machine.publish(is_block=True))
    machine.detach(disk, frees_number=False)

    call = machine.publisher.publish(machine.publish(is_block=True), time_left_s=0.1)
    error = await may_be_mounted(call, "NodePublishVolume")

    assert error.reason is Reason.DEVICE_NOT_FOUND


async def test_a_dead_mount_that_cannot_make_room(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    machine.detach(disk)
    machine.attach()
    with (machine.staging() / "file").open("w"):
        error = await may_be_mounted(machine.stager.stage(machine.stage()), "NodeStageVolume")

    assert error.reason is Reason.TARGET_BUSY


async def test_an_option_that_is_refused_by_now(machine):
    """As a PersistentVolume that another version of the plugin has mounted may have it."""
    machine.attach()
    await machine.stager.stage(machine.stage())

    call = machine.stager.stage(machine.stage(flags=("journal_path=/dev/nvme9n1",)))
    error = await may_be_mounted(call, "NodeStageVolume")

    assert error.reason is Reason.INVALID_REQUEST


async def test_the_volume_mounted_there_in_another_way(machine):
    """A part of it, say: no mount of another volume."""
    machine.attach()
    await machine.stager.stage(machine.stage())
    (machine.staging() / "part").mkdir()
    run("mount", "--bind", machine.staging() / "part", machine.staging())

    error = await may_be_mounted(machine.stager.stage(machine.stage()), "NodeStageVolume")

    assert error.reason is Reason.WRONG_DEVICE


async def test_another_volume_that_is_mounted_there_is_none_of_this_one(machine):
    """Nobody shall unmount it for this one's sake."""
    machine.attach()
    other = machine.attach(OTHER)
    run("mkfs.ext4", "-q", other.node)
    machine.staging().mkdir(parents=True)
    run("mount", other.node, machine.staging())

    with pytest.raises(
        NodeError, match="is already mounted there; unmount that by hand"
    ) as refused:
        await machine.stager.stage(machine.stage())

    assert code_of(refused.value, "NodeStageVolume") not in MAY_BE_MOUNTED


async def test_nothing_is_mounted_any_more(machine):
    await larger_than_its_file_system(machine)
    machine.fake("xfs_growfs", f"{dies(machine)}; exit 1")

    with pytest.raises(NodeError) as failed:
        await machine.stager.stage(machine.stage(file_system="xfs", origin="snap-1"))

    assert code_of(failed.value, "NodeStageVolume") not in MAY_BE_MOUNTED
    assert machine.mounts_below() == []
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))
