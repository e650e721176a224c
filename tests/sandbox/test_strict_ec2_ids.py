"""What EC2 says to an id that cannot be one: in every call that takes ids."""

from typing import Any

import pytest

from provisioner.sandbox.strict_ec2.lab import ZONE, Lab, refusal

_VOLUME, _SNAPSHOT = "vol-0123456789abcdef0", "snap-0123456789abcdef0"
_INSTANCE = "i-0123456789abcdef0"
_DEVICE = {"Device": "/dev/xvdba"}
_TAGS = {"Tags": [{"Key": "team", "Value": "a"}]}
_NEW = {"AvailabilityZone": ZONE, "VolumeType": "gp3"}

# The call, where the id goes, what else it takes, and what EC2 calls the id.
_OF_VOLUMES: list[tuple[str, str, dict[str, Any], str]] = [
    ("attach_volume", "VolumeId", {"InstanceId": _INSTANCE, **_DEVICE}, "volumeId"),
    ("detach_volume", "VolumeId", {}, "volumeId"),
    ("delete_volume", "VolumeId", {}, "volumeId"),
    ("modify_volume", "VolumeId", {"Size": 20}, "volumeId"),
    ("create_snapshot", "VolumeId", {}, "volumeId"),
    ("copy_volumes", "SourceVolumeId", {"VolumeType": "gp3"}, "sourceVolumeId"),
    ("describe_volumes", "VolumeIds", {}, "volumes"),
    ("describe_volumes_modifications", "VolumeIds", {}, "volumes"),
    ("describe_volume_status", "VolumeIds", {}, "volumes"),
]
_OF_SNAPSHOTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("create_volume", "SnapshotId", _NEW, "snapshotId"),
    ("delete_snapshot", "SnapshotId", {}, "snapshotId"),
    ("lock_snapshot", "SnapshotId", {"LockMode": "governance", "LockDuration": 1}, "snapshotId"),
    ("unlock_snapshot", "SnapshotId", {}, "snapshotId"),
    ("describe_snapshots", "SnapshotIds", {}, "snapshotId"),
    ("describe_locked_snapshots", "SnapshotIds", {}, "snapshotId"),
    (
        "enable_fast_snapshot_restores",
        "SourceSnapshotIds",
        {"AvailabilityZones": [ZONE]},
        "sourceSnapshotId",
    ),
    (
        "disable_fast_snapshot_restores",
        "SourceSnapshotIds",
        {"AvailabilityZones": [ZONE]},
        "sourceSnapshotId",
    ),
]
_OF_INSTANCES: list[tuple[str, str, dict[str, Any]]] = [
    ("attach_volume", "InstanceId", {"VolumeId": _VOLUME, **_DEVICE}),
    ("detach_volume", "InstanceId", {"VolumeId": _VOLUME}),
    ("describe_instances", "InstanceIds", {}),
]


def _refused(lab: Lab, action: str, name: str, bad: str, rest: dict[str, Any]) -> tuple[str, str]:
    given = [_VOLUME, bad] if name == "VolumeIds" else [bad] if name.endswith("Ids") else bad
    return refusal(getattr(lab.ec2, action), **rest, **{name: given})


@pytest.mark.parametrize("bad", ["foo", "local-ebs://dev/xvdbz", "snap-0123456789abcdef0", "vol_1"])
@pytest.mark.parametrize(("action", "name", "rest", "shown"), _OF_VOLUMES)
def test_what_is_no_volumes_id_is_refused_with_what_is_expected(
    lab: Lab, action: str, name: str, rest: dict[str, Any], *, shown: str, bad: str
) -> None:
    text = f"Value ({bad}) for parameter {shown} is invalid. Expected: 'vol-...'."

    assert _refused(lab, action, name, bad, rest) == ("InvalidParameterValue", text)


@pytest.mark.parametrize("bad", ["foo", "vol-0123456789abcdef0", "projects/p/snapshots/s"])
@pytest.mark.parametrize(("action", "name", "rest", "shown"), _OF_SNAPSHOTS)
def test_what_is_no_snapshots_id_is_refused_with_what_is_expected(
    lab: Lab, action: str, name: str, rest: dict[str, Any], *, shown: str, bad: str
) -> None:
    text = f"Value ({bad}) for parameter {shown} is invalid. Expected: 'snap-...'."

    assert _refused(lab, action, name, bad, rest) == ("InvalidParameterValue", text)


@pytest.mark.parametrize("bad", ["vol-", "vol-data", "vol-0123456789ABCDEF0", "vol-0123"])
@pytest.mark.parametrize(("action", "name", "rest"), [each[:3] for each in _OF_VOLUMES])
def test_what_only_begins_like_a_volumes_id_is_malformed(
    lab: Lab, action: str, name: str, rest: dict[str, Any], bad: str
) -> None:
    expected = ("InvalidVolumeID.Malformed", f'Invalid id: "{bad}"')

    assert _refused(lab, action, name, bad, rest) == expected


@pytest.mark.parametrize("bad", ["snap-", "snap-monday"])
@pytest.mark.parametrize(("action", "name", "rest"), [each[:3] for each in _OF_SNAPSHOTS])
def test_what_only_begins_like_a_snapshots_id_is_malformed(
    lab: Lab, action: str, name: str, rest: dict[str, Any], bad: str
) -> None:
    expected = ("InvalidSnapshotID.Malformed", f'Invalid id: "{bad}"')

    assert _refused(lab, action, name, bad, rest) == expected


@pytest.mark.parametrize("bad", ["ma1", "hyperpod-ab12-i-0123456789abcdef0", "i-", "i-node"])
@pytest.mark.parametrize(("action", "name", "rest"), _OF_INSTANCES)
def test_what_is_no_instances_id_is_malformed(
    lab: Lab, action: str, name: str, rest: dict[str, Any], bad: str
) -> None:
    expected = ("InvalidInstanceID.Malformed", f'Invalid id: "{bad}"')

    assert _refused(lab, action, name, bad, rest) == expected


@pytest.mark.parametrize("action", ["create_tags", "delete_tags"])
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("foo", "InvalidID"),
        ("hyperpod-ab12-i-0123456789abcdef0", "InvalidID"),
        ("vol-data", "InvalidVolumeID.Malformed"),
        ("snap-", "InvalidSnapshotID.Malformed"),
        ("i-node", "InvalidInstanceID.Malformed"),
    ],
)
def test_tags_go_on_nothing_but_ids(strict_lab: Lab, action: str, bad: str, code: str) -> None:
    call = getattr(strict_lab.ec2, action)

    assert refusal(call, Resources=[strict_lab.volume(), bad], **_TAGS)[0] == code


def test_a_filter_takes_whatever_is_given_and_finds_nothing(strict_lab: Lab) -> None:
    assert strict_lab.listed(("volume-id", ["foo", "vol-data", _SNAPSHOT])) == set()
