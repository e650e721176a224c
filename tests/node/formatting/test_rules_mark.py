import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.node.formatting.blank_rules import GIB, MIB, TIB
from provisioner.node.formatting.rules import MARK_BYTES, is_mark_of, mark_block, mark_offsets

VOLUME = "vol-0123456789abcdef0"
NOW_S = 1_790_000_000


@given(st.integers(256 * MIB // 512, 64 * TIB // 512))
def test_it_lies_well_within_the_volume(sectors):
    offsets = mark_offsets(sectors * 512)

    assert offsets
    for offset in offsets:
        assert offset % MIB == 0
        assert offset + MARK_BYTES + 16 * MIB <= sectors * 512


def test_a_tiny_volume_has_none():
    assert mark_offsets(256 * MIB - 512) == ()


def test_its_place_never_changes():  # marks of earlier versions are on volumes
    assert mark_offsets(256 * MIB) == (197 * MIB,)
    assert mark_offsets(4 * GIB) == (197 * MIB, 2597 * MIB)
    assert mark_offsets(1000 * GIB) == (197 * MIB, 640037 * MIB)


@given(*[st.integers(256 * MIB // 512, 64 * TIB // 512)] * 2)
def test_a_volume_that_grew_is_looked_at_where_it_has_one(one, other):
    assert set(mark_offsets(one * 512)) & set(mark_offsets(other * 512))


@given(st.integers(0, 2**63))
def test_a_written_one_is_known_again(begun_at_s):
    block = mark_block(VOLUME, begun_at_s)

    assert len(block) == MARK_BYTES
    assert is_mark_of(block, VOLUME)


def test_the_mark_of_another_volume_is_none():  # a snapshot of a marked volume, restored
    assert not is_mark_of(mark_block("vol-0fedcba9876543210", NOW_S), VOLUME)
    assert not is_mark_of(mark_block(VOLUME, NOW_S), VOLUME[:-1])


@given(st.integers(0, MARK_BYTES - 1), st.integers(1, 255))
def test_one_wrong_byte_anywhere_makes_it_none(place, flip):
    block = bytearray(mark_block(VOLUME, NOW_S))
    block[place] ^= flip

    assert not is_mark_of(bytes(block), VOLUME)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(bytes(MARK_BYTES), id="zeros"),
        pytest.param(b"\xff" * MARK_BYTES, id="ones"),
        pytest.param(mark_block(VOLUME, NOW_S)[:-1], id="too short"),
        pytest.param(mark_block(VOLUME, NOW_S) + b"\0", id="too long"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_anything_else_is_none(block):
    assert not is_mark_of(block, VOLUME)
