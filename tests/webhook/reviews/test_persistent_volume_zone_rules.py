import pytest

from provisioner.model.node_affinity import BETA_REGION_LABEL, REGION_LABEL
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_LABEL
from tests.webhook.reviews.persistent_volumes import CHINA, GOV, LOCAL, WAVELENGTH, A, B
from webhook.model.cluster_view import NodeView
from webhook.reviews.persistent_volume_zone_rules import (
    contradicting,
    corrected,
    missing,
    writable,
    zone_keys,
)


def a_node(zone=A, *, region="us-east-1", zone_key=ZONE_LABEL, has_driver=True):
    labels = {zone_key: zone} | ({REGION_LABEL: region} if region is not None else {})
    return NodeView(tuple(labels.items()), zone, schedulable=True, has_driver=has_driver)


def a_rack():
    labels = ((EBS_ZONE_LABEL, A), (ZONE_LABEL, "rack-1"))
    return NodeView(labels, None, schedulable=True, has_driver=True)


BOTH = {ZONE_LABEL: A, REGION_LABEL: "us-east-1"}
ZONE_ONLY = {ZONE_LABEL: A}


@pytest.mark.parametrize(
    ("nodes", "labels"),
    [
        pytest.param([a_node()], BOTH, id="a cloud controller labels nodes"),
        pytest.param([a_node(), a_node()], BOTH, id="all of them"),
        pytest.param([a_node(region=None)], ZONE_ONLY, id="no cloud controller, no Region"),
        pytest.param([a_node(), a_node(region=None)], ZONE_ONLY, id="one without Region"),
        pytest.param([a_node(region="home")], ZONE_ONLY, id="a Region of the cluster's own"),
        pytest.param([a_node(region="")], ZONE_ONLY, id="an empty Region"),
        pytest.param(
            [a_node(zone_key=EBS_ZONE_LABEL)], {REGION_LABEL: "us-east-1"}, id="the driver's key"
        ),
        pytest.param([a_node(), a_node(B, region=None)], BOTH, id="other zones do not count"),
        pytest.param(
            [a_node(), a_node(region=None, has_driver=False)], BOTH, id="nor nodes without driver"
        ),
        pytest.param([a_node(B)], {}, id="no node in the zone"),
        pytest.param([a_node(has_driver=False)], {}, id="none that runs the driver"),
        pytest.param([], {}, id="no node at all"),
    ],
)
def test_a_label_is_written_when_every_node_that_could_mount_carries_it(nodes, labels):
    assert writable(A, nodes) == labels


@pytest.mark.parametrize(
    ("zone", "region"), [(LOCAL, "us-west-2"), (CHINA, "cn-north-1"), (GOV, "us-gov-east-1")]
)
def test_the_region_is_that_of_the_zone_in_every_partition(zone, region):
    assert writable(zone, [a_node(zone, region=region)])[REGION_LABEL] == region


def test_a_node_that_may_be_in_the_zone_by_one_of_its_keys_counts():
    assert writable(A, [a_node(region=None), a_rack()]) == {}


def test_a_zone_of_unknown_form_gives_no_empty_region():
    assert writable("moon", [a_node("moon", region="")]) == {ZONE_LABEL: "moon"}


CURRENT, OWN, EITHER = (ZONE_LABEL,), (EBS_ZONE_LABEL,), (ZONE_LABEL, EBS_ZONE_LABEL)


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        pytest.param([a_node()], CURRENT, id="a cloud controller"),
        pytest.param([a_node(zone_key=EBS_ZONE_LABEL)], OWN, id="the driver's key only"),
        pytest.param([a_node(zone_key=EBS_ZONE_LABEL), a_node()], CURRENT, id="one has both"),
        pytest.param(
            [a_node(zone_key=EBS_ZONE_LABEL), a_node(B), a_node(has_driver=False)],
            OWN,
            id="others do not count while it has nodes",
        ),
        pytest.param([a_node(zone_key=BETA_ZONE_LABEL)], CURRENT, id="an old key only"),
        pytest.param([a_rack()], OWN, id="a rack under the current key"),
        pytest.param([a_rack(), a_node()], CURRENT, id="a rack beside a node with the zone"),
        # No node of the zone: it was scaled to zero, or the cluster is being built.
        pytest.param([], EITHER, id="no node at all"),
        pytest.param([a_node(B)], CURRENT, id="all others have the current key"),
        pytest.param([a_node(B, zone_key=EBS_ZONE_LABEL)], EITHER, id="none of the others has"),
        pytest.param(
            [a_node(B), a_node(GOV, zone_key=EBS_ZONE_LABEL)], EITHER, id="they do not agree"
        ),
        pytest.param([a_node(B, has_driver=False)], EITHER, id="none runs the driver"),
    ],
)
def test_an_affinity_names_the_zone_under_keys_that_the_next_node_there_has(nodes, keys):
    assert zone_keys(A, nodes) == keys


def test_only_labels_that_are_not_there_are_missing():
    assert missing({ZONE_LABEL: B}, BOTH) == {REGION_LABEL: "us-east-1"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (ZONE_LABEL, B),
        (ZONE_LABEL, ""),
        (ZONE_LABEL, f"{A}__{B}"),
        (ZONE_LABEL, WAVELENGTH),
        (EBS_ZONE_LABEL, B),
        (BETA_ZONE_LABEL, B),
        (REGION_LABEL, "us-west-2"),
        (REGION_LABEL, "us-east-1-lax-1"),
        (REGION_LABEL, ""),
        (BETA_REGION_LABEL, "us-gov-east-1"),
    ],
)
def test_a_label_that_names_another_place_contradicts(key, value):
    true = "us-east-1" if "region" in key else A

    assert contradicting({key: value, "app": "shop"}, A) == {key: true}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({}, id="none"),
        pytest.param(BOTH, id="the truth"),
        pytest.param({BETA_ZONE_LABEL: A}, id="the truth under an old key"),
        pytest.param({REGION_LABEL: "home"}, id="a Region named by hand"),
        pytest.param({BETA_REGION_LABEL: "dc-1"}, id="the same with a number"),
        pytest.param({REGION_LABEL: "acme-east-1"}, id="one that looks like one of AWS"),
        pytest.param({REGION_LABEL: "us-east-1-prod"}, id="one that begins like one of AWS"),
        pytest.param({ZONE_LABEL: "rack-7"}, id="a rack"),
        pytest.param({REGION_LABEL: "us-east1"}, id="what may be a word"),
        pytest.param({"app": B}, id="another key"),
    ],
)
def test_any_other_label_stays(written):
    assert contradicting(written, A) == {}


def test_of_a_zone_of_unknown_form_no_region_is_known_to_contradict():
    assert contradicting({REGION_LABEL: "us-west-2", ZONE_LABEL: A}, "moon") == {ZONE_LABEL: "moon"}


def test_a_label_that_contradicts_becomes_the_truth_or_goes_where_nodes_lack_it():
    written = {BETA_ZONE_LABEL: B, REGION_LABEL: "us-west-2"}

    assert corrected(written, A, {ZONE_LABEL: A}) == {BETA_ZONE_LABEL: A, REGION_LABEL: None}
    assert corrected(written, A, BOTH) == {BETA_ZONE_LABEL: A, REGION_LABEL: "us-east-1"}
