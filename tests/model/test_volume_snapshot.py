from __future__ import annotations

from typing import Any

import msgspec
import pytest

from provisioner.model.volume_snapshot import VolumeSnapshot, VolumeSnapshotContent
from tests.snapshot_builders import (
    SNAPSHOT,
    SNAPSHOT_UID,
    a_content,
    a_content_status,
    a_snapshot,
)


def decoded(kind: type[Any], **fields: Any) -> Any:
    return msgspec.convert({"metadata": {"name": "x"}, **fields}, kind)


def test_a_content_is_read_as_the_api_server_writes_it():
    content = decoded(
        VolumeSnapshotContent,
        spec={
            "deletionPolicy": "Delete",
            "driver": "ebs.csi.aws.com",
            "source": {"volumeHandle": "vol-1"},
            "sourceVolumeMode": "Filesystem",
            "volumeSnapshotClassName": "ebs",
            "volumeSnapshotRef": {"namespace": "shop", "name": "daily", "uid": "u"},
        },
        status={
            "snapshotHandle": "snap-1",
            "creationTime": 1_763_722_800_123_456_789,
            "restoreSize": 2**30,
            "readyToUse": True,
            "error": None,
        },
    )

    assert content.volume_id == "vol-1"
    assert content.snapshot_id == "snap-1"
    assert content.status.creation_time == 1_763_722_800_123_456_789
    assert content.snapshot_key == "shop/daily"
    assert content.snapshot_name == "snapshot-u"
    assert content.is_ready


@pytest.mark.parametrize(("size", "read"), [("1Gi", "1Gi"), (1073741824, "1073741824"), (None, "")])
def test_a_restore_size_is_a_quantity_and_may_be_a_bare_number(size: object, read: str):
    snapshot = decoded(VolumeSnapshot, status={"restoreSize": size})

    assert snapshot.restore_size == read
    assert snapshot.content_name == ""
    assert not snapshot.is_ready


def test_what_was_made_wins_over_what_was_given():
    assert a_content(given="snap-given").snapshot_id == "snap-given"
    assert a_content(status=a_content_status()).snapshot_id == SNAPSHOT
    assert a_content().snapshot_id == ""


def test_a_content_belongs_to_one_snapshot_and_to_no_other_of_its_name():
    assert a_content().belongs_to(a_snapshot(uid=SNAPSHOT_UID))
    assert not a_content().belongs_to(a_snapshot(uid="made-anew"))
    assert not a_content().belongs_to(a_snapshot("weekly"))
