import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.node import CsiNode
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import (
    BETA_ZONE_LABEL,
    EBS_ZONE_LABEL,
    OUTPOST_KEYS,
    ZONE_LABEL,
    Place,
    TopologyTerm,
    allowed_zones,
    foreign_keys,
    outpost_arn_of,
    outpost_of_term,
    outpost_segments,
    place_of,
    zone_ids,
    zone_of,
)
from tests.builders import a_class, a_csi_node, a_term


@pytest.mark.parametrize(
    ("labels", "zone"),
    [
        ({}, None),
        ({"topology.k8s.aws/zone-id": "use1-az1"}, None),
        ({ZONE_LABEL: ""}, None),
        ({ZONE_LABEL: "", EBS_ZONE_LABEL: "b"}, "b"),
        ({BETA_ZONE_LABEL: "c"}, "c"),
        ({BETA_ZONE_LABEL: "c", EBS_ZONE_LABEL: "b"}, "b"),
        ({BETA_ZONE_LABEL: "c", EBS_ZONE_LABEL: "b", ZONE_LABEL: "a"}, "a"),
    ],
)
def test_the_zone_of_a_node(labels, zone):
    assert zone_of(labels) == zone


@pytest.mark.parametrize(
    ("terms", "zones"),
    [
        pytest.param([], None, id="nothing said"),
        pytest.param([TopologyTerm()], None, id="an empty term"),
        pytest.param([a_term(os=["linux"])], None, id="another key"),
        pytest.param(
            [a_term(zone=["a"]), a_term(os=["linux"])], None, id="one alternative leaves it open"
        ),
        pytest.param([a_term(zone=["a", "b"])], {"a", "b"}, id="one term"),
        pytest.param([a_term(zone=["a"]), a_term(zone=["b"])], {"a", "b"}, id="alternatives"),
        pytest.param([a_term(zone=["a", "b"], ebs_zone=["b", "c"])], {"b"}, id="both must hold"),
        pytest.param([a_term(zone=["a"], os=["linux"])], {"a"}, id="zone and another key"),
        pytest.param([a_term(zone=[])], set(), id="no value"),
    ],
)
def test_the_zones_that_a_class_allows(terms, zones):
    assert allowed_zones(terms) == zones


@pytest.mark.parametrize(
    ("terms", "zones"),
    [
        pytest.param([a_term(zone_id=["use1-az1"])], {"us-east-1b"}, id="one"),
        pytest.param([a_term(zone_id=["use1-az1", "use1-az9"])], {"us-east-1b"}, id="one unknown"),
        pytest.param([a_term(zone_id=["use1-az9"])], set(), id="none known"),
        pytest.param([a_term(zone_id=["use1-az1"], zone=["us-east-1a"])], set(), id="no overlap"),
        pytest.param(
            [a_term(zone_id=["use1-az1"]), a_term(beta_zone=["us-east-1f"])],
            {"us-east-1b", "us-east-1f"},
            id="beside names",
        ),
    ],
)
def test_zone_ids_are_resolved(terms, zones):
    assert allowed_zones(terms, {"use1-az6": "us-east-1a", "use1-az1": "us-east-1b"}) == zones


def test_without_names_zone_ids_narrow_nothing_down():
    assert allowed_zones([a_term(zone_id=["use1-az1"])]) is None
    assert allowed_zones([a_term(zone_id=["use1-az1"], zone=["a"])]) == frozenset("a")


def test_all_zone_ids_of_a_class():
    terms = [a_term(zone_id=["x", "y"], zone=["a"]), a_term(os=["linux"]), a_term(zone_id=["z"])]

    assert zone_ids(terms) == {"x", "y", "z"}
    assert zone_ids([TopologyTerm()]) == set()


ON_OUTPOST = dict(zip(OUTPOST_KEYS, ("us-west-2", "aws", "111122223333", "op-1"), strict=True))
ARN = "arn:aws:outposts:us-west-2:111122223333:outpost/op-1"


def test_the_outpost_of_a_node():
    labels = {ZONE_LABEL: "us-west-2a", **ON_OUTPOST}

    assert place_of(labels) == Place("us-west-2a", ARN)
    assert place_of({ZONE_LABEL: "us-west-2a"}) == Place("us-west-2a")
    assert place_of(ON_OUTPOST) is None


@pytest.mark.parametrize("key", OUTPOST_KEYS)
def test_an_outpost_is_told_by_all_four_labels_or_by_none(key):
    assert outpost_arn_of({**ON_OUTPOST, key: ""}) is None
    assert outpost_arn_of({k: v for k, v in ON_OUTPOST.items() if k != key}) is None


def test_the_segments_of_an_outpost_are_those_that_the_stock_driver_writes():
    assert outpost_segments(ARN) == {
        "topology.ebs.csi.aws.com/region": "us-west-2",
        "topology.ebs.csi.aws.com/partition": "aws",
        "topology.ebs.csi.aws.com/account-id": "111122223333",
        "topology.ebs.csi.aws.com/outpost-id": "op-1",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "op-1",
        "arn:aws:outposts:us-west-2:111122223333:op-1",
        "arn:aws:ec2:us-west-2:111122223333:outpost/op-1",
        "arn:aws:outposts:us-west-2::outpost/op-1",
        "arn:aws:outposts:us-west-2:111122223333:outpost/",
    ],
)
def test_another_text_names_no_outpost(text):
    assert outpost_segments(text) == {}


@given(st.text())
def test_any_text_as_an_arn_is_read_or_left(text):
    segments = outpost_segments(text)

    assert not segments or outpost_arn_of(segments) == text


@given(st.lists(st.text(st.characters(exclude_characters=":"), min_size=1), min_size=4, max_size=4))
def test_an_arn_and_its_segments_are_one(values):
    segments = dict(zip(OUTPOST_KEYS, values, strict=True))

    assert outpost_segments(outpost_arn_of(segments) or "") == segments


def test_what_a_term_asks_of_an_outpost():
    assert outpost_of_term(a_term(outpost=["op-1", "op-2"], zone=["a"])) == {
        "topology.ebs.csi.aws.com/outpost-id": {"op-1", "op-2"}
    }
    assert outpost_of_term(a_term(zone=["a"])) == {}


def test_keys_that_are_no_zones_are_listed():
    terms = [a_term(zone=["a"], os=["linux"]), a_term(zone_id=["x"]), TopologyTerm()]

    assert foreign_keys(terms) == ["kubernetes.io/os", "topology.k8s.aws/zone-id"]


@given(st.lists(st.builds(a_term, zone=st.lists(st.sampled_from("abc"))), max_size=4))
def test_more_alternatives_never_allow_less(terms):
    for count in range(1, len(terms) + 1):
        assert (allowed_zones(terms[:count]) or frozenset()) <= (
            allowed_zones(terms) or frozenset()
        )


def test_a_class_is_read_as_the_api_server_sends_it():
    found = msgspec.json.decode(
        b'{"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer", "parameters": null,'
        b' "allowedTopologies": [{"matchLabelExpressions":'
        b' [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}]}',
        type=StorageClass,
    )

    assert found.waits_for_consumer
    assert allowed_zones(found.allowed_topologies or ()) == frozenset("a")
    assert not a_class().waits_for_consumer


def test_drivers_of_a_node_are_read_as_kubelet_writes_them():
    found = msgspec.json.decode(
        b'{"spec": {"drivers": [{"name": "x", "nodeID": "i-1", "topologyKeys": null}]}}',
        type=CsiNode,
    )

    driver = found.driver("x")
    assert driver is not None
    assert driver.node_id == "i-1"
    assert found.driver("y") is None
    assert msgspec.json.decode(b'{"spec": {"drivers": null}}', type=CsiNode).driver("x") is None
    assert a_csi_node(driver=None).driver("x") is None
