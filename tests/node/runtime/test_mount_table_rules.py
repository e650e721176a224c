"""mountinfo: real lines, names with anything in them, mounts on mounts."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.mount_table_rules import Mount

STAGED = (
    b"36 35 259:3 / /var/lib/kubelet/plugins/kubernetes.io/csi/ebs/0a1/globalmount "
    b"rw,relatime shared:12 - ext4 /dev/nvme1n1 rw,seclabel\n"
)
LINES = {
    "without optional fields": (
        b"42 27 7:0 / /mnt ro - xfs /dev/loop0 rw,nouuid\n",
        Mount(42, 27, "7:0", "/", "/mnt", ("ro",), "xfs", "/dev/loop0", ("rw", "nouuid")),
    ),
    "with three optional fields": (
        b"42 27 0:6 / /dev rw shared:1 master:2 propagate_from:3 - tmpfs none rw\n",
        Mount(42, 27, "0:6", "/", "/dev", ("rw",), "tmpfs", "none", ("rw",)),
    ),
    "a device node, bound": (
        b"9 8 0:6 /nvme1n1 /var/lib/block rw - devtmpfs udev rw\n",
        Mount(9, 8, "0:6", "/nvme1n1", "/var/lib/block", ("rw",), "devtmpfs", "udev", ("rw",)),
    ),
    "escapes": (
        b"9 8 7:1 / /a\\040b\\011c\\012d\\134040 rw - ext4 /dev/x\\040y rw\n",
        Mount(9, 8, "7:1", "/", "/a b\tc\nd\\040", ("rw",), "ext4", "/dev/x y", ("rw",)),
    ),
    "a deleted root": (
        b"9 8 8:1 /gone//deleted /a rw - ext4 /dev/sda1 rw\n",
        Mount(9, 8, "8:1", "/gone//deleted", "/a", ("rw",), "ext4", "/dev/sda1", ("rw",)),
    ),
    "an empty source": (
        b"9 8 0:9 / /a rw - fuse  rw\n",
        Mount(9, 8, "0:9", "/", "/a", ("rw",), "fuse", "", ("rw",)),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_reads_a_line(name):
    line, mount = LINES[name]

    assert mount_table_rules.parse(line) == (mount,)
    assert mount.is_deleted == (name == "a deleted root")


@pytest.mark.parametrize(
    "line", [b"36 35 259:3 / /mnt rw shared:1 ext4 /dev/x rw\n", b"36 35 - ext4 x rw\n", b"x\n"]
)
def test_what_is_no_line_is_an_error(line):
    with pytest.raises(ValueError, match="malformed line in mountinfo"):
        mount_table_rules.parse(STAGED + line)


def test_reads_this_machine():
    table = mount_table_rules.parse(Path("/proc/self/mountinfo").read_bytes())

    assert mount_table_rules.at("/proc", table) is not None
    assert mount_table_rules.at("/proc/self", table) is None


def escaped(name: bytes) -> bytes:
    """As ``mangle_path`` of the kernel does."""
    return b"".join(b"\\%03o" % byte if byte in b" \t\n\\#" else bytes([byte]) for byte in name)


NAMES = st.binary(min_size=1, max_size=40).map(lambda name: b"/" + name.replace(b"\0", b"0"))


@given(paths=st.lists(st.sampled_from(["/a", "/a/b", "/b c", "/ü", "/a\\b"]), max_size=6))
def test_lines_that_are_passed_over_are_of_other_paths(paths):
    table = b"".join(
        b"%d %d 7:%d / %s rw - ext4 /a rw\n" % (2 + place, 1, place, escaped(path.encode()))
        for place, path in enumerate(paths)
    )

    for path in ("/a", "/a/b", "/b c", "/ü", "/a\\b", "/c"):
        assert mount_table_rules.at_in(path, table) == mount_table_rules.at(
            path, mount_table_rules.parse(table)
        )


@given(
    paths=st.lists(NAMES, min_size=1, max_size=5),
    optional=st.lists(st.sampled_from([b"shared:1", b"master:22", b"unbindable"]), max_size=3),
    root=NAMES,
    source=NAMES,
)
def test_any_name_comes_back_as_it_was(paths, optional, root, source):
    lines = [
        b" ".join([b"%d 1 7:1" % (2 + place), escaped(root), escaped(path), b"rw", *optional])
        + b" - ext4 %s rw\n" % escaped(source)
        for place, path in enumerate(paths)
    ]

    table = mount_table_rules.parse(b"".join(lines))

    assert [os.fsencode(mount.path) for mount in table] == paths
    assert {(os.fsencode(m.root), os.fsencode(m.source)) for m in table} == {(root, source)}


def mount(mount_id: int, parent_id: int, path: str, number: str = "7:1") -> Mount:
    return Mount(mount_id, parent_id, number, "/", path, ("rw",), "ext4", "/dev/x", ("rw",))


@pytest.mark.parametrize("order", [1, -1])
def test_the_uppermost_of_mounts_on_each_other_is_seen(order):
    table = [mount(2, 1, "/a"), mount(3, 2, "/a", "7:2"), mount(4, 3, "/a", "7:3")][::order]

    seen = mount_table_rules.at("/a", table)

    assert seen is not None
    assert seen.number == "7:3"
    assert mount_table_rules.count_at("/a", table) == 3
    assert mount_table_rules.count_at("/b", table) == 0


def test_of_two_in_worlds_of_their_own_the_later_is_seen():
    table = [mount(2, 1, "/a/b"), mount(3, 1, "/a"), mount(4, 3, "/a/b", "7:9")]

    seen = mount_table_rules.at("/a/b", table)

    assert seen is not None
    assert seen.number == "7:9"


def test_finds_all_mounts_of_a_device():
    table = [mount(2, 1, "/a"), mount(3, 1, "/b", "7:2"), mount(4, 1, "/c")]

    assert [each.path for each in mount_table_rules.of_device("7:1", table)] == ["/a", "/c"]


@pytest.mark.parametrize(
    ("options", "super_options", "is_read_only", "everywhere"),
    [
        (("rw",), ("rw",), False, False),
        (("ro", "relatime"), ("rw",), True, False),
        (("rw",), ("ro",), True, True),
        (("rw",), ("rw", "emergency_ro"), True, True),
        (("rw",), ("rw", "errors=remount-ro"), False, False),
    ],
)
def test_tells_what_cannot_be_written_to(options, super_options, is_read_only, everywhere):
    found = Mount(2, 1, "7:1", "/", "/a", options, "ext4", "/dev/x", super_options)

    assert (found.is_read_only, found.is_read_only_everywhere) == (is_read_only, everywhere)
