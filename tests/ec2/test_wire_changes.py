"""What the answers about modifications, snapshots, copies and statuses are read into."""

from datetime import UTC, datetime

import pytest

from provisioner.ec2 import wire
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.modification import Initialization, Modification, ModificationState, Shape
from tests.ec2.test_wire import EXPECTED, VOLUME, answer

MODIFICATION = """
  <volumeId>vol-1</volumeId><modificationState>{state}</modificationState>
  <statusMessage>as it is</statusMessage>
  <targetSize>20</targetSize><targetIops>4000</targetIops><targetVolumeType>gp3</targetVolumeType>
  <targetThroughput>250</targetThroughput><targetMultiAttachEnabled>false</targetMultiAttachEnabled>
  <originalSize>100</originalSize><originalVolumeType>st1</originalVolumeType>
  <progress>7</progress><startTime>2026-11-21T09:00:00.000Z</startTime>
"""
CHANGED = Modification(
    volume_id="vol-1",
    state=ModificationState.OPTIMIZING,
    target=Shape(20, "gp3", 4000, 250),
    original=Shape(100, "st1", None, None),
    started_at=datetime(2026, 11, 21, 9, tzinfo=UTC),
    progress_percent=7,
    message="as it is",
)
SNAPSHOT = """
  <snapshotId>snap-1</snapshotId><volumeId>vol-1</volumeId><status>{state}</status>
  <startTime>2026-11-21T09:00:00.000Z</startTime><progress>{progress}</progress>
  <ownerId>1</ownerId><volumeSize>20</volumeSize><description/><encrypted>true</encrypted>
  <tagSet><item><key>Name</key><value>one</value></item></tagSet>
"""


def snapshot(state: SnapshotState, percent: int) -> EbsSnapshot:
    return EbsSnapshot(
        snapshot_id="snap-1",
        volume_id="vol-1",
        state=state,
        size_gib=20,
        started_at=datetime(2026, 11, 21, 9, tzinfo=UTC),
        progress_percent=percent,
        encrypted=True,
        tags={"Name": "one"},
    )


def initialization(
    state: str = "",
    percent: int | None = None,
    left_s: int | None = None,
    *,
    complete: bool = False,
) -> Initialization:
    return Initialization("vol-1", complete, state, percent, left_s)


def test_reads_a_modification_alone_and_on_a_page() -> None:
    text = MODIFICATION.format(state="optimizing")
    alone = f"<volumeModification>{text}</volumeModification>"
    page = f"<volumeModificationSet><item>{text}</item></volumeModificationSet><nextToken>n</nextToken>"

    assert wire.read(answer("ModifyVolumeResponse", alone)) == {"Modification": CHANGED}
    assert wire.read(answer("DescribeVolumesModificationsResponse", page)) == {
        "Modifications": [CHANGED],
        "NextToken": "n",
    }


def test_a_modification_without_a_target_leaves_its_neighbours_readable() -> None:
    bare = "<volumeId>vol-2</volumeId><modificationState>modifying</modificationState>"
    text = MODIFICATION.format(state="optimizing")
    items = f"<item>{bare}</item><item/><item>{text}</item>"
    page = f"<volumeModificationSet>{items}</volumeModificationSet>"

    read = wire.read(answer("DescribeVolumesModificationsResponse", page))

    assert read["Modifications"] == [CHANGED]
    with pytest.raises(ValueError, match="targetSize"):
        wire.read(
            answer("ModifyVolumeResponse", f"<volumeModification>{bare}</volumeModification>")
        )


def test_a_state_of_a_modification_that_nobody_knows_yet_is_one_to_wait_in() -> None:
    text = f"<volumeModification>{MODIFICATION.format(state='queued')}</volumeModification>"

    read = wire.read(answer("ModifyVolumeResponse", text))["Modification"]

    assert read.state is ModificationState.MODIFYING


@pytest.mark.parametrize(
    ("state", "progress", "expected"),
    [
        ("pending", "", snapshot(SnapshotState.PENDING, 0)),
        ("completed", "100%", snapshot(SnapshotState.COMPLETED, 100)),
        ("thawing", "12%", snapshot(SnapshotState.PENDING, 12)),
    ],
)
def test_reads_a_snapshot_alone_and_on_a_page(
    state: str, progress: str, expected: EbsSnapshot
) -> None:
    text = SNAPSHOT.format(state=state, progress=progress)
    page = f"<snapshotSet><item>{text}</item></snapshotSet>"

    assert wire.read(answer("CreateSnapshotResponse", text)) == {"Snapshot": expected}
    assert wire.read(answer("DescribeSnapshotsResponse", page)) == {
        "Snapshots": [expected],
        "NextToken": None,
    }


def test_reads_the_copy_of_a_volume_and_what_it_is_made_of() -> None:
    text = VOLUME.format(state="in-use", attachment="attached")
    text += "<sourceVolumeId>vol-0</sourceVolumeId>"
    body = answer("CopyVolumesResponse", f"<volumeSet><item>{text}</item></volumeSet>")

    (copy,) = wire.read(body)["Volumes"]

    assert (copy.volume_id, copy.source_volume_id, copy.snapshot_id) == ("vol-1", "vol-0", "")
    assert copy.tags == EXPECTED.tags


@pytest.mark.parametrize(
    ("state", "details", "expected"),
    [
        ("", "", initialization()),
        (
            "initializing",
            "<progress>5</progress><estimatedTimeToCompleteInSeconds>90</estimatedTimeToCompleteInSeconds>",
            initialization("initializing", 5, 90),
        ),
        ("completed", "", initialization("completed", complete=True)),
        ("", "<progress>100</progress>", initialization("", 100, complete=True)),
    ],
)
def test_reads_how_far_a_volume_is_initialized(
    state: str, details: str, expected: Initialization
) -> None:
    named = f"<item><name>initialization-state</name><status>{state}</status></item>"
    other = "<item><name>io-enabled</name><status>passed</status></item>"
    body = answer(
        "DescribeVolumeStatusResponse",
        f"""<volumeStatusSet><item><volumeId>vol-1</volumeId>
        <volumeStatus><status>ok</status><details>{other}{named if state else ""}</details>
        </volumeStatus>
        <initializationStatusDetails>{details}</initializationStatusDetails>
        </item></volumeStatusSet>""",
    )

    assert wire.read(body) == {"Initializations": [expected], "NextToken": None}


@pytest.mark.parametrize(
    "body",
    [
        answer("ModifyVolumeResponse", ""),
        answer(
            "ModifyVolumeResponse",
            "<volumeModification><volumeId>v</volumeId></volumeModification>",
        ),
        answer("CreateSnapshotResponse", "<snapshotId>snap-1</snapshotId>"),
        answer("DescribeVolumeStatusResponse", "<volumeStatusSet><item/></volumeStatusSet>"),
        answer("DeleteVolumeResponse", "<return>true</return>"),
    ],
)
def test_half_an_answer_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        wire.read(body)
