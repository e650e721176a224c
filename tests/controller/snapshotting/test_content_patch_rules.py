from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.snapshotting import content_patch_rules
from provisioner.model import tags
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume_snapshot import VolumeSnapshotClass
from tests.builders import DRIVER, VOLUME
from tests.snapshot_builders import (
    GIB,
    SNAPSHOT,
    SNAPSHOT_UID,
    a_content,
    a_content_status,
    a_snapshot_class,
)

NOW = datetime(2026, 11, 21, 10, 0, 0, 123_456, tzinfo=UTC)


def planned(
    read_class: VolumeSnapshotClass | None, *, volume_id: str = VOLUME, extra: str = ""
) -> content_patch_rules.Plan:
    return content_patch_rules.plan(
        a_content(volume_id=volume_id, class_name=None if read_class is None else "ebs"),
        read_class,
        driver=DRIVER,
        cluster_id="prod",
        extra_tags=tags.parse_extra(extra),
    )


@pytest.mark.parametrize("handle", [VOLUME, f"aws://us-east-1a/{VOLUME}"])
def test_ec2_is_asked_as_the_stock_driver_asks(handle: str):
    made = planned(
        a_snapshot_class(parameters={"tagSpecification_1": "of={{ .VolumeSnapshotName }}"}),
        volume_id=handle,
        extra="team=storage",
    )

    assert made.request == SnapshotRequest(
        volume_id=VOLUME,
        description=f"Created by ebs-provisioner for volume {VOLUME}",
        tags=(
            ("CSIVolumeSnapshotName", f"snapshot-{SNAPSHOT_UID}"),
            ("Name", f"prod-dynamic-snapshot-{SNAPSHOT_UID}"),
            ("ebs.csi.aws.com/cluster", "true"),
            ("ebs.csi.aws.com/cluster-name", "prod"),
            ("kubernetes.io/cluster/prod", "owned"),
            ("of", "daily"),
            ("team", "storage"),
        ),
    )


def test_tags_of_the_class_win_over_extra_ones_whose_templates_stand_as_they_are():
    made = planned(
        a_snapshot_class(parameters={"tagSpecification_1": "team=shop"}),
        extra="team=storage,claim={{ .PVCName }}",
    )

    assert dict(made.request.tags)["team"] == "shop"
    assert dict(made.request.tags)["claim"] == "{{ .PVCName }}"


@pytest.mark.parametrize(
    ("read_class", "volume_id", "reason", "words"),
    [
        (None, VOLUME, Reason.CLASS_NOT_FOUND, "names no VolumeSnapshotClass"),
        (a_snapshot_class(driver="other"), VOLUME, Reason.INVALID_CLASS, "is for other"),
        (a_snapshot_class(parameters={"x": "1"}), VOLUME, Reason.INVALID_CLASS, "Class ebs: unk"),
        (a_snapshot_class(), "local-ebs://dev/xvdbz", Reason.NOT_SUPPORTED, "is not an EBS volume"),
        (
            a_snapshot_class(
                parameters={"tagSpecification_1": "a=" + "{{ .VolumeSnapshotContentName }}" * 6}
            ),
            VOLUME,
            Reason.INVALID_CLASS,
            "is too long",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    read_class: VolumeSnapshotClass | None, volume_id: str, reason: Reason, words: str
):
    with pytest.raises(StorageError) as refused:
        planned(read_class, volume_id=volume_id)

    assert refused.value.reason is reason
    assert words in refused.value.message


def test_a_missing_class_is_named():
    with pytest.raises(StorageError, match="VolumeSnapshotClass ebs does not exist"):
        content_patch_rules.plan(a_content(), None, driver=DRIVER, cluster_id="", extra_tags=())


@pytest.mark.parametrize(
    ("ages_s", "waits_s"), [((), 0.0), ((14.0, 40.0), 1.0), ((15.0,), 0.0), ((-2.0,), 0.0)]
)
def test_a_volumes_next_snapshot_waits(ages_s: tuple[float, ...], waits_s: float):
    siblings = [
        a_content(
            f"c{age_s}",
            status=a_content_status(
                created_ns=round((NOW - timedelta(seconds=age_s)).timestamp()) * 10**9
            ),
        )
        for age_s in ages_s
    ]
    whole = NOW.replace(microsecond=0)

    assert content_patch_rules.waits_s([a_content(), *siblings], whole) == pytest.approx(waits_s)


def an_ebs_snapshot(size_gib: int = 4, started_at: datetime | None = NOW) -> EbsSnapshot:
    return EbsSnapshot(SNAPSHOT, VOLUME, SnapshotState.PENDING, size_gib, started_at)


def test_the_status_names_the_snapshot_in_nanoseconds_and_bytes():
    assert content_patch_rules.recorded(a_content(), an_ebs_snapshot(), ready=False, now=NOW) == {
        "snapshotHandle": SNAPSHOT,
        "creationTime": 1_795_255_200_123_456_000,
        "restoreSize": 4 * GIB,
        "readyToUse": False,
        "error": None,
    }


def test_what_is_recorded_is_never_written_again():
    known = a_content(status=a_content_status("snap-first", size_bytes=GIB, created_ns=7))

    written = content_patch_rules.recorded(known, an_ebs_snapshot(), ready=True, now=NOW)

    assert written["snapshotHandle"] == "snap-first"
    assert (written["creationTime"], written["restoreSize"]) == (7, GIB)
    assert written["readyToUse"] is True


@given(st.datetimes(datetime(2006, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 -- hypothesis wants naive ones
def test_times_are_exact(at: datetime):
    written = content_patch_rules.recorded(
        a_content(), an_ebs_snapshot(started_at=at), ready=False, now=NOW
    )
    ns = written["creationTime"]

    assert datetime.fromtimestamp(ns // 10**9, UTC).replace(microsecond=ns // 1000 % 10**6) == at


def test_without_a_size_or_time_ours_do():
    written = content_patch_rules.recorded(
        a_content(), an_ebs_snapshot(0, None), ready=False, now=NOW
    )

    assert "restoreSize" not in written
    assert written["creationTime"] == 1_795_255_200_123_456_000


def test_a_failure_is_written_once():
    told = a_content(status=a_content_status(None, error="EC2 said no"))

    assert content_patch_rules.failed(a_content(), "EC2 said no", NOW) == {
        "error": {"time": "2026-11-21T10:00:00Z", "message": "EC2 said no"},
        "readyToUse": False,
    }
    assert content_patch_rules.failed(told, "EC2 said no", NOW) is None
    assert content_patch_rules.failed(told, "something else", NOW) is not None


def test_the_status_is_cleared_of_what_was_deleted():
    assert dict(content_patch_rules.cleared()) == {
        "snapshotHandle": None,
        "readyToUse": None,
        "creationTime": None,
        "restoreSize": None,
    }
