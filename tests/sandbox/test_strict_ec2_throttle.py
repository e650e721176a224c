"""The documented token bucket of each action, without a server."""

import pytest

from provisioner.sandbox.strict_ec2 import throttle
from provisioner.sandbox.strict_ec2.throttle import Throttle

_SCOPE = "us-east-1"


def _admitted(buckets: Throttle, action: str, now_s: float, *, filtered: bool = True) -> int:
    """Count the calls that pass at one moment."""
    admitted = 0
    while buckets.admit(action, filtered=filtered, scope=_SCOPE, now_s=now_s):
        admitted += 1
    return admitted


@pytest.mark.parametrize(
    ("action", "burst", "per_s"),
    [
        ("ModifyVolume", 50, 5),
        ("CopyVolumes", 50, 5),
        ("CreateSnapshot", 100, 5),
        ("DeleteSnapshot", 100, 5),
        ("EnableFastSnapshotRestores", 50, 5),
        ("LockSnapshot", 50, 5),
        ("DescribeVolumesModifications", 100, 20),
        ("DescribeSnapshots", 100, 20),
        ("DescribeVolumeStatus", 100, 20),
        ("DescribeFastSnapshotRestores", 100, 20),
        ("DescribeLockedSnapshots", 100, 20),
    ],
)
def test_each_action_has_its_burst_and_refills(action: str, burst: int, per_s: int) -> None:
    buckets = throttle.parse("documented")

    assert [_admitted(buckets, action, now_s) for now_s in (0.0, 0.0, 1.0)] == [burst, 0, per_s]


def test_an_unfiltered_list_of_snapshots_has_a_smaller_bucket_of_its_own() -> None:
    buckets = throttle.parse("documented")

    assert _admitted(buckets, "DescribeSnapshots", 0.0, filtered=False) == 50
    assert _admitted(buckets, "DescribeSnapshots", 0.0) == 100


def test_where_there_is_one_rate_there_is_one_bucket() -> None:
    buckets = throttle.parse("documented")

    assert _admitted(buckets, "DescribeVolumesModifications", 0.0, filtered=False) == 100
    assert _admitted(buckets, "DescribeVolumesModifications", 0.0) == 0


def test_actions_and_regions_do_not_share() -> None:
    buckets = throttle.parse("documented")
    _admitted(buckets, "ModifyVolume", 0.0)

    assert buckets.admit("CopyVolumes", filtered=True, scope=_SCOPE, now_s=0.0)
    assert buckets.admit("ModifyVolume", filtered=True, scope="eu-west-1", now_s=0.0)
