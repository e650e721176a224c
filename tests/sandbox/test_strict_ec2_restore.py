"""CreateVolume from a snapshot of the strict EC2, and DescribeVolumeStatus."""

from typing import Any

import pytest

from tests.sandbox.lab import OTHER_ZONE, Lab, client, refusal


def _restore(lab: Lab, snapshot: str, **changes: Any) -> Any:
    return lab.create(**({"SnapshotId": snapshot, "Size": None} | changes))


def _key(lab: Lab) -> Any:
    kms = client(lab.ec2.meta.endpoint_url, service="kms")
    return kms, kms.create_key()["KeyMetadata"]["Arn"]


def test_a_pending_snapshot_is_not_restored(lab: Lab) -> None:
    lab.control(delays={"snapshot_s": 10})
    snapshot = lab.snapshot(lab.volume())

    code, message = refusal(_restore, lab, snapshot)

    assert (code, "pending" in message) == ("IncorrectState", True)

    lab.control(advance_s=10)

    assert _restore(lab, snapshot)["SnapshotId"] == snapshot


def test_a_failed_snapshot_is_not_restored(lab: Lab) -> None:
    lab.control(failing_snapshots=1)

    assert refusal(_restore, lab, lab.snapshot(lab.volume()))[0] == "IncorrectState"


def test_a_deleted_snapshot_is_not_restored(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    lab.ec2.delete_snapshot(SnapshotId=snapshot)

    assert refusal(_restore, lab, snapshot) == (
        "InvalidSnapshot.NotFound",
        f"The snapshot '{snapshot}' does not exist.",
    )


def test_even_a_repeated_request_is_refused_once_the_snapshot_has_gone(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume())
    made = _restore(lab, snapshot, ClientToken="t")["VolumeId"]

    assert _restore(lab, snapshot, ClientToken="t")["VolumeId"] == made

    lab.ec2.delete_snapshot(SnapshotId=snapshot)

    assert refusal(_restore, lab, snapshot, ClientToken="t")[0] == "InvalidSnapshot.NotFound"


@pytest.mark.parametrize(("size_gib", "made_gib"), [(None, 10), (10, 10), (20, 20)])
def test_a_restore_is_as_large_as_its_snapshot_or_larger(
    strict_lab: Lab, size_gib: int | None, made_gib: int
) -> None:
    snapshot = strict_lab.snapshot(strict_lab.volume())

    made = _restore(strict_lab, snapshot, Size=size_gib, AvailabilityZone=OTHER_ZONE)

    assert (made["Size"], made["AvailabilityZone"]) == (made_gib, OTHER_ZONE)


def test_a_smaller_restore_is_refused_also_when_the_volume_has_grown(lab: Lab) -> None:
    volume = lab.volume()
    snapshot = lab.snapshot(volume)
    lab.modify(volume, Size=20)

    code, message = refusal(_restore, lab, snapshot, Size=9)

    assert (code, "expect size >= 10GiB" in message) == ("InvalidParameterValue", True)
    assert _restore(lab, snapshot)["Size"] == 10


def test_the_restore_of_an_encrypted_snapshot_has_its_key(lab: Lab) -> None:
    _, arn = _key(lab)
    snapshot = lab.snapshot(lab.volume(Encrypted=True, KmsKeyId=arn))

    made = _restore(lab, snapshot)

    assert (made["Encrypted"], made.get("KmsKeyId")) == (True, arn)
    assert lab.look_at_snapshot(snapshot)["KmsKeyId"] == arn


def test_a_restore_may_be_encrypted_anew(strict_lab: Lab) -> None:
    _, arn = _key(strict_lab)
    plain = strict_lab.snapshot(strict_lab.volume())

    made = _restore(strict_lab, plain, Encrypted=True, KmsKeyId=arn)

    assert (made["Encrypted"], made["KmsKeyId"]) == (True, arn)


def test_a_restore_whose_key_was_disabled_vanishes(lab: Lab) -> None:
    kms, arn = _key(lab)
    snapshot = lab.snapshot(lab.volume(Encrypted=True, KmsKeyId=arn))
    kms.disable_key(KeyId=arn.rpartition("/")[2])  # moto knows it by its id only
    lab.control(delays={"create_s": 10})
    made = _restore(lab, snapshot)["VolumeId"]

    assert lab.state(made) == "creating"

    lab.control(advance_s=10)

    assert refusal(lab.look, made)[0] == "InvalidVolume.NotFound"


def test_a_volume_may_be_made_to_vanish(lab: Lab) -> None:
    snapshot = lab.snapshot(lab.volume(AvailabilityZone=OTHER_ZONE))
    lab.control(vanishing_creates=1)

    made = [_restore(lab, snapshot)["VolumeId"] for _ in range(2)]

    assert refusal(lab.look, made[0])[0] == "InvalidVolume.NotFound"
    assert lab.state(made[1]) == "available"


def test_where_encryption_is_the_default_everything_new_is_encrypted(lab: Lab) -> None:
    source = lab.volume()
    snapshot = lab.snapshot(source)
    lab.ec2.enable_ebs_encryption_by_default()
    try:
        made = [lab.volume(), _restore(lab, snapshot)["VolumeId"], lab.copy(source)]
        seen = [(lab.look(each)["Encrypted"], "KmsKeyId" in lab.look(each)) for each in made]
    finally:
        lab.ec2.disable_ebs_encryption_by_default()

    assert seen == [(True, True)] * 3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"SnapshotId": None, "Size": 10, "VolumeInitializationRate": 200}, "Combination"),
        ({"VolumeInitializationRate": 99}, "Value"),
        ({"VolumeInitializationRate": 301}, "Value"),
    ],
    ids=str,
)
def test_a_rate_of_initialization_needs_a_snapshot_and_has_bounds(
    lab: Lab, changes: dict[str, Any], code: str
) -> None:
    snapshot = lab.snapshot(lab.volume())

    assert refusal(_restore, lab, snapshot, **changes)[0] == f"InvalidParameter{code}"


def test_the_rates_of_a_region_are_limited_together(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100}, initialization_rate_limit_mibps=500)
    snapshot = lab.snapshot(lab.volume())
    made = _restore(lab, snapshot, VolumeInitializationRate=300)

    assert made.get("VolumeInitializationRate") == 300
    assert (
        refusal(_restore, lab, snapshot, VolumeInitializationRate=201)[0]
        == "VolumeInitializationRateLimitExceeded"
    )

    lab.control(advance_s=100)

    assert _restore(lab, snapshot, VolumeInitializationRate=300)


@pytest.mark.parametrize(
    ("rate", "kind", "estimated_s"), [(None, "default", None), (200, "provisioned-rate", 50)]
)
def test_a_restored_volume_tells_how_far_its_initialization_is(
    lab: Lab, rate: int | None, kind: str, estimated_s: int | None
) -> None:
    lab.control(delays={"initialize_s": 100})
    snapshot = lab.snapshot(lab.volume())
    volume = _restore(lab, snapshot, VolumeInitializationRate=rate)["VolumeId"]
    lab.control(advance_s=50)

    assert (lab.state(volume), lab.initialization_state(volume)) == ("available", "initializing")
    details = lab.status(volume)["InitializationStatusDetails"]
    assert (details["InitializationType"], 50 <= details["Progress"] < 60) == (kind, True)
    left_s = details.get("EstimatedTimeToCompleteInSeconds")
    assert (left_s is None) == (estimated_s is None)
    assert left_s is None or 40 <= left_s <= 50

    lab.control(advance_s=50)

    assert lab.initialization_state(volume) == "completed"
    assert lab.status(volume)["InitializationStatusDetails"]["Progress"] == 100


def test_the_initialization_is_told_late(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100, "initialization_known_after_s": 300})
    volume = _restore(lab, lab.snapshot(lab.volume()))["VolumeId"]

    assert lab.initialization_state(volume) == ""

    lab.control(advance_s=399)

    assert lab.initialization_state(volume) == "initializing"

    lab.control(advance_s=1)

    assert lab.initialization_state(volume) == "completed"


def test_of_an_empty_volume_no_initialization_is_told(lab: Lab) -> None:
    volume = lab.volume()
    seen = lab.status(volume)

    assert (seen["VolumeStatus"]["Status"], lab.initialization_state(volume)) == ("ok", "")
    assert "InitializationStatusDetails" not in seen


def test_the_status_of_a_missing_volume_fails_the_call(lab: Lab) -> None:
    absent = "vol-00000000000000000"

    assert refusal(lab.ec2.describe_volume_status, VolumeIds=[lab.volume(), absent]) == (
        "InvalidVolume.NotFound",
        f"The volume '{absent}' does not exist.",
    )


def test_statuses_come_in_pages(lab: Lab) -> None:
    volumes = {lab.volume() for _ in range(7)}
    first = lab.ec2.describe_volume_status(MaxResults=5)
    second = lab.ec2.describe_volume_status(MaxResults=5, NextToken=first["NextToken"])
    seen = [each["VolumeId"] for page in (first, second) for each in page["VolumeStatuses"]]

    assert (len(seen), set(seen)) == (7, volumes)
