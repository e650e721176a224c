"""Mount options; what is to be done about what is mounted; what a failed mount means."""

import errno

import pytest

from provisioner.model.errors import Reason
from provisioner.node.mounting import rules
from provisioner.node.mounting.rules import MountState, Seen
from provisioner.node.requests import AccessMode, Capability
from provisioner.node.runtime.mount_table_rules import Mount

HERE, THERE = "259:3", "259:4"


def capability(*flags: str, reads: bool = False) -> Capability:
    mode = AccessMode.MULTI_NODE_READER_ONLY if reads else AccessMode.SINGLE_NODE_WRITER
    return Capability(is_block=False, file_system="", mount_flags=flags, access_mode=mode)


def mount(
    number: str = HERE, *, root: str = "/", options: str = "rw", super_options: str = "rw"
) -> Mount:
    return Mount(
        *(9, 8, number, root, "/a"),
        *((options, "relatime"), "ext4", "/dev/nvme1n1", (super_options,)),
    )


@pytest.mark.parametrize(
    ("file_system", "asked", "options"),
    [
        ("ext4", capability(), ("rw",)),
        ("ext4", capability("noatime", "noatime,discard"), ("rw", "noatime", "discard")),
        ("ext4", capability(" noatime ", ","), ("rw", "noatime")),
        ("ext4", capability(reads=True), ("ro",)),
        ("ext4", capability("rw", reads=True), ("ro",)),
        ("ext4", capability("ro", "noload"), ("ro", "noload")),
        ("xfs", capability(), ("rw", "nouuid")),
        ("xfs", capability("nouuid", "ro", "norecovery"), ("ro", "nouuid", "norecovery")),
        (
            "ext4",
            capability('context="system_u:object_r:container_file_t:s0:c1,c2",noatime'),
            ("rw", 'context="system_u:object_r:container_file_t:s0:c1,c2"', "noatime"),
        ),
    ],
)
def test_options_to_mount_with(file_system, asked, options):
    assert rules.mount_options(file_system, asked) == options


@pytest.mark.parametrize(
    "flag", ["bind", "remount", "loop=/dev/loop1", "noatime,move", "X-mount.subdir=a", "rshared"]
)
def test_refuses_options_that_do_something_else(flag):
    with pytest.raises(ValueError, match="is not allowed for volumes; remove it from mountOptions"):
        rules.mount_options("ext4", capability(flag))


@pytest.mark.parametrize(
    ("seen", "read_only", "has_errors", "is_alone", "place"),
    [
        (Seen(None), False, False, True, MountState.FREE),
        (Seen(None, is_corrupted=True), False, False, True, MountState.STALE),
        (Seen(mount()), False, False, True, MountState.DONE),
        (Seen(mount()), True, False, True, MountState.DONE),
        (Seen(mount()), False, True, True, MountState.STALE),
        (Seen(mount()), False, True, False, MountState.DONE),
        (Seen(mount()), True, True, True, MountState.DONE),
        (Seen(mount(THERE)), False, False, True, MountState.FOREIGN),
        (Seen(mount(root="/sub")), False, False, True, MountState.FOREIGN),
        (Seen(mount(THERE), has_device=False), False, False, True, MountState.STALE),
        (Seen(mount(), is_corrupted=True), False, False, False, MountState.STALE),
        (Seen(mount(super_options="ro")), False, False, True, MountState.STALE),
        (Seen(mount(super_options="ro")), False, False, False, MountState.READ_ONLY),
        (Seen(mount(super_options="emergency_ro")), False, False, False, MountState.READ_ONLY),
        (Seen(mount(super_options="ro")), True, False, True, MountState.DONE),
        (Seen(mount(super_options="ro")), True, False, False, MountState.DONE),
    ],
)
def test_what_to_do_at_a_staging_path(seen, read_only, has_errors, is_alone, place):
    found = rules.staged(seen, HERE, read_only=read_only, has_errors=has_errors, is_alone=is_alone)

    assert found is place


@pytest.mark.parametrize(
    ("seen", "staging", "read_only", "place"),
    [
        (Seen(None), mount(), False, MountState.FREE),
        (Seen(mount()), mount(), False, MountState.DONE),
        (Seen(mount()), mount(), True, MountState.REMOUNT),
        (Seen(mount(options="ro")), mount(), False, MountState.REMOUNT),
        (Seen(mount(options="ro")), mount(), True, MountState.DONE),
        (Seen(mount(options="ro")), mount(options="ro"), False, MountState.DONE),
        (Seen(mount(super_options="ro")), mount(super_options="ro"), False, MountState.DONE),
        (Seen(None), mount(super_options="ro"), False, MountState.READ_ONLY),
        (Seen(None), mount(options="ro"), False, MountState.READ_ONLY),
        (Seen(None), mount(super_options="ro"), True, MountState.FREE),
        (Seen(mount(options="ro")), mount(super_options="ro"), False, MountState.READ_ONLY),
        (Seen(mount(), is_corrupted=True), mount(super_options="ro"), False, MountState.READ_ONLY),
        (Seen(mount(THERE)), mount(super_options="ro"), False, MountState.FOREIGN),
        (Seen(mount(THERE)), mount(), False, MountState.FOREIGN),
        (Seen(mount(THERE), has_device=False), mount(), False, MountState.STALE),
        (Seen(mount(), is_corrupted=True), mount(), False, MountState.STALE),
    ],
)
def test_what_to_do_at_a_target_path(seen, staging, read_only, place):
    assert rules.published(seen, staging, read_only=read_only) is place


@pytest.mark.parametrize(
    ("number", "is_corrupted"),
    [
        (errno.ESTALE, True),
        (errno.EIO, True),
        (errno.ENOTCONN, True),
        (errno.EACCES, True),
        (errno.ENOENT, False),
        (errno.ENOTDIR, False),
        (errno.ENOSPC, False),
    ],
)
def test_knows_the_errors_of_a_dead_mount(number, is_corrupted):
    assert rules.is_corrupted(OSError(number, "no")) is is_corrupted


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("mount: /a: /dev/x already mounted or mount point busy.", Reason.DEVICE_BUSY),
        ("mount: /a: /dev/x already mounted on /b.", Reason.DEVICE_BUSY),
        ("mount: /a: cannot mount /dev/x read-only.", Reason.DEVICE_READ_ONLY),
        ("mount: /a: unknown filesystem type 'xfs'.", Reason.NOT_SUPPORTED),
        ("mount: /a: wrong fs type, bad option, bad superblock", Reason.MOUNT_FAILED),
    ],
)
def test_the_reason_behind_a_failed_mount(said, reason):
    assert rules.mount_failure(said) is reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("mount: {}: must be superuser to use mount.", Reason.MOUNT_FAILED),
        ("mount: {}: {} already mounted or mount point busy.", Reason.DEVICE_BUSY),
        ('mount: "{}": cannot mount /dev/read-only read-write', Reason.MOUNT_FAILED),
        ("mount: /busy{}: cannot mount /dev/x read-only.", Reason.DEVICE_READ_ONLY),
    ],
)
@pytest.mark.parametrize("path", ["/k/busybox/read-only/a", "/k/my busy files/read-only b"])
def test_names_in_what_mount_said_are_no_reason(said, reason, path):
    assert rules.mount_failure(said.format(path, path), path) is reason


@pytest.mark.parametrize("path", ["/k/data", "/k/busybox-data/mount", "/k/a busy one"])
def test_a_name_is_no_reason_for_a_failed_umount(path):
    assert rules.is_in_use(f"umount: {path}: target is busy.", path)
    assert not rules.is_in_use(f"umount: {path}: must be superuser to unmount.", path)


@pytest.mark.parametrize(
    ("time_left_s", "waits_s"),
    [(None, 60), (120, 60), (65, 60), (30, 25), (10, 5), (6, 3), (0.2, 0.1), (0, 0)],
)
def test_a_wait_for_a_device_leaves_time_for_an_answer(time_left_s, waits_s):
    assert rules.wait_s(time_left_s) == pytest.approx(waits_s)
