from datetime import UTC, datetime, timedelta

import pytest

from provisioner.ec2.batches import whole
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.names import SNAPSHOT_NAME
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request

GONE = "snap-0123456789abcdef0"


async def taken(
    snapshots: Snapshots, volumes: Volumes, name: str = "one", **tags: str
) -> EbsSnapshot:
    volume = await volumes.create(a_request(name))
    every = tuple({SNAPSHOT_NAME: name, **tags}.items())
    return await snapshots.create(SnapshotRequest(volume.volume_id, f"of {name}", every))


async def test_a_snapshot_is_pending_and_then_completed(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"snapshot_s": 8.0})

    made = await taken(snapshots, volumes, team="a")

    assert (made.state, made.size_gib, made.encrypted) == (SnapshotState.PENDING, 4, False)
    assert made.tags == {SNAPSHOT_NAME: "one", "team": "a"}
    assert made.volume_id.startswith("vol-")
    assert made.started_at is not None
    assert abs(datetime.now(UTC) - made.started_at) < timedelta(minutes=5)

    strict_ec2.control(advance_s=9.0)
    seen = whole(await snapshots.describe([made.snapshot_id]))[made.snapshot_id]
    assert (seen.state, seen.progress_percent) == (SnapshotState.COMPLETED, 100)
    assert (seen.volume_id, seen.tags) == (made.volume_id, made.tags)


async def test_one_that_fails_tells_why(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(failing_snapshots=1)
    made = await taken(snapshots, volumes)

    seen = whole(await snapshots.describe([made.snapshot_id]))[made.snapshot_id]

    assert seen.state is SnapshotState.ERROR
    assert seen.message


async def test_a_volume_that_is_gone_is_told(snapshots: Snapshots) -> None:
    with pytest.raises(Ec2Error) as caught:
        await snapshots.create(SnapshotRequest("vol-0123456789abcdef0", "", ()))

    assert caught.value.reason is Reason.VOLUME_NOT_FOUND


async def test_two_of_a_volume_within_15_seconds_are_one_too_many(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = await taken(snapshots, volumes)
    again = SnapshotRequest(made.volume_id, "", ())

    with pytest.raises(Ec2Error) as caught:
        await snapshots.create(again)

    assert (caught.value.reason, caught.value.outcome) == (Reason.SNAPSHOT_RATE, Outcome.NOTHING)
    assert caught.value.retry_after_s is not None
    strict_ec2.control(advance_s=caught.value.retry_after_s)
    assert (await snapshots.create(again)).snapshot_id != made.snapshot_id


async def test_too_many_at_a_time_are_told_apart_from_a_quota(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"snapshot_s": 60.0}, snapshot_limits={"pending": 1})
    await taken(snapshots, volumes)

    with pytest.raises(Ec2Error) as pending:
        await taken(snapshots, volumes, "two")
    strict_ec2.control(snapshot_limits={"total": 1, "pending": 9})
    with pytest.raises(Ec2Error) as total:
        await taken(snapshots, volumes, "three")

    assert pending.value.reason is Reason.SNAPSHOT_RATE
    assert total.value.reason is Reason.QUOTA_EXCEEDED


async def test_a_lost_reply_may_have_taken_one_and_its_name_finds_it(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(faults=[{"action": "CreateSnapshot", "when": "after", "do": "reset"}])

    with pytest.raises(Ec2Error) as caught:
        await taken(snapshots, volumes)

    assert caught.value.outcome is Outcome.UNKNOWN
    assert [each.tags for each in await snapshots.find_any(SNAPSHOT_NAME, ["one"])] == [
        {SNAPSHOT_NAME: "one"}
    ]


async def test_names_are_taken_literally(snapshots: Snapshots, volumes: Volumes) -> None:
    wanted = await taken(snapshots, volumes, "a*")
    await taken(snapshots, volumes, "abc")

    found = await snapshots.find_any(SNAPSHOT_NAME, ["a*", "none"])

    assert [each.snapshot_id for each in found] == [wanted.snapshot_id]


async def test_names_are_looked_for_200_a_call_and_only_among_ours(
    snapshots: Snapshots, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(log=True)

    assert await snapshots.find_any(SNAPSHOT_NAME, [f"n-{number}" for number in range(401)]) == []

    sent = [each["params"] for each in strict_ec2.log() if each["action"] == "DescribeSnapshots"]
    assert len(sent) == 3
    assert {params["Owner.1"] for params in sent} == {"self"}


async def test_who_names_a_snapshot_by_its_id_may_mean_a_shared_one(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = await taken(snapshots, volumes)
    strict_ec2.control(log=True)

    assert made.snapshot_id in await snapshots.describe([made.snapshot_id])

    [sent] = [each["params"] for each in strict_ec2.log() if each["action"] == "DescribeSnapshots"]
    assert not [name for name in sent if name.startswith("Owner")]


async def test_one_unknown_id_does_not_fail_its_neighbours(
    snapshots: Snapshots, volumes: Volumes
) -> None:
    one, two = [(await taken(snapshots, volumes, name)).snapshot_id for name in ("one", "two")]

    assert whole(await snapshots.describe([one, GONE, two])).keys() == {one, two}
    assert (await snapshots.look_for([GONE, one])).keys() == {one}
    assert await snapshots.describe([GONE]) == {}
    assert await snapshots.describe([]) == {}


async def test_what_is_not_there_counts_as_deleted(snapshots: Snapshots, volumes: Volumes) -> None:
    made = (await taken(snapshots, volumes)).snapshot_id

    await snapshots.delete(made)
    await snapshots.delete(made)

    assert await snapshots.describe([made]) == {}


async def test_one_that_an_image_uses_stays(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = (await taken(snapshots, volumes)).snapshot_id
    strict_ec2.control(snapshots_in_use=[made])

    with pytest.raises(Ec2Error) as caught:
        await snapshots.delete(made)

    assert caught.value.reason is Reason.SNAPSHOT_IN_USE
    assert made in caught.value.message


async def test_one_that_may_not_be_there_is_looked_for_among_what_is_shared_with_us_too(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = await taken(snapshots, volumes)
    strict_ec2.control(log=True)

    assert (await snapshots.look_for([GONE, made.snapshot_id])).keys() == {made.snapshot_id}

    [sent] = [each["params"] for each in strict_ec2.log() if each["action"] == "DescribeSnapshots"]
    assert not [name for name in sent if name.startswith("Owner")]
    assert sent["RestorableBy.1"] == "self"
