"""CreateSnapshot, DeleteSnapshot and DescribeSnapshots of the strict EC2."""

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from tests.sandbox.lab import Lab, refusal

_ABSENT, _ABSENT_TOO = "snap-00000000000000000", "snap-00000000000000001"


def _tags(**tags: str) -> list[dict[str, Any]]:
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": "snapshot", "Tags": pairs}]


def test_a_snapshot_is_pending_first_and_tells_its_progress(lab: Lab) -> None:
    lab.control(delays={"snapshot_s": 100})
    volume = lab.volume()

    begun = lab.ec2.create_snapshot(VolumeId=volume, Description="of a test")
    snapshot = begun["SnapshotId"]

    assert (begun["State"], begun["Progress"], begun["VolumeSize"]) == ("pending", "", 10)

    lab.control(advance_s=50)
    seen = lab.look_at_snapshot(snapshot)

    assert (seen["State"], seen["VolumeId"], seen["Description"]) == (
        "pending",
        volume,
        "of a test",
    )
    assert 50 <= int(seen["Progress"].removesuffix("%")) < 60

    lab.control(advance_s=50)
    seen = lab.look_at_snapshot(snapshot)

    assert (seen["State"], seen["Progress"]) == ("completed", "100%")
    assert abs(seen["StartTime"] - begun["StartTime"]) < timedelta(seconds=1)


def test_the_next_snapshot_of_a_volume_takes_less_long_while_the_last_one_is_there(
    strict_lab: Lab,
) -> None:
    delays = {"snapshot_s": 100, "snapshot_saves_s": 90}
    strict_lab.control(delays=delays, snapshot_limits={"interval_s": 0})
    volume, another = strict_lab.volume(), strict_lab.volume()
    first = strict_lab.snapshot(volume)
    beside = strict_lab.snapshot(volume)  # nothing is there yet that it could build on
    strict_lab.control(advance_s=100)

    def states_after_10_s() -> list[str]:
        taken = [strict_lab.snapshot(each) for each in (volume, another)]
        strict_lab.control(advance_s=10)
        return [strict_lab.snapshot_state(each) for each in (*taken, beside)]

    assert states_after_10_s() == ["completed", "pending", "completed"]
    for each in (first, beside):
        strict_lab.ec2.delete_snapshot(SnapshotId=each)
    for each in strict_lab.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
        if each["VolumeId"] == volume:
            strict_lab.ec2.delete_snapshot(SnapshotId=each["SnapshotId"])
    last = strict_lab.snapshot(volume)
    strict_lab.control(advance_s=10)
    assert strict_lab.snapshot_state(last) == "pending"


def test_a_snapshot_may_fail(lab: Lab) -> None:
    lab.control(failing_snapshots=1)

    seen = lab.look_at_snapshot(lab.snapshot(lab.volume()))

    assert (seen["State"], bool(seen.get("StateMessage"))) == ("error", True)


def test_a_snapshot_keeps_the_size_that_its_volume_had(lab: Lab) -> None:
    volume = lab.volume()
    snapshot = lab.snapshot(volume)
    lab.modify(volume, Size=20)

    assert lab.look_at_snapshot(snapshot)["VolumeSize"] == 10


def test_a_snapshot_outlives_its_volume(strict_lab: Lab) -> None:
    volume = strict_lab.volume()
    snapshot = strict_lab.snapshot(volume)
    strict_lab.ec2.delete_volume(VolumeId=volume)

    assert strict_lab.look_at_snapshot(snapshot)["VolumeId"] == volume


def test_two_snapshots_of_a_volume_are_15_seconds_apart(lab: Lab) -> None:
    volume = lab.volume()
    lab.snapshot(volume)
    lab.control(advance_s=14)

    code, message = refusal(lab.snapshot, volume)

    assert code == "SnapshotCreationPerVolumeRateExceeded"
    assert "maximum per volume CreateSnapshot request rate" in message
    assert lab.snapshot(lab.volume())  # of another one

    lab.control(advance_s=1)

    assert lab.snapshot(volume)


@pytest.mark.parametrize(("kind", "most"), [("gp3", 5), ("st1", 1)])
def test_a_volume_has_only_so_many_pending_snapshots(lab: Lab, kind: str, most: int) -> None:
    lab.control(delays={"snapshot_s": 1000}, snapshot_limits={"interval_s": 0})
    volume = lab.volume(VolumeType=kind, Size=125)
    first, *_ = [lab.snapshot(volume) for _ in range(most)]

    assert refusal(lab.snapshot, volume)[0] == "ConcurrentSnapshotLimitExceeded"

    lab.ec2.delete_snapshot(SnapshotId=first)

    assert refusal(lab.snapshot, volume)[0] == "ConcurrentSnapshotLimitExceeded"

    lab.control(advance_s=1000)

    assert lab.snapshot(volume)


def test_a_failed_snapshot_is_in_the_way_until_it_is_deleted(lab: Lab) -> None:
    lab.control(failing_snapshots=1, snapshot_limits={"interval_s": 0, "pending_per_volume": 1})
    volume = lab.volume()
    failed = lab.snapshot(volume)

    assert refusal(lab.snapshot, volume)[0] == "ConcurrentSnapshotLimitExceeded"

    lab.ec2.delete_snapshot(SnapshotId=failed)

    assert lab.snapshot(volume)


@pytest.mark.parametrize(
    ("limit", "code"),
    [("pending", "ConcurrentSnapshotLimitExceeded"), ("total", "SnapshotLimitExceeded")],
)
def test_a_region_has_only_so_many_snapshots(lab: Lab, limit: str, code: str) -> None:
    lab.control(delays={"snapshot_s": 1000}, snapshot_limits={limit: 2})
    for _ in range(2):
        lab.snapshot(lab.volume())

    assert refusal(lab.snapshot, lab.volume())[0] == code


def test_a_volume_in_creation_has_no_snapshot(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})

    assert refusal(lab.snapshot, lab.volume())[0] == "IncorrectState"


def test_a_new_snapshot_may_not_be_visible_yet(lab: Lab) -> None:
    lab.control(delays={"visible_after_s": 10})
    volume = lab.volume()
    lab.control(advance_s=10)
    snapshot = lab.snapshot(volume, TagSpecifications=_tags(name="a"))

    assert refusal(lab.look_at_snapshot, snapshot)[0] == "InvalidSnapshot.NotFound"
    assert refusal(lab.ec2.delete_snapshot, SnapshotId=snapshot)[0] == "InvalidSnapshot.NotFound"
    assert lab.listed_snapshots(("tag:name", ["a"])) == set()

    lab.control(advance_s=10)

    assert lab.listed_snapshots(("tag:name", ["a"])) == {snapshot}


def test_snapshots_are_found_by_filters(strict_lab: Lab) -> None:
    strict_lab.control(snapshot_limits={"interval_s": 0})
    volume = strict_lab.volume()
    first = strict_lab.snapshot(volume, TagSpecifications=_tags(name="a", owner="x"))
    strict_lab.control(delays={"snapshot_s": 10})
    second = strict_lab.snapshot(volume, TagSpecifications=_tags(name="b"))

    listed = strict_lab.listed_snapshots
    assert listed(("tag:name", ["a", "b"])) == {first, second}
    assert listed(("tag-key", ["owner", "none"])) == {first}
    assert listed(("status", ["pending"])) == {second}
    assert listed(("volume-id", [volume]), ("snapshot-id", [first])) == {first}


def test_other_owners_have_none_of_ours(lab: Lab) -> None:
    ours = lab.snapshot(lab.volume())
    owners = (["self"], ["123456789012"], ["999999999999"])
    counts = [
        len(lab.ec2.describe_snapshots(OwnerIds=owner, SnapshotIds=[ours])["Snapshots"])
        for owner in owners
    ]

    assert counts == [1, 1, 0]


def test_everybodys_public_snapshots_are_seen_by_who_names_no_owner(lab: Lab) -> None:
    ours = lab.snapshot(lab.volume())
    seen = {each["SnapshotId"] for each in lab.ec2.describe_snapshots()["Snapshots"]}

    assert ours in seen
    assert len(seen) > 1
    assert lab.listed_snapshots() == {ours}


def test_only_the_missing_snapshots_are_named(lab: Lab) -> None:
    there = lab.snapshot(lab.volume())
    describe = lab.ec2.describe_snapshots

    assert refusal(describe, SnapshotIds=[there, _ABSENT]) == (
        "InvalidSnapshot.NotFound",
        f"The snapshot '{_ABSENT}' does not exist.",
    )
    assert (_ABSENT_TOO in refusal(describe, SnapshotIds=[_ABSENT, there, _ABSENT_TOO])[1]) is True
    assert refusal(describe, SnapshotIds=["vol-0"])[0] == "InvalidParameterValue"


def test_pages_hold_every_snapshot_once(lab: Lab) -> None:
    snapshots = {lab.snapshot(lab.volume()) for _ in range(7)}
    seen: list[str] = []
    reply: dict[str, Any] = {}
    while not seen or "NextToken" in reply:
        token = {"NextToken": reply["NextToken"]} if seen else {}
        reply = lab.ec2.describe_snapshots(OwnerIds=["self"], MaxResults=5, **token)
        assert len(reply["Snapshots"]) <= 5
        seen += [each["SnapshotId"] for each in reply["Snapshots"]]

    assert (len(seen), set(seen)) == (7, snapshots)


def test_a_page_size_and_ids_exclude_each_other(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())

    code, _ = refusal(lab.ec2.describe_snapshots, SnapshotIds=[snapshot], MaxResults=5)

    assert code == "InvalidParameterCombination"


def test_what_an_image_uses_is_not_deleted(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.control(snapshots_in_use=[snapshot])

    assert refusal(lab.ec2.delete_snapshot, SnapshotId=snapshot)[0] == "InvalidSnapshot.InUse"


def test_the_snapshot_of_an_image_is_not_deleted(strict_lab: Lab) -> None:
    strict_lab.ec2.create_image(InstanceId=strict_lab.instance(), Name="image")
    (snapshot,) = strict_lab.listed_snapshots()

    code, _ = refusal(strict_lab.ec2.delete_snapshot, SnapshotId=snapshot)

    assert (code, strict_lab.snapshot_state(snapshot)) == ("InvalidSnapshot.InUse", "completed")


def test_a_deleted_snapshot_is_named_when_it_is_deleted_again(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.ec2.delete_snapshot(SnapshotId=snapshot)

    refused = refusal(lab.ec2.delete_snapshot, SnapshotId=snapshot)

    assert refused == (
        "InvalidSnapshot.NotFound",
        f"The snapshot '{snapshot}' does not exist.",
    )


def test_tags_of_another_kind_are_refused(strict_lab: Lab) -> None:
    wrong = [{"ResourceType": "volume", "Tags": [{"Key": "a", "Value": "b"}]}]

    code, _ = refusal(strict_lab.snapshot, strict_lab.volume(), TagSpecifications=wrong)

    assert (code, strict_lab.listed_snapshots()) == ("InvalidParameterValue", set())


def test_a_snapshot_can_be_tagged_later(strict_lab: Lab) -> None:
    snapshot = strict_lab.snapshot(strict_lab.volume())
    strict_lab.ec2.create_tags(Resources=[snapshot], Tags=[{"Key": "a", "Value": "b"}])

    assert strict_lab.look_at_snapshot(snapshot)["Tags"] == [{"Key": "a", "Value": "b"}]
    assert refusal(
        strict_lab.ec2.create_tags, Resources=[_ABSENT], Tags=[{"Key": "a", "Value": "b"}]
    ) == ("InvalidSnapshot.NotFound", f"The snapshot '{_ABSENT}' does not exist.")


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_a_lost_reply_leaves_a_snapshot_and_a_repeated_call_takes_a_second(
    lab: Lab, do: str
) -> None:
    lab.control(snapshot_limits={"interval_s": 0})
    lab.control(faults=[{"action": "CreateSnapshot", "do": do, "when": "after"}])
    volume = lab.volume()
    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        lab.snapshot(volume)

    assert len(lab.listed_snapshots()) == 1

    lab.snapshot(volume)

    assert len(lab.listed_snapshots()) == 2


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_a_snapshot_may_be_deleted_and_the_reply_lost(lab: Lab, do: str) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.control(faults=[{"action": "DeleteSnapshot", "do": do, "when": "after"}])
    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        lab.ec2.delete_snapshot(SnapshotId=snapshot)

    assert lab.listed_snapshots() == set()


def test_a_misspelt_limit_is_refused(strict_lab: Lab) -> None:
    with pytest.raises(ValueError, match="unknown snapshot limits: intervall"):
        strict_lab.control(snapshot_limits={"intervall": 1})
