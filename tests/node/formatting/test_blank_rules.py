from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.node.formatting.blank_rules import (
    ALIGNMENT_BYTES,
    EVEN_SAMPLES,
    GIB,
    HEAD_BYTES,
    KIB,
    MIB,
    TAIL_BYTES,
    TIB,
    WHOLE_BYTES,
    Stretch,
    stretches,
)

VOLUME = "vol-0123456789abcdef0"
SECTORS = st.integers(1, 64 * TIB // 512)
SIZES_GIB = [1, 4, 8, 10, 100, 500, 1000, 1024, 3000, 16384, 65536]


def covered(places, offset, length=1):
    return any(
        place.offset_bytes <= offset and offset + length <= place.end_bytes for place in places
    )


@given(SECTORS)
def test_all_that_is_read_is_within_the_volume_aligned_and_apart(sectors):
    size = sectors * 512

    places = stretches(size, VOLUME)

    assert all(place.length_bytes > 0 for place in places)
    assert all(place.end_bytes <= size for place in places)
    assert all(place.offset_bytes % ALIGNMENT_BYTES == 0 for place in places)
    assert all(
        place.end_bytes % ALIGNMENT_BYTES == 0 or place.end_bytes == size for place in places
    )
    assert all(a.end_bytes < b.offset_bytes for a, b in pairwise(places))


@given(SECTORS)
def test_the_beginning_and_the_end_are_read_whole(sectors):
    size = sectors * 512

    places = stretches(size, VOLUME)

    assert covered(places, 0, min(HEAD_BYTES, size))
    assert covered(places, max(0, size - TAIL_BYTES), min(TAIL_BYTES, size))


@given(st.integers(1, WHOLE_BYTES // 512))
def test_a_small_volume_is_read_whole(sectors):
    assert stretches(sectors * 512, VOLUME) == (Stretch(0, sectors * 512),)


@given(SECTORS, st.data())
def test_what_is_longer_than_a_64th_of_the_volume_is_met_wherever_it_lies(sectors, data):
    size = sectors * 512
    length = size // EVEN_SAMPLES + 1
    begin = data.draw(st.integers(0, size - length))

    places = stretches(size, VOLUME)

    assert any(p.offset_bytes < begin + length and begin < p.end_bytes for p in places)


@pytest.mark.parametrize("size_gib", SIZES_GIB)
@pytest.mark.parametrize("block", [KIB, 2 * KIB, 4 * KIB, 64 * KIB])
def test_the_copies_of_an_ext_superblock_are_read(size_gib, block):
    places = stretches(size_gib * GIB, VOLUME)
    first = 1 if block == KIB else 0  # where block 0 is the boot block
    copies = [
        (group * 8 * block + first) * block for group in (1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 343)
    ]

    missed = [at for at in copies if at + KIB <= size_gib * GIB and not covered(places, at, KIB)]

    assert missed == []


@pytest.mark.parametrize("size_gib", SIZES_GIB)
@pytest.mark.parametrize("cluster", [16 * KIB, 64 * KIB, MIB])
def test_the_copies_of_an_ext4_superblock_with_clusters_are_read(size_gib, cluster):
    size = size_gib * GIB
    places = stretches(size, VOLUME)
    copies = [group * 32 * KIB * cluster for group in (1, 3, 5, 7, 9)]

    assert [at for at in copies if at + KIB <= size and not covered(places, at, KIB)] == []


@pytest.mark.parametrize("size_gib", SIZES_GIB)
@pytest.mark.parametrize("groups", [4, 8, 16, 32])
def test_the_superblocks_of_xfs_groups_are_read(size_gib, groups):
    blocks = size_gib * GIB // 4096
    group_blocks = -(-blocks // groups)
    places = stretches(size_gib * GIB, VOLUME)

    starts = [group * group_blocks * 4096 for group in range(groups)]

    assert [at for at in starts if not covered(places, at, 512)] == []


def test_the_groups_of_a_large_xfs_are_read():
    places = stretches(16 * TIB, VOLUME)

    assert all(covered(places, group * TIB, 4096) for group in range(16))


def test_the_copies_of_a_btrfs_superblock_are_read():
    places = stretches(300 * GIB, VOLUME)

    assert covered(places, 64 * MIB, 4096)
    assert covered(places, 256 * GIB, 4096)


def test_a_volume_is_read_at_the_same_places_each_time_and_another_one_elsewhere_too():
    once, again = (stretches(100 * GIB, VOLUME) for _ in range(2))

    assert once == again
    assert once != stretches(100 * GIB, "vol-0fedcba9876543210")


@pytest.mark.parametrize("size_gib", SIZES_GIB)
def test_it_is_little_to_read_whatever_the_size(size_gib):
    places = stretches(size_gib * GIB, VOLUME)

    assert sum(place.length_bytes for place in places) <= 50 * MIB
    assert len(places) <= 500
