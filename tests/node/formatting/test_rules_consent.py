"""What lets a volume be formatted although it does not look blank, and how that is told."""

from dataclasses import replace

import pytest

from provisioner.node.formatting.rules import (
    Because,
    Consent,
    Format,
    Refuse,
    Signature,
    consent_value,
    next_step,
)
from tests.node.formatting.format_views import (
    DATA,
    GPT,
    LVM,
    NEW,
    NO_CONSENT,
    SEVERAL,
    VOLUME,
    XFS,
    ZEROS,
    consenting,
)


def step(**known):
    return next_step(replace(NEW, **known))


@pytest.mark.parametrize("origin", ["blank", "snap-1"])
@pytest.mark.parametrize(
    ("signature", "content"),
    [(Signature(), DATA), (LVM, DATA), (GPT, ZEROS), (SEVERAL, DATA), (XFS, None)],
)
def test_what_the_user_gives_up_is_formatted_over(signature, content, origin):
    view = consenting(signature=signature, content=content, origin=origin)

    assert next_step(view) == Format(Because.CONSENT, writes_mark=False)


def test_a_copy_that_reads_as_zeros_is_formatted_if_the_user_says_so():
    view = consenting(content=ZEROS, origin="snap-1")

    assert next_step(view) == Format(Because.CONSENT, writes_mark=False)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yes",
        "true",
        f"yes-erase-{VOLUME}",
        consent_value(replace(NEW, content=DATA, volume_id="vol-0fedcba9876543210")),
        consent_value(replace(NEW, content=replace(DATA, offset_bytes=4096))),
        consent_value(replace(NEW, content=replace(DATA, sample=b"other"))),
        consent_value(replace(NEW, content=DATA, signature=LVM)),
        consent_value(replace(NEW, content=ZEROS)),
        consent_value(replace(NEW, content=DATA)) + " ",
    ],
)
def test_a_consent_for_another_volume_or_for_other_content_is_none(value):
    refused = step(content=DATA, consent=Consent("pv-1", value))

    assert isinstance(refused, Refuse)
    assert f"is {value!r}, which does not match" in refused.message


def test_another_file_system_of_the_same_kind_needs_another_consent():
    first, second = (consent_value(replace(NEW, signature=replace(XFS, uuid=u))) for u in "ab")

    assert first != second


def test_the_refusal_says_what_was_found_where_and_what_would_help():
    view = replace(NEW, content=DATA, consent=NO_CONSENT)

    refused = next_step(view)

    assert isinstance(refused, Refuse)
    assert refused.message == (
        f"volume {VOLUME} (/dev/nvme1n1) is not formatted with ext4: it is not blank: it has "
        "4d 59 44 42 00 01 02 03 00 00 00 00 00 00 00 00 (MYDB............) at byte 1048576, blkid "
        "finds no file system on it; check what it is; if ALL DATA on it may be lost, run: "
        "kubectl annotate persistentvolume pv-1 --overwrite "
        f"ebs-provisioner.io/format={consent_value(view)}"
    )


def test_the_command_of_the_refusal_is_a_consent():
    view = replace(NEW, content=DATA, signature=LVM, consent=NO_CONSENT)
    refused = next_step(view)
    assert isinstance(refused, Refuse)

    value = refused.message.rpartition("ebs-provisioner.io/format=")[2]

    again = replace(view, consent=Consent("pv-1", value))
    assert next_step(again) == Format(Because.CONSENT, writes_mark=False)


def test_a_consent_that_could_not_be_read_is_none_and_the_refusal_says_so():
    refused = step(content=DATA, consent=Consent("", trouble="the API server does not answer"))

    assert isinstance(refused, Refuse)
    assert refused.message.endswith("could not be read: the API server does not answer")


def test_a_volume_without_a_known_persistent_volume_gets_a_command_to_fill_in():
    refused = step(content=DATA, consent=Consent(""))

    assert isinstance(refused, Refuse)
    assert "persistentvolume <its PersistentVolume> --overwrite" in refused.message
