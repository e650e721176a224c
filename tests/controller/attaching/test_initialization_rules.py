from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.attaching.initialization_rules import UNTOLD_S, is_awaited, sentence
from provisioner.model.modification import Initialization
from provisioner.model.persistent_volume import CsiSource, PersistentVolume, VolumeAttributes
from tests.builders import VOLUME, a_persistent_volume, a_volume

RESTORED = replace(a_volume(), snapshot_id="snap-1")
COPIED = replace(a_volume(), source_volume_id="vol-2")


def held(text: str | None = "true") -> PersistentVolume:
    attributes = None if text is None else VolumeAttributes(attaches_when_initialized=text)
    found = a_persistent_volume()
    csi = CsiSource(volume_handle=VOLUME, volume_attributes=attributes)
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, csi=csi))


def said(
    state: str = "",
    percent: int | None = None,
    left_s: int | None = None,
    *,
    complete: bool = False,
) -> Initialization:
    return Initialization(VOLUME, complete, state, percent, left_s)


@pytest.mark.parametrize("volume", [RESTORED, COPIED])
@pytest.mark.parametrize(
    ("initialization", "awaited"),
    [
        (None, True),
        (said(), True),
        (said("initializing", 5), True),
        (said("initializing", 0, 90), True),
        (said("completed", complete=True), False),
        (said("", 100, complete=True), False),
    ],
)
def test_a_volume_made_of_something_waits_until_ec2_says_that_all_is_there(
    volume, initialization, awaited
):
    assert is_awaited(held(), volume, initialization, 0.0) is awaited


@pytest.mark.parametrize(
    ("persistent_volume", "volume"),
    [
        (held(), a_volume()),
        (held(), None),
        (held(None), RESTORED),
        (held(""), RESTORED),
        (held("false"), RESTORED),
        (held("True"), RESTORED),  # as the stock driver reads it
        (a_persistent_volume(in_tree=True), RESTORED),
        (None, RESTORED),
    ],
)
def test_nothing_else_waits(persistent_volume, volume):
    assert not is_awaited(persistent_volume, volume, None, 0.0)


@pytest.mark.parametrize(
    ("initialization", "waited_s", "awaited"),
    [
        (said(), UNTOLD_S - 1, True),
        (said(), UNTOLD_S, False),
        (None, UNTOLD_S, True),
        (said("initializing"), UNTOLD_S, True),
        (said("", 5), UNTOLD_S, True),
    ],
)
def test_where_ec2_has_nothing_to_tell_it_ends(initialization, waited_s, awaited):
    assert is_awaited(held(), RESTORED, initialization, waited_s) is awaited


@given(st.floats(0, 1e6), st.integers(0, 99), st.none() | st.integers(0, 10**6))
def test_however_long_it_takes_what_is_under_way_is_waited_for(waited_s, percent, left_s):
    assert is_awaited(held(), RESTORED, said("initializing", percent, left_s), waited_s)


def test_the_key_is_read_as_aws_ebs_csi_driver_writes_it():
    attributes = {"a": "b", "blockattachuntilinitialized": "true"}
    spec = {"csi": {"volumeHandle": VOLUME, "volumeAttributes": attributes}}

    assert msgspec.convert({"spec": spec}, PersistentVolume).attaches_when_initialized


@pytest.mark.parametrize(
    ("volume", "initialization", "parts"),
    [
        (RESTORED, None, ("data of snapshot snap-1 has arrived", "class requires")),
        (COPIED, said("", 5), ("data of volume vol-2 has arrived", "; 5 % has arrived")),
        (RESTORED, said("initializing", 5, 119), ("EC2 estimates 119 s more",)),
        (RESTORED, said("initializing", 5, 121), ("EC2 estimates 3 minutes more",)),
    ],
)
def test_the_sentence_says_what_is_waited_for_and_how_long(volume, initialization, parts):
    text = sentence(volume, initialization)

    assert VOLUME in text
    assert all(part in text for part in parts)
