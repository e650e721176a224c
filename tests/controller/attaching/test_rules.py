from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.attaching.rules import (
    SEND_AGAIN_S,
    STUCK_S,
    Attach,
    Attached,
    Call,
    Detach,
    Kind,
    Prepare,
    Target,
    Untag,
    View,
    Wait,
    is_new,
    next_attach_step,
    taken_before,
    target_to_attach,
)
from provisioner.model.attachment import NODE_ID
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.names import UNCLAIMED, VOLUME_ID
from provisioner.model.persistent_volume import CsiSource, InTreeSource, PersistentVolumeSpec
from provisioner.model.volume import AttachmentState as State
from tests.builders import (
    ATTACHER_FINALIZER,
    DRIVER,
    INSTANCE,
    OTHER_INSTANCE,
    UID,
    VOLUME,
    a_csi_node,
    a_node,
    a_persistent_volume,
    a_volume,
    an_attachment,
)

TARGET = Target(VOLUME, INSTANCE)
HELD = a_persistent_volume(finalizers=[ATTACHER_FINALIZER])
SENT_AT_S = 1000.0


def target(attachment=None, *, persistent_volume=HELD, node=a_node(), csi_node=a_csi_node()):  # noqa: B008 -- frozen
    return target_to_attach(
        attachment or an_attachment(),
        driver=DRIVER,
        persistent_volume=persistent_volume,
        node=node,
        csi_node=csi_node,
    )


def step(view=View(), *, waited_s=0.0, attachment=None, persistent_volume=HELD, goal=TARGET):  # noqa: B008 -- frozen
    return next_attach_step(
        attachment or an_attachment(),
        goal,
        persistent_volume,
        driver=DRIVER,
        view=view,
        now_s=SENT_AT_S + waited_s,
    )


def asked(kind=Kind.ATTACH, *, of=TARGET, uncertain=False, refused=False):
    return Call(kind, of, SENT_AT_S, uncertain=uncertain, refused=refused)


def test_the_instance_is_the_one_that_is_registered_now():  # race 11
    recorded_before = an_attachment(annotations={NODE_ID: OTHER_INSTANCE, VOLUME_ID: VOLUME})

    assert target(recorded_before) == TARGET


@pytest.mark.parametrize(
    ("attachment", "persistent_volume"),
    [
        pytest.param(an_attachment(), a_persistent_volume(), id="CSI"),
        pytest.param(
            an_attachment(),
            a_persistent_volume(in_tree=True, handle=f"aws://us-east-1a/{VOLUME}"),
            id="race 32: in-tree form",
        ),
        pytest.param(
            an_attachment(
                persistent_volume=None,
                inline=PersistentVolumeSpec(aws_elastic_block_store=InTreeSource(volume_id=VOLUME)),
            ),
            None,
            id="inline in the pod",
        ),
    ],
)
def test_the_volume_is_found_in_every_form(attachment, persistent_volume):
    assert target(attachment, persistent_volume=persistent_volume) == TARGET


@pytest.mark.parametrize(
    ("how", "reason", "sentence"),
    [
        pytest.param(
            {"persistent_volume": None},
            Reason.OBJECT_NOT_FOUND,
            f'PersistentVolume "pvc-{UID}" not found',
            id="no object",
        ),
        pytest.param(
            {"persistent_volume": a_persistent_volume(deleting=True)},
            Reason.INVALID_REQUEST,
            "is marked for deletion",
            id="race 15: object goes",
        ),
        pytest.param(
            {"persistent_volume": a_persistent_volume(driver="x")},
            Reason.INVALID_REQUEST,
            "does not belong to driver",
            id="foreign",
        ),
        pytest.param(
            {"attachment": an_attachment(persistent_volume=None), "persistent_volume": None},
            Reason.INVALID_REQUEST,
            "does not belong to driver",
            id="no source",
        ),
        pytest.param(
            {
                "attachment": an_attachment(
                    persistent_volume=None, inline=PersistentVolumeSpec(csi=CsiSource(driver="x"))
                ),
                "persistent_volume": None,
            },
            Reason.INVALID_REQUEST,
            "does not belong to driver",
            id="foreign inline",
        ),
        pytest.param(
            {"node": None}, Reason.OBJECT_NOT_FOUND, 'node "node-1" has no Node', id="no node"
        ),
        pytest.param(
            {"csi_node": None}, Reason.OBJECT_NOT_FOUND, "CSINode object", id="no CSINode"
        ),
        pytest.param(
            {"node": a_node(deleting=True)},
            Reason.INVALID_REQUEST,
            'node "node-1" is marked for deletion',
            id="race 15: node goes",
        ),
        pytest.param(
            {"csi_node": a_csi_node(driver=None)},
            Reason.INVALID_REQUEST,
            f"CSINode node-1 does not contain driver {DRIVER}",
            id="no driver",
        ),
        pytest.param(
            {"persistent_volume": a_persistent_volume(handle="vol-o123")},
            Reason.INVALID_REQUEST,
            f"PersistentVolume \"pvc-{UID}\" names 'vol-o123', which is not an EBS volume",
            id="no id",
        ),
        pytest.param(
            {"persistent_volume": a_persistent_volume(handle="local-ebs://dev/xvdbz")},
            Reason.INVALID_REQUEST,
            "names 'local-ebs://dev/xvdbz', which is not an EBS volume",
            id="a node-local volume",
        ),
        pytest.param(
            {
                "attachment": an_attachment(
                    persistent_volume=None,
                    inline=PersistentVolumeSpec(csi=CsiSource(driver=DRIVER, volume_handle="foo")),
                ),
                "persistent_volume": None,
            },
            Reason.INVALID_REQUEST,
            "the pod's volume names 'foo', which is not an EBS volume",
            id="no id inline",
        ),
        pytest.param(
            {"csi_node": a_csi_node(instance="hyperpod-ab12-i-0123456789abcdef0")},
            Reason.NOT_SUPPORTED,
            "node node-1 is registered as 'hyperpod-ab12-i-0123456789abcdef0', which is not an EC2",
            id="a HyperPod node",
        ),
    ],
)
def test_an_attachment_that_cannot_be_is_refused_before_anything_is_held(how, reason, sentence):
    answer = target(**how)

    assert isinstance(answer, Refuse)
    assert answer.reason is reason
    assert sentence in answer.message


@pytest.mark.parametrize(
    ("attachment", "persistent_volume", "hold"),
    [
        pytest.param(
            an_attachment(prepared=False), a_persistent_volume(name="pv"), "pv", id="neither"
        ),
        pytest.param(
            an_attachment(), a_persistent_volume(name="pv"), "pv", id="only the attachment"
        ),
        pytest.param(an_attachment(prepared=False), HELD, "", id="only the persistent volume"),
        pytest.param(an_attachment(finalizers=[]), HELD, "", id="recorded, not held"),
        pytest.param(
            an_attachment(annotations={NODE_ID: INSTANCE}),
            HELD,
            "",
            id="race 10: the volume not recorded",
        ),
        pytest.param(
            an_attachment(annotations={NODE_ID: OTHER_INSTANCE, VOLUME_ID: VOLUME}),
            HELD,
            "",
            id="race 11: another instance recorded",
        ),
        pytest.param(an_attachment(prepared=False), None, "", id="inline"),
    ],
)
def test_objects_are_held_and_the_target_recorded_before_ec2_is_called(
    attachment, persistent_volume, hold
):
    assert step(attachment=attachment, persistent_volume=persistent_volume) == Prepare(TARGET, hold)


def test_an_inline_volume_has_no_object_to_hold():
    assert step(persistent_volume=None) == Attach(TARGET)


def test_a_tagged_volume_is_never_attached():
    assert step(View(unclaimed=True)) == Untag(VOLUME)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(None, id="nothing was asked"),
        pytest.param(asked(of=Target(VOLUME, OTHER_INSTANCE)), id="race 11: of another instance"),
        pytest.param(
            asked(Kind.DETACH, of=Target(VOLUME, OTHER_INSTANCE)), id="taken back elsewhere"
        ),
    ],
)
def test_a_prepared_attachment_is_attached(call):
    assert step(View(call=call)) == Attach(TARGET)


def test_the_device_that_ec2_shows_is_reported():  # race 14
    seen = a_volume(on={OTHER_INSTANCE: State.DETACHED, INSTANCE: State.ATTACHED})

    assert step(View(call=asked(), seen=seen)) == Attached(TARGET, "/dev/xvdab", "blank")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({}, "blank"),
        ({"snapshot_id": "snap-1"}, "snap-1"),
        ({"source_volume_id": "vol-1"}, "vol-1"),
        # A copy of a restored volume may name both: either has data.
        ({"snapshot_id": "snap-1", "source_volume_id": "vol-1"}, "snap-1"),
    ],
)
def test_what_the_volume_was_made_from_goes_with_the_device(made, said):
    seen = replace(a_volume(on={INSTANCE: State.ATTACHED}), **made)

    assert step(View(call=asked(), seen=seen)) == Attached(TARGET, "/dev/xvdaa", said)


def test_that_other_instances_may_have_the_volume_too_goes_with_the_device():
    seen = replace(a_volume(on={INSTANCE: State.ATTACHED}), multi_attach=True)

    assert step(View(call=asked(), seen=seen)) == Attached(
        TARGET, "/dev/xvdaa", "blank", multi_attach=True
    )


def test_an_attached_volume_that_shows_the_tag_is_not_reported_yet():
    seen = a_volume(on={INSTANCE: State.ATTACHED}, tags={UNCLAIMED: "Delete"})

    assert step(View(call=asked(), seen=seen)) == Untag(VOLUME)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("missing_for_s", [None, 0.0, CONSISTENCY_S - 1])
def test_a_volume_that_is_not_seen_is_waited_for(kind, missing_for_s):
    assert step(View(call=asked(kind), missing_for_s=missing_for_s), waited_s=500) == Wait(VOLUME)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_volume_that_ec2_does_not_know_for_long_is_told(kind):
    answer = step(View(call=asked(kind), missing_for_s=CONSISTENCY_S))

    assert answer == Refuse(Reason.VOLUME_NOT_FOUND, f"EC2 has no volume {VOLUME}")


@pytest.mark.parametrize("uncertain", [False, True])
def test_an_attach_that_does_not_show_is_sent_again_after_a_while(uncertain):
    view = View(call=asked(uncertain=uncertain), seen=a_volume())

    assert step(view, waited_s=SEND_AGAIN_S - 1) == Wait(VOLUME)
    assert step(view, waited_s=SEND_AGAIN_S) == Attach(TARGET)


@pytest.mark.parametrize(
    ("taken", "again_s"), [(1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (1000, 300)]
)
def test_an_attach_that_ec2_takes_and_drops_is_told_and_sent_less_and_less(taken, again_s):
    view = View(call=Call(Kind.ATTACH, TARGET, SENT_AT_S, taken=taken), seen=a_volume())

    assert step(view, waited_s=SEND_AGAIN_S - 1) == Wait(VOLUME)
    late = step(view, waited_s=again_s - 1)
    assert isinstance(late, Wait)
    assert ("drops it each time" in late.message) is (taken > 1)
    assert step(view, waited_s=again_s) == Attach(TARGET)


@pytest.mark.parametrize(
    ("last", "taken"),
    [
        (None, 0),
        (Call(Kind.ATTACH, TARGET, SENT_AT_S, taken=3), 3),
        (Call(Kind.ATTACH, Target(VOLUME, OTHER_INSTANCE), SENT_AT_S, taken=3), 0),
        (Call(Kind.DETACH, TARGET, SENT_AT_S, taken=3), 0),
    ],
)
def test_only_attaches_to_the_same_instance_count_as_dropped(last, taken):
    assert taken_before(last, TARGET) == taken


def test_a_volume_attached_by_hand_elsewhere_is_told_with_the_instance():  # race 15
    seen = a_volume(on={"i-leaving": State.DETACHING, OTHER_INSTANCE: State.ATTACHED})

    answer = step(View(call=asked(uncertain=True), seen=seen))

    assert isinstance(answer, Refuse)
    assert answer.reason is Reason.VOLUME_IN_USE
    assert f"attached to instance {OTHER_INSTANCE}" in answer.message


def test_a_volume_that_leaves_another_instance_is_waited_for():
    view = View(call=asked(uncertain=True), seen=a_volume(on={OTHER_INSTANCE: State.DETACHING}))

    assert step(view, waited_s=SEND_AGAIN_S - 1) == Wait(VOLUME)
    assert step(view, waited_s=SEND_AGAIN_S) == Attach(TARGET)


def test_an_accepted_attach_is_asked_again_before_another_instance_is_blamed():
    view = View(call=asked(), seen=a_volume(on={OTHER_INSTANCE: State.ATTACHED}))

    assert step(view) == Wait(VOLUME)
    assert step(view, waited_s=SEND_AGAIN_S) == Attach(TARGET)


def test_an_attach_that_got_stuck_is_taken_back():
    view = View(call=asked(), seen=a_volume(on={INSTANCE: State.ATTACHING}))

    assert step(view, waited_s=STUCK_S - 1) == Wait(VOLUME)
    assert step(view, waited_s=STUCK_S) == Detach(TARGET)


@pytest.mark.parametrize("state", [State.DETACHING, State.BUSY])
@pytest.mark.parametrize("kind", list(Kind))
def test_a_volume_that_leaves_this_instance_is_waited_for(kind, state):
    view = View(call=asked(kind), seen=a_volume(on={INSTANCE: state}))

    assert step(view, waited_s=10 * STUCK_S) == Wait(VOLUME)


def test_an_attach_that_was_taken_back_is_sent_again_once_it_is_gone():
    assert step(View(call=asked(Kind.DETACH), seen=a_volume())) == Attach(TARGET)


@pytest.mark.parametrize("state", [State.ATTACHING, State.ATTACHED])
@pytest.mark.parametrize(
    ("call", "again_s"),
    [
        pytest.param(asked(Kind.DETACH), STUCK_S, id="EC2 took it"),
        pytest.param(asked(Kind.DETACH, uncertain=True), SEND_AGAIN_S, id="its reply was lost"),
        pytest.param(asked(Kind.DETACH, refused=True), SEND_AGAIN_S, id="it came too early"),
    ],
)
def test_taking_back_goes_on_until_ec2_shows_it(call, again_s, state):  # race 13
    view = View(call=call, seen=a_volume(on={INSTANCE: state}))

    assert step(view, waited_s=again_s - 1) == Wait(VOLUME)
    assert step(view, waited_s=again_s) == Detach(TARGET)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(
            an_attachment(version="1", error="x"), id="race 22: the same version, a resync"
        ),
        pytest.param(an_attachment(version="2", uid="2"), id="race 12: made anew under its name"),
        pytest.param(an_attachment(version="2", deleting=True), id="to be deleted"),
        pytest.param(an_attachment(version="2", finalizers=[]), id="let go by somebody"),
        pytest.param(an_attachment(version="2", annotations={}), id="record removed"),
        pytest.param(an_attachment(version="2", attached=True), id="attached"),
        pytest.param(an_attachment(version="2", node="other"), id="another node"),
    ],
)
def test_an_update_that_matters_calls_for_a_look(new):
    assert is_new(an_attachment(version="1"), new)


def test_an_unknown_attachment_calls_for_a_look():
    assert is_new(None, an_attachment())


def test_the_echo_of_our_own_message_does_not():  # race 22
    assert not is_new(an_attachment(version="1"), an_attachment(version="2", error="full"))


views = st.builds(
    View,
    call=st.none()
    | st.builds(
        Call,
        st.sampled_from(list(Kind)),
        st.sampled_from([TARGET, Target(VOLUME, OTHER_INSTANCE), Target("vol-1", INSTANCE)]),
        st.floats(900, 1000),
        uncertain=st.booleans(),
        refused=st.booleans(),
    ),
    seen=st.none()
    | st.builds(
        a_volume,
        on=st.dictionaries(
            st.sampled_from([INSTANCE, OTHER_INSTANCE]), st.sampled_from(list(State))
        ),
        tags=st.sampled_from([{}, {UNCLAIMED: "Delete"}]),
    ),
    missing_for_s=st.none() | st.floats(0, 200),
    unclaimed=st.booleans(),
)
objects = st.none() | st.builds(
    a_persistent_volume,
    driver=st.sampled_from([DRIVER, "x"]),
    in_tree=st.booleans(),
    deleting=st.booleans(),
    finalizers=st.sampled_from([[], [ATTACHER_FINALIZER]]),
)
wishes = st.builds(
    an_attachment,
    persistent_volume=st.sampled_from([None, "pv"]),
    prepared=st.booleans(),
    attached=st.booleans(),
    deleting=st.booleans(),
)


@given(
    wish=wishes,
    persistent_volume=objects,
    node=st.none() | st.builds(a_node, deleting=st.booleans()),
    csi_node=st.none() | st.builds(a_csi_node, driver=st.sampled_from([None, DRIVER])),
    view=views,
    waited_s=st.floats(0, 300),
)
def test_every_attachment_has_a_next_step(
    *, wish, persistent_volume, node, csi_node, view, waited_s
):
    goal = target(wish, persistent_volume=persistent_volume, node=node, csi_node=csi_node)
    if isinstance(goal, Refuse):
        assert goal.message
        return

    answer = step(
        view,
        waited_s=waited_s,
        attachment=wish,
        persistent_volume=persistent_volume,
        goal=goal,
    )

    held = persistent_volume is None or ATTACHER_FINALIZER in persistent_volume.finalizers
    prepared = ATTACHER_FINALIZER in wish.finalizers and held
    assert isinstance(answer, Prepare) != prepared
    if isinstance(answer, Attach):
        assert not view.unclaimed
    if isinstance(answer, Attached):
        assert view.seen is not None
        on = view.seen.on(INSTANCE)
        assert on is not None
        assert on.state is State.ATTACHED
        assert UNCLAIMED not in view.seen.tags
