"""What EC2 says to an id that cannot be one: in every call that takes ids."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.lab import ZONE, Lab, refusal

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
_OF_INSTANCES: list[tuple[str, str, dict[str, Any], str]] = [
    ("attach_volume", "InstanceId", {"VolumeId": _VOLUME, **_DEVICE}, ""),
    ("detach_volume", "InstanceId", {"VolumeId": _VOLUME}, ""),
    ("describe_instances", "InstanceIds", {}, ""),
]


_KINDS: list[tuple[list[Any], str, list[str], list[str]]] = [
    (
        _OF_VOLUMES,
        "InvalidVolumeID.Malformed",
        ["foo", "local-ebs://dev/xvdbz", _SNAPSHOT, "vol_1"],
        ["vol-", "vol-data", "vol-0123456789ABCDEF0", "vol-0123"],
    ),
    (
        _OF_SNAPSHOTS,
        "InvalidSnapshotID.Malformed",
        ["foo", _VOLUME, "projects/p/snapshots/s"],
        ["snap-", "snap-monday"],
    ),
    (
        _OF_INSTANCES,
        "InvalidInstanceID.Malformed",
        [],
        ["ma1", "hyperpod-ab12-i-0123456789abcdef0", "i-", "i-node"],
    ),
]
"""Calls, then what is no id at all and what only begins like one: EC2 has words for each."""


def _odd() -> Iterator[Any]:
    for calls, malformed, strange, like in _KINDS:
        for (action, name, rest, shown), bad in itertools.product(calls, [*strange, *like]):
            told = (malformed, f'Invalid id: "{bad}"')
            if bad in strange:
                expected = "vol-..." if calls is _OF_VOLUMES else "snap-..."
                text = f"Value ({bad}) for parameter {shown} is invalid. Expected: '{expected}'."
                told = ("InvalidParameterValue", text)
            yield pytest.param(action, name, rest, bad, told, id=f"{action} {name} {bad}")


@pytest.mark.parametrize(("action", "name", "rest", "bad", "told"), list(_odd()))
def test_what_is_no_id_is_refused_in_the_words_of_its_kind(
    lab: Lab, action: str, name: str, rest: dict[str, Any], *, bad: str, told: tuple[str, str]
) -> None:
    given = [_VOLUME, bad] if name == "VolumeIds" else [bad] if name.endswith("Ids") else bad

    assert refusal(getattr(lab.ec2, action), **rest, **{name: given}) == told


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
