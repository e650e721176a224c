"""DescribeVolumesModifications of the strict EC2."""

from typing import Any

from tests.sandbox.lab import Lab, refusal

_ABSENT = "vol-00000000000000000"


def _modified(lab: Lab, size_gib: int = 20) -> str:
    volume = lab.volume()
    lab.modify(volume, Size=size_gib)
    return volume


def _listed(lab: Lab, *filters: tuple[str, list[str]]) -> list[Any]:
    reply = lab.ec2.describe_volumes_modifications(
        Filters=[{"Name": name, "Values": values} for name, values in filters]
    )
    return list(reply["VolumesModifications"])


def test_only_the_latest_modification_is_told(lab: Lab) -> None:
    volume = _modified(lab)
    lab.modify(volume, Size=30)

    assert lab.modification(volume)["TargetSize"] == 30


def test_one_volume_that_was_never_modified_fails_the_whole_call(lab: Lab) -> None:
    never, modified = lab.volume(), _modified(lab)

    code, message = refusal(lab.ec2.describe_volumes_modifications, VolumeIds=[modified, never])

    assert code == "InvalidVolumeModification.NotFound"
    assert (never in message, modified in message) == (True, False)


def test_a_volume_that_is_not_there_is_named(lab: Lab) -> None:
    volume = _modified(lab)

    refused = refusal(lab.ec2.describe_volumes_modifications, VolumeIds=[volume, _ABSENT])

    assert refused == ("InvalidVolume.NotFound", f"The volume '{_ABSENT}' does not exist.")


def test_without_ids_the_never_modified_are_left_out(strict_lab: Lab) -> None:
    strict_lab.volume()
    volume = _modified(strict_lab)

    assert [each["VolumeId"] for each in _listed(strict_lab)] == [volume]


def test_the_states_can_be_filtered_by(lab: Lab) -> None:
    done = _modified(lab)
    lab.control(delays={"modify_s": 10})
    running = _modified(lab)

    found = {
        state: [each["VolumeId"] for each in _listed(lab, ("modification-state", [state]))]
        for state in ("modifying", "completed")
    }

    assert found == {"modifying": [running], "completed": [done]}


def test_ids_can_be_filtered_by_without_a_refusal(strict_lab: Lab) -> None:
    never, modified = strict_lab.volume(), _modified(strict_lab)

    found = _listed(strict_lab, ("volume-id", [never, modified, _ABSENT]))

    assert [each["VolumeId"] for each in found] == [modified]


def test_the_values_of_all_filters_together_are_limited(lab: Lab) -> None:
    ids, states = [_ABSENT] * 198, ["modifying", "optimizing", "completed"]

    assert _listed(lab, ("volume-id", ids[:197]), ("modification-state", states)) == []

    code, _ = refusal(_listed, lab, ("volume-id", ids), ("modification-state", states))

    assert code == "FilterLimitExceeded"


def test_pages_hold_every_modification_once(lab: Lab) -> None:
    volumes = {_modified(lab) for _ in range(7)}
    seen: list[str] = []
    reply: dict[str, Any] = {}
    while not seen or "NextToken" in reply:
        token = {"NextToken": reply["NextToken"]} if seen else {}
        reply = lab.ec2.describe_volumes_modifications(MaxResults=5, **token)
        seen += [each["VolumeId"] for each in reply["VolumesModifications"]]
        assert len(reply["VolumesModifications"]) <= 5

    assert (len(seen), set(seen)) == (7, volumes)


def test_a_page_has_at_most_500(lab: Lab) -> None:
    assert refusal(lab.ec2.describe_volumes_modifications, MaxResults=501)[0] == (
        "InvalidParameterValue"
    )


def test_a_page_size_and_ids_exclude_each_other(lab: Lab) -> None:
    code, _ = refusal(
        lab.ec2.describe_volumes_modifications, VolumeIds=[_modified(lab)], MaxResults=5
    )

    assert code == "InvalidParameterCombination"


def test_a_new_modification_may_not_be_visible_yet(lab: Lab) -> None:
    volume = _modified(lab, 20)
    lab.control(delays={"modification_visible_after_s": 10, "modify_s": 5})
    first = lab.volume()
    lab.modify(first, Size=20)
    lab.modify(volume, Size=30)

    assert lab.modification(volume)["TargetSize"] == 20
    assert refusal(lab.modification, first)[0] == "InvalidVolumeModification.NotFound"

    lab.control(advance_s=10)

    assert lab.modification(volume)["TargetSize"] == 30
    assert lab.modification_state(first) == "completed"


def test_the_volume_may_lag_behind_its_modification(lab: Lab) -> None:
    lab.control(delays={"modify_s": 5, "modified_shown_after_s": 10})
    volume = _modified(lab, 20)
    lab.control(advance_s=5)

    assert (lab.modification_state(volume), lab.look(volume)["Size"]) == ("completed", 10)
    assert refusal(lab.modify, volume, Size=15)[0] == "InvalidParameterValue"

    lab.control(advance_s=10)

    assert lab.look(volume)["Size"] == 20


def test_describes_of_modifications_have_one_bucket(strict_lab: Lab) -> None:
    strict_lab.control(throttle={"DescribeVolumesModifications": [2, 0]})
    _listed(strict_lab)
    _listed(strict_lab, ("volume-id", [_ABSENT]))

    assert refusal(_listed, strict_lab)[0] == "RequestLimitExceeded"
