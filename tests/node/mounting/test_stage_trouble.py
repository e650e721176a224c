"""Staging what is damaged, in use, read-only, hanging or another volume; real loop devices."""

import asyncio
import os

import pytest
from grpc import StatusCode
from structlog.testing import capture_logs

from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.server import code_of
from provisioner.node.devices.lookup import Device
from provisioner.node.requests import AccessMode, Expand, Unpublish, Unstage
from tests.node.machine import MIB, OTHER, VOLUME, Disk, Machine, damage, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


def unstage(machine: Machine, volume_id: str = VOLUME) -> Unstage:
    return Unstage(volume_id, str(machine.staging(volume_id)))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"file_system": "btrfs"},
            "file system 'btrfs' is not supported; use one of ext4, ext3, x",
        ),
        ({"file_system": "ntfs"}, "needs a Windows node"),
        ({"flags": ("remount",)}, "mount option 'remount' is not allowed for volumes"),
        (
            {"file_system": "xfs", "flags": ("noatime,logdev=/dev/nvme9n1",)},
            "mount option 'logdev=/dev/nvme9n1' is not allowed for volumes",
        ),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_looked_for(machine, asked, sentence):
    with pytest.raises(NodeError, match=sentence) as refused:
        await machine.stager.stage(machine.stage(**asked))

    assert refused.value.reason is Reason.INVALID_REQUEST


async def test_another_volume_mounted_at_the_path_is_left_there(machine):
    machine.attach()
    other = machine.attach(OTHER)
    run("mkfs.ext4", "-q", other.node)
    machine.staging().mkdir(parents=True)
    run("mount", other.node, machine.staging())

    with pytest.raises(NodeError) as refused:
        await machine.stager.stage(machine.stage())

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert f"{other.node} (ext4, {other.number}) is already mounted there" in refused.value.message
    assert machine.mounts.at(str(machine.staging())).number == other.number


async def test_a_mount_whose_disk_is_gone_makes_room(machine):
    """Force-detached while mounted, attached again: the old mount is dead, its disk still held."""
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    machine.detach(disk)  # the kernel keeps the loop device until it is unmounted
    again = machine.attach()
    assert again.number != disk.number

    await machine.stager.stage(machine.stage())

    (mount,) = machine.mounts_below()
    assert mount.number == again.number


async def test_a_corrupted_mount_makes_room(machine):
    machine.attach()
    request = machine.stage(file_system="xfs")
    await machine.stager.stage(request)
    (machine.staging() / "file").write_text("written")
    run("sync", machine.staging() / "file")
    run("xfs_io", "-x", "-c", "shutdown -f", machine.staging())
    with pytest.raises(OSError, match="Input/output error"):
        machine.staging().stat()

    await machine.stager.stage(request)

    assert (machine.staging() / "file").read_text() == "written"
    assert len(machine.mounts_below()) == 1


async def test_a_dead_file_system_that_pods_still_hold_is_told_with_their_paths(machine):
    machine.attach()
    request = machine.stage(file_system="xfs")
    await machine.stager.stage(request)
    await machine.publisher.publish(machine.publish())
    run("xfs_io", "-x", "-c", "shutdown -f", machine.staging())

    with pytest.raises(NodeError, match=f"is still mounted at {machine.target()};") as failed:
        await machine.stager.stage(request)

    assert failed.value.reason is Reason.MOUNT_FAILED
    assert [mount.path for mount in machine.mounts_below()] == [str(machine.target())]
    await machine.publisher.unpublish(Unpublish(VOLUME, str(machine.target())))
    await machine.stager.stage(request)
    (machine.staging() / "file").write_text("written")


async def test_a_file_system_that_became_read_only_is_checked_and_mounted_anew(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    run("mount", "-o", "remount,ro", machine.staging())
    machine.restart()

    await machine.stager.stage(machine.stage())

    assert not machine.mounts.at(str(machine.staging())).is_read_only


async def test_a_second_staging_path_with_another_file_system_is_refused(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    elsewhere = machine.kubelet / "plugins" / "other" / "globalmount"
    elsewhere.mkdir(parents=True)
    run("mount", "--move", machine.staging(), elsewhere)

    with pytest.raises(NodeError, match=f"is already mounted as ext4 at {elsewhere}") as refused:
        await machine.stager.stage(machine.stage(file_system="xfs"))

    assert refused.value.reason is Reason.FILE_SYSTEM_MISMATCH


async def test_a_damaged_file_system_is_told_and_stays_to_be_looked_at(machine):
    disk = machine.attach()
    damage(disk.node, mended_by_itself=False)

    with pytest.raises(NodeError) as damaged:
        await machine.stager.stage(machine.stage(origin="snap-1"))

    assert damaged.value.reason is Reason.FILE_SYSTEM_DAMAGED
    assert "UNEXPECTED INCONSISTENCY" in damaged.value.message
    assert f"e2fsck -f {disk.node}" in damaged.value.message
    assert machine.mounts_below() == []
    assert 'TYPE="ext4"' in run("blkid", "-p", disk.node)


async def test_small_damage_is_repaired(machine):
    disk = machine.attach()
    damage(disk.node, mended_by_itself=True)

    await machine.stager.stage(machine.stage(origin="snap-1"))

    assert machine.mounts.at(str(machine.staging())) is not None


async def test_a_check_that_cannot_run_stops_the_mount(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.stager.unstage(unstage(machine))
    machine.fake("e2fsck", "echo out of memory >&2; exit 8")

    with pytest.raises(NodeError, match=r"ended with exit code 8: out of memory") as failed:
        await machine.stager.stage(machine.stage())

    assert failed.value.reason is Reason.FILE_SYSTEM_DAMAGED
    assert machine.mounts_below() == []


async def test_what_cannot_grow_is_mounted_at_its_old_size_and_told(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    disk.grow(1024)
    machine.fake("resize2fs", "echo no room for descriptors >&2; exit 1")

    with capture_logs() as logs:
        await machine.stager.stage(machine.stage(origin="snap-1"))
        machine.restart()
        await machine.stager.stage(machine.stage(origin="snap-1"))  # kubelet was restarted

    (machine.staging() / "file").write_text("usable")
    told = [each["why"] for each in logs if each["event"].endswith("using it at its old size")]
    assert len(told) == 2
    assert all("no room for descriptors" in each for each in told)
    assert machine.growth.failed == 1  # of this process


async def test_a_growth_that_fails_in_passing_is_tried_once_more(machine):
    disk = machine.attach()
    run("mkfs.xfs", "-q", disk.node)
    disk.grow(1024)
    runs, real = machine.folder / "runs", machine.real("xfs_growfs")
    # As it ends while another one is at work.
    fails = "echo xfs_growfs: Resource temporarily unavailable >&2; exit 1"
    machine.fake(
        "xfs_growfs",
        f'echo run >> {runs}; [ -e {runs}.2 ] || {{ touch {runs}.2; {fails}; }}; exec {real} "$@"',
    )

    await machine.stager.stage(machine.stage(origin="snap-1", file_system="xfs"))

    assert runs.read_text() == "run\nrun\n"
    assert os.statvfs(machine.staging()).f_blocks * 4096 > 900 * MIB


async def test_a_growth_that_may_succeed_next_time_is_asked_for_again(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    disk.grow(1024)
    machine.fake("resize2fs", "echo resize2fs: Cannot allocate memory >&2; exit 1")

    with pytest.raises(NodeError, match="this is retried") as failed:
        await machine.expander.expand(Expand(VOLUME, str(machine.staging()), "", 0, None))

    assert failed.value.reason is Reason.GROW_FAILED
    assert code_of(failed.value, "NodeExpandVolume") is StatusCode.UNAVAILABLE
    await machine.stager.stage(machine.stage())  # at its old size


async def test_a_growth_that_is_killed_each_time_does_not_keep_pods_from_the_volume(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    disk.grow(1024)
    runs = machine.folder / "runs"
    machine.fake("resize2fs", f"echo run >> {runs}; kill -9 $$")

    with pytest.raises(NodeError, match="ended by SIGKILL: no output twice; if the") as failed:
        await machine.expander.expand(Expand(VOLUME, str(machine.staging()), "", 0, None))

    assert runs.read_text() == "run\nrun\n"
    assert code_of(failed.value, "NodeExpandVolume") is StatusCode.FAILED_PRECONDITION


async def test_an_ext4_without_64_bits_on_a_device_past_16_tib_is_mounted_at_its_old_size(machine):
    """As e2fsprogs 1.42 made them: resize2fs itself refuses."""
    disk = machine.attach()
    run("mkfs.ext4", "-q", "-O", "^64bit", disk.node)
    on_xfs = machine.folder / "large"
    try:
        on_xfs.mkdir()
        image = machine.folder / "large.img"
        image.touch()
        os.truncate(image, 2048 * MIB)
        run("mkfs.xfs", "-q", image)
        run(
            "mount", "-o", "loop", image, on_xfs
        )  # what pytest has its folders on has no such files
        machine.detach(disk)
        large = on_xfs / disk.volume_id
        run("cp", "--sparse=always", disk.image, large)
        disk.image.unlink()
        disk.image.symlink_to(large)
        disk = machine.attach()
        os.truncate(large, 17 * 1024 * 1024 * MIB)
        run("losetup", "-c", disk.loop)

        await machine.stager.stage(machine.stage(origin="snap-1"))

        (machine.staging() / "file").write_text("usable")
        request = Expand(disk.volume_id, str(machine.staging()), "", 17 * 1024 * 1024 * MIB, None)
        with pytest.raises(NodeError) as refused:
            await machine.expander.expand(request)
        assert code_of(refused.value, "NodeExpandVolume") is StatusCode.FAILED_PRECONDITION
    finally:
        await machine.stager.unstage(unstage(machine))
        machine.detach(disk)
        run("umount", on_xfs)


async def test_what_dies_by_its_growth_is_told_and_not_used(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    disk.grow(1024)
    machine.fake("resize2fs", f"mount -o remount,ro {machine.staging()}; exit 1")

    with pytest.raises(NodeError) as failed:
        await machine.stager.stage(machine.stage(origin="snap-1"))

    assert failed.value.reason is Reason.GROW_FAILED
    assert machine.mounts_below() == []


def growth_breaks(machine: Machine, disk: Disk) -> None:
    """Resize2fs fails, and the kernel has marked the file system as one with errors."""
    errors = f"/sys/fs/ext4/{disk.loop.rpartition('/')[2]}/trigger_fs_error"
    machine.fake("resize2fs", f"echo by a test > {errors}; exit 1")


async def test_what_has_errors_after_its_growth_is_checked_before_it_is_used(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    run("mkfs.ext4", "-q", disk.node)
    disk.grow(1024)
    growth_breaks(machine, disk)

    with pytest.raises(NodeError, match="found errors in the ext4 of volume") as failed:
        await machine.stager.stage(machine.stage(origin="snap-1"))

    assert failed.value.reason is Reason.FILE_SYSTEM_DAMAGED
    assert machine.mounts_below() == []
    machine.fake("resize2fs", "exit 1")
    await machine.stager.stage(machine.stage(origin="snap-1"))
    assert machine.devices.errors(await device_of(machine)) == 0


async def test_what_has_errors_and_is_shown_to_no_pod_is_checked_and_mounted_anew(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage())
    disk.grow(1024)
    growth_breaks(machine, disk)
    with pytest.raises(NodeError) as failed:
        await machine.stager.stage(machine.stage())  # kubelet was restarted
    assert code_of(failed.value, "NodeStageVolume") is StatusCode.UNAVAILABLE
    machine.fake("resize2fs", "exit 1")

    await machine.stager.stage(machine.stage())

    assert machine.devices.errors(await device_of(machine)) == 0


async def test_the_kubelet_lets_no_pod_use_what_has_errors_after_its_growth(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await machine.stager.stage(machine.stage())
    disk.grow(1024)
    growth_breaks(machine, disk)

    with pytest.raises(
        NodeError, match=r"delete the pods on this node that use it: .*agents for logs"
    ) as failed:
        await machine.expander.expand(Expand(VOLUME, str(machine.staging()), "", 0, None))

    assert code_of(failed.value, "NodeExpandVolume") is StatusCode.UNAVAILABLE


async def device_of(machine: Machine) -> Device:
    return await machine.devices.find(VOLUME, "", "", wait_s=0)


async def test_mount_options_that_the_kernel_refuses_are_told(machine):
    machine.attach()

    with pytest.raises(NodeError, match="as ext4 with rw,wsync") as failed:
        await machine.stager.stage(machine.stage(flags=("wsync",)))

    assert failed.value.reason is Reason.MOUNT_FAILED


async def test_a_device_that_takes_no_writes_is_told(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    run("blockdev", "--setro", disk.node)

    with pytest.raises(NodeError) as refused:
        await machine.stager.stage(machine.stage(origin="snap-1"))

    assert refused.value.reason is Reason.DEVICE_READ_ONLY
    await machine.stager.stage(
        machine.stage(origin="snap-1", mode=AccessMode.MULTI_NODE_READER_ONLY)
    )


@pytest.mark.parametrize("program", ["mkfs.ext4", "mount"])
async def test_a_program_that_hangs_is_joined_by_the_retry(machine, program):
    machine.attach()
    gate, begun, runs = (machine.folder / name for name in ("gate", "begun", "runs"))
    os.mkfifo(gate)
    os.mkfifo(begun)
    goes_on = f'exec {machine.real(program)} "$@"'
    machine.fake(program, f"echo run >> {runs}; echo > {begun}; cat {gate}; {goes_on}")
    asked = asyncio.ensure_future(machine.stager.stage(machine.stage()))
    await asyncio.to_thread(begun.read_text)

    asked.cancel()  # the kubelet's deadline has passed
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert [each.name for each in machine.programs.running()] == [program]
    with pytest.raises(NodeError, match=f"now: {program}") as refused:
        await machine.stager.unstage(unstage(machine))
    assert refused.value.reason is Reason.OPERATION_RUNNING
    retry = asyncio.ensure_future(machine.stager.stage(machine.stage()))
    await asyncio.sleep(0)
    gate.write_text("")
    await retry

    assert runs.read_text() == "run\n"
    assert len(machine.mounts_below()) == 1
