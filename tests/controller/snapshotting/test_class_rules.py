from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.snapshotting.class_rules import SnapshotParameters, parse, unknown_zones
from provisioner.model import tags
from provisioner.model.ebs_snapshot import LockRequest
from provisioner.model.tag_template import Names

NAMES = Names(snapshot_namespace="shop", snapshot_name="daily", content_name="snapcontent-1")
OUTPOST = "arn:aws:outposts:us-east-1:123456789012:outpost/op-0123456789abcdef0"


def test_a_class_without_parameters_asks_for_nothing():
    assert parse({}) == SnapshotParameters()


@pytest.mark.parametrize(
    "name", ["fastSnapshotRestoreAvailabilityZones", "FASTSNAPSHOTRESTOREAVAILABILITYZONES"]
)
def test_zones_are_read_in_either_case_with_spaces_and_once_each(name: str):
    read = parse({name: "us-east-1a, us-east-1b ,us-east-1a"})

    assert read.fast_zones == ("us-east-1a", "us-east-1b")


@pytest.mark.parametrize(
    ("given", "lock"),
    [
        ({"lockMode": "governance", "lockDuration": "7"}, LockRequest("governance", 7)),
        (
            {"LockMode": "Compliance", "lockduration": "36500", "lockCoolOffPeriod": "72"},
            LockRequest("compliance", 36500, None, 72),
        ),
        (
            {"lockMode": "compliance", "lockExpirationDate": "2030-01-31T00:00:00.000Z"},
            LockRequest("compliance", None, datetime(2030, 1, 31, tzinfo=UTC)),
        ),
    ],
)
def test_a_lock_is_read(given: dict[str, str], lock: LockRequest):
    assert parse(given).lock == lock


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lockDuration": "7"}, "needs lockMode"),
        ({"lockMode": "governance"}, "one of lockDuration and lockExpirationDate"),
        (
            {
                "lockMode": "governance",
                "lockDuration": "7",
                "lockExpirationDate": "2030-01-01T00:00:00Z",
            },
            "exactly one of",
        ),
        (
            {"lockMode": "governance", "lockDuration": "7", "lockCoolOffPeriod": "1"},
            "only with lockMode compliance",
        ),
        ({"lockMode": "strict", "lockDuration": "7"}, "'strict' is not one of"),
        ({"lockMode": "governance", "lockDuration": "0"}, "from 1 to 36500"),
        ({"lockMode": "governance", "lockDuration": "a week"}, "from 1 to 36500"),
        ({"lockMode": "compliance", "lockDuration": "7", "lockCoolOffPeriod": "73"}, "1 to 72"),
        ({"lockMode": "governance", "lockExpirationDate": "tomorrow"}, "is not a time"),
        ({"lockMode": "governance", "lockExpirationDate": "2030-01-01T00:00:00"}, "time zone"),
        ({"fastSnapshotRestoreAvailabilityZones": " , "}, "names no zone"),
        ({"fastSnapshotRestoreAvailabilityZones": "Zone A"}, "is not a list of zones"),
        ({"outpostArn": "op-1"}, "is not the ARN"),
        ({"fastRestore": "true"}, "unknown parameter 'fastRestore'; known are"),
        ({"csi.storage.k8s.io/fstype": "xfs"}, "unknown parameter"),
        ({"lockMode": "governance", "LOCKMODE": "governance"}, "given twice"),
        ({"tagSpecification_1": "no equals sign"}, "tagSpecification_1"),
        ({"tagSpecification_1": "a=1", "tagSpecification_2": "a=2"}, "given twice"),
        ({"tagSpecification_1": "CSIVolumeSnapshotName=mine"}, "is reserved"),
        ({"tagSpecification_1": "team={{ .PVCName }}"}, "there is no .PVCName"),
    ],
)
def test_what_can_never_work_is_refused_before_a_snapshot_is_taken(given: dict[str, str], why: str):
    with pytest.raises(ValueError, match=why):
        parse(given)


def test_secrets_are_not_read():
    assert parse({"csi.storage.k8s.io/snapshotter-secret-name": "s"}) == SnapshotParameters()


def test_an_outpost_is_read():
    assert parse({"outpostArn": OUTPOST}).outpost_arn == OUTPOST


def test_tags_name_the_snapshot():
    read = parse(
        {
            "tagSpecification_1": "from={{ .VolumeSnapshotNamespace }}/{{ .VolumeSnapshotName }}",
            "tagSpecification_2": "content={{ .VolumeSnapshotContentName | toUpper }}",
        }
    )

    assert tags.rendered(read.tag_templates, NAMES) == {
        "from": "shop/daily",
        "content": "SNAPCONTENT-1",
    }


def test_zones_that_the_region_does_not_have_are_named():
    read = parse({"fastSnapshotRestoreAvailabilityZones": "us-east-1a,us-east-1z"})

    assert unknown_zones(read, frozenset({"us-east-1a", "us-east-1z"})) is None
    assert "us-east-1z, but this Region has only us-east-1a" in str(
        unknown_zones(read, frozenset({"us-east-1a"}))
    )


@given(st.dictionaries(st.text(max_size=40), st.text(max_size=60), max_size=4))
def test_anything_is_read_or_refused_in_one_sentence(raw: dict[str, str]):
    told = ""
    try:
        parse(raw)
    except ValueError as error:
        told = str(error)

    assert "\n" not in told
    assert len(told) < 600


@pytest.mark.parametrize("cluster", ["", "prod"])
def test_a_snapshot_carries_the_tags_of_the_stock_driver(cluster: str):
    made = dict(tags.of_new_snapshot("snapshot-u", cluster_id=cluster, extra={"team": "a"}))

    expected = {"CSIVolumeSnapshotName": "snapshot-u", "ebs.csi.aws.com/cluster": "true"}
    if cluster:
        expected |= {
            "kubernetes.io/cluster/prod": "owned",
            "ebs.csi.aws.com/cluster-name": "prod",
            "Name": "prod-dynamic-snapshot-u",
        }
    assert made == expected | {"team": "a"}


def test_more_tags_than_ec2_allows_are_refused():
    with pytest.raises(ValueError, match="52 tags; EC2 allows 50"):
        tags.of_new_snapshot("s", cluster_id="", extra={f"k{n}": "" for n in range(50)})
