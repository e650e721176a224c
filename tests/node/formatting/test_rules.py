"""The decision table of formatting. The mistake that counts is one: to format what has data."""

from dataclasses import replace
from itertools import product

import pytest

from provisioner.model.errors import Reason
from provisioner.node.formatting.rules import (
    AskConsent,
    Because,
    Consent,
    Format,
    Mount,
    Read,
    Refuse,
    Signature,
    next_step,
)
from tests.node.formatting.format_views import (
    DATA,
    EXT2,
    EXT3,
    EXT4,
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


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("ext4", EXT4), ("ext4", EXT3), ("ext4", EXT2), ("ext3", EXT3), ("xfs", XFS)],
)
@pytest.mark.parametrize("origin", ["blank", "snap-1", "vol-1", ""])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_system_as_asked_for_is_mounted_as_what_it_is(wanted, found, origin, read_only):
    assert step(wanted=wanted, signature=found, origin=origin, read_only=read_only) == Mount(
        found.type, clears_mark=False
    )


def test_a_mark_left_after_a_mkfs_that_ended_is_cleared_before_the_mount():
    assert step(signature=EXT4, is_marked=True) == Mount("ext4", clears_mark=True)


def test_a_request_for_reading_clears_no_mark():
    found = step(signature=EXT4, is_marked=True, read_only=True)

    assert found == Mount("ext4", clears_mark=False)


def test_a_read_only_device_is_mounted_for_reading():
    found = step(signature=EXT4, device_read_only=True, read_only=True)

    assert found == Mount("ext4", clears_mark=False)


@pytest.mark.parametrize("found", [EXT4, Signature()])
def test_a_read_only_device_is_not_written_to(found):
    refused = step(signature=found, device_read_only=True)

    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.DEVICE_READ_ONLY


@pytest.mark.parametrize("origin", ["blank", "snap-1", "vol-1", ""])
def test_what_is_not_recognized_is_read_first(origin):
    assert step(origin=origin) == Read()


def test_a_volume_made_blank_that_reads_as_zeros_is_formatted():
    assert step(content=ZEROS) == Format(Because.BLANK, writes_mark=True)


def test_one_of_which_nobody_says_what_it_was_made_from_is_formatted_without_a_mark():
    assert step(content=ZEROS, origin="") == Format(Because.BLANK, writes_mark=False)


@pytest.mark.parametrize("origin", ["snap-1", "vol-1"])
def test_a_copy_is_never_formatted_on_our_own_though_all_that_was_read_is_zero(origin):
    assert step(content=ZEROS, origin=origin) == AskConsent()

    refused = step(content=ZEROS, origin=origin, consent=NO_CONSENT)

    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.NOT_BLANK
    assert (
        f"blkid finds no file system on it, it was created from {origin}, whose data may be where "
        "it was not read; check what it is; if ALL DATA"
    ) in refused.message


@pytest.mark.parametrize("signature", [Signature(), replace(EXT4)])
def test_a_format_that_did_not_end_is_begun_again_without_reading(signature):
    found = step(signature=signature, is_marked=True, is_unfinished=signature == EXT4)

    assert found == Format(Because.INTERRUPTED, writes_mark=True)


@pytest.mark.parametrize("origin", ["snap-1", "vol-1", ""])
def test_a_mark_counts_on_a_volume_made_blank_only(origin):
    assert step(is_marked=True, origin=origin) == Read()
    assert step(is_marked=True, origin=origin, content=DATA) == AskConsent()


@pytest.mark.parametrize("signature", [LVM, GPT, SEVERAL, XFS])
def test_a_mark_beside_what_no_mkfs_of_ours_makes_is_not_enough(signature):
    assert step(is_marked=True, signature=signature, content=DATA) == AskConsent()


@pytest.mark.parametrize("origin", ["blank", "snap-1", "vol-1", ""])
@pytest.mark.parametrize("signature", [Signature(), LVM, GPT, SEVERAL])
def test_data_are_never_formatted_over_on_our_own(signature, origin):
    known = {"signature": signature, "content": DATA, "origin": origin}

    assert step(**known) == AskConsent()
    refused = step(**known, consent=NO_CONSENT)

    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.NOT_BLANK


def test_a_signature_is_enough_to_refuse_even_where_all_that_was_read_is_zero():
    refused = step(signature=LVM, content=ZEROS, consent=NO_CONSENT)

    assert isinstance(refused, Refuse)
    assert "blkid finds LVM2_member" in refused.message


@pytest.mark.parametrize(("wanted", "found"), [("ext4", XFS), ("xfs", EXT4), ("ext3", EXT4)])
def test_another_file_system_is_refused_with_both_names(wanted, found):
    assert step(wanted=wanted, signature=found) == AskConsent()
    refused = step(wanted=wanted, signature=found, consent=NO_CONSENT)

    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.FILE_SYSTEM_MISMATCH
    assert f"it already has {found.type}" in refused.message


def test_a_file_system_of_a_mkfs_that_is_not_ours_and_did_not_end_is_refused():
    known = {"signature": EXT4, "is_unfinished": True, "content": DATA}

    refused = step(**known, consent=NO_CONSENT)

    assert step(signature=EXT4, is_unfinished=True) == Read()
    assert isinstance(refused, Refuse)
    assert "an mkfs.ext4 on it was interrupted" in refused.message


@pytest.mark.parametrize("signature", [Signature(), LVM, XFS, SEVERAL])
@pytest.mark.parametrize("content", [None, ZEROS, DATA])
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_request_for_reading_formats_nothing_whatever_the_consent(signature, content, is_marked):
    view = consenting(signature=signature, content=content, is_marked=is_marked, read_only=True)

    refused = next_step(view)

    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.FILE_SYSTEM_MISMATCH
    assert f"blkid finds {signature} on it" in refused.message


def test_a_mkfs_that_did_not_end_is_nothing_to_read():
    refused = step(signature=EXT4, is_unfinished=True, is_marked=True, read_only=True)

    assert isinstance(refused, Refuse)
    assert "its mkfs was interrupted" in refused.message


def every_view():
    for signature, content, origin, is_marked, unfinished, read_only, device, consent in product(
        (Signature(), EXT4, EXT3, XFS, LVM, GPT, SEVERAL),
        (None, ZEROS, DATA),
        ("blank", "snap-1", "vol-1", ""),
        (False, True),
        (False, True),
        (False, True),
        (False, True),
        (None, NO_CONSENT, Consent("pv-1", f"yes-erase-{VOLUME}")),
    ):
        yield replace(
            NEW,
            signature=signature,
            content=content,
            origin=origin,
            is_marked=is_marked,
            is_unfinished=unfinished,
            read_only=read_only,
            device_read_only=device,
            consent=consent,
        )


def test_over_the_whole_table_only_the_blank_and_the_begun_are_formatted_without_a_consent():
    formatted = [view for view in every_view() if isinstance(next_step(view), Format)]

    def is_blank(view):
        return view.signature.is_nothing and view.content == ZEROS and view.origin in ("blank", "")

    def is_begun(view):
        made = view.signature.is_nothing or (view.is_unfinished and view.signature in (EXT4, EXT3))
        return made and view.is_marked and view.origin == "blank"

    assert formatted
    assert [view for view in formatted if not (is_blank(view) or is_begun(view))] == []
    assert [view for view in formatted if view.read_only or view.device_read_only] == []


def test_over_the_whole_table_what_is_asked_for_is_asked_once():
    for view in every_view():
        match next_step(view):
            case Read():
                assert view.content is None
            case AskConsent():
                assert view.consent is None
