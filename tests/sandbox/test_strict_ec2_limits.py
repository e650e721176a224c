"""What types, sizes, IOPS and throughput CreateVolume of the strict EC2 accepts."""

from typing import Any

import pytest

from tests.sandbox.lab import Lab, refusal


@pytest.mark.parametrize(
    ("kind", "size_gib"),
    [
        ("gp3", 0),
        ("gp3", -1),
        ("gp3", 65537),
        ("gp2", 16385),
        ("io1", 3),
        ("io2", 3),
        ("st1", 124),
        ("sc1", 16385),
        ("standard", 1025),
    ],
)
def test_a_size_outside_the_type_is_refused(lab: Lab, kind: str, size_gib: int) -> None:
    iops = 100 if kind.startswith("io") else None

    code, message = refusal(lab.create, VolumeType=kind, Size=size_gib, Iops=iops)

    assert (code, f"{size_gib}GiB" in message) == ("InvalidParameterValue", True)


def test_a_size_or_a_snapshot_is_required(strict_lab: Lab) -> None:
    assert refusal(strict_lab.create, Size=None)[0] == "MissingParameter"


def test_a_size_that_is_no_number_is_refused(lab: Lab) -> None:
    assert refusal(lab.create, Size="many")[0] == "InvalidParameterValue"


def test_an_unknown_type_is_refused(lab: Lab) -> None:
    assert refusal(lab.create, VolumeType="foo")[0] == "UnknownVolumeType"


_VALUE, _COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"Iops": 200000}, _VALUE, "Volume iops of 200000 is too high; maximum is 80000"),
        ({"Iops": 2999}, _VALUE, "Volume iops of 2999 is too low; minimum is 3000"),
        (
            {"Iops": 7500},
            _VALUE,
            "Iops to volume size ratio of 750.000000 is too high; maximum is 500",
        ),
        ({"VolumeType": "io1", "Iops": 501}, _VALUE, "maximum is 50"),
        ({"VolumeType": "io2", "Iops": 256001}, _COMBINATION, "256K IOPS"),
        (
            {"VolumeType": "io2"},
            _COMBINATION,
            "The parameter iops must be specified for io2 volumes.",
        ),
        (
            {"VolumeType": "gp2", "Iops": 0},
            _COMBINATION,
            "The parameter iops is not supported for gp2 volumes.",
        ),
        ({"Throughput": 2001}, _VALUE, "too high; maximum is 2000"),
        ({"Throughput": 124}, _VALUE, "too low; minimum is 125"),
        (
            {"Throughput": 1000},
            _VALUE,
            "Throughput (MiBps) to iops ratio of 0.333333 is too high; maximum is 0.250000 MiBps per iops",
        ),
        (
            {"VolumeType": "gp2", "Throughput": 125},
            _COMBINATION,
            "throughput can only be specified for volumeType gp3.",
        ),
    ],
)
def test_performance_outside_the_type_is_refused(
    lab: Lab, change: dict[str, Any], code: str, text: str
) -> None:
    refused, message = refusal(lab.create, **change)

    assert (refused, text in message) == (code, True), message


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("gp3", "Volume iops of 2147483647 is too high; maximum is 80000"),
        ("io1", "Volume iops of 2147483647 is too high; maximum is 64000"),
        (
            "io2",
            (
                "io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB "
                "ratio are not supported."
            ),
        ),
    ],
)
def test_a_dry_run_names_the_ceiling_of_a_type(lab: Lab, kind: str, text: str) -> None:
    asked = {"VolumeType": kind, "Size": 4, "Iops": 2**31 - 1, "DryRun": True}

    assert refusal(lab.create, **asked)[1] == text


@pytest.mark.parametrize("kind", ["gp3", "io1", "io2"])
def test_a_region_may_have_a_ceiling_of_its_own(lab: Lab, kind: str) -> None:
    lab.control(iops_ceilings={kind: 16000})

    _, message = refusal(lab.create, VolumeType=kind, Size=1000, Iops=16001, DryRun=True)

    assert message == "Volume iops of 16001 is too high; maximum is 16000"
    assert lab.create(VolumeType=kind, Size=1000, Iops=16000)["Iops"] == 16000


def test_a_dry_run_is_told_neither_of_the_quota_nor_of_the_capacity(strict_lab: Lab) -> None:
    strict_lab.control(quotas={"volumes": 0}, capacity=[{"zone": "*"}])

    assert refusal(strict_lab.create, DryRun=True)[0] == "DryRunOperation"


def test_a_gp3_volume_shows_the_throughput_it_has_by_default(lab: Lab) -> None:
    volume = lab.create()

    assert (volume["Iops"], volume.get("Throughput")) == (3000, 125)


def test_only_io_types_attach_to_many(lab: Lab) -> None:
    code, _ = refusal(lab.create, MultiAttachEnabled=True)

    assert code == _COMBINATION
