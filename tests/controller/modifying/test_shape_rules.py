"""What a volume becomes when it grows and changes, and what EC2 is told of that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying.shape_rules import (
    agrees,
    difference,
    fault_of,
    target_shape,
)
from provisioner.model.modification import ModifyRequest, Shape
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from provisioner.model.volume_type import VOLUME_TYPES, fault

GP3 = Shape(10, "gp3", 3000, 125)
FOLLOWS = {IOPS_PER_GIB: "50", IOPS_FOLLOW_GROWTH: "true"}


def told(
    has: Shape,
    size_gib: int | None = None,
    has_tags: dict[str, str] | None = None,
    **asks: object,
) -> tuple[object, ...] | None:
    """Size, type, IOPS and throughput that EC2 is told; None: nothing is sent."""
    attributes = Attributes(**asks) if asks else None  # type: ignore[arg-type]
    target = target_shape(has, has_tags or {}, size_gib=size_gib, attributes=attributes)
    request = difference("vol-1", has, target)
    if request is None:
        return None
    return request.size_gib, request.volume_type, request.iops, request.throughput_mibps


@pytest.mark.parametrize(
    ("has", "size_gib", "has_tags", "asks", "expected"),
    [
        (GP3, 20, {}, {}, (20, None, None, None)),
        (GP3, 10, {}, {}, None),
        (GP3, 5, {}, {}, None),  # a volume never shrinks
        (GP3, None, {}, {"iops": 4000}, (None, None, 4000, None)),
        (GP3, None, {}, {"iops": 3000, "throughput_mibps": 125, "volume_type": "gp3"}, None),
        (GP3, 20, {}, {"iops": 4000, "throughput_mibps": 200}, (20, None, 4000, 200)),
        (GP3, 20, {}, {"iops_per_gib": 200}, (20, None, 4000, None)),
        (GP3, None, {}, {"volume_type": "io2", "iops": 3000}, (None, "io2", 3000, None)),
        # IOPS follow the size of a volume whose tags say so, and only when it grows.
        (Shape(100, "gp3", 5000, 125), 200, FOLLOWS, {}, (200, None, 10_000, None)),
        (
            Shape(100, "gp3", 9000, 125),
            None,
            FOLLOWS,
            {"throughput_mibps": 200},
            (None, None, None, 200),
        ),
        (Shape(100, "gp3", 5000, 125), 200, {IOPS_PER_GIB: "50"}, {}, (200, None, None, None)),
        (Shape(100, "gp3", 5000, 125), 200, FOLLOWS, {"iops": 6000}, (200, None, 6000, None)),
        (Shape(100, "io1", 5000), 200, FOLLOWS, {"volume_type": "gp2"}, (200, "gp2", None, None)),
        # What gp2 had is kept.
        (Shape(100, "gp2", 300), None, {}, {"volume_type": "gp3"}, (None, "gp3", None, None)),
        (Shape(2000, "gp2", 6000), None, {}, {"volume_type": "gp3"}, (None, "gp3", 6000, 250)),
        (
            Shape(2000, "gp2", 6000),
            None,
            {},
            {"volume_type": "gp3", "iops": 4000},
            (None, "gp3", 4000, None),
        ),
        (GP3, None, {}, {"volume_type": "io2"}, (None, "io2", None, None)),  # EC2 chooses 3,000
        # More than the size allows is lowered to it.
        (GP3, None, {}, {"iops": 16_000}, (None, None, 5000, None)),
        (GP3, 100, {}, {"iops": 16_000}, (100, None, 16_000, None)),
        # Fewer than the type's least are raised to it, as by the stock driver.
        (Shape(100, "gp3", 5000, 125), None, {}, {"iops": 1000}, (None, None, 3000, None)),
        (Shape(20, "gp3", 5000, 125), 30, {}, {"iops_per_gib": 10}, (30, None, 3000, None)),
        (GP3, None, {}, {"iops_per_gib": 10}, None),
    ],
)
def test_what_ec2_is_told(has, size_gib, has_tags, asks, expected):
    assert told(has, size_gib, has_tags, **asks) == expected


def test_fewer_iops_than_asked_for_are_remembered():
    target = target_shape(GP3, {}, size_gib=None, attributes=Attributes(iops=16_000))

    assert target.fitted is not None
    assert (target.fitted.asked, target.fitted.given) == (16_000, 5_000)


@pytest.mark.parametrize(
    ("has", "asks", "sentence"),
    [
        (GP3, Attributes(throughput_mibps=2000), "need 8000 IOPS"),
        (GP3, Attributes(volume_type="io1"), "at most 500 IOPS (50 for each GiB), not 3000"),
        (GP3, Attributes(volume_type="st1"), "has 125 to 16384 GiB, not 10"),
        (GP3, Attributes(volume_type="gp2", iops=3000), "iops cannot be set"),
        (Shape(10, "io2", 5000), Attributes(throughput_mibps=200), "only be set for a gp3"),
    ],
)
def test_an_impossible_mix_is_found_before_ec2_is_asked(has, asks, sentence):
    target = target_shape(has, {}, size_gib=None, attributes=asks)

    assert sentence in (fault_of(target, has) or "")


@pytest.mark.parametrize(
    ("has", "asks"),
    [
        (Shape(10, "io2", 5000), Attributes(volume_type="io2")),
        (Shape(10, "gp3", 4000, 500), Attributes(iops=4500)),
        (Shape(200, "gp3", 8000, 125), Attributes(throughput_mibps=2000)),
        (Shape(10, "new-type"), Attributes()),
    ],
)
def test_what_a_volume_keeps_counts(has, asks):
    assert fault_of(target_shape(has, {}, size_gib=None, attributes=asks), has) is None


def per_gib(iops: int) -> dict[str, str]:
    return {IOPS_PER_GIB: str(iops), IOPS_FOLLOW_GROWTH: "true"}


@pytest.mark.parametrize(
    ("has", "size_gib", "iops_per_gib"),
    [
        pytest.param(Shape(10, "gp3", 5000, 125), 11, 300, id="a class gave it more"),
        pytest.param(Shape(10, "gp3", 3000, 125), 20, 50, id="its tags are of an io2"),
        pytest.param(Shape(10, "io2", 100), 15, 5, id="raised to the least when it was made"),
        pytest.param(Shape(100, "gp2", 300), 200, 50, id="none can be chosen"),
        pytest.param(Shape(1, "gp3", 3000, 125), 5, 800, id="too small for more than the least"),
        pytest.param(Shape(100, "new-type", 300), 200, 50, id="a type that we do not know"),
        pytest.param(Shape(10, "gp3", None, 125), 20, 50, id="EC2 does not say how many it has"),
        pytest.param(Shape(10, "gp3", 5000, 125), 20, 0, id="none for each GiB"),
    ],
)
def test_growth_asks_for_no_iops_that_it_cannot_add(has, size_gib, iops_per_gib):
    assert told(has, size_gib, per_gib(iops_per_gib)) == (size_gib, None, None, None)


SHAPES = st.builds(
    Shape, st.integers(1, 2000), st.just("gp3"), st.integers(3000, 9000), st.integers(125, 500)
)
ASKS = st.builds(
    Attributes,
    iops=st.none() | st.integers(1, 9000),
    throughput_mibps=st.none() | st.integers(125, 500),
)


@given(SHAPES, st.none() | st.integers(1, 3000), ASKS)
def test_once_it_is_so_nothing_is_sent_again(has, size_gib, asks):
    target = target_shape(has, {}, size_gib=size_gib, attributes=asks)
    request = difference("vol-1", has, target)
    after = Shape(
        target.size_gib,
        target.volume_type,
        target.iops or has.iops,
        target.throughput_mibps or has.throughput_mibps,
    )

    assert agrees(after, target)
    assert target.size_gib >= has.size_gib
    assert request != ModifyRequest("vol-1", None, None, None, None)


@given(
    st.builds(
        Shape,
        st.integers(1, 2000),
        st.sampled_from(["gp3", "gp2", "io1", "io2"]),
        st.none() | st.integers(100, 20_000),
    ),
    st.integers(1, 3000),
    st.integers(0, 10**6),
    st.none() | st.integers(16_000, 64_000),
)
def test_growth_takes_no_iops_away_and_asks_for_nothing_impossible(
    has, size_gib, iops_per_gib, ceiling
):
    target = target_shape(
        has, per_gib(iops_per_gib), size_gib=size_gib, attributes=None, ceiling=ceiling
    )

    assert target.iops is None or target.iops > (has.iops or 0)
    grows = max(size_gib, VOLUME_TYPES[has.volume_type].size_gib[0]) == target.size_gib
    if grows and target.iops is not None:
        assert fault(has.volume_type, target.size_gib, target.iops, None) is None


@pytest.mark.parametrize(
    ("has", "asks", "iops"),
    [
        (Shape(10, "gp3", 5000, 125), {"iops": 12_000}, 12_000),
        (Shape(10, "gp3", 5000, 125), {"iops": 80_000}, 50_000),
        (Shape(10, "io2", 10_000), {"volume_type": "io2", "iops": 20_000}, 20_000),
        (Shape(10, "gp3", 5000, 125), {"iops": 5000}, None),
        (Shape(10, "gp3", 4000, 125), {"iops": 12_000}, None),
        (Shape(10, "gp3", 5000, 125), {"iops": 12_000, "volume_type": "io2"}, None),
        (Shape(10, "gp3", 5000, 125), {"throughput_mibps": 125}, None),
    ],
    ids=["all", "some", "io2", "has them", "by hand", "another type", "none asked"],
)
def test_growth_gives_the_iops_of_the_class_that_the_size_did_not_allow(has, asks, iops):
    target = target_shape(has, {}, size_gib=100, attributes=None, current=Attributes(**asks))
    smaller = target_shape(has, {}, size_gib=None, attributes=None, current=Attributes(**asks))

    assert (target.iops, smaller.iops) == (iops, None)


@pytest.mark.parametrize(
    ("had", "iops"),
    [
        (Shape(10, "gp3", 5000, 125), 12_000),
        (Shape(15, "gp3", 5000, 125), None),
        (None, None),
    ],
    ids=["what its size allowed", "by hand", "not known"],
)
def test_growth_gives_the_iops_that_the_growth_before_did_not(had, iops):
    has, asks = Shape(20, "gp3", 5000, 125), Attributes(iops=12_000)

    target = target_shape(has, {}, size_gib=100, attributes=None, current=asks, before=had)

    assert target.iops == iops


def test_tags_count_for_nothing_where_the_class_gives_iops():
    has = Shape(10, "gp3", 4000, 125)

    target = target_shape(
        has, per_gib(300), size_gib=100, attributes=None, current=Attributes(iops=4000)
    )

    assert target.iops is None
