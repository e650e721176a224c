"""Which ext file systems grow before their mount, by superblocks of the real mkfs."""

from dataclasses import replace

import pytest

from provisioner.node.formatting.superblock_rules import BeforeMount, Superblock, superblock
from tests.node.formatting.test_file_system_rules import head_of_new

GIB = 1 << 30


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    def make(name: str = "ext4", **attributes: str) -> Superblock:
        image = tmp_path_factory.mktemp("image") / "image"
        found = superblock(head_of_new(image, name, attributes, 1024))
        assert found is not None
        return found

    return make


@pytest.mark.parametrize("name", ["ext4", "ext3"])
@pytest.mark.parametrize(
    ("device_bytes", "step"),
    [
        (GIB, BeforeMount.NOTHING),
        (GIB + (127 << 20), BeforeMount.NOTHING),
        (GIB + (128 << 20), BeforeMount.GROW),
        (1024 * GIB, BeforeMount.GROW),
        (1 << 50, BeforeMount.NOTHING),  # its descriptors would need room that is not reserved
    ],
)
def test_it_grows_by_whole_groups_as_far_as_nothing_moves(made, name, device_bytes, step):
    assert made(name).before_mount(device_bytes) is step


@pytest.mark.parametrize(
    "change", [{"mounted_at": 1 << 31, "checked_at": 1}, {"state": 0}, {"state": 3}]
)
def test_what_was_mounted_or_has_errors_is_checked_first(made, change):
    assert replace(made(), **change).before_mount(2 * GIB) is BeforeMount.CHECK_AND_GROW


@pytest.mark.parametrize(
    "change",
    [
        {"incompatible": 0x80 | 0x4},
        {"incompatible": 0x80 | 0x10},
        {"compatible": 0x10 | 0x200},
        {"read_only_compatible": 0x200},
    ],
)
def test_features_with_which_blocks_may_move_are_left_to_the_kernel(made, change):
    assert replace(made(), **change).before_mount(2 * GIB) is BeforeMount.NOTHING


def test_without_64_bits_it_does_not_grow_past_16_tib(made):
    past = 17 * 1024 * GIB
    roomy = replace(made(), reserved_descriptor_blocks=1 << 15)

    assert roomy.before_mount(past) is BeforeMount.GROW
    assert replace(roomy, incompatible=0).before_mount(past) is BeforeMount.NOTHING


@pytest.mark.parametrize(
    ("change", "is_half_grown"),
    [
        ({"state": 3}, True),
        ({"state": 1}, False),
        ({"state": 3, "errors": 1}, False),
        ({"state": 3, "mounted_at": 1 << 31, "checked_at": 1}, False),
        ({"state": 3, "compatible": 0}, False),
    ],
)
def test_half_grown_is_what_was_checked_and_has_unexplained_errors(made, change, is_half_grown):
    assert replace(made(), **change).is_half_grown is is_half_grown


@pytest.mark.parametrize("head", [b"", b"\0" * 4096, b"XFSB".ljust(4096, b"\0")])
def test_other_file_systems_have_no_such_superblock(head):
    assert superblock(head) is None
