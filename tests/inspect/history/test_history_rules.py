"""What happened to a claim and its volume, in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.history import history_rules as rules
from provisioner.inspect.history.history_rules import DatedClaim, Moment
from provisioner.inspect.reading.kind_rules import Event
from provisioner.model.attachment import Attachment
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.modification import Modification, ModificationState, Shape
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume, VolumeState
from tests.builders import UID, VOLUME, ZONE

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
AT = "2026-11-23T12:00:00Z"
LATER = "2026-11-23T12:05:00Z"


def decoded(kind: type[Any], **document: Any) -> Any:
    return msgspec.convert(document, kind, strict=False)


def whats(moments: Any) -> list[str]:
    return [each.what for each in moments]


def test_a_claim_tells_its_creation_its_conditions_and_its_deletion():
    condition = {
        "type": "FileSystemResizePending",
        "status": "True",
        "reason": "Waiting",
        "message": "for the node",
        "lastTransitionTime": LATER,
    }
    claim = decoded(
        DatedClaim,
        metadata={"creationTimestamp": AT, "deletionTimestamp": LATER},
        status={"conditions": [condition, {"type": "Resizing", "status": "True"}]},
    )

    assert whats(rules.of_claim(claim)) == [
        "created",
        "condition FileSystemResizePending is True (Waiting: for the node)",
        "deletion requested",
    ]


def test_the_notes_of_the_controller_on_modifications_are_told():
    note = {"uid": UID, "volume": VOLUME, "starts": [{"at": LATER, "asked": "20 GiB"}]}
    annotation = {"ebs-provisioner.io/modifications": msgspec.json.encode(note).decode()}
    found = decoded(
        PersistentVolume,
        metadata={"name": "pv", "uid": UID, "creationTimestamp": AT, "annotations": annotation},
    )

    assert whats(rules.of_persistent_volume(found, VOLUME)) == [
        f"created for {VOLUME}",
        "modification sent: 20 GiB",
    ]
    assert whats(rules.of_persistent_volume(found, "vol-2")) == ["created for vol-2"]


def test_an_event_that_was_seen_often_is_told_with_its_first_and_last_time():
    event = decoded(
        Event,
        type="Warning",
        reason="QuotaExceeded",
        message="full",
        count=7,
        firstTimestamp=AT,
        lastTimestamp=LATER,
        source={"component": "ebs-provisioner"},
    )

    first, last = rules.of_events([event])

    assert first == Moment(NOW, "event of ebs-provisioner", "Warning QuotaExceeded: full")
    assert last.at == NOW + timedelta(minutes=5)
    assert last.what == "again (7 times): QuotaExceeded"


def test_what_ec2_shows_is_told():
    volume = Volume(VOLUME, VolumeState.IN_USE, ZONE, 8, created_at=NOW, snapshot_id="snap-1")
    modification = Modification(
        VOLUME, ModificationState.OPTIMIZING, Shape(20, "gp3", 3_000, 125), Shape(8, "gp2"), NOW
    )
    snapshot = EbsSnapshot("snap-2", VOLUME, SnapshotState.PENDING, 8, NOW, progress_percent=40)

    assert whats(rules.of_volume(volume)) == [f"{VOLUME} created in {ZONE} from snap-1"]
    assert whats(rules.of_modification(modification)) == [
        "modification optimizing: 8 GiB, gp2 to 20 GiB, gp3, 3000 IOPS, 125 MiB/s"
    ]
    assert whats(rules.of_snapshots([snapshot])) == ["snapshot snap-2 taken, pending 40%"]


def test_attachments_tell_when_a_node_was_to_get_and_to_lose_the_volume():
    found = decoded(
        Attachment,
        metadata={"name": "csi-1", "creationTimestamp": AT, "deletionTimestamp": LATER},
        spec={"nodeName": "a"},
    )

    assert whats(rules.of_attachments([found])) == [
        "attach to a requested",
        "detach from a requested",
    ]


def test_a_time_that_cannot_be_read_is_left_out():
    found = decoded(DatedClaim, metadata={"deletionTimestamp": "yesterday"})

    assert list(rules.of_claim(found)) == []


MOMENTS = st.builds(
    Moment,
    st.integers(0, 3).map(lambda minutes: NOW + timedelta(minutes=minutes)),
    st.sampled_from("ab"),
    st.sampled_from("cd"),
)


@given(st.lists(MOMENTS))
def test_everything_is_told_once_and_in_order(moments: list[Moment]):
    found = rules.in_order(moments)

    assert set(found) == set(moments)
    assert len(found) == len(set(found))
    assert [each.at for each in found] == sorted(each.at for each in found)


def test_a_row_has_the_time_as_the_api_server_writes_it():
    assert rules.cells(Moment(NOW, "claim", "created")) == (AT, "claim", "created")
