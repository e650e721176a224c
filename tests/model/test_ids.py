import pytest

from provisioner.model.ids import ids_in, is_instance_id, is_snapshot_id, is_volume_id
from tests.builders import INSTANCE, VOLUME

DIGITS = "0123456789abcdef0"
KINDS = {"vol-": is_volume_id, "snap-": is_snapshot_id, "i-": is_instance_id}


@pytest.mark.parametrize("prefix", KINDS)
@pytest.mark.parametrize("digits", [DIGITS, "0123abcd", "1"])
def test_an_id_is_its_prefix_and_hexadecimal_digits(prefix: str, digits: str):
    assert [kind for kind, is_one in KINDS.items() if is_one(prefix + digits)] == [prefix]


@pytest.mark.parametrize("prefix", KINDS)
@pytest.mark.parametrize("form", ["{}", "{}data", "{}0123ABCD", "{}1/", " {}1", "{}1\n", "x{}1"])
def test_anything_else_is_none(prefix: str, form: str):
    assert not any(is_one(form.format(prefix)) for is_one in KINDS.values())


@pytest.mark.parametrize(
    "text",
    ["", "foo", "local-ebs://dev/xvdbz", "hyperpod-ab12-i-0123456789abcdef0", "vol-" + "1" * 99],
)
def test_what_others_write_into_a_handle_is_none(text: str):
    assert not any(is_one(text) for is_one in KINDS.values())


def test_a_sentence_names_ids():
    text = f"The volumes '{VOLUME}, vol-1' do not exist on {INSTANCE}; see vol-data, vol-1x."

    assert ids_in(text) == {VOLUME, "vol-1", INSTANCE}
