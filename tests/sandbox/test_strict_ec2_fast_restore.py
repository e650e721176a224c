"""Fast snapshot restores of the strict EC2."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from tests.sandbox.lab import OTHER_ZONE, ZONE, Lab, refusal

_ABSENT = "snap-00000000000000000"


def _enable(lab: Lab, snapshots: list[str], zones: list[str] | None = None) -> Any:
    return lab.ec2.enable_fast_snapshot_restores(
        SourceSnapshotIds=snapshots, AvailabilityZones=[ZONE] if zones is None else zones
    )


def _states(lab: Lab, *filters: tuple[str, list[str]]) -> dict[tuple[str, str], str]:
    reply = lab.ec2.describe_fast_snapshot_restores(
        Filters=[{"Name": name, "Values": values} for name, values in filters]
    )
    return {
        (each["SnapshotId"], each["AvailabilityZone"]): each["State"]
        for each in reply["FastSnapshotRestores"]
    }


def test_they_wait_for_the_snapshot_and_then_take_their_time(lab: Lab) -> None:
    lab.control(delays={"snapshot_s": 10, "fast_restore_s": 100})
    snapshot = lab.snapshot(lab.volume())
    reply = _enable(lab, [snapshot], [ZONE, OTHER_ZONE])
    pairs = [(snapshot, ZONE), (snapshot, OTHER_ZONE)]

    assert [each["State"] for each in reply["Successful"]] == ["enabling"] * 2
    for advance_s, state in ((0, "enabling"), (10, "optimizing"), (99, "optimizing")):
        lab.control(advance_s=advance_s)
        assert _states(lab) == dict.fromkeys(pairs, state)

    lab.control(advance_s=1)

    assert _states(lab) == dict.fromkeys(pairs, "enabled")
    assert _states(lab, ("availability-zone", [ZONE]), ("state", ["enabled"])) == {
        pairs[0]: "enabled"
    }


def test_a_region_has_five_snapshots_with_them_and_the_rest_fails_alone(lab: Lab) -> None:
    snapshots = [lab.snapshot(lab.volume()) for _ in range(6)]

    reply = _enable(lab, snapshots)

    assert [each["SnapshotId"] for each in reply["Successful"]] == snapshots[:5]
    (refused,) = reply["Unsuccessful"]
    (error,) = refused["FastSnapshotRestoreStateErrors"]
    assert (refused["SnapshotId"], error["AvailabilityZone"]) == (snapshots[5], ZONE)
    assert error["Error"]["Code"] == "FastSnapshotRestoreLimitExceeded"

    lab.ec2.delete_snapshot(SnapshotId=snapshots[0])

    assert _enable(lab, snapshots[5:])["Unsuccessful"] == []


def test_enabling_twice_changes_nothing(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.control(fast_restore_snapshots=1)
    for _ in range(2):
        assert len(_enable(lab, [snapshot])["Successful"]) == 1

    assert _states(lab) == {(snapshot, ZONE): "enabled"}


def test_a_missing_snapshot_fails_alone(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())

    reply = _enable(lab, [_ABSENT, snapshot])

    assert [each["SnapshotId"] for each in reply["Successful"]] == [snapshot]
    (refused,) = reply["Unsuccessful"]
    assert refused["FastSnapshotRestoreStateErrors"][0]["Error"]["Code"] == (
        "InvalidSnapshot.NotFound"
    )


@pytest.mark.parametrize(
    ("snapshots", "zones", "code"),
    [
        ([_ABSENT] * 11, [ZONE], "InvalidRequest"),
        ([_ABSENT], ["us-east-1z"], "InvalidParameterValue"),
        ([_ABSENT], [], "MissingParameter"),
        ([], [ZONE], "MissingParameter"),
    ],
    ids=str,
)
def test_a_request_that_can_do_nothing_is_refused(
    lab: Lab, snapshots: list[str], zones: list[str], code: str
) -> None:
    assert refusal(_enable, lab, snapshots, zones)[0] == code


def test_a_restore_with_them_has_all_of_its_blocks_at_once(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100})
    snapshot = lab.snapshot(lab.volume())
    _enable(lab, [snapshot])
    fast, slow = (
        lab.volume(SnapshotId=snapshot, Size=None, AvailabilityZone=zone)
        for zone in (ZONE, OTHER_ZONE)
    )

    assert lab.initialization_state(fast) == "completed"
    assert lab.initialization_state(slow) == "initializing"
    assert lab.look(fast)["FastRestored"] is True
    assert lab.listed(("fast-restored", ["true"])) == {fast}


def test_a_deletion_ends_them(strict_lab: Lab) -> None:
    snapshot = strict_lab.snapshot(strict_lab.volume())
    _enable(strict_lab, [snapshot])
    strict_lab.ec2.delete_snapshot(SnapshotId=snapshot)

    assert _states(strict_lab) == {}


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_they_may_be_enabled_and_the_reply_lost(lab: Lab, do: str) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.control(faults=[{"action": "EnableFastSnapshotRestores", "do": do, "when": "after"}])
    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        _enable(lab, [snapshot])

    assert _states(lab) == {(snapshot, ZONE): "enabled"}
