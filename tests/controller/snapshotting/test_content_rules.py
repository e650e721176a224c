"""Rules of contents: each step of the contract's chapter 4, and what may never happen."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.snapshotting import content_rules
from provisioner.controller.snapshotting.content_rules import (
    Attempt,
    Delete,
    Follow,
    LookUp,
    Record,
    Release,
    Step,
    Take,
    Withdraw,
)
from provisioner.model import volume_snapshot as v
from provisioner.model.decision import SETTLED, Refuse
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.model.meta import ObjectReference
from tests.builders import DRIVER, VOLUME
from tests.snapshot_builders import (
    SNAPSHOT,
    SNAPSHOT_UID,
    a_content,
    a_content_status,
    a_snapshot,
)

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
BEING_CREATED = {v.BEING_CREATED: v.YES}
BEING_DELETED = {v.BEING_DELETED: v.YES}
UNBOUND = ObjectReference(namespace="shop", name="daily")
NEW = Attempt()
LOOKING = Attempt(looking_since_s=100.0)
PENDING = a_content_status(ready=False)
READY = a_content_status(ready=True)


def an_ebs_snapshot(
    snapshot_id: str = SNAPSHOT,
    *,
    state: SnapshotState = SnapshotState.PENDING,
    volume_id: str = VOLUME,
    started_at: datetime | None = NOW,
) -> EbsSnapshot:
    return EbsSnapshot(snapshot_id, volume_id, state, 4, started_at)


FOUND = Attempt(found=an_ebs_snapshot())


def decide(content: v.VolumeSnapshotContent, attempt: Attempt = NEW, **given: object) -> Step:
    return content_rules.decide(content, attempt, driver=DRIVER, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "attempt", "step"),
    [
        (a_content(), NEW, Take()),
        (a_content(driver="other.csi"), NEW, SETTLED),
        (a_content(annotations={v.GROUP_HANDLE: "group-1"}), NEW, SETTLED),
        # A refusal that is written down is no status of a snapshot.
        (a_content(status=a_content_status(None, error="no")), NEW, Take()),
        # Refused for a while: the annotation stays, the next request follows.
        (a_content(annotations=BEING_CREATED), NEW, Take()),
        (a_content(annotations=BEING_CREATED), LOOKING, LookUp()),
        (a_content(), LOOKING, LookUp()),
        (a_content(annotations=BEING_CREATED), FOUND, Record(an_ebs_snapshot())),
        # The handle is known: nothing that was in doubt matters any more.
        (a_content(annotations=BEING_CREATED, status=PENDING), LOOKING, Withdraw()),
        (a_content(status=PENDING), NEW, Follow(SNAPSHOT)),
        (a_content(given="snap-0b1e"), NEW, Follow("snap-0b1e")),
        (a_content(status=READY), NEW, SETTLED),
        (a_content(annotations=BEING_CREATED, status=READY), NEW, Withdraw()),
    ],
)
def test_a_content_gets_a_snapshot(
    content: v.VolumeSnapshotContent, attempt: Attempt, step: content_rules.Step
):
    assert decide(content, attempt) == step


def asked(*, ago: timedelta | None, uid: str = SNAPSHOT_UID, **status: object) -> v.VolumeSnapshot:
    found = a_snapshot(uid=uid)
    made_at = None if ago is None else NOW - ago
    metadata = msgspec.structs.replace(found.metadata, creation_timestamp=made_at)
    given = msgspec.convert(status, v.VolumeSnapshotStatus)
    return msgspec.structs.replace(found, metadata=metadata, status=given)


@pytest.mark.parametrize(
    ("owner", "may_be"),
    [
        (None, False),
        (asked(ago=timedelta(seconds=60)), False),
        (asked(ago=timedelta(seconds=61)), True),
        (asked(ago=None), False),
        (asked(ago=timedelta(0), creationTime="2026-11-21T10:00:00Z", readyToUse=False), True),
        (asked(ago=timedelta(0), readyToUse=True), True),
        # Another one of the same name.
        (asked(ago=timedelta(1), readyToUse=True, uid="other"), False),
    ],
)
def test_the_volumesnapshot_shows_whether_there_was_an_earlier_content(
    owner: v.VolumeSnapshot | None, *, may_be: bool
):
    content = a_content()
    metadata = msgspec.structs.replace(content.metadata, creation_timestamp=NOW)
    content = msgspec.structs.replace(content, metadata=metadata)

    assert content_rules.may_be_second(content, owner) is may_be


@pytest.mark.parametrize(
    ("owner", "for_s"),
    [
        (None, math.inf),
        (asked(ago=timedelta(0), readyToUse=False), math.inf),
        (asked(ago=timedelta(0), creationTime="2026-11-21T09:59:30Z"), 30.0),
        (asked(ago=timedelta(0), creationTime="2026-11-21T10:00:30Z"), 0.0),  # another clock
    ],
)
def test_a_volumesnapshot_says_when_its_first_snapshot_was_taken(
    owner: v.VolumeSnapshot | None, for_s: float
):
    at = datetime(2026, 11, 21, 10, tzinfo=UTC)

    assert content_rules.taken_for_s(owner, at) == for_s


@pytest.mark.parametrize("handle", ["snapshot-0abc", "vol-0123", "snap-monday", "snap-"])
def test_a_handle_that_is_no_snapshots_is_refused_on_its_content_and_ends_without_ec2(handle: str):
    step = decide(a_content(given=handle))

    assert isinstance(step, Refuse)
    assert f"names {handle!r}, which is not an EBS snapshot" in step.message
    assert decide(ending(given=handle, owner=UNBOUND)) == Release()
    told = ending(given=handle, status=a_content_status(handle), annotations=BEING_DELETED)
    assert decide(told) == Release()


def ending(**given: object) -> v.VolumeSnapshotContent:
    return a_content(deleting=True, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "attempt", "step"),
    [
        # snapshot-controller has not said that the snapshot goes: somebody deleted the content.
        (ending(status=READY), NEW, SETTLED),
        (ending(status=READY, annotations=BEING_DELETED), NEW, Delete(SNAPSHOT)),
        (ending(status=READY, annotations=BEING_DELETED, policy=v.RETAIN), NEW, Release()),
        (ending(status=READY, annotations=BEING_DELETED, policy=""), NEW, Release()),
        (ending(annotations=BEING_DELETED), NEW, Release()),
        # It was cleared, or never there.
        (ending(status=a_content_status(None), annotations=BEING_DELETED), NEW, Release()),
        # Done with it already: the next writer's finalizer keeps it.
        (ending(status=READY, annotations=BEING_DELETED, finalizers=()), NEW, SETTLED),
        # A request that may have been carried out comes first, whatever the policy.
        (ending(annotations=BEING_DELETED | BEING_CREATED), LOOKING, LookUp()),
        (ending(annotations=BEING_DELETED | BEING_CREATED, policy=v.RETAIN), LOOKING, LookUp()),
        (ending(annotations=BEING_DELETED), LOOKING, LookUp()),
        (ending(annotations=BEING_DELETED | BEING_CREATED), FOUND, Record(an_ebs_snapshot())),
        (ending(annotations=BEING_DELETED | BEING_CREATED), NEW, Withdraw()),
        (ending(annotations=BEING_DELETED | BEING_CREATED, status=PENDING), NEW, Withdraw()),
        # Given, and bound to nothing yet: an administrator may take it away.
        (ending(given="snap-0b1e", owner=UNBOUND, status=READY), NEW, Delete(SNAPSHOT)),
        # No status yet: what was given is deleted all the same.
        (ending(given="snap-0b1e", owner=UNBOUND), NEW, Delete("snap-0b1e")),
        (ending(given="snap-0b1e", owner=UNBOUND, policy=v.RETAIN), NEW, Release()),
        (ending(given="snap-0b1e", annotations=BEING_DELETED), NEW, Delete("snap-0b1e")),
        (ending(given="snap-0b1e"), NEW, SETTLED),
        # It was deleted, and the status cleared.
        (ending(given="snap-0b1e", owner=UNBOUND, status=a_content_status(None)), NEW, Release()),
        (ending(given="snap-0b1e", status=READY), NEW, SETTLED),
        # A member of a group is deleted with it.
        (
            ending(status=READY, annotations=BEING_DELETED | {v.GROUP_HANDLE: "g"}),
            NEW,
            Release(),
        ),
    ],
)
def test_a_content_ends(
    content: v.VolumeSnapshotContent, attempt: Attempt, step: content_rules.Step
):
    assert decide(content, attempt) == step


def test_a_snapshot_object_that_is_gone_is_enough_for_the_end():  # race 26, sidecar #1446
    assert decide(ending(status=READY), owner_is_gone=True) == Delete(SNAPSHOT)


@pytest.mark.parametrize("status", [None, READY])
def test_a_given_snapshot_stays_when_the_volumesnapshot_is_only_missing(
    status: v.VolumeSnapshotContentStatus | None,
):
    step = decide(ending(given=SNAPSHOT, status=status), owner_is_gone=True)

    assert isinstance(step, Release)
    assert f"snapshot {SNAPSHOT} is kept" in step.why_kept
    assert "another cluster may use it" in step.why_kept
    # There is nothing to tell where nothing would be deleted.
    retained = ending(given=SNAPSHOT, status=status, policy=v.RETAIN)
    assert decide(retained, owner_is_gone=True) == Release()


def test_a_content_goes_without_its_snapshot_if_another_one_names_it():
    step = decide(ending(status=READY, annotations=BEING_DELETED), kept_for=["other", "an"])

    assert isinstance(step, Release)
    assert "VolumeSnapshotContent an names it too" in step.why_kept


@pytest.mark.parametrize("owner_is_gone", [True, False])
@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (a_content(), True),
        (a_content(policy=v.RETAIN), True),
        (ending(policy=v.RETAIN), True),
        (ending(policy=v.RETAIN, annotations=BEING_DELETED), True),
        (ending(annotations=BEING_DELETED), False),
        (ending(given="snap-0b1e", owner=UNBOUND), False),
    ],
)
def test_which_contents_keep_the_snapshot_of_another(
    content: v.VolumeSnapshotContent, *, kept: bool, owner_is_gone: bool
):
    other = ending(annotations=BEING_DELETED)
    assert content_rules.keeps(content, other, owner_is_gone=owner_is_gone) is kept


def test_one_that_waits_for_the_end_of_its_volumesnapshot_keeps_it():
    other = ending(annotations=BEING_DELETED)
    assert content_rules.keeps(ending(), other, owner_is_gone=False)
    assert not content_rules.keeps(ending(), other, owner_is_gone=True)


def test_one_that_leaves_its_given_snapshot_to_others_keeps_it():
    other = ending(annotations=BEING_DELETED)
    assert content_rules.keeps(ending(given=SNAPSHOT), other, owner_is_gone=True)


END_OF_BACKUP = ending(given=SNAPSHOT, owner=UNBOUND, labels={v.VELERO_BACKUP: "monday"})
RESTORED = {v.VELERO_BACKUP: "monday", v.VELERO_RESTORE: "tuesday"}


@pytest.mark.parametrize(
    ("content", "other", "kept"),
    [
        (a_content(policy=v.RETAIN, labels=RESTORED), END_OF_BACKUP, False),
        (ending(policy=v.RETAIN, labels=RESTORED), END_OF_BACKUP, False),
        # Not restored by Velero, of another backup, or with a policy of its own.
        (a_content(policy=v.RETAIN), END_OF_BACKUP, True),
        (a_content(policy=v.RETAIN, labels={v.VELERO_BACKUP: "monday"}), END_OF_BACKUP, True),
        (
            a_content(policy=v.RETAIN, labels=RESTORED | {v.VELERO_BACKUP: "sunday"}),
            END_OF_BACKUP,
            True,
        ),
        (a_content(labels=RESTORED), END_OF_BACKUP, True),
        # Not the end of a backup: it belongs to a VolumeSnapshot, or nobody has labelled it.
        (
            a_content(policy=v.RETAIN, labels=RESTORED),
            ending(labels={v.VELERO_BACKUP: "monday"}),
            True,
        ),
        (a_content(policy=v.RETAIN, labels=RESTORED), ending(given=SNAPSHOT, owner=UNBOUND), True),
        (
            a_content(policy=v.RETAIN, labels=RESTORED | {v.VELERO_BACKUP: ""}),
            ending(given=SNAPSHOT, owner=UNBOUND, labels={v.VELERO_BACKUP: ""}),
            True,
        ),
    ],
)
def test_what_velero_has_restored_from_a_backup_keeps_nothing_of_it_at_the_backups_end(
    content: v.VolumeSnapshotContent, other: v.VolumeSnapshotContent, *, kept: bool
):
    assert content_rules.keeps(content, other, owner_is_gone=False) is kept


contents = st.builds(
    a_content,
    given=st.sampled_from([None, "snap-0b1e"]),
    policy=st.sampled_from([v.DELETE, v.RETAIN, "", "Keep"]),
    status=st.sampled_from([None, PENDING, READY, a_content_status(None)]),
    annotations=st.lists(
        st.sampled_from([(v.BEING_CREATED, v.YES), (v.BEING_DELETED, v.YES), (v.GROUP_HANDLE, "g")])
    ).map(dict),
    deleting=st.booleans(),
    driver=st.sampled_from([DRIVER, "other.csi"]),
    owner=st.sampled_from([None, UNBOUND]),
    finalizers=st.sampled_from([(), (v.CONTENT_FINALIZER,)]),
)
attempts = st.sampled_from([NEW, LOOKING, FOUND])


@given(contents, attempts, st.booleans())
def test_nothing_is_deleted_that_should_stay(
    content: v.VolumeSnapshotContent,
    attempt: Attempt,
    is_gone: bool,  # noqa: FBT001 -- drawn
):
    step = decide(content, attempt, owner_is_gone=is_gone)

    if isinstance(step, Delete):
        assert content.spec.deletion_policy == v.DELETE
        assert content.deleting
        assert content.spec.driver == DRIVER
        if content.status is not None:
            assert step.snapshot_id == content.status.snapshot_handle
        else:
            assert step.snapshot_id == content.spec.source.snapshot_handle


@given(contents, attempts, st.booleans())
def test_nothing_is_begun_or_let_go_while_a_request_is_in_doubt(
    content: v.VolumeSnapshotContent,
    attempt: Attempt,
    is_gone: bool,  # noqa: FBT001 -- drawn
):
    is_named = bool(content.volume_id and content.snapshot_uid)  # else none is ever asked for
    is_ours = is_named and v.GROUP_HANDLE not in content.annotations
    in_doubt = attempt != NEW and is_ours and not content.snapshot_id
    step = decide(content, attempt, owner_is_gone=is_gone)

    if in_doubt:
        assert not isinstance(step, Take | Release | Delete | Withdraw)


@given(contents, attempts)
def test_no_snapshot_is_begun_for_a_content_that_goes(
    content: v.VolumeSnapshotContent, attempt: Attempt
):
    step = decide(msgspec.structs.replace(content), attempt)

    assert not (content.deleting and isinstance(step, Take | Follow))


@pytest.mark.parametrize(
    ("content", "stranger", "since"),
    [
        (a_content(), None, None),
        # A process before us: it is not known when.
        (a_content(annotations=BEING_CREATED), None, 500.0),
        # The stock sidecar takes the annotation off although the snapshot may have been taken.
        (a_content(), 440.0, 440.0),
        (a_content(annotations=BEING_CREATED), 440.0, 500.0),
    ],
)
def test_what_others_may_have_begun_is_looked_for(
    content: v.VolumeSnapshotContent, stranger: float | None, since: float | None
):
    attempt = content_rules.begin(content, others_ended_at_s=stranger, now_s=500.0)

    assert attempt == Attempt(looking_since_s=since)


def an_error(reason: Reason, outcome: Outcome = Outcome.NOTHING) -> StorageError:
    return Ec2Error(reason, "EC2 said so", action="CreateSnapshot", outcome=outcome)


def test_a_lost_reply_begins_look_ups_and_a_clear_no_does_not():
    lost = an_error(Reason.REPLY_LOST, Outcome.UNKNOWN)

    assert content_rules.after_failure(NEW, lost, 7.0).looking_since_s == 7.0
    assert content_rules.after_failure(NEW, an_error(Reason.VOLUME_NOT_FOUND), 7.0) == NEW


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (an_error(Reason.VOLUME_NOT_FOUND), True),
        (an_error(Reason.PERMISSION_DENIED), True),
        (an_error(Reason.SNAPSHOT_RATE), False),
        (an_error(Reason.UNREACHABLE), False),
        (an_error(Reason.REPLY_LOST, Outcome.UNKNOWN), False),
    ],
)
def test_the_annotation_goes_only_when_ec2_has_said_no(
    error: StorageError,
    final: bool,  # noqa: FBT001 -- a parameter of the test
):
    assert content_rules.is_final(error) is final


def test_look_ups_decide_only_once_they_were_negative_for_a_minute():
    content = a_content(annotations=BEING_CREATED)

    assert content_rules.after_look_up(LOOKING, content, [], 159.9) is LOOKING
    assert content_rules.after_look_up(LOOKING, content, [], 160.0) == NEW


def test_of_several_snapshots_the_first_usable_one_of_this_volume_counts():
    failed = an_ebs_snapshot("snap-1", state=SnapshotState.ERROR, started_at=NOW)
    copy = an_ebs_snapshot("snap-2", volume_id="vol-ffffffff", started_at=NOW)
    second = an_ebs_snapshot("snap-3", started_at=NOW + timedelta(seconds=20))
    first = an_ebs_snapshot("snap-4", started_at=NOW + timedelta(seconds=3))

    after = content_rules.after_look_up(LOOKING, a_content(), [failed, copy, second, first], 100.0)

    assert after == Attempt(found=first)
    assert content_rules.after_look_up(LOOKING, a_content(), [copy], 100.0) is LOOKING


def test_our_own_word_of_a_failure_is_no_news():  # sidecar #533
    before = a_content()
    told = a_content(status=a_content_status(None, error="EC2 said no"))

    assert content_rules.is_news(None, before)
    assert not content_rules.is_news(before, told)
    assert not content_rules.is_news(told, a_content(annotations=BEING_CREATED))
    assert content_rules.is_news(before, a_content(annotations=BEING_DELETED))
    assert content_rules.is_news(before, a_content(deleting=True))
    assert content_rules.is_news(before, a_content(status=PENDING))
    assert content_rules.is_news(a_content(status=PENDING), a_content(status=READY))


def test_an_attempt_that_found_its_snapshot_looks_no_more():
    again = content_rules.after_look_up(
        replace(LOOKING, is_prepared=True), a_content(), [an_ebs_snapshot()], 100.0
    )

    assert again == Attempt(found=an_ebs_snapshot(), is_prepared=True)


def test_a_content_whose_snapshot_would_have_anybodys_name_is_refused():
    step = decide(a_content(owner=UNBOUND), LOOKING)

    assert isinstance(step, Refuse)
    assert "no UID" in step.message
    assert decide(a_content(owner=UNBOUND, deleting=True), LOOKING) == Release()
    assert decide(a_content(owner=UNBOUND, status=PENDING)) == Follow(SNAPSHOT)
