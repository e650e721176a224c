"""What a claim can be made from: each rule of the contract with its sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.claims.source_rules import of_claim, of_snapshot
from provisioner.model import volume_snapshot as v
from provisioner.model.claim import Claim
from provisioner.model.data_source import Source
from provisioner.model.decision import Refuse
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import GIB
from tests.builders import DELETED_AT, DRIVER, a_claim
from tests.sources import (
    CLONE,
    OTHER_UID,
    RESTORE,
    SNAPSHOT_ID,
    SNAPSHOT_UID,
    a_content,
    a_snapshot,
    a_source,
    its_volume,
    refused,
    replaced,
    waited_for,
)

READY = Source(snapshot_id=SNAPSHOT_ID, size_gib=1)


def restored(
    claim: Claim = RESTORE, snapshot: Any = None, content: Any = None, **more: Any
) -> Source | Refuse:
    return of_snapshot(
        claim,
        a_snapshot() if snapshot is None else snapshot,
        a_content() if content is None else content,
        driver=DRIVER,
        **more,
    )


def cloned(
    claim: Claim = CLONE, source: Claim | None = None, volume: PersistentVolume | None = None
) -> Source | Refuse:
    return of_claim(claim, source or a_source(), volume or its_volume(), driver=DRIVER)


def test_a_ready_snapshot_is_restored():
    assert restored() == READY


@pytest.mark.parametrize(
    ("snapshot", "content"),
    [
        pytest.param(
            a_snapshot(deleting=True, finalizers=[v.SOURCE_FINALIZER]), a_content(), id="going"
        ),
        pytest.param(
            a_snapshot(finalizers=[v.SOURCE_FINALIZER]), a_content(deleting=True), id="content"
        ),
    ],
)
def test_a_snapshot_that_goes_is_restored_for_as_long_as_it_is_held(
    snapshot: v.VolumeSnapshot, content: v.VolumeSnapshotContent
):
    assert restored(snapshot=snapshot, content=content) == READY


def test_a_snapshot_whose_size_nobody_knows_is_left_to_ec2():
    assert restored(snapshot=a_snapshot(size=None)) == Source(snapshot_id=SNAPSHOT_ID)


@pytest.mark.parametrize(
    ("snapshot", "content", "words"),
    [
        pytest.param(a_snapshot(deleting=True), a_content(), "is being deleted", id="deleting"),
        pytest.param(
            a_snapshot(content=""),
            a_content(),
            "not bound to a VolumeSnapshotContent",
            id="unbound",
        ),
        pytest.param(a_snapshot(ready=False), a_content(), "not ready to use", id="pending"),
        pytest.param(a_snapshot(ready=None), a_content(), "not ready to use", id="no word"),
        pytest.param(a_snapshot(), a_content(handle=None), "names no snapshot yet", id="no handle"),
        pytest.param(
            a_snapshot(), a_content(handle="backup-1"), "not an EBS snapshot", id="odd handle"
        ),
        pytest.param(
            a_snapshot(), a_content(deleting=True), "VolumeSnapshotContent 'content'", id="content"
        ),
        pytest.param(
            a_snapshot(), a_content(owner_uid="another"), "belongs to", id="another's content"
        ),
        pytest.param(
            a_snapshot(), a_content(owner="other"), "VolumeSnapshot shop/other", id="its name"
        ),
        pytest.param(a_snapshot(), a_content(driver="disk.example"), "'disk.example'", id="driver"),
        pytest.param(
            a_snapshot(ready=False, error="EC2 is full"), a_content(), "EC2 is full", id="error"
        ),
        pytest.param(a_snapshot(size="x"), a_content(), "cannot read the size", id="odd size"),
    ],
)
def test_nothing_is_restored_from(
    snapshot: v.VolumeSnapshot, content: v.VolumeSnapshotContent, words: str
):
    answer = restored(snapshot=snapshot, content=content)

    assert isinstance(answer, Refuse)
    assert words in answer.message
    assert answer.settled


@pytest.mark.parametrize(
    ("snapshot", "handle"),
    [
        (a_snapshot(content=""), SNAPSHOT_ID),
        (a_snapshot(ready=False), SNAPSHOT_ID),
        (a_snapshot(), None),
    ],
    ids=["unbound", "pending", "no handle"],
)
def test_what_only_takes_time_is_no_warning(snapshot: v.VolumeSnapshot, handle: str | None):
    words = waited_for(restored(snapshot=snapshot, content=a_content(handle=handle)))

    assert "waiting for it" in words


def test_an_imported_snapshot_counts_once_the_driver_has_seen_it():
    imported = replaced(
        a_content(handle=None),
        spec=replaced(a_content().spec, source=v.ContentSource(snapshot_handle=SNAPSHOT_ID)),
    )

    waited_for(restored(content=imported))


def test_a_snapshot_that_does_not_exist():
    answer = of_snapshot(RESTORE, None, None, driver=DRIVER)

    assert "VolumeSnapshot 'monday' does not exist" in refused(answer)


def test_a_cluster_without_snapshots_says_what_to_install():
    answer = of_snapshot(RESTORE, None, None, driver=DRIVER, is_served=False)

    assert "snapshot-controller" in refused(answer)


def test_a_content_that_does_not_exist():
    answer = of_snapshot(RESTORE, a_snapshot(), None, driver=DRIVER)

    assert "'content', which does not exist" in refused(answer)


@pytest.mark.parametrize(
    ("asked", "least", "is_enough"),
    [("1Gi", "1Gi", True), ("2Gi", "1Gi", True), ("1023Mi", "1Gi", False), ("1G", "1Gi", False)],
)
def test_a_copy_is_never_smaller_than_its_source(asked: str, least: str, *, is_enough: bool):
    restore = a_claim(size=asked, source=RESTORE.spec.data_source)
    clone = a_claim(size=asked, source=CLONE.spec.data_source)
    answers = [restored(restore, a_snapshot(size=least)), cloned(clone, a_source(size=least))]

    for answer in answers:
        if is_enough:
            assert isinstance(answer, Source)
        else:
            assert f"requests {asked}" in refused(answer)
            assert least in refused(answer)


@pytest.mark.parametrize("to", [None, "Filesystem", "Block"])
@pytest.mark.parametrize("of", [None, "Filesystem", "Block"])
def test_the_mode_of_a_snapshot_changes_only_with_leave(of: str | None, to: str | None):
    claim = a_claim(volume_mode=to, source=RESTORE.spec.data_source)
    is_other = of is not None and (of == "Block") != (to == "Block")

    answer = restored(claim, content=a_content(mode=of))

    assert isinstance(answer, Refuse) is is_other
    if is_other:
        assert v.ALLOW_VOLUME_MODE_CHANGE in refused(answer)
    assert restored(claim, content=a_content(mode=of, allows=True)) == READY


@pytest.mark.parametrize("to", [None, "Filesystem", "Block"])
@pytest.mark.parametrize("of", [None, "Filesystem", "Block"])
def test_a_clone_has_the_mode_of_its_source(of: str | None, to: str | None):
    claim = a_claim(volume_mode=to, source=CLONE.spec.data_source)

    answer = cloned(claim, a_source(mode=of))

    is_other = (of == "Block") != (to == "Block")
    assert isinstance(answer, Refuse) is is_other
    assert not is_other or "a clone has the mode of its source" in refused(answer)


_TEXTS = st.sampled_from(["", "shop", "monday", "content", "x", SNAPSHOT_UID, OTHER_UID])
_NUMBERS = st.sampled_from([None, "", "0", "1Gi", "1073741825", "2Gi", "-1", "x"])


@st.composite
def _snapshots(draw: st.DrawFn) -> v.VolumeSnapshot:
    return a_snapshot(
        content=draw(st.sampled_from(["", "content"])),
        size=draw(_NUMBERS),
        ready=draw(st.sampled_from([None, False, True])),
        deleting=draw(st.booleans()),
        error=draw(_TEXTS),
        finalizers=draw(st.sampled_from([[], [v.SOURCE_FINALIZER]])),
    )


@st.composite
def _contents(draw: st.DrawFn) -> v.VolumeSnapshotContent:
    return v.VolumeSnapshotContent(
        metadata=ObjectMeta(
            name="content", deletion_timestamp=draw(st.sampled_from([None, DELETED_AT]))
        ),
        spec=v.VolumeSnapshotContentSpec(
            driver=draw(st.sampled_from([DRIVER, "x"])),
            source_volume_mode=draw(st.sampled_from([None, "", "Block", "Filesystem", "x"])),
            volume_snapshot_ref=ObjectReference(
                namespace=draw(_TEXTS), name=draw(_TEXTS), uid=draw(_TEXTS)
            ),
        ),
        status=draw(
            st.one_of(
                st.none(),
                st.builds(
                    v.VolumeSnapshotContentStatus,
                    snapshot_handle=st.sampled_from([None, "", SNAPSHOT_ID]),
                ),
            )
        ),
    )


@given(
    _snapshots() | st.none(),
    _contents() | st.none(),
    st.sampled_from(["1Gi", "2Gi", "512Mi", "x", ""]),
)
def test_whatever_is_restored_is_ready_ours_and_large_enough(
    snapshot: v.VolumeSnapshot | None, content: v.VolumeSnapshotContent | None, size: str
):
    claim = a_claim(size=size, source=RESTORE.spec.data_source)

    answer = of_snapshot(claim, snapshot, content, driver=DRIVER)

    if isinstance(answer, Refuse):
        assert answer.message
        return
    assert snapshot is not None
    assert content is not None
    assert snapshot.is_ready
    assert content.belongs_to(snapshot)
    assert content.spec.driver == DRIVER
    assert answer.snapshot_id == SNAPSHOT_ID
    assert answer.size_gib * GIB <= {"1Gi": GIB, "2Gi": 2 * GIB}[size]
