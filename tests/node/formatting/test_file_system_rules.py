"""Command lines of mkfs, fsck and growing; exit codes; sizes in superblocks."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from provisioner.classes.storage_class_rules import Formatting, parse_parameters
from provisioner.model.errors import Reason
from provisioner.node.formatting import file_system_rules as rules
from provisioner.node.formatting.file_system_rules import Checked, Measured

DEVICE = Path("/dev/nvme1n1")
EXT = ("-F", "-m0", "-E", "nodiscard")
LATER = "^metadata_csum_seed,^orphan_file"
EXT4 = "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize," + LATER
XFS = (
    *("-f", "-K", "-m", "crc=1,finobt=1,rmapbt=0,reflink=1,bigtime=1,inobtcount=1"),
    *("-i", "sparse=1,nrext64=0"),
)


@pytest.mark.parametrize(
    ("asked", "name"), [("", "ext4"), ("ext4", "ext4"), ("EXT3", "ext3"), ("xfs", "xfs")]
)
def test_chooses_the_file_system_that_is_asked_for(asked, name):
    assert rules.chosen(asked) == name


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("ext2", "file system 'ext2' is not supported; use one of ext4, ext3, xfs"),
        (
            "ntfs",
            "file system ntfs needs a Windows node, and this node runs Linux; set fsType to one of .+, or .+",
        ),
        ("ext4; rm", "file system 'ext4; rm' is not supported; use one of ext4, ext3, xfs"),
    ],
)
def test_refuses_other_file_systems(asked, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        rules.chosen(asked)


@pytest.mark.parametrize(
    ("name", "attributes", "options"),
    [
        ("ext4", {}, (*EXT, "-O", EXT4)),
        ("ext3", {"blocksize": "1024"}, (*EXT, "-b", "1024", "-O", f"has_journal,{LATER}")),
        ("xfs", {}, XFS),
        (
            "xfs",
            {"blocksize": "1024", "inodesize": "1024"},
            (*XFS, "-b", "size=1024", "-i", "size=1024"),
        ),
        (
            "ext4",
            {
                "blocksize": "4096",
                "inodesize": "512",
                "bytesperinode": "8192",
                "numberofinodes": "200192",
                "ext4bigalloc": "true",
                "ext4clustersize": "16384",
                "ext4encryptionsupport": "true",
            },
            (
                *(*EXT, "-b", "4096", "-I", "512", "-i", "8192", "-N", "200192", "-C", "16384"),
                *("-O", f"{EXT4},bigalloc,encrypt"),
            ),
        ),
        ("ext4", {"ext4encryptionsupport": "true"}, (*EXT, "-O", f"{EXT4},encrypt")),
        ("ext4", {"ext4bigalloc": "false", "blocksize": ""}, (*EXT, "-O", EXT4)),
        ("ext4", {"partition": "1", "blockattachuntilinitialized": "true"}, (*EXT, "-O", EXT4)),
    ],
)
def test_the_command_line_that_makes_a_file_system(name, attributes, options):
    expected = (f"mkfs.{name}", *options, str(DEVICE))

    assert rules.mkfs_command(name, attributes, DEVICE) == expected


@pytest.mark.parametrize(
    ("name", "attributes", "sentence"),
    [
        ("xfs", {"ext4bigalloc": "true"}, "ext4BigAlloc cannot be used with xfs, only with ext4"),
        (
            "ext4",
            {"blocksize": "4096 /dev/x"},
            "volume attribute blocksize: '4096 /dev/x' is neither a number nor a number with a unit",
        ),
        (
            "ext4",
            {"ext4bigalloc": "maybe"},
            'volume attribute ext4bigalloc: \'maybe\' is neither "true" nor "false"',
        ),
    ],
)
def test_refuses_what_mkfs_cannot_be_told(name, attributes, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 -- the sentence is compared whole
        rules.mkfs_command(name, attributes, DEVICE)

    assert str(refused.value) == sentence


def test_reads_what_the_controller_writes():
    parameters = parse_parameters(
        {
            "csi.storage.k8s.io/fstype": "ext4",
            "blockSize": "4096",
            "inodeSize": "512",
            "bytesPerInode": "8192",
            "numberOfInodes": "200192",
            "ext4BigAlloc": "yes",
            "ext4ClusterSize": "16384",
            "ext4EncryptionSupport": "true",
        }
    )

    assert rules.formatting_of(parameters.attributes()) == parameters.formatting
    assert rules.formatting_of(Formatting().attributes()) == Formatting()


def test_checks_ext_before_the_mount_and_leaves_xfs_to_the_kernel():
    assert rules.check_command("ext3", DEVICE) == ("e2fsck", "-p", "/dev/nvme1n1")
    assert rules.check_command("xfs", DEVICE) is None


@pytest.mark.parametrize(
    ("exit_code", "verdict"),
    [
        (0, Checked.SOUND),
        (1, Checked.REPAIRED),
        (2, Checked.REPAIRED),
        (3, Checked.REPAIRED),
        (4, Checked.DAMAGED),
        (5, Checked.DAMAGED),
        (12, Checked.DAMAGED),
        (8, Checked.NOT_CHECKED),
        (9, Checked.NOT_CHECKED),
        (16, Checked.NOT_CHECKED),
        (32, Checked.NOT_CHECKED),
        (128, Checked.NOT_CHECKED),
        (-9, Checked.NOT_CHECKED),
    ],
)
def test_what_the_exit_code_of_a_check_says(exit_code, verdict):
    assert rules.check_verdict(exit_code) is verdict


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("/dev/nvme1n1 is mounted. e2fsck: Cannot continue, aborting.", Reason.DEVICE_BUSY),
        ("/dev/nvme1n1 is in use. e2fsck: Cannot continue, aborting.", Reason.DEVICE_BUSY),
        ("e2fsck: Bad magic number in super-block", Reason.FILE_SYSTEM_DAMAGED),
    ],
)
def test_the_reason_behind_a_check_that_could_not_be_made(said, reason):
    assert rules.unchecked_reason(said) is reason


@pytest.mark.parametrize(
    ("exit_code", "said", "passes"),
    [
        (-9, "", True),
        (0, "Resource temporarily unavailable", False),
        (1, "resize2fs: Device or resource busy While checking for on-line resizing support", True),
        (1, "resize2fs: Cannot allocate memory While trying to extend the last group", True),
        (1, "xfs_growfs: XFS_IOC_FSGROWFSDATA xfsctl failed: Interrupted system call", True),
        (1, "resize2fs: Permission denied to resize filesystem", False),
        (1, "resize2fs: New size too large to be expressed in 32 bits", False),
        (1, "xfs_growfs: XFS_IOC_FSGROWFSDATA xfsctl failed: No space left on device", False),
    ],
)
def test_growths_that_are_tried_again(exit_code, said, passes):
    assert rules.may_try_again(exit_code, said) is passes


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ext4", ("resize2fs", "/dev/nvme1n1")),
        ("ext2", ("resize2fs", "/dev/nvme1n1")),
        ("xfs", ("xfs_growfs", "-d", "/staging")),
    ],
)
def test_the_command_line_that_grows(name, command):
    assert rules.grow_command(name, DEVICE, Path("/staging")) == command


@pytest.mark.parametrize(
    ("device_bytes", "can_grow"),
    [(1 << 30, False), ((1 << 30) + 4095, False), ((1 << 30) + 4096, True), (1 << 20, False)],
)
def test_grows_by_whole_blocks(device_bytes, can_grow):
    assert rules.can_grow(Measured(1 << 30, 4096), device_bytes) is can_grow


@pytest.mark.parametrize("head", [b"", b"\0" * 4096, b"XFSB", b"\xff" * 4096])
def test_measures_nothing_where_there_is_no_file_system(head):
    assert rules.measured(head) is None


@pytest.mark.parametrize(
    ("name", "attributes", "block_bytes"),
    [
        ("ext3", {"blocksize": "1024"}, 1024),
        ("ext4", {}, 4096),
        ("ext4", {"ext4bigalloc": "true", "ext4clustersize": "16384", "blocksize": "4096"}, 4096),
        ("xfs", {}, 4096),
        ("xfs", {"blocksize": "1024"}, 1024),
    ],
)
@pytest.mark.parametrize("size_mib", [600, 20_000])
def test_measures_what_mkfs_makes(tmp_path, name, attributes, block_bytes, size_mib):
    head = head_of_new(tmp_path / "image", name, attributes, size_mib)

    assert rules.measured(head) == Measured(size_mib << 20, block_bytes)


def test_measures_terabytes(tmp_path):
    """Of the last blocks mkfs.xfs may leave some, too few for a group of their own."""
    size_mib = 8 * 1024 * 1024

    found = rules.measured(head_of_new(tmp_path / "image", "xfs", {}, size_mib))

    assert found is not None
    assert (size_mib - 1) << 20 < found.size_bytes <= size_mib << 20


@pytest.mark.parametrize(
    ("attributes", "size_bytes"), [({}, 600 << 20 | 3 << 44), ({"blocksize": "1024"}, 600 << 20)]
)
def test_counts_the_upper_bits_of_ext_only_where_they_mean_something(
    tmp_path, attributes, size_bytes
):
    name = "ext3" if attributes else "ext4"  # ext3 has no blocks beyond 32 bits
    head = bytearray(head_of_new(tmp_path / "image", name, attributes, 600))
    head[1024 + 0x150] = 3

    assert rules.measured(bytes(head)) == Measured(size_bytes, 1024 if attributes else 4096)


# Features of superblocks that a kernel has to know to mount it, or to write to it. Source: Linux 6.18
# fs/ext4/ext4.h EXT4_FEATURE_*, fs/xfs/libxfs/xfs_format.h XFS_SB_FEAT_*.
EXT4_INCOMPAT = 0x2 | 0x40 | 0x80 | 0x200  # filetype, extents, 64bit, flex_bg
EXT4_RO_COMPAT = 0x1 | 0x2 | 0x8 | 0x20 | 0x40 | 0x400  # up to metadata_csum
XFS_INCOMPAT, XFS_LEGACY_INCOMPAT = 0x1 | 0x2 | 0x8, 0x1 | 0x2  # ftype, sparse inodes, bigtime
XFS_RO_COMPAT, XFS_LEGACY_RO_COMPAT = 0x1 | 0x4 | 0x8, 0x1  # finobt, reflink, inobtcount


@pytest.mark.parametrize("size_mib", [600, 20_000])
@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("ext4", (EXT4_INCOMPAT, EXT4_RO_COMPAT)),
        ("ext3", (0x2, 0x1 | 0x2)),  # filetype; sparse_super, large_file
    ],
)
def test_an_ext_needs_no_newer_kernel_whatever_version_makes_it(tmp_path, name, features, size_mib):
    head = head_of_new(tmp_path / "image", name, {}, size_mib)

    assert struct.unpack_from("<II", head, 1024 + 0x60) == features


@pytest.mark.parametrize(
    ("is_legacy", "features"),
    [
        (False, (XFS_RO_COMPAT, XFS_INCOMPAT, 0)),
        (True, (XFS_LEGACY_RO_COMPAT, XFS_LEGACY_INCOMPAT, 0)),
    ],
)
@pytest.mark.parametrize("size_mib", [600, 20_000])
def test_an_xfs_needs_linux_5_10_or_an_older_one_where_that_is_asked_for(
    tmp_path, size_mib, is_legacy, features
):
    head = head_of_new(tmp_path / "image", "xfs", {}, size_mib, is_legacy_xfs=is_legacy)

    assert struct.unpack_from(">III", head, 212) == features


def head_of_new(image, name, attributes, size_mib, **how):
    """The head of a file system of the real mkfs on a sparse file, the other witness of formats."""
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    command = rules.mkfs_command(name, attributes, image, **how)
    program = shutil.which(command[0], path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip(f"there is no {command[0]} on this machine")
    subprocess.run([program, *command[1:]], check=True, capture_output=True, timeout=120)
    with image.open("rb") as file:
        return file.read(rules.HEAD_BYTES)


@pytest.mark.parametrize("name", ["ext4", "ext3"])
@pytest.mark.parametrize("size", ["8192", "65536", "64k", "64K", "1m"])
def test_refuses_an_ext_that_the_kernel_would_not_mount(name, size):
    with pytest.raises(ValueError, match=f"blocksize: '{size}' is larger than this node's memory"):
        rules.check_block_size(name, {"blocksize": size}, page_bytes=4096)


@pytest.mark.parametrize(
    ("name", "size", "page_bytes"),
    [
        ("ext4", "4096", 4096),
        ("ext4", "4k", 4096),
        ("ext4", "65536", 65536),  # arm64 with large pages
        ("ext4", "", 4096),
        ("ext4", "1g", 4096),
        ("xfs", "65536", 4096),
    ],
)
def test_takes_blocks_that_the_kernel_mounts(name, size, page_bytes):
    rules.check_block_size(name, {"blocksize": size}, page_bytes=page_bytes)


@pytest.mark.parametrize("kernel", ["5.4.0-216-generic", "5.9.16", "4.18.0-553.el8_10.x86_64"])
def test_refuses_an_xfs_that_an_old_kernel_would_not_mount(kernel):
    with pytest.raises(ValueError, match=rf"Linux {kernel}, is older than 5\.10 .*--legacy-xfs"):
        rules.check_kernel("xfs", kernel, is_legacy_xfs=False)


@pytest.mark.parametrize(
    ("name", "kernel", "is_legacy_xfs"),
    [
        ("xfs", "5.10.0", False),
        ("xfs", "5.10.245-241.976.amzn2.x86_64", False),
        ("xfs", "6.12.48+deb13-amd64", False),
        ("xfs", "10.0", False),
        ("xfs", "5.4.0", True),
        ("ext4", "5.4.0", False),
        ("xfs", "unheard-of", False),
    ],
)
def test_takes_file_systems_that_the_kernel_mounts(name, kernel, is_legacy_xfs):
    rules.check_kernel(name, kernel, is_legacy_xfs=is_legacy_xfs)
