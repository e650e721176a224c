from typing import Any

import pytest

from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_LABEL
from tests.webhook.decide.persistent_volumes import DISK, A, B, has, term
from webhook.decide.nodes import kinds, running_driver_in, suits, unmet
from webhook.model.views import NodeView


def a_node(zone: str | None = A, *, has_driver: bool = True, **labels: str) -> NodeView:
    written = ({ZONE_LABEL: zone} if zone else {}) | {
        KEYS[key]: each for key, each in labels.items()
    }
    return NodeView(tuple(sorted(written.items())), zone, schedulable=True, has_driver=has_driver)


KEYS = {"ebs": EBS_ZONE_LABEL, "region": REGION_LABEL, "rack": "topology.k8s.aws/network-node-1"}


def test_thousands_of_nodes_are_of_a_few_kinds():
    nodes = [a_node(zone, rack=f"nn-{number}") for zone in (A, B) for number in range(1000)]

    assert kinds([*nodes, None]) == {a_node(A), a_node(B)}


def test_nodes_of_a_zone_are_those_that_run_the_driver_and_have_one_key_that_says_so():
    rack = NodeView(
        ((EBS_ZONE_LABEL, A), (ZONE_LABEL, "rack-1")), None, schedulable=True, has_driver=True
    )

    found = running_driver_in(A, [a_node(), rack, a_node(B), a_node(has_driver=False)])

    assert found == {a_node(), rack}


@pytest.mark.parametrize(
    ("expression", "does"),
    [
        (has(ZONE_LABEL, A, B), True),
        (has(ZONE_LABEL, B), False),
        (has(EBS_ZONE_LABEL, A), False),
        (has(EBS_ZONE_LABEL, A, operator="NotIn"), True),
        (has(ZONE_LABEL, A, operator="NotIn"), False),
        (has(ZONE_LABEL, operator="Exists"), True),
        (has(EBS_ZONE_LABEL, operator="Exists"), False),
        (has(BETA_ZONE_LABEL, operator="DoesNotExist"), True),
        (has(ZONE_LABEL, operator="DoesNotExist"), False),
        (has(REGION_LABEL, "5", operator="Gt"), True),
        (has(ZONE_LABEL, "5", operator="Lt"), False),
        (has(DISK, "ssd"), True),
        (has(ZONE_LABEL, A, operator="of-tomorrow"), True),
        ({"key": ZONE_LABEL, "operator": "In", "values": None}, False),
        ({"key": ZONE_LABEL, "operator": "In", "values": [{}]}, False),
    ],
)
def test_a_node_suits_by_its_labels_of_zone_and_region_and_others_may_be_there(
    expression: Any,
    does: bool,  # noqa: FBT001 -- of a table
):
    assert suits([term(expression)], a_node(region="7")) is does


def test_one_term_is_enough_and_an_empty_one_matches_nothing():
    assert not suits([{}], a_node())
    assert suits([{}, term(has(ZONE_LABEL, A))], a_node())
    assert suits([{"matchFields": [has("metadata.name", "n")]}], a_node())
    assert not suits([term(has(ZONE_LABEL, A), has(ZONE_LABEL, B))], a_node())


HERE = a_node(region="us-east-1")


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        pytest.param([term(has(REGION_LABEL, "us-east-1"))], "", id="met"),
        pytest.param([term(has(DISK, "ssd"))], "", id="nothing about zones"),
        pytest.param([term(has(EBS_ZONE_LABEL, "rack"))], "", id="a label that may yet come"),
        pytest.param([], "", id="no terms"),
        pytest.param(
            [term(has(REGION_LABEL, "c", "b", "a"))],
            f"asks for {REGION_LABEL} a or b or 1 more, and nodes there have us-east-1",
            id="another word",
        ),
        pytest.param(
            [term(has(REGION_LABEL, operator="DoesNotExist"))],
            "matches none of the nodes there",
            id="no word at all",
        ),
        pytest.param(
            [term({"key": REGION_LABEL, "operator": "In", "values": [{}]})],
            f"asks for {REGION_LABEL} {{}}, and nodes there have us-east-1",
            id="rubbish",
        ),
    ],
)
def test_what_no_node_there_can_match_is_put_into_words(terms: list[Any], why: str):
    assert unmet(terms, [HERE]) == why
    assert unmet(terms, []) == ""
