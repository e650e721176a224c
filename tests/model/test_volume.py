import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.volume import (
    AttachmentState,
    normalised_handle,
    serial_of,
)
from tests.builders import INSTANCE, OTHER_INSTANCE, VOLUME, a_volume

volume_ids = st.from_regex(r"vol-[0-9a-f]{8,17}", fullmatch=True)


@pytest.mark.parametrize("state", [s for s in AttachmentState if s is not AttachmentState.DETACHED])
def test_a_volume_is_on_an_instance_until_it_is_detached(state):
    on = a_volume(on={OTHER_INSTANCE: AttachmentState.ATTACHED, INSTANCE: state}).on(INSTANCE)

    assert on is not None
    assert (on.instance_id, on.state, on.device) == (INSTANCE, state, "/dev/xvdab")


def test_a_volume_is_not_on_an_instance_that_it_has_left_or_never_saw():
    left = a_volume(on={INSTANCE: AttachmentState.DETACHED})

    assert left.on(INSTANCE) is None
    assert left.on(OTHER_INSTANCE) is None


@pytest.mark.parametrize(
    ("handle", "normal"),
    [
        (VOLUME, VOLUME),
        (f"aws://us-east-1a/{VOLUME}", VOLUME),
        (f"aws:///{VOLUME}", VOLUME),
        (f"aws://{VOLUME}", VOLUME),
        (f"aws://us-east-1a/{VOLUME}/", VOLUME),
        (f"aws:///{VOLUME}?", VOLUME),
        (f"aws:///{VOLUME}?x", VOLUME),
        (f"aws:///{VOLUME}#", VOLUME),
        (f"aws:///{VOLUME.replace('-', '%2D')}", VOLUME),
        (f"aws://us-east-1a/{VOLUME.replace('9', '%39')}", VOLUME),
        (f"aws://us-east-1a//{VOLUME}%2F/", VOLUME),
        (f"aws://us-east-1a/{VOLUME}%", f"aws://us-east-1a/{VOLUME}%"),
        (f"aws://us-east-1a?/{VOLUME}", f"aws://us-east-1a?/{VOLUME}"),
        (VOLUME.replace("-", ""), VOLUME),
        (f"{VOLUME}/", f"{VOLUME}/"),
        ("vol", "vol"),
        ("volume", "volume"),
        ("vol--1", "vol--1"),
        ("aws://us-east-1a/vol1", "aws://us-east-1a/vol1"),
        ("aws://us-east-1a/odd", "aws://us-east-1a/odd"),
        ("nfs/share", "nfs/share"),
        ("", ""),
    ],
)
def test_handles_of_every_form_name_the_same_volume(handle, normal):
    assert normalised_handle(handle) == normal


@given(volume_ids)
def test_the_serial_number_of_the_disk_names_it_as_well(volume_id):
    assert serial_of(volume_id) != volume_id
    assert normalised_handle(serial_of(volume_id)) == volume_id


@given(volume_ids, st.sampled_from(["", "aws://us-east-1a/", "aws:///"]))
def test_normalising_finds_the_volume_and_changes_nothing_twice(volume_id, prefix):
    assert normalised_handle(prefix + volume_id) == volume_id
    assert normalised_handle(normalised_handle(prefix + volume_id)) == volume_id


@given(
    volume_ids,
    st.sets(st.integers(0, 20)),
    st.sampled_from(["%{:02x}", "%{:02X}"]),
    st.from_regex(r"(|[?#][^\x00-\x1f\x7f]*)", fullmatch=True),
    st.sampled_from(["", "us-east-1a", "[", "a:b@c"]),
)
def test_however_a_url_spells_an_id_it_is_read(volume_id, escaped, form, rest, zone):
    path = "".join(
        form.format(ord(letter)) if at in escaped else letter for at, letter in enumerate(volume_id)
    )

    assert normalised_handle(f"aws://{zone}/{path}{rest}") == volume_id


@given(st.text())
def test_any_handle_can_be_normalised(handle):
    once = normalised_handle(handle)

    assert normalised_handle(once) == once
