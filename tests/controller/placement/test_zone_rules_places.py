"""Zones that a class or a node names by an id, and Outposts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import read
from provisioner.controller.placement.zone_rules import (
    NoZone,
    candidates,
    for_selected_node,
    needs_zone_names,
)
from provisioner.model.zone import OUTPOST_KEYS, ZONE_KEYS, Place
from tests.builders import DRIVER, a_class, a_csi_node, a_node, a_term

PLACES = tuple(map(Place, ("us-east-1a", "us-east-1b", "us-east-1c")))
NAMES = {"use1-az6": "us-east-1a", "use1-az1": "us-east-1b"}
ARN = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"
ON_OUTPOST = dict(zip(OUTPOST_KEYS, ("us-east-1", "aws", "111122223333", "op-1"), strict=True))
OUTPOST = Place("us-east-1b", ARN)
WHOLE = {"region": ["us-east-1"], "partition": ["aws"], "account": ["111122223333"]}


@pytest.mark.parametrize("key", ["zone", "ebs_zone", "beta_zone"])
def test_every_key_of_a_zone_name_is_heeded(key):
    read_class = read(a_class(allowed=[a_term(**{key: ["us-east-1f"]})]))

    assert candidates(read_class, PLACES) == (Place("us-east-1f"),)
    assert not needs_zone_names(read_class)


def test_a_zone_id_becomes_the_zones_name():
    read_class = read(a_class(allowed=[a_term(zone_id=["use1-az1", "use1-az6"])]))

    assert needs_zone_names(read_class)
    assert candidates(read_class, (), NAMES) == (Place("us-east-1a"), Place("us-east-1b"))


def test_an_unknown_zone_id_is_refused_with_those_that_there_are():
    read_class = read(a_class(allowed=[a_term(zone_id=["euc1-az1"])]))

    answer = candidates(read_class, PLACES, NAMES)

    assert isinstance(answer, NoZone)
    assert answer.message == (
        "allowedTopologies of class 'fast' allow no zone: euc1-az1 is not a zone ID of this "
        "region, which has use1-az1 (us-east-1b), use1-az6 (us-east-1a)"
    )


@pytest.mark.parametrize(
    ("allowed", "answer"),
    [
        pytest.param([a_term(zone_id=["use1-az6"])], Place("us-east-1a"), id="its own"),
        pytest.param([a_term(zone_id=["use1-az1"])], "use1-az1", id="another"),
        pytest.param(
            [a_term(zone_id=["use1-az1"]), a_term(zone=["us-east-1c"])],
            "us-east-1c or use1-az1",
            id="neither",
        ),
        pytest.param(
            [a_term(zone_id=["use1-az1"]), a_term(zone=["us-east-1a"])],
            Place("us-east-1a"),
            id="by the other term",
        ),
    ],
)
def test_the_selected_nodes_own_zone_id_is_held_to_the_class(allowed, answer):
    node = a_node(labels={"topology.k8s.aws/zone-id": "use1-az6"})

    found = for_selected_node(read(a_class(allowed=allowed)), DRIVER, "n", node, a_csi_node())

    if isinstance(found, NoZone):
        end = f"node 'n' is in zone us-east-1a, but class 'fast' allows only {answer}"
        assert found.message == end
    else:
        assert found == answer


def test_a_volume_for_a_node_on_an_outpost_is_made_there():
    node = a_node(labels=ON_OUTPOST)

    found = for_selected_node(read(a_class()), DRIVER, "n", node, a_csi_node())

    assert found == Place("us-east-1a", ARN)


@pytest.mark.parametrize(
    "labels",
    [ON_OUTPOST | {"topology.ebs.csi.aws.com/outpost-id": "op-2"}, {}],
    ids=["another", "none"],
)
def test_a_selected_node_that_is_not_on_the_outpost_of_the_class_is_refused(labels):
    node = a_node(labels=labels)
    read_class = read(a_class(allowed=[a_term(outpost=["op-1"])]))

    answer = for_selected_node(read_class, DRIVER, "n", node, a_csi_node())

    assert isinstance(answer, NoZone)
    assert "only Outposts" in answer.message
    assert "topology.ebs.csi.aws.com/outpost-id" in answer.message


@pytest.mark.parametrize(
    ("allowed", "registered", "places"),
    [
        pytest.param(None, (*PLACES, OUTPOST), PLACES, id="unasked, the Region"),
        pytest.param(None, (OUTPOST,), (OUTPOST,), id="unasked, there is nothing else"),
        pytest.param([a_term(outpost=["op-1"])], (*PLACES, OUTPOST), (OUTPOST,), id="by its id"),
        pytest.param(
            [a_term(zone=["us-east-1b"], outpost=["op-2"], **WHOLE)],
            PLACES,
            (Place("us-east-1b", ARN.replace("op-1", "op-2")),),
            id="in full, without a node",
        ),
        pytest.param(
            [a_term(zone=["us-east-1a", "us-east-1b"], outpost=["op-1"], **WHOLE)],
            (OUTPOST,),
            (OUTPOST,),
            id="in full, where its nodes are",
        ),
        pytest.param([a_term(zone=["us-east-1b"])], (OUTPOST,), PLACES[1:2], id="a zone only"),
        pytest.param(
            [a_term(zone=["us-east-1a"]), a_term(outpost=["op-1"])],
            (OUTPOST,),
            (PLACES[0], OUTPOST),
            id="alternatives",
        ),
    ],
)
def test_places_of_a_claim_that_binds_at_once(allowed, registered, places):
    assert candidates(read(a_class(allowed=allowed)), registered) == places


@pytest.mark.parametrize(
    "allowed",
    [
        pytest.param([a_term(outpost=["op-2"])], id="its id alone"),
        pytest.param([a_term(outpost=["op-2"], **WHOLE)], id="without its zone"),
        pytest.param([a_term(zone=["us-east-1b"], outpost=["op-2"])], id="without the rest"),
        pytest.param([a_term(zone=["us-east-1a"], outpost=["op-1"])], id="in another zone"),
    ],
)
def test_an_outpost_that_nobody_knows_never_becomes_a_volume_in_the_region(allowed):
    answer = candidates(read(a_class(allowed=allowed)), (*PLACES, OUTPOST))

    assert isinstance(answer, NoZone)
    assert "require an Outpost" in answer.message


_values = st.lists(st.sampled_from(["us-east-1a", "us-east-1b", "use1-az1", "op-1", "aws"]))
_keys = st.sampled_from(["zone", "ebs_zone", "beta_zone", "zone_id", "outpost", *WHOLE, "os"])
_terms = st.lists(st.builds(lambda d: a_term(**d), st.dictionaries(_keys, _values)), max_size=3)


@given(_terms, st.sets(st.sampled_from([*PLACES, OUTPOST])))
def test_any_class_gets_places_or_a_reason(terms, registered):
    found = candidates(read(a_class(allowed=terms)), registered, NAMES)

    assert isinstance(found, NoZone) or (found and found == tuple(sorted(set(found))))


@given(_terms)
def test_a_node_that_the_scheduler_may_choose_is_never_refused(terms):
    node = a_node(zone="us-east-1b", labels=ON_OUTPOST | {"topology.k8s.aws/zone-id": "use1-az1"})
    labels = {**dict.fromkeys(ZONE_KEYS, "us-east-1b"), **node.labels}
    admits = not terms or any(
        all(labels.get(e.key) in (e.values or ()) for e in t.match_label_expressions or ())
        for t in terms
    )

    found = for_selected_node(read(a_class(allowed=terms)), DRIVER, "n", node, a_csi_node())

    assert not admits or found == Place("us-east-1b", ARN)
