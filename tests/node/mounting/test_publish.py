"""Publishing file systems and raw devices: twice, after crashes, read-only, and what is in the way."""

import asyncio
import os
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import AccessMode, Unpublish
from tests.node.machine import OTHER, VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


@pytest.fixture
async def staged(machine):
    """A machine with one volume staged."""
    machine.attach()
    await machine.stager.stage(machine.stage())
    return machine


def unpublish(machine: Machine, pod: str = "pod-1") -> Unpublish:
    return Unpublish(VOLUME, str(machine.target(pod)))


def mounts_at(machine: Machine, path: Path) -> int:
    return sum(mount.path == str(path) for mount in machine.mounts_below())


async def test_a_pod_writes_to_the_staged_volume(staged):
    await staged.publisher.publish(staged.publish())
    (staged.target() / "file").write_text("written")

    assert (staged.staging() / "file").read_text() == "written"


async def test_two_pods_share_the_volume(staged):
    for pod in ("pod-1", "pod-2"):
        await staged.publisher.publish(staged.publish(pod=pod))
    (staged.target("pod-1") / "file").write_text("written")

    assert (staged.target("pod-2") / "file").read_text() == "written"


async def test_publishing_twice_mounts_once(staged):
    await staged.publisher.publish(staged.publish())
    staged.restart()
    await staged.publisher.publish(staged.publish())

    assert mounts_at(staged, staged.target()) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"read_only": True},
        {"mode": AccessMode.SINGLE_NODE_READER_ONLY},
        {"flags": ("ro",)},
    ],
)
async def test_what_is_published_for_reading_cannot_be_written(staged, asked):
    await staged.publisher.publish(staged.publish(**asked))

    with pytest.raises(OSError, match="Read-only file system"):
        (staged.target() / "file").write_text("no")
    (staged.staging() / "file").write_text("the others still write")


async def test_what_is_staged_for_reading_is_published_so(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    await machine.stager.stage(machine.stage(mode=AccessMode.MULTI_NODE_READER_ONLY))
    for _ in range(2):
        await machine.publisher.publish(machine.publish(mode=AccessMode.MULTI_NODE_READER_ONLY))

    with pytest.raises(OSError, match="Read-only file system"):
        (machine.target() / "file").write_text("no")
    assert mounts_at(machine, machine.target()) == 1


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_process_killed_between_bind_and_remount_does_the_rest(staged, read_only):
    """The bind is there, as the other one of read-only and writable."""
    await staged.publisher.publish(staged.publish(read_only=not read_only))
    staged.restart()
    await staged.publisher.publish(staged.publish(read_only=read_only))

    mount = staged.mounts.at(str(staged.target()))
    assert ("ro" in mount.options) == read_only
    assert mounts_at(staged, staged.target()) == 1


async def test_a_target_made_but_not_mounted_is_mounted_on(staged):
    staged.target().mkdir(parents=True)

    await staged.publisher.publish(staged.publish())

    assert mounts_at(staged, staged.target()) == 1


async def test_a_failed_remount_leaves_nothing_mounted(staged):
    real = staged.real("mount")
    staged.fake(
        "mount", f'case "$*" in *remount,bind*) echo no >&2; exit 1;; esac; exec {real} "$@"'
    )

    with pytest.raises(NodeError, match=r"remount,bind,ro .* failed \(exit code 1\): no"):
        await staged.publisher.publish(staged.publish(read_only=True))

    assert mounts_at(staged, staged.target()) == 0


async def test_what_is_not_staged_is_not_published(machine):
    """Else the pod would write to the root disk."""
    machine.attach()
    machine.staging().mkdir(parents=True)

    with pytest.raises(
        NodeError, match=r"not mounted at its staging .*; delete the pod:"
    ) as refused:
        await machine.publisher.publish(machine.publish())

    assert refused.value.reason is Reason.VOLUME_NOT_STAGED
    assert not machine.target().exists()


async def test_another_volume_at_the_staging_path_is_not_published(machine):
    machine.attach()
    other = machine.attach(OTHER)
    run("mkfs.ext4", "-q", other.node)
    machine.staging().mkdir(parents=True)
    run("mount", other.node, machine.staging())

    with pytest.raises(NodeError) as refused:
        await machine.publisher.publish(machine.publish())

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert not machine.target().exists()


async def test_another_volume_at_the_target_is_left_there(staged):
    other = staged.attach(OTHER)
    run("mkfs.ext4", "-q", other.node)
    staged.target().mkdir(parents=True)
    run("mount", other.node, staged.target())

    with pytest.raises(NodeError, match=f"{other.node} .* is already mounted there") as refused:
        await staged.publisher.publish(staged.publish())

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert staged.mounts.at(str(staged.target())).number == other.number


async def test_a_dead_mount_at_the_target_makes_room(machine):
    machine.attach()
    await machine.stager.stage(machine.stage(file_system="xfs"))
    await machine.publisher.publish(machine.publish())
    run("xfs_io", "-x", "-c", "shutdown -f", machine.staging())
    run("umount", machine.staging())
    run("umount", machine.target())
    dead = machine.attach(OTHER, name="nvme9n1")
    run("mkfs.xfs", "-q", dead.node)
    run("mount", dead.node, machine.target())
    run("xfs_io", "-x", "-c", "shutdown", machine.target())
    await machine.stager.stage(machine.stage(file_system="xfs"))

    await machine.publisher.publish(machine.publish())

    (machine.target() / "file").write_text("written")
    assert mounts_at(machine, machine.target()) == 1


async def test_a_file_where_a_directory_should_be_is_told(staged):
    staged.target().parent.mkdir(parents=True)
    staged.target().write_text("a file")

    with pytest.raises(NodeError, match="exists and is not a directory") as refused:
        await staged.publisher.publish(staged.publish())

    assert refused.value.reason is Reason.MOUNT_FAILED
    assert staged.target().read_text() == "a file"


@pytest.mark.parametrize("is_block", [True, False])
async def test_a_full_file_system_under_the_target_is_told(staged, is_block):
    pods = staged.kubelet / "pods"
    pods.mkdir()
    run("mount", "-t", "tmpfs", "-o", "nr_inodes=1", "none", pods)

    with pytest.raises(NodeError, match="its file system is out of space or inodes") as refused:
        await staged.publisher.publish(staged.publish(is_block=is_block))

    assert refused.value.reason is Reason.TARGET_FULL


async def test_a_link_out_of_the_kubelets_folder_is_not_followed(staged):
    outside = staged.folder / "etc"
    outside.mkdir()
    (staged.kubelet / "pods").symlink_to(outside)

    with pytest.raises(NodeError, match="the link that leads out of it") as refused:
        await staged.publisher.publish(staged.publish())

    assert refused.value.reason is Reason.INVALID_REQUEST
    assert list(outside.iterdir()) == []


async def test_unpublishing_twice_is_as_once(staged):
    await staged.publisher.publish(staged.publish())

    await staged.publisher.unpublish(unpublish(staged))
    await staged.publisher.unpublish(unpublish(staged))

    assert not staged.target().exists()
    assert mounts_at(staged, staged.staging()) == 1


async def test_unpublishing_a_path_in_use_tells_how_to_see_by_whom_and_ends_nothing(staged):
    await staged.publisher.publish(staged.publish())
    with (staged.target() / "file").open("w"):
        with pytest.raises(NodeError, match=f"fuser -vm {staged.target()}") as busy:
            await staged.publisher.unpublish(unpublish(staged))
        assert mounts_at(staged, staged.target()) == 1

    assert busy.value.reason is Reason.TARGET_BUSY
    await staged.publisher.unpublish(unpublish(staged))


async def test_unpublishing_under_another_mount_tells_which(staged):
    await staged.publisher.publish(staged.publish())
    inside = staged.target() / "inside"
    inside.mkdir()
    run("mount", "-t", "tmpfs", "none", inside)

    with pytest.raises(NodeError, match=f"something is mounted below it, at {inside}") as busy:
        await staged.publisher.unpublish(unpublish(staged))

    assert busy.value.reason is Reason.TARGET_BUSY


async def test_a_bind_that_hangs_is_joined_by_the_retry(staged):
    gate, begun, runs = (staged.folder / name for name in ("gate", "begun", "runs"))
    os.mkfifo(gate)
    os.mkfifo(begun)
    goes_on = f'exec {staged.real("mount")} "$@"'
    staged.fake("mount", f"echo run >> {runs}; echo > {begun}; cat {gate}; {goes_on}")
    asked = asyncio.ensure_future(staged.publisher.publish(staged.publish()))
    await asyncio.to_thread(begun.read_text)
    asked.cancel()
    await asyncio.wait({asked})

    with pytest.raises(NodeError, match="now: mount") as refused:
        await staged.publisher.unpublish(unpublish(staged))
    retry = asyncio.ensure_future(staged.publisher.publish(staged.publish()))
    await asyncio.sleep(0)
    gate.write_text("")
    await retry

    assert refused.value.reason is Reason.OPERATION_RUNNING
    assert runs.read_text() == "run\n"
    assert mounts_at(staged, staged.target()) == 1
