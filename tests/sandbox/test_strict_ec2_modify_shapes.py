"""What ModifyVolume of the strict EC2 lets become of what."""

from typing import Any

import pytest

from tests.sandbox.lab import Lab, refusal

_VALUE, _COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"


def _shape(lab: Lab, volume: str) -> tuple[int, str, int | None, int | None]:
    seen = lab.look(volume)
    return seen["Size"], seen["VolumeType"], seen.get("Iops"), seen.get("Throughput")


@pytest.mark.parametrize(
    ("made", "change", "code", "text"),
    [
        ({}, {"Size": 9}, _VALUE, "New size cannot be smaller than existing size"),
        ({}, {"Size": 65537}, _VALUE, "maximum is 65536GiB"),
        ({"Size": 2000}, {"VolumeType": "standard"}, _VALUE, "maximum is 1024GiB"),
        ({}, {"VolumeType": "st1"}, _VALUE, "minimum is 125GiB"),
        ({}, {"VolumeType": "foo"}, "UnknownVolumeType", "foo"),
        ({}, {"Iops": 80001}, _VALUE, "Volume iops of 80001 is too high; maximum is 80000"),
        ({}, {"Iops": 7500}, _VALUE, "Iops to volume size ratio of 750.000000 is too high"),
        ({}, {"Throughput": 1000}, _VALUE, "Throughput (MiBps) to iops ratio of 0.333333"),
        ({}, {"VolumeType": "gp2", "Iops": 3000}, _COMBINATION, "not supported for gp2"),
        ({"VolumeType": "gp2"}, {"Throughput": 125}, _COMBINATION, "only be specified for volume"),
        ({"Size": 4}, {"VolumeType": "io1"}, _VALUE, "maximum is 50"),
        ({}, {"MultiAttachEnabled": True}, _COMBINATION, "not supported for gp3"),
    ],
    ids=str,
)
def test_what_a_volume_cannot_become_is_refused(
    lab: Lab, made: dict[str, Any], change: dict[str, Any], code: str, text: str
) -> None:
    volume = lab.volume(**made)

    refused, message = refusal(lab.modify, volume, **change)

    assert (refused, text in message) == (code, True), message


def test_a_modification_of_nothing_is_refused(strict_lab: Lab) -> None:
    assert refusal(strict_lab.modify, strict_lab.volume())[0] == _VALUE


def test_lower_iops_are_held_to_the_throughput_that_stays(lab: Lab) -> None:
    volume = lab.volume(Iops=5000, Throughput=1000)

    assert "ratio of 0.333333" in refusal(lab.modify, volume, Iops=3000)[1]


@pytest.mark.parametrize(
    ("made", "change", "becomes"),
    [
        ({"VolumeType": "gp2"}, {"VolumeType": "gp3"}, (10, "gp3", 3000, 125)),
        ({"VolumeType": "gp2", "Size": 2000}, {"VolumeType": "gp3"}, (2000, "gp3", 6000, 250)),
        ({"VolumeType": "gp2"}, {"Size": 1000}, (1000, "gp2", 3000, None)),
        ({}, {"VolumeType": "gp2"}, (10, "gp2", 100, None)),
        ({"Size": 100}, {"VolumeType": "io2"}, (100, "io2", 3000, None)),
        ({"Size": 100, "Iops": 9000, "Throughput": 500}, {"Size": 200}, (200, "gp3", 9000, 500)),
        ({"Size": 200}, {"VolumeType": "st1"}, (200, "st1", None, None)),
    ],
    ids=str,
)
def test_what_is_not_named_is_kept_or_the_default_of_the_new_type(
    strict_lab: Lab,
    made: dict[str, Any],
    change: dict[str, Any],
    becomes: tuple[int, str, int | None, int | None],
) -> None:
    volume = strict_lab.volume(**made)
    strict_lab.modify(volume, **change)

    assert _shape(strict_lab, volume) == becomes


def test_gp2_to_gp3_keeps_the_iops_the_volume_had(lab: Lab) -> None:
    volume = lab.volume(VolumeType="gp2", Size=2000)
    lab.modify(volume, VolumeType="gp3")

    assert _shape(lab, volume) == (2000, "gp3", 6000, 250)


def _multi_attached(lab: Lab, kind: str) -> str:
    return lab.volume(VolumeType=kind, Size=100, Iops=1000, MultiAttachEnabled=True)


@pytest.mark.parametrize(
    ("kind", "change"),
    [("io1", {"Size": 200}), ("io1", {"Iops": 2000}), ("io2", {"VolumeType": "io1"})],
    ids=str,
)
def test_what_multi_attach_forbids_is_refused(lab: Lab, kind: str, change: dict[str, Any]) -> None:
    assert refusal(lab.modify, _multi_attached(lab, kind), **change)[0] == "UnsupportedOperation"


def test_multi_attach_of_io2_grows_and_is_switched_only_when_detached(lab: Lab) -> None:
    volume = _multi_attached(lab, "io2")
    lab.attach(volume, lab.instance())
    lab.modify(volume, Size=200)

    assert refusal(lab.modify, volume, MultiAttachEnabled=False)[0] == "IncorrectState"
