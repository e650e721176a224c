"""Fast restores and locks of snapshots."""

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.ec2.batches import whole
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.model.ebs_snapshot import LockRequest, SnapshotRequest, SnapshotState
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request

GONE = "snap-0123456789abcdef0"
A, B = "us-east-1a", "us-east-1b"


@pytest.fixture
async def one(snapshots: Snapshots, volumes: Volumes) -> str:
    volume = await volumes.create(a_request("one"))
    return (await snapshots.create(SnapshotRequest(volume.volume_id, "", ()))).snapshot_id


@pytest.fixture
async def two(snapshots: Snapshots, volumes: Volumes) -> str:
    volume = await volumes.create(a_request("two"))
    return (await snapshots.create(SnapshotRequest(volume.volume_id, "", ()))).snapshot_id


async def test_fast_restore_is_enabled_in_each_zone_and_again_without_harm(
    snapshots: Snapshots, one: str, two: str, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"fast_restore_s": 60.0})

    await snapshots.enable_fast_restore(one, [A, B])
    await snapshots.enable_fast_restore(one, [A])

    found = await snapshots.fast_restores(one)
    assert found.keys() == {A, B}
    assert "enabled" not in found.values()
    assert await snapshots.fast_restores(two) == {}
    strict_ec2.control(advance_s=120.0)
    assert await snapshots.fast_restores(one) == {A: "enabled", B: "enabled"}


async def test_a_refusal_for_a_zone_is_an_error_though_the_answer_is_a_good_one(
    snapshots: Snapshots, one: str, two: str, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(fast_restore_snapshots=1)
    await snapshots.enable_fast_restore(one, [A])

    with pytest.raises(Ec2Error) as caught:
        await snapshots.enable_fast_restore(two, [A])

    assert (caught.value.reason, caught.value.outcome) == (Reason.QUOTA_EXCEEDED, Outcome.NOTHING)
    assert f"EnableFastSnapshotRestores {two} in {A}: EC2 answered" in caught.value.message


async def test_a_snapshot_goes_with_its_fast_restores(snapshots: Snapshots, one: str) -> None:
    await snapshots.enable_fast_restore(one, [A, B])
    await snapshots.delete(one)

    assert await snapshots.fast_restores(one) == {}
    assert await snapshots.describe([one]) == {}


async def test_fast_restore_of_what_is_gone_is_told(snapshots: Snapshots) -> None:
    with pytest.raises(Ec2Error) as caught:
        await snapshots.enable_fast_restore(GONE, [A])

    assert caught.value.reason is Reason.SNAPSHOT_NOT_FOUND


async def test_a_zone_that_is_none_is_told(snapshots: Snapshots, one: str) -> None:
    with pytest.raises(Ec2Error) as caught:
        await snapshots.enable_fast_restore(one, ["us-east-1z"])

    assert caught.value.reason is Reason.ZONE_NOT_FOUND


async def test_a_lock_is_seen_and_keeps_the_snapshot(
    snapshots: Snapshots, one: str, two: str
) -> None:
    await snapshots.lock(one, LockRequest("governance", duration_days=2))

    assert await snapshots.lock_state(one) == "governance"
    assert not await snapshots.lock_state(two)
    with pytest.raises(Ec2Error) as caught:
        await snapshots.delete(one)
    assert caught.value.reason is Reason.SNAPSHOT_LOCKED
    assert whole(await snapshots.describe([one]))[one].state is SnapshotState.COMPLETED


async def test_a_lock_in_compliance_mode_cools_off_first(
    snapshots: Snapshots, one: str, strict_ec2: StrictEc2
) -> None:
    until = datetime.now(UTC) + timedelta(days=3)
    request = LockRequest("compliance", expires_at=until, cool_off_hours=1)

    await snapshots.lock(one, request)

    assert await snapshots.lock_state(one) == "compliance-cooloff"
    strict_ec2.control(advance_s=3601.0)
    assert await snapshots.lock_state(one) == "compliance"


@pytest.mark.parametrize(
    "impossible",
    [
        LockRequest("governance"),
        LockRequest("governance", duration_days=0),
        LockRequest("governance", duration_days=1, cool_off_hours=1),
        LockRequest("forever", duration_days=1),
    ],
)
async def test_an_impossible_lock_is_refused(
    snapshots: Snapshots, one: str, impossible: LockRequest
) -> None:
    with pytest.raises(Ec2Error) as caught:
        await snapshots.lock(one, impossible)

    assert caught.value.reason is Reason.INVALID_REQUEST
    assert one in caught.value.message


async def test_a_lost_reply_may_have_locked_it(
    snapshots: Snapshots, one: str, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(faults=[{"action": "LockSnapshot", "when": "after", "do": "reset"}])

    with pytest.raises(Ec2Error) as caught:
        await snapshots.lock(one, LockRequest("governance", duration_days=1))

    assert caught.value.outcome is Outcome.UNKNOWN
    assert await snapshots.lock_state(one) == "governance"
