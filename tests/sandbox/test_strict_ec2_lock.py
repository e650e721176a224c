"""LockSnapshot, UnlockSnapshot and DescribeLockedSnapshots of the strict EC2."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from tests.sandbox.lab import Lab, refusal

_DAY_S = 86_400


def _lock(lab: Lab, snapshot: str, **changes: Any) -> Any:
    request = {"LockMode": "governance", "LockDuration": 1} | changes
    return lab.ec2.lock_snapshot(
        SnapshotId=snapshot, **{k: v for k, v in request.items() if v is not None}
    )


def _states(lab: Lab, **names: Any) -> dict[str, str]:
    reply = lab.ec2.describe_locked_snapshots(**names)
    return {each["SnapshotId"]: each["LockState"] for each in reply["Snapshots"]}


def test_a_locked_snapshot_is_not_deleted_until_its_lock_expires(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    made = _lock(lab, snapshot)

    assert made["LockState"] == "governance"
    assert made["LockExpiresOn"] - made["LockCreatedOn"] == timedelta(days=1)
    assert refusal(lab.ec2.delete_snapshot, SnapshotId=snapshot)[0] == "SnapshotLocked"

    lab.control(advance_s=_DAY_S)

    assert _states(lab, SnapshotIds=[snapshot]) == {snapshot: "expired"}
    assert lab.ec2.delete_snapshot(SnapshotId=snapshot)


def test_a_pending_snapshot_can_be_locked(lab: Lab) -> None:
    lab.control(delays={"snapshot_s": 10})
    snapshot = lab.snapshot(lab.volume())

    assert _lock(lab, snapshot)["LockState"] == "governance"


def test_compliance_cools_off_first(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    made = _lock(lab, snapshot, LockMode="compliance", LockDuration=30, CoolOffPeriod=2)

    assert (made["LockState"], made["CoolOffPeriod"]) == ("compliance-cooloff", 2)
    assert made["CoolOffPeriodExpiresOn"] - made["LockCreatedOn"] == timedelta(hours=2)

    lab.control(advance_s=2 * 3600)

    assert _states(lab) == {snapshot: "compliance"}
    assert refusal(lab.ec2.unlock_snapshot, SnapshotId=snapshot)[0] == "OperationNotPermitted"
    assert refusal(_lock, lab, snapshot)[0] == "OperationNotPermitted"
    assert refusal(_lock, lab, snapshot, LockMode="compliance")[0] == "OperationNotPermitted"
    assert _lock(lab, snapshot, LockMode="compliance", LockDuration=31)


def test_governance_and_cooling_off_can_be_undone(strict_lab: Lab) -> None:
    snapshot = strict_lab.snapshot(strict_lab.volume())
    _lock(strict_lab, snapshot, LockMode="compliance", CoolOffPeriod=1)
    _lock(strict_lab, snapshot, LockDuration=2)
    strict_lab.ec2.unlock_snapshot(SnapshotId=snapshot)

    assert _states(strict_lab) == {}
    assert strict_lab.ec2.delete_snapshot(SnapshotId=snapshot)


def test_a_lock_may_end_at_a_date(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    end = (datetime.now(UTC) + timedelta(days=10)).replace(microsecond=0)

    made = _lock(lab, snapshot, LockDuration=None, ExpirationDate=end)

    assert made["LockExpiresOn"] == end


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"LockMode": None}, "MissingParameter"),
        ({"LockMode": "strict"}, "InvalidParameterValue"),
        ({"LockDuration": None}, "InvalidParameterCombination"),
        ({"ExpirationDate": datetime(2090, 1, 1, tzinfo=UTC)}, "InvalidParameterCombination"),
        ({"LockDuration": 0}, "InvalidParameterValue"),
        ({"LockDuration": 36501}, "InvalidParameterValue"),
        (
            {"LockDuration": None, "ExpirationDate": datetime(2020, 1, 1, tzinfo=UTC)},
            "InvalidParameterValue",
        ),
        ({"CoolOffPeriod": 1}, "InvalidParameterCombination"),
        ({"LockMode": "compliance", "CoolOffPeriod": 73}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
    ids=str,
)
def test_what_a_lock_cannot_be_is_refused(lab: Lab, changes: dict[str, Any], code: str) -> None:
    snapshot = lab.snapshot(lab.volume())

    assert refusal(_lock, lab, snapshot, **changes)[0] == code


def test_only_locked_snapshots_are_told(lab: Lab) -> None:
    locked, free = (lab.snapshot(lab.volume()) for _ in range(2))
    _lock(lab, locked)

    assert _states(lab, SnapshotIds=[locked, free]) == {locked: "governance"}
    assert _states(lab, Filters=[{"Name": "lock-state", "Values": ["compliance"]}]) == {}
    absent = "snap-00000000000000000"
    assert refusal(_states, lab, SnapshotIds=[absent])[0] == "InvalidSnapshot.NotFound"


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_a_snapshot_may_be_locked_and_the_reply_lost(lab: Lab, do: str) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.control(faults=[{"action": "LockSnapshot", "do": do, "when": "after"}])
    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        _lock(lab, snapshot)

    assert _states(lab) == {snapshot: "governance"}
    assert _lock(lab, snapshot)
