"""Whether files fit into a smaller file system, or one of another kind."""

from __future__ import annotations

import pytest

from provisioner.copying.room_rules import Found, Used, no_room, not_alone, taken_bytes

GIB = 1 << 30


def test_what_fits_with_five_percent_to_spare_is_copied():
    assert no_room(Used(100 * GIB, 100), Used(105 * GIB, 105)) is None


def test_what_fits_only_just_is_refused_with_both_sizes():
    told = no_room(Used(100 * GIB, 100), Used(104 * GIB, 105))

    assert told is not None
    assert "the files take 100.00 GiB" in told
    assert "room for 104.00 GiB" in told
    assert "ask for a larger size" in told


def test_a_file_system_with_too_few_inodes_is_refused():
    told = no_room(Used(GIB, 1000), Used(2 * GIB, 1049))

    assert told is not None
    assert "1000 files and folders" in told


@pytest.mark.parametrize(
    ("found", "blocks"),
    [
        (Found(sectors=8, size_bytes=4096), 1),
        (Found(sectors=9, size_bytes=4608), 2),
        (Found(sectors=0, size_bytes=0), 0),
        (Found(sectors=0, size_bytes=1 << 40), 1),  # a hole
        (Found(sectors=0, size_bytes=20, is_folder=True), 1),
        (Found(sectors=0, size_bytes=59, is_link=True), 0),
        (Found(sectors=0, size_bytes=60, is_link=True), 1),
        (Found(sectors=8, size_bytes=1, attributes_bytes=64), 1),
        (Found(sectors=8, size_bytes=1, attributes_bytes=65), 2),
    ],
)
def test_an_inode_counts_as_what_it_takes_at_most_elsewhere(found, blocks):
    assert taken_bytes(found) == blocks * 4096


def test_a_source_that_somebody_can_write_to_is_not_copied():
    assert not_alone(("ro", "nouuid")) is None
    told = not_alone(("rw", "errors=ro"))
    assert told is not None
    assert "another pod may write to it" in told
