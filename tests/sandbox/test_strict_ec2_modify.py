"""ModifyVolume of the strict EC2: states, one at a time, the budget."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from tests.sandbox.lab import Lab, refusal

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


def test_a_clock_that_was_moved_on_can_be_set_right(lab: Lab) -> None:
    volume = lab.volume()
    lab.control(advance_s=600)
    ahead = lab.modify(volume, Size=11)["StartTime"] - datetime.now(UTC)
    lab.control(advance_s=None)
    other = lab.volume()
    right = lab.modify(other, Size=11)["StartTime"] - datetime.now(UTC)

    assert abs(ahead - timedelta(seconds=600)) < timedelta(seconds=5)
    assert abs(right) < timedelta(seconds=5)


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
    lab.control(modification_refusal="You can modify {volume_id} again after {next_at}.")
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
    lab.control(modification_budget=1, modification_window_s=21_600)
    volume = lab.volume()
    lab.modify(volume, Size=11)

    message = refusal(lab.modify, volume, Size=12)[1]  # AWS's own words
    assert message.endswith("Wait at least 6 hours between modifications per EBS volume.")

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
