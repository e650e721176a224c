from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.ec2.error_codes import ToldTime, classify, told_time
from provisioner.ec2.errors import refusal, translate
from provisioner.model.errors import Outcome, Reason
from tests.ec2.test_errors import refused

R = Reason


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (
            "IncorrectModificationState",
            "Volume vol-1 cannot be modified in modification state OPTIMIZING",
            R.MODIFICATION_RUNNING,
        ),
        (
            "VolumeModificationRateExceeded",
            "You've reached the maximum modification rate per volume limit.",
            R.MODIFICATION_LIMIT,
        ),
        ("InvalidParameterValue", "The modification limit is reached", R.MODIFICATION_LIMIT),
        (
            "VolumeModificationSizeLimitExceeded",
            "You have reached the volume modification limit in TiB",
            R.QUOTA_EXCEEDED,
        ),
        (
            "InvalidVolumeModification.NotFound",
            "Modification for volume 'vol-1' does not exist.",
            R.NEVER_MODIFIED,
        ),
        ("InvalidSnapshot.NotFound", "The snapshot 'snap-1' does not exist.", R.SNAPSHOT_NOT_FOUND),
        ("InvalidSnapshotID.Malformed", "Invalid id", R.SNAPSHOT_NOT_FOUND),
        ("InvalidSnapshot.InUse", "in use by ami-1", R.SNAPSHOT_IN_USE),
        ("SnapshotLocked", "snap-1 is locked", R.SNAPSHOT_LOCKED),
        ("OperationNotPermitted", "The snapshot 'snap-1' is locked.", R.SNAPSHOT_LOCKED),
        ("SnapshotCreationPerVolumeRateExceeded", "slower", R.SNAPSHOT_RATE),
        ("ConcurrentSnapshotLimitExceeded", "too many", R.SNAPSHOT_RATE),
        ("PendingSnapshotLimitExceeded", "too many", R.SNAPSHOT_RATE),
        ("SnapshotLimitExceeded", "too many", R.QUOTA_EXCEEDED),
        ("IncorrectState", "Snapshot is in invalid state - pending", R.SNAPSHOT_STATE),
        ("IncorrectState", "snap-1 is not 'completed'.", R.SNAPSHOT_STATE),
        ("IncorrectState", "Volume vol-1 is 'creating', no snapshot of it", R.VOLUME_STATE),
        ("CopyVolumesLimitExceeded", "too many", R.COPY_RATE),
        ("VolumeInitializationRateLimitExceeded", "5000 MiB/s", R.INITIALIZATION_RATE),
        ("VolumeLimitExceeded", "The initialization rate of 5000 MiB/s", R.INITIALIZATION_RATE),
        ("VolumeLimitExceeded", "Maximum number of volumes", R.QUOTA_EXCEEDED),
    ],
)
def test_what_changes_snapshots_and_copies_are_refused_for(
    code: str, text: str, reason: Reason
) -> None:
    assert classify(code, text, 400) == (reason, Outcome.NOTHING)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("again after 2026-11-22T05:06:07.000Z.", datetime(2026, 11, 22, 5, 6, 7, tzinfo=UTC)),
        ("Next at 2026-11-22 05:06 UTC", datetime(2026, 11, 22, 5, 6, tzinfo=UTC)),
        ("at 2026-11-22T05:06:07+0100", datetime(2026, 11, 22, 4, 6, 7, tzinfo=UTC)),
        ("at 2026-11-22T05:06:07.123456789Z", datetime(2026, 11, 22, 5, 6, 7, 123456, tzinfo=UTC)),
        ("from 2026-11-31T00:00:00Z or 2026-12-01T00:00:00Z", datetime(2026, 12, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_found_in_whatever_text(text: str, told: datetime) -> None:
    assert told_time(text) == ToldTime(at=told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Try again in 1 hour", ToldTime(after_s=3600.0)),
        ("Try again in 90 minutes.", ToldTime(after_s=5400.0)),
        ("You can retry after 20 minutes", ToldTime(after_s=1200.0)),
        (
            "maximum modification rate. Wait at least 6 hours between modifications per volume.",
            ToldTime(between_s=21600.0),
        ),
        # The length of a window is neither.
        ("the maximum number of modifications (4) in a rolling 24 hour period", ToldTime()),
        ("4 modifications are allowed in 24 hours", ToldTime()),
        ("Try later.", ToldTime()),
        ("", ToldTime()),
    ],
)
def test_only_what_is_promised_counts_from_now(text: str, told: ToldTime) -> None:
    assert told_time(text) == told


@given(
    st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)),  # noqa: DTZ001
    st.integers(-12, 14),
)
def test_any_moment_in_iso_form_is_read(moment: datetime, hours: int) -> None:
    moment = moment.replace(tzinfo=timezone(timedelta(hours=hours)))

    assert told_time(f"again after {moment.isoformat()}.") == ToldTime(at=moment)


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    told_time(text)


def test_only_the_limit_of_modifications_reads_times() -> None:
    text = "vol-1 was made at 2026-11-22T05:06:07Z, 3 hours ago"
    found = translate(refused("IncorrectState", text, by="X"), "X", {})

    assert found is not None
    assert (found.retry_at, found.retry_after_s, found.between_s) == (None, None, None)


def test_a_refusal_inside_a_good_answer_is_one_like_others() -> None:
    found = refusal("EnableFastSnapshotRestores", "Enable snap-1 in a", "LimitExceeded", "Five.")

    assert found.reason is R.QUOTA_EXCEEDED
    assert found.message.startswith("Enable snap-1 in a: EC2 answered LimitExceeded: Five; raise")


def test_a_restore_names_what_it_is_made_of() -> None:
    params = {"AvailabilityZone": "a", "Size": 4, "VolumeType": "gp3", "SnapshotId": "snap-1"}
    found = translate(
        refused("InvalidSnapshot.NotFound", "", by="CreateVolume"), "CreateVolume", params
    )

    assert found is not None
    assert found.message.startswith("CreateVolume (4 GiB gp3 in a of snap-1): EC2 answered")
