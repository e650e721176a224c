import struct

import pytest

from provisioner.decide.file_system import SUPPORTED
from provisioner.decide.logs import (
    WITHOUT_REPLAY,
    is_ext_log_dirty,
    is_xfs_log_dirty,
    leaves_log,
)
from provisioner.decide.signatures import EXT


def ext_head(incompatible, for_reading=0, orphan=0):
    head = bytearray(4096)
    struct.pack_into("<II", head, 1024 + 0x60, incompatible, for_reading)
    struct.pack_into("<I", head, 1024 + 0xE8, orphan)
    return bytes(head)


@pytest.mark.parametrize(
    ("fields", "is_dirty"),
    [
        ((0x2C2, 0x46B), False),
        ((0x2C6, 0x46B), True),
        ((4,), True),
        ((0x2C2, 0x1046B), True),
        ((0x2C2, 0x46B, 12), True),
    ],
)
def test_an_ext_that_was_not_unmounted_says_so(fields, is_dirty):
    assert is_ext_log_dirty(ext_head(*fields)) is is_dirty


@pytest.mark.parametrize(
    ("exit_code", "output", "is_dirty"),
    [
        (0, "    log tail: 2 head: 2 state: <CLEAN>\n", False),
        (0, "    log tail: 2 head: 7 state: <DIRTY>\n", True),
        (1, "    log tail: 2 head: 2 state: <CLEAN>\n", True),
        (0, "", True),
    ],
)
def test_an_xfs_is_clean_only_if_its_log_is_said_to_be(exit_code, output, is_dirty):
    assert is_xfs_log_dirty(exit_code, output) is is_dirty


def test_there_is_an_option_for_all_that_is_mounted():
    assert set(WITHOUT_REPLAY) == {*SUPPORTED, *EXT}


@pytest.mark.parametrize(
    ("options", "leaves"),
    [(("ro",), False), (("ro", "noload"), True), (("norecovery",), True), ((), False)],
)
def test_who_has_the_log_left_as_it_is(options, leaves):
    assert leaves_log(options) is leaves
