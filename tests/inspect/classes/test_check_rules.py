"""What is said of a class before any claim names it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.classes import check_rules as rules
from provisioner.inspect.classes.check_rules import Findings, NodeZone
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import TopologyRequirement, TopologyTerm
from tests.builders import DRIVER, a_class, a_term

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


def in_zones(*zones: str, has_driver: bool = True) -> list[NodeZone]:
    return [NodeZone(zone, has_driver) for zone in zones]


def impossible(storage_class: StorageClass, nodes: list[NodeZone] | None = None) -> str:
    """The one reason for which it can never work, "" if it can."""
    found = rules.findings(storage_class, nodes)
    assert len(found.impossible) <= 1
    assert not (found.impossible and found.doubts), "what cannot work is not in doubt besides"
    assert not (found.impossible and found.works)
    return found.impossible[0] if found.impossible else ""


def doubts(storage_class: StorageClass, nodes: list[NodeZone] | None = None) -> list[str]:
    assert impossible(storage_class, nodes) == ""
    return list(rules.findings(storage_class, nodes).doubts)


def of(**parameters: str) -> StorageClass:
    return a_class(parameters=parameters, waits=True)


# -- what can never work


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"typ": "gp3"}, "'typ'"),
        ({"type": "gp4"}, "'gp4'"),
        ({"type": "io1"}, "iops"),
        ({"type": "gp2", "iops": "3000"}, "iops"),
        ({"type": "st1", "throughput": "200"}, "throughput"),
        ({"iops": "3000", "throughput": "1000"}, "4000"),
    ],
)
def test_parameters_that_no_volume_can_have_are_impossible(parameters, says):
    assert says in impossible(a_class(parameters=parameters, waits=True))


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param([a_term(zone=[A], ebs_zone=[B])], id="two keys of one term"),
        pytest.param(
            [a_term(zone=[A], ebs_zone=[B]), a_term(zone=[B], ebs_zone=[C])], id="every term"
        ),
    ],
)
def test_topologies_that_no_place_meets_are_impossible_wherever_nodes_are(terms):
    storage_class = a_class(allowed=terms, waits=True)

    for nodes in (None, [], in_zones(A, B, C)):
        assert "allow no zone" in impossible(storage_class, nodes)


@pytest.mark.parametrize("waits", [True, False])
def test_zone_ids_alone_are_possible_whatever_they_mean(waits):
    assert impossible(a_class(allowed=[a_term(zone_id=["use1-az9"])], waits=waits)) == ""


def test_one_term_that_a_place_meets_is_enough():
    terms = [a_term(zone=[A], ebs_zone=[B]), a_term(zone=[C])]

    assert impossible(a_class(allowed=terms, waits=True)) == ""


def test_a_zone_id_beside_a_zone_is_not_judged_without_ec2():
    assert impossible(a_class(allowed=[a_term(zone=[A], zone_id=["use1-az1"])], waits=True)) == ""


def test_an_outpost_that_is_two_at_once_is_impossible():
    key = "topology.ebs.csi.aws.com/outpost-id"
    both = [TopologyRequirement(key=key, values=[each]) for each in ("op-1", "op-2")]
    term = TopologyTerm(match_label_expressions=both)

    assert impossible(a_class(allowed=[term], waits=True)) != ""


def test_that_no_node_is_there_yet_proves_nothing():
    assert impossible(a_class(waits=False), []) == ""
    assert impossible(a_class(allowed=[a_term(zone=[A])], waits=False), in_zones(B)) == ""


# -- what is in doubt


def test_a_sound_class_is_told_nothing():
    assert (
        rules.findings(of(type="gp3", iops="6000", throughput="500"), in_zones(A, B)) == Findings()
    )


def test_binding_at_once_is_told_with_the_zones_in_which_it_may_end():
    [doubt] = doubts(a_class(), in_zones(A, B))

    assert f"{A} or {B}" in doubt
    assert "WaitForFirstConsumer" in doubt


def test_binding_at_once_is_told_even_if_no_node_is_known():
    [doubt] = doubts(a_class())

    assert "WaitForFirstConsumer" in doubt


@pytest.mark.parametrize(
    ("storage_class", "nodes"),
    [
        pytest.param(a_class(waits=True), in_zones(A, B), id="it waits"),
        pytest.param(a_class(), in_zones(A, A), id="one zone of nodes"),
        pytest.param(a_class(allowed=[a_term(zone=[A])]), in_zones(A, B), id="one zone allowed"),
        pytest.param(a_class(allowed=[a_term(zone=[A])]), None, id="one zone allowed, no nodes"),
    ],
)
def test_binding_at_once_is_no_doubt_where_there_is_no_choice(storage_class, nodes):
    assert doubts(storage_class, nodes) == []


def test_only_zones_with_the_driver_count_for_what_binds_at_once():
    nodes = [*in_zones(A), *in_zones(B, has_driver=False)]

    assert doubts(a_class(), nodes) == []


def test_a_zone_in_which_no_node_is_may_be_misspelt():
    storage_class = a_class(allowed=[a_term(zone=[A, "us-east-1q"])], waits=True)

    [doubt] = doubts(storage_class, in_zones(A, B))

    assert "us-east-1q, where no node is" in doubt
    assert f"nodes are in {A} and {B}" in doubt
    assert doubts(storage_class, []) == []


def test_more_than_aws_documents_is_a_doubt_and_never_impossible():
    [doubt] = doubts(of(type="io2", iops="300000"))

    assert "300,000 IOPS" in doubt
    assert "256,000" in doubt


@pytest.mark.parametrize("text", ["True", "yes", "1", "TRUE"])
def test_a_boolean_that_the_stock_driver_takes_for_false_is_told(text: str):
    [doubt] = doubts(of(encrypted=text))

    assert f"reads encrypted {text!r} as false" in doubt


@pytest.mark.parametrize("text", ["true", "false", "False", "no", ""])
def test_a_boolean_that_both_read_alike_is_not_told(text: str):
    assert doubts(of(encrypted=text)) == []


@pytest.mark.parametrize("name", ["fstype", "fsType", "FSTYPE"])
@pytest.mark.parametrize("provisioner", [DRIVER, IN_TREE_DRIVER])
def test_a_file_system_under_its_old_name_is_honoured_by_external_provisioner_too(
    name, provisioner
):
    storage_class = a_class(provisioner=provisioner, parameters={name: "xfs"}, waits=True)

    assert doubts(storage_class) == []


def test_a_rate_with_which_the_stock_driver_makes_no_empty_volume_is_told():
    assert "volumeInitializationRate" in " ".join(doubts(of(volumeInitializationRate="200")))


def test_what_needs_iops_has_no_effect_without():
    for name, needs in (
        ("allowAutoIOPSPerGBIncrease", "iops or iopsPerGB"),
        ("allowAutoIOPSIncreaseOnModify", "iopsPerGB"),
    ):
        [doubt] = doubts(of(**{name: "true"}))
        assert doubt == f"{name} has no effect without {needs}"


def test_iops_that_are_given_are_raised_too():
    raised = of(type="io1", iops="50", allowAutoIOPSPerGBIncrease="true")

    assert doubts(raised) == []
    assert ("4 GiB", "100 IOPS") in rules.check(raised, default_file_system="ext4").sizes


def test_what_the_in_tree_plugin_ignored_is_told_and_possible():
    parameters = {"type": "gp2", "iopsPerGB": "10"}
    storage_class = a_class(provisioner=IN_TREE_DRIVER, parameters=parameters, waits=True)

    [doubt] = doubts(storage_class)

    assert doubt.startswith("iopsPerGB has no effect on volumes of type gp2")
    assert impossible(a_class(parameters=parameters, waits=True)) != ""


def test_what_the_form_of_the_in_tree_plugin_has_no_place_for_is_told():
    parameters = {"blockSize": "4096", "blockAttachUntilInitialized": "true"}
    storage_class = a_class(provisioner=IN_TREE_DRIVER, parameters=parameters, waits=True)

    said = [text for text in doubts(storage_class) if "in-tree plugin's form" in text]

    assert len(said) == 1
    assert said[0].startswith("blockSize and blockAttachUntilInitialized cannot take effect")


def test_options_of_file_systems_are_told_to_refuse_raw_devices():
    [doubt] = doubts(of(blockSize="4096"))

    assert doubt.startswith("claims with volumeMode Block are refused: ")


def test_options_that_the_default_file_system_lacks_are_a_doubt_where_it_is_known():
    storage_class = of(ext4BigAlloc="true")

    assert not any("with a file system" in each for each in doubts(storage_class))
    found = rules.findings(storage_class, default_file_system="xfs")
    assert found.impossible == ()
    [_, doubt] = found.doubts
    assert doubt.startswith("claims with a file system are refused: ")
    assert "xfs" in doubt


def test_a_tag_that_some_claims_cannot_have_is_a_doubt():
    [doubt] = doubts(of(tagSpecification_1='team={{ .PVCName | field "-" 1 }}'))

    assert "'team'" in doubt
    assert "default/data" in doubt


# -- the report


def test_of_what_cannot_be_read_nothing_but_the_reason_is_told():
    check = rules.check(of(typ="gp3"), default_file_system="ext4")

    assert len(check.findings.impossible) == 1
    assert (check.effects, check.sizes) == ((), ())


# -- whatever a class says

NAMES = st.sampled_from(
    ["type", "iops", "iopsPerGB", "throughput", "encrypted", "kmsKeyId", "fstype", "blockSize"]
) | st.text(max_size=12)
VALUES = st.sampled_from(["gp3", "io2", "gp2", "4000", "50", "true", "ext4"]) | st.text(max_size=12)
TERMS = st.builds(
    lambda expressions: TopologyTerm(match_label_expressions=expressions),
    st.none()
    | st.lists(
        st.builds(
            TopologyRequirement,
            key=st.sampled_from(
                [
                    "topology.kubernetes.io/zone",
                    "topology.ebs.csi.aws.com/zone",
                    "topology.k8s.aws/zone-id",
                    "topology.ebs.csi.aws.com/outpost-id",
                    "kubernetes.io/os",
                ]
            ),
            values=st.none() | st.lists(st.sampled_from([A, B, "use1-az1", "", "x"]), max_size=3),
        ),
        max_size=3,
    ),
)


@given(
    parameters=st.none() | st.dictionaries(NAMES, VALUES, max_size=4),
    terms=st.none() | st.lists(TERMS, max_size=3),
    provisioner=st.sampled_from([DRIVER, IN_TREE_DRIVER]),
    waits=st.booleans(),
    nodes=st.none() | st.lists(st.sampled_from(in_zones(A, B)), max_size=3),
)
def test_whatever_a_class_says_there_is_a_finding_and_never_an_error(
    parameters, terms, provisioner, waits, nodes
):
    storage_class = a_class(
        provisioner=provisioner, parameters=parameters, allowed=terms, waits=waits
    )

    check = rules.check(storage_class, default_file_system="ext4", nodes=nodes)

    assert all((*check.findings.impossible, *check.findings.doubts))
    again = rules.findings(storage_class, in_zones(A, B, C))
    assert again.impossible == check.findings.impossible
    assert again.works == check.findings.works
