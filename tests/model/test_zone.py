import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.node import CsiNode
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import (
    BETA_ZONE_LABEL,
    EBS_ZONE_LABEL,
    ZONE_LABEL,
    TopologyTerm,
    allowed_zones,
    foreign_keys,
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
