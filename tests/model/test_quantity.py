import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.quantity import LARGEST, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("30Gi", 30 * 2**30),
        ("1G", 10**9),
        ("1.5Gi", 3 * 2**29),
        (".5Ki", 512),
        ("5.", 5),
        ("100m", 1),
        ("1n", 1),
        ("0", 0),
        ("-0", 0),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E-3", 1),
        ("+2k", 2000),
        ("10e399", LARGEST),
        ("10e99999999999999999999", LARGEST),
        ("1e-99999999999999999999", 1),
        ("9Ei", LARGEST),
        ("100Ei", LARGEST),
    ],
)
def test_reads_what_the_api_server_reads(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "Gi", ".", "1_000", "NaN", "inf", "1 Gi", "1gi", "٣Gi", "1Gi\n", "1e", "--1", "1KiB"],
)
def test_refuses_what_is_no_quantity(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_bytes(text)


def test_refuses_a_negative_size():
    with pytest.raises(ValueError, match="is negative"):
        parse_bytes("-1Gi")


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_one_clear_refusal(text):
    refusal, size_bytes = "", 0
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        refusal = str(error)

    assert not refusal or repr(text) in refusal
    assert 0 <= size_bytes <= LARGEST


@given(st.integers(0, 10**6), st.sampled_from(["Ki", "Mi", "Gi", "Ti"]))
def test_binary_suffixes_are_exact(number, suffix):
    power = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[suffix]

    assert parse_bytes(f"{number}{suffix}") == min(number << power, LARGEST)


@given(st.decimals(0, 10**6, places=3), st.sampled_from(["", "k", "M"]))
def test_a_part_of_a_byte_counts_as_a_whole_one(number, suffix):
    power = {"": 0, "k": 3, "M": 6}[suffix]
    exact = number.scaleb(power)

    assert exact <= parse_bytes(f"{number}{suffix}") < exact + 1
