from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.node_affinity import (
    REGION_LABEL,
    allows,
    labels_in,
    matches,
    may_match,
    names_region,
    names_zone,
    region_of,
    terms_of,
    zones_named,
)
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_LABEL

A, B = "us-east-1a", "us-east-1b"


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("eu-west-3-cmn-wlz-1a", "eu-west-3"),
        ("us-east-1-foe-wlz-1a", "us-east-1"),
        ("us-gov-east-1b", "us-gov-east-1"),
        ("cn-north-1a", "cn-north-1"),
        ("rack7", ""),
        ("", ""),
    ],
)
def test_a_zone_tells_its_region(zone: str, region: str):
    assert region_of(zone) == region
    assert names_zone(zone) == bool(region)


@pytest.mark.parametrize("key", [ZONE_LABEL, EBS_ZONE_LABEL, BETA_ZONE_LABEL])
def test_in_names_the_zones_under_every_key(key: str):
    terms = [term(key, "In", A)]

    assert allows(terms, A)
    assert not allows(terms, B)
    assert zones_named(terms) == frozenset({A})


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
@pytest.mark.parametrize(
    ("key", "may"), [(ZONE_LABEL, False), (EBS_ZONE_LABEL, True), (REGION_LABEL, True)]
)
def test_only_the_label_that_every_node_has_can_exclude_by_being_there(
    key: str,
    operator: str,
    may: bool,  # noqa: FBT001 -- of a table
):
    assert allows([term(key, operator, A, "us-east-1")], A) is may


@pytest.mark.parametrize(
    ("operator", "values", "may"),
    [
        ("In", ["home"], True),
        ("In", ["us-west-2", "dc-1"], True),
        ("In", ["us-west-2"], False),
        ("In", ["acme-east-1"], True),
        ("In", ["us-east-1-prod"], True),
        ("In", [], False),
        ("Gt", ["5"], True),
    ],
)
def test_a_region_that_is_none_of_aws_may_be_what_nodes_here_are_labelled_with(
    operator: str,
    values: list[str],
    may: bool,  # noqa: FBT001 -- of a table
):
    assert allows([term(REGION_LABEL, operator, *values)], A) is may


@pytest.mark.parametrize(
    "region",
    [
        *("us-east-1", "ap-southeast-2", "ca-central-1", "il-central-1", "cn-northwest-1"),
        *("us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", "eusc-de-east-1"),
        "us-west-2-lax-1",
    ],
)
def test_the_regions_of_every_partition_are_known_by_their_form(region: str):
    assert names_region(region)


@pytest.mark.parametrize(
    "word",
    ["", "home", "dc-1", "acme-east-1", "on-prem-1", "home-lab-1", "us-east-1-prod", "US-EAST-1"],
)
def test_any_other_word_is_somebodys_own(word: str):
    assert not names_region(word)


def test_other_keys_may_have_any_value():
    assert allows([term("team", "In", "db"), term("disk", "Exists")], A)
    assert zones_named([term("team", "In", "db")]) is None


def test_terms_are_alternatives_and_expressions_hold_together():
    both = {"matchExpressions": [*term(ZONE_LABEL, "In", A, B)["matchExpressions"]]}
    both["matchExpressions"] += term(EBS_ZONE_LABEL, "In", B)["matchExpressions"]

    assert zones_named([both]) == frozenset({B})
    assert zones_named([both, term(ZONE_LABEL, "In", A)]) == frozenset({A, B})


def test_a_zone_is_no_number():
    assert not allows([term(ZONE_LABEL, "Gt", "1")], A)


def test_an_empty_term_matches_no_node_and_one_by_name_any():
    assert not allows([{}], A)
    assert zones_named([{}]) is None
    assert allows([{"matchFields": [{"key": "metadata.name"}]}], A)


@pytest.mark.parametrize(
    "required", [None, [], "rubbish", {}, {"nodeSelectorTerms": None}, {"nodeSelectorTerms": 7}]
)
def test_what_is_no_node_selector_has_no_terms(required: Any):
    assert terms_of(required) == []


@pytest.mark.parametrize("values", [None, 7, "us-east-1a"])
def test_values_of_a_wrong_type_name_nothing(values: Any):
    odd = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": values}]}

    assert not allows([odd], A)


def test_a_zone_of_an_unknown_form_has_no_region():
    assert REGION_LABEL not in labels_in("rack7")
    assert labels_in(A)[REGION_LABEL] == "us-east-1"


LABELS = {"zone": "a", "disk": "ssd", "cpus": "16"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ["a", "b"], True),
        ("zone", "In", ["b"], False),
        ("rack", "In", ["a"], False),
        ("zone", "NotIn", ["b"], True),
        ("zone", "NotIn", ["a"], False),
        ("rack", "NotIn", ["a"], True),
        ("disk", "Exists", None, True),
        ("rack", "Exists", None, False),
        ("rack", "DoesNotExist", [], True),
        ("disk", "DoesNotExist", [], False),
        ("cpus", "Gt", ["8"], True),
        ("cpus", "Gt", ["16"], False),
        ("cpus", "Lt", ["32"], True),
        ("cpus", "Lt", ["16"], False),
        ("rack", "Gt", ["8"], False),
        ("rack", "Lt", ["8"], False),
        ("disk", "Gt", ["8"], False),
        ("cpus", "Gt", ["8", "9"], False),
        ("cpus", "Gt", [], False),
        ("zone", "Like", ["a"], False),
        ("zone", None, None, False),
    ],
)
def test_a_node_that_is_known_matches_as_the_scheduler_says(key, operator, values, holds):
    expression = {"key": key, "operator": operator, "values": values}

    assert matches([{"matchExpressions": [expression]}], LABELS, "node-1") is holds


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        ([], False),
        ([{}], False),
        ([{"matchExpressions": None, "matchFields": []}], False),
        (
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}],
            True,
        ),
        ([{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["node-1"]}]}], False),
        ([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}], True),
    ],
)
def test_a_node_that_is_known_has_to_match_one_term_that_says_something(terms, found):
    assert matches(terms, LABELS, "node-1") is found


@given(
    st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from(["a", "b"])),
    st.sampled_from(["zone", "disk"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
)
def test_what_a_node_matches_it_also_may_match_when_only_its_labels_are_known(
    labels, key, operator
):
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": ["a"]}]}

    if matches([term], labels, "node-1"):
        assert may_match(term, labels)
