"""IOPS that a class asks for, and those that a volume gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.iops_rules import EVERYWHERE, depends_on_region, fit, lowered_message
from provisioner.model.volume_type import VOLUME_TYPES, fault

PROVISIONED = sorted(EVERYWHERE)


@pytest.mark.parametrize(
    ("volume_type", "size_gib", "asked", "ceiling", "given"),
    [
        ("gp3", 100, 3_000, 16_000, 3_000),
        ("gp3", 100, 16_000, 16_000, 16_000),
        ("gp3", 1_000, 16_001, 16_000, 16_000),
        ("gp3", 1_000, 90_000, 80_000, 80_000),
        ("gp3", 1_000, 90_000, None, 90_000),  # EC2 is asked, and answers for itself
        ("gp3", 20, 15_000, None, 10_000),  # 500 for each GiB
        ("gp3", 6, 4_000, None, 3_000),
        ("gp3", 5, 4_000, None, 4_000),  # its share is below 3,000: refused by the type's rules
        ("io1", 4, 5_000, None, 200),
        ("io1", 2_000, 100_000, 64_000, 64_000),
        ("io1", 1_000, 100_000, 64_000, 50_000),
        ("io2", 100, 300_000, 256_000, 100_000),
        ("io2", 300, 300_000, 256_000, 256_000),
        ("gp2", 100, 5_000, 16_000, 5_000),  # cannot be chosen: refused by the type's rules
    ],
)
def test_iops_are_lowered_to_the_ceiling_and_to_what_the_size_allows(
    volume_type: str, size_gib: int, asked: int, ceiling: int | None, given: int
):
    fitted = fit(volume_type, size_gib, asked, raises_to_minimum=False, ceiling=ceiling)

    assert (fitted.asked, fitted.given) == (asked, given)
    assert bool(fitted.limit) == (given < asked)


@pytest.mark.parametrize(("raises", "given"), [(True, 100), (False, 40)])
def test_iops_are_raised_only_if_the_class_allows_it(*, raises: bool, given: int):
    fitted = fit("io1", 4, 40, raises_to_minimum=raises)

    assert fitted.given == given
    assert lowered_message(fitted, "io1", 4) is None  # the class has asked for that


@pytest.mark.parametrize("ceiling", [80_000, 16_000, None])
def test_a_volume_that_has_fewer_than_were_planned_is_told_of_whatever_is_known(ceiling):
    fitted = fit("gp3", 1_000, 90_000, raises_to_minimum=False, ceiling=ceiling)

    text = lowered_message(fitted, "gp3", 1_000, has=16_000)

    assert text is not None
    assert text.startswith(
        "the class requests 90000 IOPS for the gp3 volume of 1000 GiB, but it gets 16000: "
    )
    assert ("an earlier process" in text) is (ceiling != 16_000)
    assert lowered_message(fitted, "gp3", 1_000, has=90_000) is None
    assert (lowered_message(fitted, "gp3", 1_000) is None) is (ceiling is None)


def test_a_user_reads_what_was_asked_what_was_given_and_the_limit():
    over = lowered_message(
        fit("gp3", 1_000, 90_000, raises_to_minimum=False, ceiling=80_000), "gp3", 1_000
    )
    small = lowered_message(
        fit("io1", 10, 5_000, raises_to_minimum=False, ceiling=64_000), "io1", 10
    )

    assert over == (
        "the class requests 90000 IOPS for the gp3 volume of 1000 GiB, but it gets 80000: "
        "EC2 allows volumes of type gp3 at most 80000 IOPS in this region"
    )
    assert small == (
        "the class requests 5000 IOPS for the io1 volume of 10 GiB, but it gets 500: "
        "volumes of type io1 have at most 50 IOPS per GiB"
    )


@pytest.mark.parametrize(
    ("volume_type", "iops", "depends"),
    [
        ("gp3", None, False),
        ("gp3", 16_000, False),
        ("gp3", 16_001, True),
        ("io2", 64_001, True),
        ("gp2", 1_000_000, False),
    ],
)
def test_ec2_is_asked_for_a_ceiling_only_above_what_every_region_has(
    *, volume_type: str, iops: int | None, depends: bool
):
    assert depends_on_region(volume_type, iops) is depends


@given(
    volume_type=st.sampled_from(PROVISIONED),
    size_gib=st.integers(4, 16_384),
    asked=st.integers(100, 10**9),
    raises=st.booleans(),
    ceiling=st.none() | st.integers(3_000, 256_000),
)
def test_what_is_given_keeps_every_limit_that_can_be_kept(
    *, volume_type: str, size_gib: int, asked: int, raises: bool, ceiling: int | None
):
    limits = VOLUME_TYPES[volume_type]
    assert limits.iops is not None
    minimum = limits.iops[0]

    fitted = fit(volume_type, size_gib, asked, raises_to_minimum=raises, ceiling=ceiling)

    assert fitted.given <= max(asked, minimum)
    assert ceiling is None or fitted.given <= ceiling
    assert raises or fitted.given <= asked
    if limits.iops_per_gib * size_gib >= minimum:
        assert fitted.given <= limits.iops_per_gib * size_gib
        if raises and ceiling is not None and ceiling <= limits.iops[1]:
            assert fault(volume_type, size_gib, fitted.given, None) is None
    again = fit(volume_type, size_gib, fitted.given, raises_to_minimum=raises, ceiling=ceiling)
    assert again.given == fitted.given
