"""A raw device that several instances have at once: each attachment is about its own instance."""

import pytest

from provisioner.controller.attaching.detach_rules import Release, next_detach_step
from provisioner.controller.attaching.rules import (
    MULTI_ATTACH_INSTANCES,
    SEND_AGAIN_S,
    Attach,
    Attached,
    AttachStep,
    Call,
    Detach,
    Kind,
    Target,
    View,
    Wait,
    next_attach_step,
)
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
HELD = a_persistent_volume(finalizers=[ATTACHER_FINALIZER], volume_mode="Block")
SENT_AT_S = 1000.0
OTHERS = [f"i-{number:017x}" for number in range(MULTI_ATTACH_INSTANCES)]


def attach_step(seen: Volume, *, uncertain: bool = False, waited_s: float = 1.0) -> AttachStep:
    call = Call(Kind.ATTACH, HERE, SENT_AT_S, uncertain=uncertain, taken=0 if uncertain else 1)
    view, now_s = View(call=call, seen=seen), SENT_AT_S + waited_s
    return next_attach_step(an_attachment(), HERE, HELD, driver=DRIVER, view=view, now_s=now_s)


def shared(*instances: str, **states: State) -> Volume:
    on = dict.fromkeys(instances, State.ATTACHED) | states
    return a_volume(on=on, multi_attach=True)


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("count", [1, MULTI_ATTACH_INSTANCES - 1])
def test_other_instances_that_have_it_are_no_obstacle(uncertain, count):
    seen = shared(*OTHERS[:count])

    assert attach_step(seen, uncertain=uncertain) == Wait(VOLUME)
    assert attach_step(seen, uncertain=uncertain, waited_s=SEND_AGAIN_S) == Attach(HERE)


def test_it_is_attached_once_it_is_attached_here():
    assert attach_step(shared(OTHER_INSTANCE, **{INSTANCE: State.ATTACHING})) == Wait(VOLUME)

    step = attach_step(shared(OTHER_INSTANCE, INSTANCE))

    assert isinstance(step, Attached)
    assert step.target == HERE


def test_that_it_is_stuck_elsewhere_is_not_held_against_us():
    seen = shared(**{OTHER_INSTANCE: State.ATTACHING, INSTANCE: State.ATTACHED})

    assert isinstance(attach_step(seen, waited_s=1000), Attached)


def test_a_volume_that_16_instances_have_is_refused_with_all_named():
    step = attach_step(shared(*OTHERS), uncertain=True)

    assert isinstance(step, Refuse)
    assert step.reason is Reason.VOLUME_IN_USE
    assert "EC2 allows no more than 16" in step.message
    assert all(each in step.message for each in OTHERS)


def test_one_that_is_leaving_makes_room():
    seen = shared(*OTHERS[1:], **{OTHERS[0]: State.DETACHING})

    assert attach_step(seen, uncertain=True, waited_s=SEND_AGAIN_S) == Attach(HERE)


def test_a_volume_for_one_instance_is_still_not_taken_from_another():
    step = attach_step(a_volume(on={OTHER_INSTANCE: State.ATTACHED}), uncertain=True)

    assert isinstance(step, Refuse)
    assert OTHER_INSTANCE in step.message


@pytest.mark.parametrize("others", [(), (OTHER_INSTANCE,)])
def test_a_detach_is_over_when_it_is_off_this_instance(others):
    call = Call(Kind.DETACH, HERE, SENT_AT_S)

    def step(seen: Volume, waited_s: float) -> object:
        return next_detach_step(
            an_attachment(deleting=True, attached=True),
            HERE,
            driver=DRIVER,
            view=View(call=call, seen=seen),
            now_s=SENT_AT_S + waited_s,
            look_first=False,
            attach_may_be_under_way_until_s=0.0,
        )

    assert step(shared(*others), 1.0) == Release(VOLUME)
    assert step(shared(*others, INSTANCE), 1000.0) == Detach(HERE)
