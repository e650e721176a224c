import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.attaching.detach_rules import (
    BUSY_S,
    GONE_S,
    STALLED_S,
    Release,
    is_kept,
    is_still_wanted,
    next_detach_step,
    target_to_detach,
)
from provisioner.controller.attaching.rules import (
    SEND_AGAIN_S,
    Call,
    Detach,
    Kind,
    Target,
    View,
    Wait,
)
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import SETTLED
from provisioner.model.names import VOLUME_ID
from provisioner.model.volume import AttachmentState as State
from tests.builders import (
    DRIVER,
    INSTANCE,
    OTHER_INSTANCE,
    VOLUME,
    a_csi_node,
    a_persistent_volume,
    a_volume,
    an_attachment,
)

TARGET = Target(VOLUME, INSTANCE)
SENT_AT_S = 1000.0
GOING = an_attachment(deleting=True, attached=True)
NEVER_ATTACHED = an_attachment(deleting=True)


def target(attachment, *, persistent_volume=None, csi_node=None):
    return target_to_detach(
        attachment, driver=DRIVER, persistent_volume=persistent_volume, csi_node=csi_node
    )


def step(view, *, waited_s=0.0, attachment=GOING, under_way_until_s=0.0, look_first=False):
    return next_detach_step(
        attachment,
        TARGET,
        driver=DRIVER,
        view=view,
        now_s=SENT_AT_S + waited_s,
        look_first=look_first,
        attach_may_be_under_way_until_s=under_way_until_s,
    )


def asked(kind=Kind.DETACH, *, of=TARGET, uncertain=False, refused=False):
    return Call(kind, of, SENT_AT_S, uncertain=uncertain, refused=refused)


def test_what_was_recorded_at_attach_wins_over_what_is_there_now():  # race 11
    recorded = an_attachment(annotations={NODE_ID: "i-then", VOLUME_ID: "vol-then"})

    found = target(recorded, persistent_volume=a_persistent_volume(), csi_node=a_csi_node())

    assert found == ("vol-then", "i-then")


def test_the_record_alone_is_enough():  # race 10
    assert target(an_attachment()) == (VOLUME, INSTANCE)


@pytest.mark.parametrize(
    ("annotations", "persistent_volume", "csi_node", "found"),
    [
        pytest.param(
            {NODE_ID: "i-then"},
            a_persistent_volume(),
            None,
            (VOLUME, "i-then"),
            id="attached by the stock driver",
        ),
        pytest.param(
            {}, a_persistent_volume(), a_csi_node(), (VOLUME, INSTANCE), id="nothing recorded"
        ),
        pytest.param(
            {},
            a_persistent_volume(),
            a_csi_node(driver=None),
            (VOLUME, None),
            id="driver gone from the node",
        ),
        pytest.param({}, a_persistent_volume(), None, (VOLUME, None), id="node gone"),
        pytest.param(
            {},
            a_persistent_volume(driver="x"),
            a_csi_node(),
            (None, INSTANCE),
            id="no volume of ours",
        ),
        pytest.param(
            {}, None, a_csi_node(), (None, INSTANCE), id="race 10: object removed by force"
        ),
    ],
)
def test_what_was_not_recorded_is_looked_up(annotations, persistent_volume, csi_node, found):
    attachment = an_attachment(annotations=annotations)

    assert target(attachment, persistent_volume=persistent_volume, csi_node=csi_node) == found


def test_an_attachment_without_our_finalizer_is_detached_already():
    assert step(View(), attachment=an_attachment(finalizers=["x"], deleting=True)) == SETTLED


@pytest.mark.parametrize("attachment", [GOING, NEVER_ATTACHED])
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(None, id="nothing was asked"),
        pytest.param(asked(Kind.ATTACH), id="race 30: a waiting attach is interrupted"),
        pytest.param(asked(Kind.ATTACH, uncertain=True), id="a lost attach"),
        pytest.param(asked(of=Target(VOLUME, OTHER_INSTANCE)), id="a detach from another instance"),
    ],
)
def test_a_deleted_attachment_is_detached_whatever_its_status_says(call, attachment):  # race 13
    assert step(View(call=call), attachment=attachment) == Detach(TARGET)


def test_nothing_is_let_go_before_ec2_was_seen_to_agree():  # race 13
    assert step(View(call=asked()), waited_s=500) == Wait(VOLUME)


def test_a_volume_that_is_off_its_instance_is_let_go():
    seen = a_volume(on={OTHER_INSTANCE: State.ATTACHED, INSTANCE: State.DETACHED})

    assert step(View(call=asked(), seen=seen)) == Release(VOLUME)


def test_a_volume_that_ec2_does_not_know_any_more_is_let_go():  # race 13
    assert step(View(call=asked(), missing_for_s=GONE_S - 1)) == Wait(VOLUME)
    assert step(View(call=asked(), missing_for_s=GONE_S)) == Release(VOLUME)


def test_a_detach_that_is_refused_because_it_is_over_is_let_go():
    assert step(View(call=asked(refused=True))) == Release(VOLUME)


@pytest.mark.parametrize("refused", [False, True])
def test_after_a_lost_reply_it_is_let_go_only_when_nothing_can_come_late(refused):  # race 13
    view = View(call=asked(uncertain=True, refused=refused), seen=a_volume())

    assert step(view, attachment=NEVER_ATTACHED, waited_s=CONSISTENCY_S - 1) == Wait(VOLUME)
    assert step(view, attachment=NEVER_ATTACHED, waited_s=CONSISTENCY_S) == Release(VOLUME)


def test_a_lost_reply_to_the_detach_of_what_was_attached_costs_no_time():  # race 13
    view = View(call=asked(uncertain=True), seen=a_volume())

    assert step(view, attachment=GOING, waited_s=1) == Release(VOLUME)


def test_an_attach_of_the_process_before_us_may_still_come():  # race 13
    view = View(call=asked(refused=True))
    until_s = SENT_AT_S + 20

    assert step(view, attachment=NEVER_ATTACHED, waited_s=19, under_way_until_s=until_s) == Wait(
        VOLUME
    )
    assert step(view, attachment=NEVER_ATTACHED, waited_s=20, under_way_until_s=until_s) == Release(
        VOLUME
    )
    assert step(view, attachment=GOING, waited_s=19, under_way_until_s=until_s) == Release(VOLUME)


@pytest.mark.parametrize("state", [State.ATTACHED, State.ATTACHING])
@pytest.mark.parametrize(
    ("call", "again_s"),
    [
        pytest.param(asked(uncertain=True), SEND_AGAIN_S, id="its reply was lost"),
        pytest.param(asked(refused=True), SEND_AGAIN_S, id="it came before the attach"),
        pytest.param(asked(), STALLED_S, id="EC2 took it and did nothing"),
    ],
)
def test_a_detach_without_effect_is_sent_again(call, again_s, state):
    view = View(call=call, seen=a_volume(on={INSTANCE: state}))

    assert isinstance(step(view, waited_s=again_s - 1), Wait)
    assert step(view, waited_s=again_s) == Detach(TARGET)


@pytest.mark.parametrize("state", [State.DETACHING, State.BUSY, State.ATTACHED])
def test_a_detach_that_takes_long_is_told_with_what_would_help(state):  # race 13
    view = View(call=asked(), seen=a_volume(on={INSTANCE: state}))

    assert step(view, waited_s=BUSY_S - 1) == Wait(VOLUME)
    answer = step(view, waited_s=BUSY_S)
    assert isinstance(answer, Wait)
    assert f"detaching from instance {INSTANCE} for over 60 s" in answer.message


@pytest.mark.parametrize("state", [State.DETACHING, State.BUSY])
@pytest.mark.parametrize("call", [asked(), asked(uncertain=True), asked(refused=True)])
def test_a_detach_under_way_is_never_sent_again(call, state):
    view = View(call=call, seen=a_volume(on={INSTANCE: state}))

    assert isinstance(step(view, waited_s=10 * STALLED_S), Wait)


GONE = a_volume().on(INSTANCE)
ATTACHED = a_volume(on={INSTANCE: State.ATTACHED}).on(INSTANCE)
ATTACHING = a_volume(on={INSTANCE: State.ATTACHING}).on(INSTANCE)
STUCK = an_attachment()
ANOTHER = an_attachment(uid="another")


@pytest.mark.parametrize(
    ("asked_for", "now", "there", "wanted"),
    [
        pytest.param(GOING, GOING, ATTACHED, True, id="nothing has changed"),
        pytest.param(GOING, None, ATTACHED, True, id="removed by force"),
        pytest.param(GOING, ANOTHER, ATTACHED, False, id="race 12: made anew"),
        pytest.param(STUCK, STUCK, ATTACHING, True, id="still stuck"),
        pytest.param(STUCK, STUCK, GONE, True, id="stuck and not seen"),
        pytest.param(STUCK, STUCK, ATTACHED, False, id="it was stuck, and has come true"),
        pytest.param(STUCK, NEVER_ATTACHED, ATTACHED, True, id="come true, and to be deleted now"),
        pytest.param(STUCK, None, ATTACHED, True, id="come true, and removed by force"),
    ],
)
def test_a_detach_that_has_waited_for_its_turn_is_judged_anew(asked_for, now, there, wanted):
    assert is_still_wanted(asked_for, now, there) is wanted


views = st.builds(
    View,
    call=st.none()
    | st.builds(
        Call,
        st.sampled_from(list(Kind)),
        st.sampled_from([TARGET, Target(VOLUME, OTHER_INSTANCE)]),
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
    ),
    missing_for_s=st.none() | st.floats(0, 200),
)


@given(
    st.builds(
        an_attachment,
        prepared=st.booleans(),
        attached=st.booleans(),
        deleting=st.sampled_from([True]),
    ),
    views,
    st.floats(0, 300),
    st.floats(900, 1300),
)
def test_an_attachment_is_let_go_only_when_the_volume_is_off(attachment, view, waited_s, until_s):
    answer = step(view, attachment=attachment, waited_s=waited_s, under_way_until_s=until_s)

    if isinstance(answer, Release):
        assert view.call is not None
        assert view.call.kind is Kind.DETACH
        assert view.call.target == TARGET
        gone = view.missing_for_s is not None and view.missing_for_s >= GONE_S
        off = view.seen is not None and view.seen.on(INSTANCE) is None
        assert gone or off or (view.call.refused and view.seen is None)


@pytest.mark.parametrize("state", [State.DETACHING, State.BUSY])
def test_after_a_take_over_a_detach_that_is_under_way_is_not_sent_again(state):
    assert step(View(), look_first=True) == Wait(VOLUME)
    assert step(View(seen=a_volume(on={INSTANCE: state})), look_first=True) == Wait(VOLUME)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(View(seen=a_volume(on={INSTANCE: State.ATTACHED})), id="it is attached"),
        pytest.param(View(seen=a_volume()), id="it looks detached: EC2 is asked to be sure"),
        pytest.param(View(missing_for_s=1), id="it looks gone"),
    ],
)
def test_after_a_take_over_ec2_is_asked_where_a_look_does_not_settle_it(view):
    assert step(view, look_first=True) == Detach(TARGET)


@pytest.mark.parametrize("handle", ["foo", "local-ebs://dev/xvdbz", "vol-data", "snap-1", "vol-"])
@pytest.mark.parametrize("look_first", [True, False])
def test_what_is_no_volume_is_let_go_without_a_word_to_ec2(handle: str, *, look_first: bool):
    odd = next_detach_step(
        GOING,
        Target(handle, INSTANCE),
        driver=DRIVER,
        view=View(),
        now_s=0.0,
        look_first=look_first,
        attach_may_be_under_way_until_s=60.0,
    )

    assert odd == Release(handle)


HYPERPOD = Target(VOLUME, "hyperpod-ab12-i-0123456789abcdef0")


@pytest.mark.parametrize(
    ("view", "let_go"),
    [
        (View(), False),
        (View(missing_for_s=GONE_S - 1), False),
        (View(missing_for_s=GONE_S), True),
        (View(seen=a_volume()), True),
        (View(seen=a_volume(on={INSTANCE: State.ATTACHED})), True),
        (View(seen=a_volume(on={"": State.DETACHED})), True),
        (View(seen=a_volume(on={"": State.ATTACHED})), False),
        (View(seen=a_volume(on={"": State.DETACHING})), False),
    ],
)
def test_off_a_node_that_is_no_instance_a_volume_is_let_go_once_ec2_shows_it_free(
    view: View, *, let_go: bool
):
    """The stock driver attaches to HyperPod nodes by another service's call."""
    found = next_detach_step(
        GOING,
        HYPERPOD,
        driver=DRIVER,
        view=view,
        now_s=0.0,
        look_first=False,
        attach_may_be_under_way_until_s=0.0,
    )

    assert found == Release(VOLUME) if let_go else isinstance(found, Wait)


def test_who_waits_for_such_a_node_hears_what_would_help():
    found = next_detach_step(
        GOING,
        HYPERPOD,
        driver=DRIVER,
        view=View(seen=a_volume(on={"": State.ATTACHED})),
        now_s=0.0,
        look_first=False,
        attach_may_be_under_way_until_s=0.0,
    )

    assert isinstance(found, Wait)
    assert "only the service that manages it (SageMaker HyperPod) can detach it" in found.message


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        (an_attachment(uid="other", attached=True), True),
        (an_attachment(uid="other", attached=True, annotations={NODE_ID: INSTANCE}), True),
        (an_attachment(uid="other"), False),  # no pod can use it, and it attaches the disk again
        (an_attachment(uid="other", attached=True, deleting=True), False),
        (
            an_attachment(uid="other", attached=True, annotations={NODE_ID: OTHER_INSTANCE}),
            False,
        ),
        (an_attachment(attached=True), False),  # an older look at the very one
    ],
    ids=["ours", "of another attacher", "not attached yet", "going too", "elsewhere", "itself"],
)
def test_a_disk_stays_for_another_attachment_that_is_reported_on_the_same_instance(
    other: Attachment, *, kept: bool
):
    assert is_kept(GOING, TARGET, [other]) is kept
    assert not is_kept(GOING, TARGET, [])
