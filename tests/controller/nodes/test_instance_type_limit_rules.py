"""How many of our volumes fit on an instance; which of EC2's limits are put right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.nodes.instance_type_limit_rules import limits_of, table_of
from provisioner.model.instance_type_limit import AttachmentLimit, DescribedType
from provisioner.node.instance.volume_limit_rules import LimitOptions, max_volumes

SHARED = AttachmentLimit(27, is_shared=True)
DEDICATED = AttachmentLimit(32, is_shared=False)


def fitting(limit=SHARED, *, foreign=1, interfaces=1, attach_limit=None, reserved=None):
    options = LimitOptions(attach_limit=attach_limit, reserved=reserved)
    return max_volumes(limit, foreign=foreign, interfaces=interfaces, options=options)


def test_the_root_volume_takes_a_place():
    assert fitting() == 26
    assert fitting(DEDICATED) == 31


def test_the_root_volume_takes_a_place_even_if_it_was_not_found():
    assert fitting(foreign=0) == 26


def test_each_foreign_volume_takes_a_place():
    assert fitting(foreign=3) == 24


def test_each_further_interface_takes_a_place_of_a_shared_limit_alone():
    assert fitting(interfaces=3) == 24
    assert fitting(DEDICATED, interfaces=3) == 31


def test_reserved_places_stand_for_all_foreign_volumes():
    assert fitting(foreign=3, reserved=2) == 25
    assert fitting(foreign=3, reserved=0) == 27
    assert fitting(foreign=3, reserved=2, interfaces=2) == 24


def test_what_the_administrator_says_is_taken_as_it_is():
    assert fitting(attach_limit=5, foreign=3, reserved=2, interfaces=9) == 5


@given(
    st.integers(1, 128),
    st.booleans(),
    st.integers(0, 200),
    st.integers(0, 50),
    st.none() | st.integers(0, 200),
)
def test_it_is_never_zero_which_would_mean_no_limit(
    count, is_shared, foreign, interfaces, reserved
):
    limit = AttachmentLimit(count, is_shared)

    found = fitting(limit, foreign=foreign, interfaces=interfaces, reserved=reserved)

    assert 1 <= found <= count


def described(instance_type, count=32, *, shared=False, xen=False, metal=False):
    return DescribedType(instance_type, count, is_shared=shared, is_xen=xen, is_metal=metal)


def test_a_metal_size_goes_by_the_other_sizes_of_its_family():
    limits = limits_of(
        [
            described("m8a.large"),
            described("m8a.metal-48xl", 79, shared=True, metal=True),
            described("m5.large", 27, shared=True),
            described("m5.metal", 31, shared=True, metal=True),
        ]
    )

    assert limits["m8a.metal-48xl"] == AttachmentLimit(79, is_shared=False)
    assert limits["m5.metal"] == AttachmentLimit(31, is_shared=True)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [described("x9.metal-24xl", 39, metal=True)],
        [described("x9.large"), described("x9.xlarge", 27, shared=True)],
        [described("x9a.large")],
    ],
    ids=["alone", "only metal", "mixed", "another family"],
)
def test_a_metal_size_stays_shared_where_the_others_say_nothing_clear(others):
    metal = described("x9.metal-48xl", 79, shared=True, metal=True)

    assert limits_of([metal, *others])["x9.metal-48xl"].is_shared


def test_a_size_that_is_no_metal_stays_as_it_is_told():
    limits = limits_of([described("x9.large"), described("x9.2xlarge", 27, shared=True)])

    assert limits["x9.2xlarge"] == AttachmentLimit(27, is_shared=True)


@pytest.mark.parametrize("told", [39, 40])
def test_xen_shares_with_nothing_and_takes_39(told):
    limits = limits_of([described("t2.micro", told, shared=True, xen=True)])

    assert limits["t2.micro"] == AttachmentLimit(39, is_shared=False)


def test_the_table_has_a_line_for_each_limit_of_a_family():
    limits = {"m5.xlarge": SHARED, "m5.large": SHARED, "m5.metal": DEDICATED, "a1.large": SHARED}

    assert table_of(limits) == [
        "a1 27 shared: large",
        "m5 27 shared: large xlarge",
        "m5 32 dedicated: metal",
    ]
