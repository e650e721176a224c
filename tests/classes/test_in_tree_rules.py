import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes import in_tree_rules
from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.provisioning.plan_rules import Provision, examine
from provisioner.model.claim import MIGRATED_TO, STORAGE_PROVISIONER
from provisioner.model.decision import SETTLED, Refuse
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.zone import Place
from tests.builders import DRIVER, a_claim, a_class, a_plan, a_term
from tests.pods import zone_at_once


def an_old_class(parameters=None, **changes):
    return a_class(provisioner=IN_TREE_DRIVER, parameters=parameters, **changes)


# -- who is asked


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({STORAGE_PROVISIONER: DRIVER}, id="as Kubernetes asks today"),
        pytest.param(
            {STORAGE_PROVISIONER: IN_TREE_DRIVER, MIGRATED_TO: DRIVER}, id="asked before it moved"
        ),
    ],
)
def test_a_claim_of_an_in_tree_class_is_ours(annotations):
    claim = a_claim(annotations=annotations)

    answer = examine(claim, an_old_class(), driver=DRIVER, persistent_volume=None)

    assert answer == Provision(an_old_class())


def test_an_in_tree_class_is_not_for_a_driver_of_another_name():
    claim = a_claim(annotations={STORAGE_PROVISIONER: "my-ebs"})

    answer = examine(claim, an_old_class(), driver="my-ebs", persistent_volume=None)

    assert answer == SETTLED


def test_a_claim_of_an_in_tree_class_that_waits_is_left_to_the_scheduler_first():
    waiting = an_old_class(waits=True)

    assert examine(a_claim(), waiting, driver=DRIVER, persistent_volume=None) == SETTLED
    chosen = a_claim(node="node-1")
    assert examine(chosen, waiting, driver=DRIVER, persistent_volume=None) == Provision(waiting)


# -- the class


def test_the_class_of_the_worked_example_is_read_as_it_is():
    found = read(an_old_class({"type": "gp2"}, reclaim_policy="Retain"))

    assert isinstance(found, ReadClass)
    assert found.is_in_tree
    assert found.parameters.volume_type == "gp2"
    assert found.allowed_topologies == ()


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"zone": "us-east-1a"}, ["us-east-1a"]),
        ({"Zone": " us-east-1a "}, ["us-east-1a"]),
        ({"zones": "us-east-1b,us-east-1a"}, ["us-east-1a", "us-east-1b"]),
        ({"ZONES": "us-east-1b, us-east-1b"}, ["us-east-1b"]),
    ],
)
def test_its_zones_are_topologies_of_the_driver(parameters, named):
    found = read(an_old_class(parameters))

    assert found.allowed_topologies == (a_term(ebs_zone=named),)


def test_a_volume_that_binds_at_once_is_made_in_one_of_its_zones():
    old = read(an_old_class({"zones": "us-east-1b,us-east-1c"}))
    places = [Place("us-east-1a"), Place("us-east-1b")]

    chosen = {zone_at_once(old, f"data-{number}", places) for number in range(4)}

    assert chosen == {Place("us-east-1b"), Place("us-east-1c")}


def test_its_own_allowed_topologies_stay():
    terms = [a_term(zone=["us-east-1a"]), a_term(zone=["us-east-1c"])]

    assert read(an_old_class(allowed=terms)).allowed_topologies == tuple(terms)


@pytest.mark.parametrize(
    ("parameters", "allowed", "words"),
    [
        ({"zone": "a", "zones": "a,b"}, None, ("'zone' and 'zones'", "keep one")),
        ({"zone": "a", "ZONE": "b"}, None, ("'zone' and 'ZONE'", "keep one")),
        ({"zone": "a"}, [a_term(zone=["a"])], ("'zone'", "keep allowedTopologies")),
        ({"zones": "a"}, [a_term(os=["linux"])], ("'zones'", "keep allowedTopologies")),
        ({"zone": ""}, None, ("'zone': ''", "empty zone")),
        ({"zones": "a,,b"}, None, ("'zones': 'a,,b'", "empty zone")),
        ({"zones": " , "}, None, ("'zones'", "empty zone")),
        ({"zone": "a,b"}, None, ("'zone': 'a,b'", "use 'zones'")),
    ],
)
def test_zones_that_cannot_be_meant_are_refused(parameters, allowed, words):
    with pytest.raises(ValueError, match="zone") as refused:
        read(an_old_class(parameters, allowed=allowed))

    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("key", ["iopsPerGB", "iopspergb", "IOPSPERGB"])
def test_too_few_iops_per_gib_are_raised_as_the_plugin_did(key):
    assert in_tree_rules.parameters_of(an_old_class({"type": "io1", key: "1"})) == {
        "type": "io1",
        key: "1",
        "allowAutoIOPSPerGBIncrease": "true",
    }


@pytest.mark.parametrize("volume_type", ["gp2", "GP2", "st1", "sc1"])
def test_iops_per_gib_of_types_without_are_ignored_as_by_the_plugin(volume_type):
    parameters = {"type": volume_type, "iopsPerGB": "10"}

    assert in_tree_rules.parameters_of(an_old_class(parameters)) == {"type": volume_type}


@pytest.mark.parametrize("text", [None, "0", " 0 ", "00", "+0"])
def test_without_iops_an_io1_volume_gets_the_least_as_from_the_plugin(text):
    parameters = {} if text is None else {"IOPSperGB": text}

    plan = a_plan(a_claim(size="200Gi"), an_old_class({"type": "IO1", **parameters}))

    assert (plan.request.volume_type, plan.request.iops) == ("io1", 100)


def test_iops_that_the_class_names_itself_stay():
    parameters = {"type": "io1", "iops": "500"}

    assert in_tree_rules.parameters_of(an_old_class(parameters)) == parameters


def test_a_class_that_says_itself_whether_iops_are_raised_is_heard():
    parameters = {"type": "io1", "iopsPerGB": "1", "allowautoiopspergbincrease": "false"}

    assert in_tree_rules.parameters_of(an_old_class(parameters)) == parameters


def test_a_zone_parameter_of_a_class_of_the_driver_itself_is_unknown():
    with pytest.raises(ValueError, match="unknown parameter 'zone'"):
        read(a_class(parameters={"zone": "us-east-1a"}))


names = st.sampled_from(["zone", "Zones", "iopsPerGB", "type", "fsType", "encrypted"]) | st.text()


@given(st.dictionaries(names, st.text() | st.sampled_from(["a,b", "1", "gp2"]), max_size=4))
def test_no_in_tree_class_raises_anything_but_a_sentence(parameters):
    with contextlib.suppress(ValueError):
        found = read(an_old_class(parameters))
        assert found.is_in_tree
        for term in found.allowed_topologies:
            for expression in term.match_label_expressions or ():
                assert expression.values
                assert all(expression.values)


def test_what_an_in_tree_class_cannot_have_is_refused_as_with_any_other():
    chosen = a_claim(selector={})

    answer = examine(chosen, an_old_class(), driver=DRIVER, persistent_volume=None)

    assert isinstance(answer, Refuse)
