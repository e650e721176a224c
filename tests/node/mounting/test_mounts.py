"""What the kernel is asked for, and what is done if it or a program does not do it."""

import os
from functools import partial
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.mounting.mounts import Mounts, _steady
from provisioner.node.runtime.sysfs import SystemDirs
from tests.node.machine import run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


async def test_a_mount_that_is_said_and_not_seen_is_told(machine):
    """So it is where the kubelet's folder is not shared with the plugin's container."""
    disk = machine.attach()
    machine.fake("mount", "exit 0")

    with pytest.raises(NodeError, match="mountPropagation: Bidirectional") as lost:
        await machine.mounts.mount(
            disk.node, str(machine.kubelet), file_system="ext4", options=("rw",)
        )

    assert lost.value.reason is Reason.MOUNT_FAILED


@pytest.mark.parametrize("option", ["_netdev", "x-systemd.automount", "user"])
async def test_what_mount_keeps_for_itself_is_written_nowhere(machine, option):
    """The root file system of the plugin's container takes no writes, and mount would fail then."""
    disk, path = machine.attach(), str(machine.kubelet)
    run("mkfs.ext4", "-q", disk.node)

    await machine.mounts.mount(disk.node, path, file_system="ext4", options=("rw", option))

    assert machine.mounts.at(path).number == disk.number
    notes = Path("/run/mount/utab")
    assert path not in (notes.read_text() if notes.exists() else "")


async def test_a_mount_that_fails_after_the_kernel_has_mounted_is_taken_away(machine):
    """So mount(8) ends where it cannot write what it notes of a mount."""
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    said = "filesystem was mounted, but any subsequent operation failed: Read-only file system"
    machine.fake("mount", f'{machine.real("mount")} "$@"; echo "{said}" >&2; exit 32')

    with pytest.raises(NodeError, match=rf"\(exit code 32\): {said}") as failed:
        await machine.mounts.mount(
            disk.node, str(machine.kubelet), file_system="ext4", options=("rw",)
        )

    assert failed.value.reason is Reason.MOUNT_FAILED  # the device itself takes writes
    assert machine.mounts_below() == []


async def test_a_failed_mount_that_is_in_use_at_once_is_told_as_it_failed(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    machine.fake("mount", f'{machine.real("mount")} "$@"; echo strange >&2; exit 32')
    machine.fake("umount", "echo target is busy >&2; exit 32")

    with pytest.raises(NodeError, match=r"could not be mounted at .* \(exit code 32\): strange"):
        await machine.mounts.mount(
            disk.node, str(machine.kubelet), file_system="ext4", options=("rw",)
        )


UNKNOWN = "wrong fs type, bad option, bad superblock"
OLD = "5.4.0-216-generic"


@pytest.mark.parametrize(
    ("release", "made_with", "said", "is_named"),
    [
        (OLD, "bigtime=1,inobtcount=1", UNKNOWN, True),
        (OLD, "bigtime=0,inobtcount=1", UNKNOWN, True),
        (OLD, "bigtime=0,inobtcount=0", UNKNOWN, False),  # --legacy-xfs
        (OLD, "bigtime=1,inobtcount=1", "mount failed: Structure needs cleaning", False),
        ("6.1.0", "bigtime=1,inobtcount=1", UNKNOWN, False),
    ],
)
async def test_a_kernel_that_may_be_too_old_for_an_xfs_is_named(
    machine, monkeypatch, *, release, made_with, said, is_named
):
    disk, here = machine.attach(), os.uname()
    run("mkfs.xfs", "-q", "-m", f"crc=1,finobt=1,{made_with}", disk.node)
    names = (here.sysname, here.nodename, release, here.version, here.machine)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(names))
    machine.fake("mount", f"echo {said} >&2; exit 32")

    with pytest.raises(NodeError, match=said) as failed:
        await machine.mounts.mount(
            disk.node, str(machine.kubelet), file_system="xfs", options=("rw",)
        )

    hint = f"Linux {OLD}, is older than 5.10 and may not know bigtime and inobtcount"
    assert (hint in failed.value.message) is is_named
    assert ("older" in failed.value.message) is is_named


async def test_a_disk_that_cannot_be_read_after_a_failed_mount_hides_no_reason(
    machine, monkeypatch
):
    here = os.uname()
    names = (here.sysname, here.nodename, OLD, here.version, here.machine)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(names))
    machine.fake("mount", f"echo {UNKNOWN} >&2; exit 32")

    with pytest.raises(NodeError, match=f"{UNKNOWN}$") as failed:
        await machine.mounts.mount(
            machine.folder / "gone", str(machine.kubelet), file_system="xfs", options=("rw",)
        )

    assert failed.value.reason is Reason.MOUNT_FAILED


@pytest.mark.parametrize(
    ("ends", "why"), [("exit 32", "exit code 32"), ("kill -9 $$", "ended by SIGKILL")]
)
async def test_a_bind_that_fails_after_the_kernel_has_mounted_is_taken_away(machine, ends, why):
    source, target = machine.folder / "source", machine.kubelet / "target"
    source.mkdir()
    target.mkdir()
    machine.fake("mount", f'{machine.real("mount")} "$@"; {ends}')

    with pytest.raises(NodeError, match=why):
        await machine.mounts.bind(source, str(target), read_only=False)

    assert machine.mounts_below() == []


async def test_a_bind_that_is_said_and_not_seen_is_told(machine):
    machine.fake("mount", "exit 0")

    with pytest.raises(NodeError, match="mountPropagation: Bidirectional"):
        await machine.mounts.bind(machine.folder, str(machine.kubelet), read_only=False)


async def test_a_remount_that_is_said_and_not_seen_is_told(machine):
    source, target = machine.folder / "source", machine.kubelet / "target"
    source.mkdir()
    target.mkdir()
    await machine.mounts.bind(source, str(target), read_only=False)
    machine.fake("mount", "exit 0")

    with pytest.raises(NodeError, match="was remounted ro, but the kernel's table does not"):
        await machine.mounts.remount(str(target), read_only=True)


async def test_an_unmount_that_changes_nothing_is_told(machine):
    target = machine.kubelet / "target"
    target.mkdir()
    run("mount", "-t", "tmpfs", "none", target)
    machine.fake("umount", "echo strange >&2; exit 32")

    with pytest.raises(NodeError, match=r"could not be unmounted \(exit code 32\): strange"):
        await machine.mounts.unmount(str(target))


@pytest.mark.parametrize(
    ("said", "reason", "told"),
    [
        ("must be superuser to unmount.", Reason.MOUNT_FAILED, "could not be unmounted"),
        ("target is busy.", Reason.TARGET_BUSY, "is in use"),
    ],
)
async def test_the_words_of_umount_decide_and_not_the_names_of_volumes(machine, said, reason, told):
    target = machine.kubelet / "busybox-data"
    target.mkdir()
    run("mount", "-t", "tmpfs", "none", target)
    machine.fake("umount", f'echo "umount: $1: {said}" >&2; exit 32')

    with pytest.raises(NodeError, match=told) as refused:
        await machine.mounts.unmount(str(target))

    assert refused.value.reason is reason
    assert f"umount: {target}: {said}" in refused.value.message


async def test_the_words_of_mount_decide_and_not_the_names_of_volumes(machine):
    disk = machine.attach()
    target = machine.kubelet / "busybox-data"
    target.mkdir()
    machine.fake("mount", f'echo "mount: {target}: bad superblock on {disk.node}." >&2; exit 32')

    with pytest.raises(NodeError, match="bad superblock") as refused:
        await machine.mounts.mount(disk.node, str(target), file_system="ext4", options=("rw",))

    assert refused.value.reason is Reason.MOUNT_FAILED


async def test_an_unmount_by_somebody_else_meanwhile_is_fine(machine):
    target = machine.kubelet / "target"
    target.mkdir()
    run("mount", "-t", "tmpfs", "none", target)
    machine.fake("umount", f'{machine.real("umount")} "$@"; echo not mounted >&2; exit 32')

    await machine.mounts.unmount(str(target))

    assert machine.mounts_below() == []


@pytest.mark.parametrize("name", ["with space", "tab\tand\nline", "back\\slash#", "ümläut"])
async def test_paths_with_anything_in_them_are_found_and_unmounted(machine, name):
    target = machine.kubelet / name
    target.mkdir()
    run("mount", "-t", "tmpfs", "none", target)

    assert machine.mounts.at(str(target)) is not None
    await machine.mounts.unmount(str(target))
    assert machine.mounts.at(str(target)) is None


async def test_a_directory_held_as_a_working_directory_is_told(machine, tmp_path):
    target = machine.kubelet / "target"
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    target.mkdir()
    run("mount", disk.node, target)
    here = os.getcwd()  # noqa: PTH109 -- to be gone back to
    os.chdir(target)
    try:
        with pytest.raises(NodeError, match=f"fuser -vm {target}"):
            await machine.mounts.unmount(str(target))
    finally:
        os.chdir(here)


def test_a_table_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(NodeError, match="the mount table") as unknown:
        Mounts(None, None, SystemDirs(proc=tmp_path)).table()  # type: ignore[arg-type]  # neither used

    assert unknown.value.reason is Reason.MOUNT_FAILED


def test_the_table_is_read_until_it_is_steady():
    reads = iter([b"1", b"2", b"2", b"3"])

    assert _steady(partial(next, reads)) == b"2"


def test_a_table_that_never_rests_is_taken_as_it_is():
    assert _steady(partial(next, iter(b"%d" % number for number in range(100)))) == b"4"
