import struct

import pytest

from provisioner.node.formatting.rules import HEAD_BYTES, Signature, is_unfinished, read_signature

EXT4 = "DEVNAME=/dev/nvme1n1\nUUID=66d2e1d0\nVERSION=1.0\nBLOCK_SIZE=4096\nTYPE=ext4\nUSAGE=filesystem\n"


@pytest.mark.parametrize(
    ("exit_code", "output", "found"),
    [
        pytest.param(0, EXT4, Signature("ext4", "filesystem", uuid="66d2e1d0"), id="ext4"),
        pytest.param(
            0,
            "DEVNAME=/dev/xvdba\nUUID=jfUyt8\nVERSION=LVM2 001\nTYPE=LVM2_member\nUSAGE=raid\n",
            Signature("LVM2_member", "raid", uuid="jfUyt8"),
            id="LVM",
        ),
        pytest.param(
            0,
            "PTUUID=9f1a\nPTTYPE=gpt\n",
            Signature(partition_table="gpt", uuid="9f1a"),
            id="a partition table",
        ),
        pytest.param(
            0, "PART_ENTRY_SCHEME=gpt\nPART_ENTRY_NUMBER=1\n", Signature(), id="an empty partition"
        ),
        pytest.param(2, "", Signature(), id="nothing"),
        pytest.param(8, "", Signature(is_ambivalent=True), id="several"),
    ],
)
def test_what_blkid_says_is_read(exit_code, output, found):
    assert read_signature(exit_code, output) == found


@pytest.mark.parametrize("exit_code", [1, 4, 16, -9, 127])
def test_a_blkid_that_failed_says_nothing_not_even_that_there_is_nothing(exit_code):
    with pytest.raises(ValueError, match="blkid failed"):
        read_signature(exit_code, "")


@pytest.mark.parametrize(
    ("signature", "is_nothing", "text"),
    [
        (Signature(), True, "nothing that it recognizes"),
        (Signature("xfs", "filesystem"), False, "xfs"),
        (Signature(usage="other"), False, "other"),
        (Signature(partition_table="dos"), False, "a partition table (dos)"),
        (Signature("ext4", "filesystem", "dos"), False, "ext4 and a partition table (dos)"),
        (Signature(is_ambivalent=True), False, "several signatures at once"),
    ],
)
def test_a_signature_in_words(signature, is_nothing, text):
    assert signature.is_nothing is is_nothing
    assert str(signature) == text


def an_ext(*, mounted_at=0, mounts=0, magic=0xEF53, state=1):
    head = bytearray(HEAD_BYTES)
    struct.pack_into("<IIHHHH", head, 1024 + 0x2C, mounted_at, 1, mounts, 0xFFFF, magic, state)
    return bytes(head)


def an_xfs(in_progress, magic=b"XFSB"):
    return magic + bytes(122) + bytes([in_progress]) + bytes(HEAD_BYTES - 127)


@pytest.mark.parametrize(
    ("file_system", "head", "unfinished"),
    [
        pytest.param("ext4", an_ext(), False, id="made"),
        pytest.param("ext4", an_ext(state=0), True, id="begun"),
        pytest.param("ext3", an_ext(state=2), True, id="begun, with errors"),
        pytest.param("ext4", an_ext(state=0, mounted_at=5), False, id="was mounted once"),
        pytest.param("ext4", an_ext(state=0, mounts=1), False, id="mounts are counted"),
        pytest.param("ext4", an_ext(state=0, magic=0), False, id="no superblock"),
        pytest.param("xfs", an_xfs(0), False, id="xfs made"),
        pytest.param("xfs", an_xfs(1), True, id="xfs in progress"),
        pytest.param("xfs", an_xfs(1, b"XXXX"), False, id="no xfs superblock"),
        pytest.param("btrfs", an_xfs(1), False, id="another one"),
    ],
)
def test_how_far_a_mkfs_came(file_system, head, unfinished):
    assert is_unfinished(file_system, head) is unfinished
