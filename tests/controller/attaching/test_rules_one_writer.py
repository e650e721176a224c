"""No two nodes may write to one file system: what becomes of an attachment's next step."""

from collections.abc import Sequence

import pytest

from provisioner.controller.attaching.rules import (
    Attach,
    Attached,
    AttachStep,
    Call,
    Detach,
    Kind,
    Prepare,
    Rival,
    Target,
    Untag,
    View,
    Wait,
    next_attach_step,
    with_one_writer,
)
from provisioner.model.attachment import BLANK
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.volume import AttachmentState as State
from provisioner.model.volume import Volume
from tests.builders import (
    ATTACHER_FINALIZER,
    DRIVER,
    INSTANCE,
    OTHER_INSTANCE,
    VOLUME,
    a_persistent_volume,
    a_volume,
    an_attachment,
)

HERE = Target(VOLUME, INSTANCE)
ATTACH = Attach(HERE)
ATTACHED = Attached(HERE, "/dev/xvdaa", BLANK, multi_attach=True)
ALONE: list[Rival] = []
RIVALS = [Rival(OTHER_INSTANCE, is_going=True)]
WAITING = Rival(OTHER_INSTANCE)
YOUNGER = Rival(OTHER_INSTANCE, is_going=True, is_younger=True)


def instead(
    step: AttachStep, seen: Volume | None = None, rivals: Sequence[Rival] = ALONE
) -> object:
    return with_one_writer(step, HERE, view=View(seen=seen), rivals=rivals)


def on_other(state: State, *, multi_attach: bool = True, here: bool = False) -> Volume:
    on = {OTHER_INSTANCE: state} | ({INSTANCE: State.ATTACHED} if here else {})
    return a_volume(on=on, multi_attach=multi_attach)


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
@pytest.mark.parametrize("state", [State.ATTACHED, State.ATTACHING, State.BUSY])
def test_what_another_instance_has_is_refused_with_who_has_it_and_what_helps(step, state):
    answer = instead(step, on_other(state, here=step is ATTACHED))

    assert isinstance(answer, Refuse)
    assert answer.reason is Reason.VOLUME_IN_USE
    for word in (VOLUME, INSTANCE, OTHER_INSTANCE, "Multi-Attach", "Block"):
        assert word in answer.message


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
def test_what_another_attachment_is_getting_is_refused_though_ec2_does_not_show_it_yet(step):
    seen = a_volume(on={INSTANCE: State.ATTACHED}, multi_attach=True)

    answer = instead(step, seen, RIVALS)

    assert isinstance(answer, Refuse)
    assert OTHER_INSTANCE in answer.message


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
@pytest.mark.parametrize("state", [State.ATTACHED, State.ATTACHING, State.BUSY, State.DETACHING])
@pytest.mark.parametrize("rivals", [ALONE, RIVALS])
def test_of_a_volume_without_multi_attach_ec2_decides_as_ever(step, state, rivals):
    seen = on_other(state, multi_attach=False)

    assert instead(step, seen, rivals) == step


def test_one_that_is_leaving_another_instance_is_waited_for_and_told_to_nobody():
    assert instead(ATTACH, on_other(State.DETACHING)) == Wait(VOLUME)


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
def test_one_that_has_left_is_free(step):
    assert instead(step, on_other(State.DETACHED, here=step is ATTACHED)) == step


def test_nobody_looks_at_a_volume_that_nobody_else_wants():
    assert instead(ATTACH) == ATTACH


@pytest.mark.parametrize("rival", [*RIVALS, WAITING, YOUNGER])
def test_before_it_is_attached_beside_another_attachment_ec2_is_asked_what_it_is(rival):
    """One that waits too: the leader before us may have had it attached."""
    assert instead(ATTACH, rivals=[rival]) == Wait(VOLUME)


@pytest.mark.parametrize("rival", [Rival(""), Rival(INSTANCE)])
def test_nobody_looks_for_one_to_nowhere_or_to_the_same_instance(rival):
    assert instead(ATTACH, rivals=[rival]) == ATTACH


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
def test_readers_of_a_file_system_with_multi_attach_are_refused_with_what_helps(step):
    view = View(seen=a_volume(on={}, multi_attach=True))

    answer = with_one_writer(step, HERE, view=view, rivals=ALONE, is_for_readers=True)

    assert isinstance(answer, Refuse)
    assert answer.reason is Reason.INVALID_REQUEST
    for word in (VOLUME, "Multi-Attach", "ReadOnlyMany", "ReadWriteOnce", "readOnly: true"):
        assert word in answer.message


def test_before_it_is_attached_for_readers_ec2_is_asked_what_it_is():
    answer = with_one_writer(ATTACH, HERE, view=View(), rivals=ALONE, is_for_readers=True)

    assert answer == Wait(VOLUME)


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
def test_readers_of_a_volume_without_multi_attach_get_it(step):
    view = View(seen=a_volume(on={}))

    assert with_one_writer(step, HERE, view=view, rivals=ALONE, is_for_readers=True) == step


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
@pytest.mark.parametrize("state", [State.ATTACHED, State.ATTACHING, State.BUSY, State.DETACHING])
def test_where_both_are_attached_the_older_one_goes_on(step, state):
    assert instead(step, on_other(state, here=True), [YOUNGER]) == step


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
@pytest.mark.parametrize("rivals", [[WAITING], RIVALS, [YOUNGER, WAITING]])
def test_where_both_are_attached_the_younger_one_is_refused(step, rivals):
    assert isinstance(instead(step, on_other(State.ATTACHED, here=True), rivals), Refuse)


@pytest.mark.parametrize("step", [ATTACH, ATTACHED])
def test_the_older_one_does_not_go_on_once_the_younger_may_be_reported(step):
    rival = Rival(OTHER_INSTANCE, is_younger=True, may_be_reported=True)

    assert isinstance(instead(step, on_other(State.ATTACHED, here=True), [rival]), Refuse)


@pytest.mark.parametrize("here", [{}, {INSTANCE: State.DETACHING}])
@pytest.mark.parametrize("there", [{}, {OTHER_INSTANCE: State.ATTACHED}])
def test_the_older_one_does_not_follow_where_only_the_younger_is_attached(here, there):
    seen = a_volume(on=here | there, multi_attach=True)

    assert isinstance(instead(ATTACH, seen, [YOUNGER]), Refuse)


def test_of_a_volume_that_is_not_there_ec2_says_so():
    view = View(missing_for_s=0.0)

    assert with_one_writer(ATTACH, HERE, view=view, rivals=RIVALS) == ATTACH


@pytest.mark.parametrize(
    "step",
    [
        Prepare(HERE, ""),
        Untag(VOLUME),
        Detach(HERE),
        Wait(VOLUME, "waiting"),
        Refuse(Reason.VOLUME_NOT_FOUND, "gone"),
    ],
)
def test_no_other_step_is_touched(step):
    call = Call(Kind.ATTACH, HERE, 0.0)
    view = View(call=call, seen=on_other(State.ATTACHED))

    assert with_one_writer(step, HERE, view=view, rivals=RIVALS) == step


@pytest.mark.parametrize(
    ("mode", "may_be_reported", "expected"),
    [
        pytest.param(None, False, Refuse, id="a file system"),
        pytest.param("Filesystem", False, Refuse, id="a file system by its name"),
        pytest.param("Block", False, Attached, id="a raw device"),
        pytest.param("Filesystem", True, Attached, id="one that may be reported already"),
    ],
)
def test_only_a_file_system_that_no_node_has_yet_is_refused(mode, may_be_reported, expected):
    seen = on_other(State.ATTACHED, here=True)
    held = a_persistent_volume(finalizers=[ATTACHER_FINALIZER], volume_mode=mode)
    call = Call(Kind.ATTACH, HERE, 0.0, taken=1)
    view = View(call=call, seen=seen, may_be_reported=may_be_reported)

    step = next_attach_step(
        an_attachment(), HERE, held, driver=DRIVER, view=view, now_s=1.0, rivals=RIVALS
    )

    assert isinstance(step, expected)
