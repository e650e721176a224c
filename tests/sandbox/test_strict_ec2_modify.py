"""ModifyVolume of the strict EC2: states, the budget, and what may become of what."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from provisioner.sandbox.strict_ec2.lab import Lab, refusal

_VALUE, _COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"
_DAY_S = 86_400


def _shape(lab: Lab, volume: str) -> tuple[int, str, int | None, int | None]:
    seen = lab.look(volume)
    return seen["Size"], seen["VolumeType"], seen.get("Iops"), seen.get("Throughput")


def test_the_new_size_shows_at_optimizing_and_not_before(lab: Lab) -> None:
    lab.control(delays={"modify_s": 10, "optimize_s": 100})
    volume = lab.volume()

    begun = lab.modify(volume, Size=20)

    assert (begun["ModificationState"], begun["Progress"]) == ("modifying", 0)
    assert (lab.modification_state(volume), _shape(lab, volume)[0]) == ("modifying", 10)

    lab.control(advance_s=10)

    assert (lab.modification_state(volume), _shape(lab, volume)[0]) == ("optimizing", 20)

    lab.control(advance_s=50)

    assert 50 <= lab.modification(volume)["Progress"] < 60

    lab.control(advance_s=50)
    done = lab.modification(volume)

    assert (done["ModificationState"], done["Progress"]) == ("completed", 100)
    assert done["EndTime"] - done["StartTime"] == timedelta(seconds=110)


def test_a_modification_tells_from_what_to_what(lab: Lab) -> None:
    volume = lab.volume()

    begun = lab.modify(volume, Iops=4000)

    assert {
        key: value for key, value in begun.items() if key.startswith(("Original", "Target"))
    } == {
        "OriginalSize": 10,
        "OriginalVolumeType": "gp3",
        "OriginalIops": 3000,
        "OriginalThroughput": 125,
        "OriginalMultiAttachEnabled": False,
        "TargetSize": 10,
        "TargetVolumeType": "gp3",
        "TargetIops": 4000,
        "TargetThroughput": 125,
        "TargetMultiAttachEnabled": False,
    }


@pytest.mark.parametrize(("advance_s", "state"), [(0, "MODIFYING"), (10, "OPTIMIZING")], ids=str)
def test_nothing_is_modified_while_a_modification_runs(
    lab: Lab, advance_s: int, state: str
) -> None:
    lab.control(delays={"modify_s": 10, "optimize_s": 100})
    volume = lab.volume()
    lab.modify(volume, Size=20)
    lab.control(advance_s=advance_s)

    code, message = refusal(lab.modify, volume, Size=30)

    assert code == "IncorrectModificationState"
    assert f"{volume} cannot be modified in modification state {state}" in message

    lab.control(advance_s=110, delays={"modify_s": 0, "optimize_s": 0})
    lab.modify(volume, Size=30)

    assert _shape(lab, volume)[0] == 30


def test_the_fifth_modification_of_a_day_is_refused_until_it_is_told(lab: Lab) -> None:
    volume = lab.volume()
    started_at = [lab.modify(volume, Size=size)["StartTime"] for size in (11, 12, 13, 14)]

    code, message = refusal(lab.modify, volume, Size=15)

    assert code == "VolumeModificationRateExceeded"
    found = re.search(r"after (\S+)Z\.", message)
    assert found is not None
    next_at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    assert abs(next_at - started_at[0] - timedelta(days=1)) < timedelta(seconds=1)

    lab.control(advance_s=_DAY_S - 60)

    assert refusal(lab.modify, volume, Size=15)[0] == "VolumeModificationRateExceeded"

    lab.control(advance_s=60)

    assert lab.modify(volume, Size=15)["TargetSize"] == 15


def test_a_modification_that_changes_nothing_counts(lab: Lab) -> None:
    volume = lab.volume()
    for _ in range(4):
        lab.modify(volume, Size=10)

    assert refusal(lab.modify, volume, Size=10)[0] == "VolumeModificationRateExceeded"


def test_the_window_rolls(strict_lab: Lab) -> None:
    volume = strict_lab.volume()
    for size in (11, 12, 13, 14):
        strict_lab.modify(volume, Size=size)
        strict_lab.control(advance_s=3600)

    assert refusal(strict_lab.modify, volume, Size=15)[0] == "VolumeModificationRateExceeded"

    strict_lab.control(advance_s=_DAY_S - 4 * 3600)
    strict_lab.modify(volume, Size=15)

    assert refusal(strict_lab.modify, volume, Size=16)[0] == "VolumeModificationRateExceeded"


def test_the_older_rule_can_be_had(lab: Lab) -> None:
    lab.control(
        modification_budget=1,
        modification_window_s=21_600,
        modification_refusal="Wait at least 6 hours between modifications per EBS volume.",
    )
    volume = lab.volume()
    lab.modify(volume, Size=11)

    assert refusal(lab.modify, volume, Size=12)[1].startswith("Wait at least 6 hours")

    lab.control(advance_s=21_600)

    assert lab.modify(volume, Size=12)["TargetSize"] == 12


def test_a_refused_modification_costs_nothing(strict_lab: Lab) -> None:
    volume = strict_lab.volume()
    for _ in range(5):
        refusal(strict_lab.modify, volume, Size=5)

    assert refusal(strict_lab.modification, volume)[0] == "InvalidVolumeModification.NotFound"
    assert refusal(strict_lab.modify, volume, Size=11, DryRun=True)[0] == "DryRunOperation"
    assert strict_lab.modify(volume, Size=11)


def test_a_failed_modification_changes_nothing_and_may_be_repeated(lab: Lab) -> None:
    lab.control(failing_modifications=1)
    volume = lab.volume()
    lab.modify(volume, Size=20)
    failed = lab.modification(volume)

    assert (failed["ModificationState"], _shape(lab, volume)[0]) == ("failed", 10)
    assert failed["StatusMessage"]

    lab.modify(volume, Size=20)

    assert (lab.modification_state(volume), _shape(lab, volume)[0]) == ("completed", 20)


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


def test_a_volume_in_creation_is_not_modified(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})

    assert refusal(lab.modify, lab.volume(), Size=20)[0] == "IncorrectState"


def test_an_attached_volume_grows_where_its_instance_shows_it(strict_lab: Lab) -> None:
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)
    strict_lab.modify(volume, Size=20)

    assert strict_lab.state(volume) == "in-use"
    assert _shape(strict_lab, volume)[0] == 20


def test_a_volume_deleted_while_it_is_modified_stays_deleted(strict_lab: Lab) -> None:
    strict_lab.control(delays={"modify_s": 10})
    volume = strict_lab.volume()
    strict_lab.modify(volume, Size=20)
    strict_lab.ec2.delete_volume(VolumeId=volume)
    strict_lab.control(advance_s=20)

    assert refusal(strict_lab.modification, volume)[0] == "InvalidVolume.NotFound"


@pytest.mark.parametrize(
    ("quotas", "change", "code"),
    [
        ({"gib": {"gp3": 25}}, {"Size": 20}, "VolumeLimitExceeded"),
        ({"iops": {"gp3": 7000}}, {"Iops": 5000}, "MaxIOPSLimitExceeded"),
        ({"modifying_gib": {"gp3": 15}}, {"Size": 20}, "VolumeModificationSizeLimitExceeded"),
    ],
    ids=str,
)
def test_the_quotas_of_a_region_hold(
    lab: Lab, quotas: dict[str, Any], change: dict[str, Any], code: str
) -> None:
    lab.volume()
    volume = lab.volume()
    lab.control(quotas=quotas)

    assert refusal(lab.modify, volume, **change)[0] == code


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_a_modification_may_be_started_and_its_reply_lost(lab: Lab, do: str) -> None:
    volume = lab.volume()
    lab.control(faults=[{"action": "ModifyVolume", "do": do, "when": "after"}])

    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        lab.modify(volume, Size=20)

    assert _shape(lab, volume)[0] == 20
