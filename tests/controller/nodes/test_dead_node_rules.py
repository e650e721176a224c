import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.nodes.dead_node_rules import (
    Declare,
    Leave,
    TakeBack,
    abandoned,
    instances_of,
    is_done,
    is_suspect,
    next_step,
    operations,
)
from provisioner.model.attachment import NODE_ID, AttachmentSpec
from provisioner.model.names import OUT_OF_SERVICE_FOR
from provisioner.model.node import CsiNode, Node
from provisioner.model.taint import OUT_OF_SERVICE, Taint
from tests.builders import DRIVER, INSTANCE, OTHER_INSTANCE, an_attachment, owned_csi_node
from tests.json_patch import applied

GONE = {INSTANCE: "terminated"}
UNREACHABLE = Taint(
    key="node.kubernetes.io/unreachable", effect="NoExecute", time_added="2026-11-22T05:00:00Z"
)
READY = ["True", "False", "Unknown", ""]
# Source: EC2 API reference, InstanceState (read 2026-11-22); "" for one that EC2 does not know.
STATES = ["pending", "running", "shutting-down", "stopping", "stopped", "terminated", ""]


def a_node(
    *,
    ready: str = "Unknown",
    instance: str = INSTANCE,
    taints: tuple[Taint, ...] = (UNREACHABLE,),
    declared_for: str | None = None,
) -> Node:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    document = {
        "metadata": {
            "name": "node-1",
            "uid": "node-1",
            "annotations": None if declared_for is None else {OUT_OF_SERVICE_FOR: declared_for},
        },
        "spec": {
            "providerID": f"aws:///us-east-1a/{instance}" if instance else "",
            "taints": msgspec.to_builtins(list(taints)),
        },
        "status": {"conditions": conditions},
    }
    return msgspec.convert(document, Node)


def step(node, csi_node=owned_csi_node(), states=GONE, attachments=()):  # noqa: B008 -- frozen
    return next_step(node, instances_of(node, csi_node, attachments, DRIVER), states)


def after(node, decided) -> Node:
    """The node once a step is carried out."""
    return msgspec.convert(applied(msgspec.to_builtins(node), operations(node, decided)), Node)


@pytest.mark.parametrize("taints", [(), (UNREACHABLE,)])
def test_a_node_whose_instance_is_terminated_is_out_of_service_beside_all_other_taints(
    taints: tuple[Taint, ...],
):
    node = a_node(taints=taints)

    decided = step(node)

    assert decided == Declare((INSTANCE,))
    assert after(node, decided).spec.taints == [*taints, OUT_OF_SERVICE]
    assert after(node, decided).annotations == {OUT_OF_SERVICE_FOR: INSTANCE}
    assert is_done(after(node, decided), decided)
    assert not is_done(node, decided)


def test_the_taint_is_the_one_that_kubernetes_documents():
    assert msgspec.to_builtins(OUT_OF_SERVICE) == {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }


@pytest.mark.parametrize("state", [state for state in STATES if state != "terminated"])
def test_never_while_the_instance_is_anything_else(state: str):
    states = {INSTANCE: state} if state else {}

    assert step(a_node(), states=states) == Leave()


@pytest.mark.parametrize("ready", ["True", "False", ""])
def test_never_while_a_kubelet_speaks_or_the_node_has_only_just_come(ready: str):
    # "False" is what a living kubelet says, perhaps that of another machine under the old name.
    assert step(a_node(ready=ready)) == Leave()


@pytest.mark.parametrize("csi_node", [None, owned_csi_node(driver=None)])
def test_the_provider_id_tells_the_instance_where_the_driver_is_not_registered(
    csi_node: CsiNode | None,
):
    assert step(a_node(), csi_node) == Declare((INSTANCE,))


def test_the_registration_tells_the_instance_where_there_is_no_provider_id():
    assert step(a_node(instance="")) == Declare((INSTANCE,))


def test_a_node_that_names_no_instance_is_left_alone():
    assert step(a_node(instance=""), None) == Leave()


def test_every_instance_that_a_node_names_has_to_be_terminated():
    node = a_node(instance=OTHER_INSTANCE)
    both = {INSTANCE: "terminated", OTHER_INSTANCE: "terminated"}

    assert instances_of(node, owned_csi_node(), (), DRIVER) == {INSTANCE, OTHER_INSTANCE}
    assert step(node) == Leave()
    assert step(node, states={**both, INSTANCE: "running"}) == Leave()
    assert isinstance(step(node, states=both), Declare)


def test_an_instance_that_only_our_attachments_record_has_to_be_terminated_too():
    # While the node plugin is swapped, the driver is not registered and its volumes stay mounted.
    unregistered = owned_csi_node(driver=None)
    held = an_attachment(annotations={NODE_ID: OTHER_INSTANCE}, deleting=True)
    others = msgspec.structs.replace(held, spec=AttachmentSpec(attacher="efs.csi.aws.com"))
    both = {INSTANCE: "terminated", OTHER_INSTANCE: "terminated"}

    running = {**both, OTHER_INSTANCE: "running"}
    assert step(a_node(), unregistered, running, [others, held]) == Leave()
    assert step(a_node(), unregistered, GONE, [held]) == Leave()
    assert isinstance(step(a_node(), unregistered, both, [held]), Declare)
    assert isinstance(step(a_node(), unregistered, running, [others]), Declare)
    assert isinstance(step(a_node(), None, GONE, [an_attachment(annotations={})]), Declare)


def test_a_taint_of_somebody_else_is_neither_added_again_nor_taken_away():
    theirs = (UNREACHABLE, OUT_OF_SERVICE)

    assert step(a_node(taints=theirs)) == Leave()
    assert step(a_node(taints=theirs, ready="True")) == Leave()
    assert not is_suspect(a_node(taints=theirs))


def test_a_taint_that_somebody_has_taken_away_is_not_added_again():
    assert step(a_node(declared_for=INSTANCE)) == Leave()


@pytest.mark.parametrize(
    ("ready", "why"), [("True", "it is ready again"), ("False", "its kubelet answers again")]
)
def test_ours_is_taken_back_once_a_kubelet_answers(ready: str, why: str):
    node = a_node(ready=ready, taints=(UNREACHABLE, OUT_OF_SERVICE), declared_for=INSTANCE)

    decided = step(node)

    assert isinstance(decided, TakeBack)
    assert decided.why.startswith(why)
    assert after(node, decided).spec.taints == [UNREACHABLE]
    assert after(node, decided).annotations == {}
    assert is_done(after(node, decided), decided)
    assert not is_done(node, decided)


def test_ours_is_taken_back_once_the_name_is_another_instances():
    node = a_node(taints=(OUT_OF_SERVICE, UNREACHABLE), declared_for=INSTANCE)

    back = step(node, owned_csi_node(instance=OTHER_INSTANCE), {})

    assert back == TakeBack(f"it is instance {OTHER_INSTANCE} now")
    assert after(node, back).spec.taints == [UNREACHABLE]


@pytest.mark.parametrize("ready", ["Unknown", ""])
def test_ours_stays_while_the_node_is_as_dead_as_it_was(ready: str):
    node = a_node(ready=ready, taints=(OUT_OF_SERVICE,), declared_for=INSTANCE)

    assert step(node) == step(node, None, {}) == Leave()
    assert operations(node, Leave()) == []
    assert not is_done(node, Leave())


def test_the_registration_of_a_node_that_had_the_name_before_says_nothing():
    before = owned_csi_node(uid="before")

    assert step(a_node(instance=""), before) == Leave()
    assert step(a_node(instance=OTHER_INSTANCE), before) == Leave()
    declared = a_node(instance="", taints=(OUT_OF_SERVICE,), declared_for=OTHER_INSTANCE)
    assert step(declared, before) == Leave()


def test_another_out_of_service_taint_is_not_ours():
    other = Taint(key=OUT_OF_SERVICE.key, value="maintenance", effect="NoSchedule")
    node = a_node(ready="True", taints=(other, OUT_OF_SERVICE), declared_for=INSTANCE)

    assert after(node, step(node)).spec.taints == [other]


@given(
    st.sampled_from(READY),
    st.sampled_from(STATES),
    st.sampled_from(STATES),
    st.sampled_from([(), (OUT_OF_SERVICE,), (UNREACHABLE, OUT_OF_SERVICE)]),
    st.sampled_from([None, "", INSTANCE, OTHER_INSTANCE]),
)
def test_whatever_it_looks_like_a_node_is_declared_only_by_proof(
    ready, first, second, taints, declared_for
):
    node = a_node(ready=ready, taints=taints, declared_for=declared_for, instance=OTHER_INSTANCE)
    states = {INSTANCE: first, OTHER_INSTANCE: second}

    decided = step(node, states=states)

    if isinstance(decided, Declare):
        assert (first, second) == ("terminated", "terminated")
        assert ready == "Unknown"
        assert set(after(node, decided).spec.taints or ()) == {*taints, OUT_OF_SERVICE}
    if isinstance(decided, TakeBack):
        assert declared_for is not None
        assert set(after(node, decided).spec.taints or ()) == set(taints) - {OUT_OF_SERVICE}


def test_only_our_attachments_to_nodes_that_are_not_there_are_abandoned():
    recorded = {NODE_ID: INSTANCE}
    ours = an_attachment("a", node="gone", annotations=recorded)
    others = [
        an_attachment("b", node="node-1", annotations=recorded),
        an_attachment("c", node="gone", annotations={}),
        an_attachment("d", node="gone", annotations=recorded, deleting=True),
    ]
    spec = msgspec.structs.replace(ours.spec, attacher="efs.csi.aws.com")
    others.append(msgspec.structs.replace(ours, spec=spec))

    assert abandoned([ours, *others], {"node-1": ""}, DRIVER) == {"gone": [ours]}


@pytest.mark.parametrize(
    ("registered", "attached", "is_left"),
    [
        (OTHER_INSTANCE, True, True),
        (OTHER_INSTANCE, False, False),  # is attached to the instance that the node is now
        (INSTANCE, True, False),
        ("", True, False),
    ],
)
def test_what_is_attached_to_the_machine_before_under_the_same_name_is_abandoned(
    registered: str, *, attached: bool, is_left: bool
):
    held = an_attachment(annotations={NODE_ID: INSTANCE}, attached=attached)

    found = abandoned([held], {"node-1": registered}, DRIVER)

    assert found == ({"node-1": [held]} if is_left else {})
