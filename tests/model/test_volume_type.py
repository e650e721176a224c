import pytest

from provisioner.model.volume_type import (
    LARGEST_NUMBER,
    VOLUME_TYPES,
    fault,
    is_beyond,
    modified_fault,
)


@pytest.mark.parametrize(
    ("volume_type", "size_gib", "iops", "throughput_mibps"),
    [
        ("gp3", 1, None, None),
        ("gp3", 1, 3_000, None),
        ("gp3", 160, 80_000, 2_000),
        ("gp3", 10, None, 750),
        ("gp2", 16_384, None, None),
        ("io1", 4, 200, None),
        ("io2", 4, 4_000, None),
        ("st1", 125, None, None),
        ("standard", 1_024, None, None),
    ],
)
def test_allows_what_ec2_allows(volume_type, size_gib, iops, throughput_mibps):
    assert fault(volume_type, size_gib, iops, throughput_mibps) is None


@pytest.mark.parametrize(
    ("volume_type", "size_gib", "iops", "throughput_mibps", "sentence"),
    [
        ("gp3", 0, None, None, "1 to 65536 GiB, not 0"),
        ("io1", 3, None, None, "an io1 volume has 4 to"),
        ("sc1", 3, None, None, "an sc1 volume has 125 to"),
        ("standard", 0, None, None, "a standard volume has 1 to"),
        ("gp2", LARGEST_NUMBER + 1, None, None, "1 to 16384 GiB, not 2147483648"),
        (
            "gp3",
            100,
            2_999,
            None,
            "at least 3000 IOPS, not 2999; allowAutoIOPSPerGBIncrease raises them",
        ),
        ("gp3", 10, 5_001, None, "at most 5000 IOPS (500 for each GiB)"),
        ("gp3", 1, 3_001, None, "at most 3000 IOPS"),
        ("gp3", 100, 3_000, 751, "751 MiB/s need 3004 IOPS"),
        ("gp3", 100, None, 100, "at least 125 MiB/s, not 100"),
        ("gp2", 100, 3_000, None, "iops cannot be set for a gp2"),
        ("gp2", 100, None, 200, "throughput can only be set for a gp3"),
        ("io1", 100, None, None, "needs the parameter iops or iopsPerGB"),
        ("io1", 4, 201, None, "at most 200 IOPS"),
        ("sc1", 124, None, None, "125 to 16384 GiB"),
    ],
)
def test_names_the_limit(volume_type, size_gib, iops, throughput_mibps, sentence):
    assert sentence in str(fault(volume_type, size_gib, iops, throughput_mibps))


@pytest.mark.parametrize("volume_type", VOLUME_TYPES)
def test_every_type_has_its_bounds_inside(volume_type):
    limits = VOLUME_TYPES[volume_type]
    iops = limits.iops[0] if limits.iops_required and limits.iops else None

    assert fault(volume_type, limits.size_gib[0], iops, None) is None
    assert fault(volume_type, limits.size_gib[1], iops, None) is None
    assert fault(volume_type, limits.size_gib[0] - 1, iops, None) is not None


@pytest.mark.parametrize("volume_type", VOLUME_TYPES)
def test_a_documented_maximum_refuses_nothing_ec2_is_asked(volume_type):
    limits = VOLUME_TYPES[volume_type]
    size_gib = limits.size_gib[1] + 1
    iops = limits.iops[1] + 1 if limits.iops else None
    throughput = limits.throughput_mibps[1] + 1 if limits.throughput_mibps else None

    assert fault(volume_type, size_gib, iops, throughput) is None


@pytest.mark.parametrize(
    ("volume_type", "size_gib", "iops", "throughput_mibps", "is_other_type"),
    [
        ("io2", 10, None, None, True),  # EC2 chooses 3,000
        ("io1", 60, None, None, True),
        ("io1", 10, None, None, False),  # it keeps what it has
        ("gp3", 1, None, 750, True),
        ("gp2", 100, None, None, True),
    ],
)
def test_a_volume_that_is_modified_need_not_name_iops(
    volume_type: str,
    size_gib: int,
    iops: int | None,
    throughput_mibps: int | None,
    *,
    is_other_type: bool,
):
    assert (
        modified_fault(volume_type, size_gib, iops, throughput_mibps, is_other_type=is_other_type)
        is None
    )


@pytest.mark.parametrize(
    ("volume_type", "size_gib", "iops", "sentence"),
    [
        ("io1", 10, None, "at most 500 IOPS (50 for each GiB), not 3000, which EC2 chooses"),
        ("io2", 3, None, "has 4 to 65536 GiB, not 3"),
        ("io2", 10, 50, "has at least 100 IOPS, not 50"),
        ("gp2", 10, 3000, "iops cannot be set"),
    ],
)
def test_what_no_volume_can_be_modified_to_is_named(volume_type, size_gib, iops, sentence):
    told = modified_fault(volume_type, size_gib, iops, None, is_other_type=True) or ""

    assert sentence in told
    assert "allowAutoIOPSPerGBIncrease" not in told  # a parameter of StorageClasses only


@pytest.mark.parametrize(
    ("volume_type", "size_gib", "iops", "throughput_mibps", "expected"),
    [
        ("gp3", 16_384, 80_000, 1_000, False),
        ("gp3", 16_385, None, None, True),
        ("gp3", 100, 80_001, None, True),
        ("gp3", 100, None, 1_001, True),
        ("io2", 65_536, 256_000, None, False),
        ("io2", 65_537, None, None, True),
        ("gp2", 16_384, None, None, False),
        ("gp2", 16_385, None, None, True),
        ("standard", 1_025, None, None, True),
    ],
)
def test_only_ec2_knows_whether_there_is_more_than_every_region_has(
    volume_type, size_gib, iops, throughput_mibps, expected
):
    assert is_beyond(volume_type, size_gib, iops, throughput_mibps) is expected
