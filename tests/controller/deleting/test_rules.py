import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.deleting.rules import (
    AddFinalizer,
    Defer,
    Delete,
    RemoveFinalizers,
    confirm,
    decide,
)
from provisioner.model.decision import SETTLED
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.errors import Reason
from provisioner.model.persistent_volume import (
    MIGRATED_TO,
    PROVISIONED_BY,
    PROVISIONER_FINALIZER,
    PersistentVolume,
)
from tests.builders import ATTACHER_FINALIZER, DRIVER, VOLUME, a_persistent_volume, an_attachment

OURS = PROVISIONER_FINALIZER
PHASES = ("", "Pending", "Available", "Bound", "Released", "Failed")
MIGRATED = {PROVISIONED_BY: IN_TREE_DRIVER, MIGRATED_TO: DRIVER}


def released(**how):
    return a_persistent_volume(phase="Released", **how)


def decided(persistent_volume, attachments=(), namesakes=()):
    return decide(
        persistent_volume, driver=DRIVER, attachments=attachments, namesakes=frozenset(namesakes)
    )


@pytest.mark.parametrize(
    "persistent_volume",
    [
        pytest.param(released(), id="provisioned"),
        pytest.param(released(annotations={}), id="race 19: made by hand"),
        pytest.param(released(finalizers=()), id="never had our finalizer"),
        pytest.param(released(deleting=True), id="deleted by its user while bound"),
        pytest.param(released(annotations=MIGRATED), id="migrated, CSI form"),
        pytest.param(
            released(annotations=MIGRATED, in_tree=True, handle=f"aws://us-east-1a/{VOLUME}"),
            id="race 32: migrated, in-tree form",
        ),
    ],
)
def test_the_volume_of_a_released_object_with_policy_delete_goes(persistent_volume):
    assert decided(persistent_volume) == Delete(VOLUME)


@pytest.mark.parametrize(
    "persistent_volume",
    [
        pytest.param(released(annotations={PROVISIONED_BY: "x"}), id="of another provisioner"),
        pytest.param(released(annotations={}, driver="x"), id="made by hand for another driver"),
        pytest.param(released(annotations={}, in_tree=True), id="in-tree, made by hand"),
        pytest.param(
            released(annotations={PROVISIONED_BY: IN_TREE_DRIVER}, in_tree=True), id="not migrated"
        ),
        pytest.param(released(finalizers=(), deleting=True), id="race 18: we are done with it"),
        pytest.param(released(finalizers=(), policy="Retain"), id="kept"),
        pytest.param(a_persistent_volume(), id="bound"),
        pytest.param(a_persistent_volume(phase="Pending", finalizers=()), id="new"),
        pytest.param(a_persistent_volume(deleting=True), id="deleted while bound"),
        pytest.param(
            a_persistent_volume(deleting=True, finalizers=()), id="too late for a finalizer"
        ),
    ],
)
def test_nothing_is_done_with_one_that_is(persistent_volume):
    assert decided(persistent_volume) == SETTLED


def test_an_object_that_is_still_attached_is_left_alone_and_names_the_node():  # race 9
    answer = decided(released(), [an_attachment(node="node-7", deleting=True)])

    assert isinstance(answer, Defer)
    assert answer.message.endswith("is still attached to node node-7")
    assert answer.patience_s > 0


def test_a_volume_that_another_object_names_is_kept_and_the_event_says_which():
    answer = decided(released(), namesakes=["other-b", "other-a"])

    assert isinstance(answer, Defer)
    assert answer.reason is Reason.VOLUME_IN_USE
    assert "because PersistentVolume other-a names it too" in answer.message
    assert answer.patience_s == 0


@pytest.mark.parametrize(
    "persistent_volume",
    [
        pytest.param(released(driver="x"), id="another driver's volume"),
        pytest.param(released(handle=""), id="no handle"),
    ],
)
def test_an_object_that_names_no_volume_of_ours_says_so(persistent_volume):
    answer = decided(persistent_volume)

    assert isinstance(answer, Defer)
    assert "names no EBS volume" in answer.message


def test_a_bound_object_with_policy_delete_is_held_until_its_volume_is_deleted():
    assert decided(a_persistent_volume(finalizers=())) == AddFinalizer()


@pytest.mark.parametrize("policy", ["Retain", "Recycle"])
@pytest.mark.parametrize("phase", PHASES)
def test_an_object_whose_volume_is_kept_is_let_go(policy, phase):  # race 19
    assert decided(a_persistent_volume(policy=policy, phase=phase)) == RemoveFinalizers((OURS,))


def test_both_finalizers_of_ours_are_removed_at_once():  # race 16
    kept = a_persistent_volume(
        policy="Retain", deleting=True, finalizers=[OURS, "x", ATTACHER_FINALIZER]
    )

    assert decided(kept) == RemoveFinalizers((OURS, ATTACHER_FINALIZER))


@pytest.mark.parametrize("annotations", [{}, {PROVISIONED_BY: "somebody"}])
def test_the_attachers_hold_ends_with_the_last_attachment(annotations):
    going = a_persistent_volume(
        annotations=annotations, deleting=True, finalizers=[ATTACHER_FINALIZER]
    )

    assert decided(going) == RemoveFinalizers((ATTACHER_FINALIZER,))
    assert decided(going, [an_attachment()]) == SETTLED


def test_the_attachers_hold_stays_on_an_object_that_nobody_deletes():
    assert decided(a_persistent_volume(finalizers=[OURS, ATTACHER_FINALIZER])) == SETTLED


@pytest.mark.parametrize("phase", ["Available", "Failed"])
def test_an_object_that_no_claim_ever_released_is_kept_with_advice(phase):
    answer = decided(a_persistent_volume(phase=phase, deleting=True))

    assert isinstance(answer, Defer)
    assert f"is {phase}" in answer.message
    assert "Retain" in answer.message


def test_a_deletion_is_confirmed_by_the_live_object():
    assert confirmed(released(), released()) == Delete(VOLUME)


@pytest.mark.parametrize(
    ("live", "answer"),
    [
        pytest.param(None, SETTLED, id="race 17: gone"),
        pytest.param(released(uid="another"), SETTLED, id="race 8: made anew under its name"),
        pytest.param(
            released(policy="Retain"), RemoveFinalizers((OURS,)), id="race 19: kept since"
        ),
        pytest.param(a_persistent_volume(), SETTLED, id="race 29: bound again"),
        pytest.param(released(finalizers=(), deleting=True), SETTLED, id="race 18: done meanwhile"),
    ],
)
def test_a_deletion_is_not_confirmed_when_the_live_object_is(live, answer):
    assert confirmed(released(), live) == answer


def test_live_attachments_and_namesakes_have_the_last_word():  # race 9, race 29
    assert isinstance(confirmed(released(), released(), [an_attachment()]), Defer)
    assert isinstance(confirmed(released(), released(), namesakes=["other"]), Defer)


persistent_volumes = st.builds(
    a_persistent_volume,
    uid=st.sampled_from(["1", "2"]),
    phase=st.sampled_from(PHASES),
    policy=st.sampled_from(["Delete", "Retain", "Recycle", ""]),
    handle=st.sampled_from([VOLUME, f"aws://us-east-1a/{VOLUME}", "", "odd"]),
    driver=st.sampled_from([DRIVER, "x"]),
    in_tree=st.booleans(),
    annotations=st.fixed_dictionaries(
        {},
        optional={
            PROVISIONED_BY: st.sampled_from([DRIVER, IN_TREE_DRIVER, "x", ""]),
            MIGRATED_TO: st.sampled_from([DRIVER, "x"]),
        },
    ),
    finalizers=st.lists(st.sampled_from([OURS, ATTACHER_FINALIZER, "x"]), unique=True),
    deleting=st.booleans(),
    claim_uid=st.sampled_from([None, "c"]),
)
attachments = st.lists(st.builds(an_attachment), max_size=2)
namesakes = st.sets(st.sampled_from(["other-a", "other-b"]))


@given(persistent_volumes, attachments, namesakes)
def test_nothing_is_deleted_that_anybody_may_still_want(persistent_volume, on, named):
    answer = decided(persistent_volume, on, named)

    match answer:
        case Delete(volume_id=volume_id):
            assert volume_id in (VOLUME, "odd")
            assert persistent_volume.phase == "Released"
            assert persistent_volume.reclaim_policy == "Delete"
            assert persistent_volume.is_deleted_by(DRIVER)
            assert not on
            assert not named
            assert not persistent_volume.deleting or OURS in persistent_volume.finalizers
        case RemoveFinalizers(finalizers=finalizers):
            assert finalizers
            assert set(finalizers) <= set(persistent_volume.finalizers) & {OURS, ATTACHER_FINALIZER}
            assert not (on and ATTACHER_FINALIZER in finalizers)
            assert OURS not in finalizers or persistent_volume.reclaim_policy != "Delete"
        case AddFinalizer():  # race 16: the API server takes no new one on an object that goes
            assert not persistent_volume.deleting
            assert OURS not in persistent_volume.finalizers
            assert persistent_volume.reclaim_policy == "Delete"
        case Defer(message=message):
            assert persistent_volume.name in message


@given(persistent_volumes, st.none() | persistent_volumes, attachments, namesakes)
def test_only_the_very_object_that_was_proposed_can_confirm(proposed, live, on, named):
    answer = confirmed(proposed, live, on, named)

    if live is None or live.uid != proposed.uid:
        assert answer == SETTLED
    else:
        assert answer == decided(live, on, named)


def confirmed(
    proposed: PersistentVolume, live: PersistentVolume | None, attachments=(), namesakes=()
):
    return confirm(
        proposed, live, driver=DRIVER, attachments=attachments, namesakes=frozenset(namesakes)
    )
