"""The rule reasons over zones and terms; here it is held against made-up nodes with all labels.

The oracle knows no zones: it matches the pod with each of a set of nodes as kube-scheduler does,
one label after the other, and looks whether the node is in the zones of every volume.
"""

from itertools import product
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.webhook.reviews.pods import (
    BETA_ZONE,
    EBS_ZONE,
    ELSEWHERE,
    REGION,
    SHOP,
    ZONE,
    A,
    B,
    C,
    a_node_view,
    a_pod,
    claimed,
    inline,
    known,
    term,
)
from webhook.model import pod as pods
from webhook.model.cluster_view import ClusterView
from webhook.model.review import Json
from webhook.reviews import pod_rules as rule

ZONES = (A, B, C, ELSEWHERE)
RACK, ACME = "rack-1", "acme-east-1"
Labels = dict[str, str]


def labelled(zone: str) -> list[Labels]:
    """Nodes that may come up in a zone: of its keys only the current one is always there."""
    optional = {
        EBS_ZONE: (zone, None),
        BETA_ZONE: (zone, None),
        REGION: (zone[:-1], "home", ACME, "7", None),
        "disk": ("ssd", "7", None),
    }
    return [
        {ZONE: zone} | {key: value for key, value in zip(optional, chosen, strict=True) if value}
        for chosen in product(*optional.values())
    ]


MADE_UP = [labels for zone in ZONES for labels in labelled(zone)]


def zones_of(labels: Labels) -> set[str]:
    """All that a node calls its zone: which key a volume's affinity has is not kept."""
    return {labels[key] for key in (ZONE, EBS_ZONE, BETA_ZONE) if key in labels}


def holds(expression: Json, labels: Labels) -> bool:
    there = expression["key"] in labels
    value = labels.get(expression["key"], "")
    values = expression["values"]
    match expression["operator"]:
        case "In":
            return there and value in values
        case "NotIn":
            return not there or value not in values
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
        case "Gt":
            return value.isdecimal() and int(value) > int(values[0])
        case operator:
            assert operator == "Lt"
            return value.isdecimal() and int(value) < int(values[0])


def matches(one: Json, labels: Labels) -> bool:
    expressions = one.get("matchExpressions", [])
    named = bool(one.get("matchFields"))  # by the node's name, which any of these could have
    return (bool(expressions) or named) and all(holds(each, labels) for each in expressions)


def suits(pod: Json, labels: Labels) -> bool:
    spec = pod["spec"]
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", []
    )
    return not terms or any(matches(each, labels) for each in terms)


def somewhere(pod: Json, zones: list[set[str]], node_zone: str | None) -> bool:
    """Whether one of the nodes takes the pod, and has all volumes in its zone."""
    candidates = MADE_UP if node_zone is None else labelled(node_zone)
    return any(
        suits(pod, labels) and all(zones_of(labels) & each for each in zones)
        for labels in candidates
    )


REGIONS = ["us-east-1", "us-west-2", "home", ACME, "7"]
NUMBERS = {"Gt": st.just(["5"]), "Lt": st.just(["5"])}
zone_lists = st.lists(st.sampled_from(ZONES), min_size=1, max_size=3)
words = st.lists(st.sampled_from((*ZONES, RACK)), min_size=1, max_size=3)
some_zones = st.sets(st.sampled_from(ZONES), min_size=1, max_size=3)
# Mostly in A: volumes that are all apart would hide what demands do. None: nobody knows its zones.
volume_zones = st.sampled_from([None, {A}, {A}, {A}, {A, B}, {B, C}, {A, C}]) | some_zones


@st.composite
def expressions(draw: st.DrawFn) -> Json:
    key = draw(st.sampled_from([ZONE, EBS_ZONE, BETA_ZONE, REGION, "disk"]))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    of_key = {
        REGION: st.lists(st.sampled_from(REGIONS), min_size=1),
        "disk": st.lists(st.sampled_from(["ssd", "hdd", "7"]), min_size=1),
    }
    values = draw(NUMBERS.get(operator, of_key.get(key, words)))
    return {"key": key, "operator": operator, "values": values}


@st.composite
def terms(draw: st.DrawFn) -> Json:
    one: Json = {"matchExpressions": draw(st.lists(expressions(), max_size=2))}
    if draw(st.integers(0, 9)) == 7:
        one["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    return one


selectors = st.dictionaries(
    st.sampled_from([ZONE, EBS_ZONE, BETA_ZONE, REGION, "disk"]),
    st.sampled_from([*ZONES, RACK, *REGIONS, "ssd"]),
)
node_names = st.sampled_from([None, None, None, None, "node-a", "node-b", "bare", "unknown"])
NODES = {"node-a": a_node_view(A), "node-b": a_node_view(B), "bare": a_node_view(None)}


def made(
    zones: list[set[str] | None],
    inline_zone: str | None,
    **demands: Any,
) -> tuple[Json, ClusterView]:
    names = [f"c{number}" for number in range(len(zones))]
    volumes = [*claimed(*names), *([inline("vol-0a1")] if inline_zone else [])]
    cluster = known(
        dict(zip(names, zones, strict=True)),
        nodes=NODES,
        zones={"vol-0a1": inline_zone} if inline_zone else {},
    )
    return a_pod(*volumes, **demands), cluster


def asks(selector: Labels | None = None, terms: list[Json] | None = None) -> dict[str, Any]:
    return {"selector": selector, "terms": terms}


demands = st.builds(asks, st.none() | selectors, st.none() | st.lists(terms(), max_size=2))


@settings(max_examples=600)
@given(
    st.lists(volume_zones, max_size=3),
    st.sampled_from([None, None, A, B]),
    node_names,
    demands,
)
@example([{A}], None, None, asks(terms=[term(BETA_ZONE, "NotIn", A)]))
@example([{A}], None, None, asks({REGION: "home"}))
@example([{A}], None, None, asks({REGION: ACME}))
@example([{A, B}, {B, C}, {A, C}], None, None, asks())
def test_a_pod_is_only_refused_if_no_node_of_any_zone_could_run_it(
    zones, inline_zone, node, demands
):
    pod, cluster = made(zones, inline_zone, node=node, **demands)
    volumes = [each for each in zones if each] + ([{inline_zone}] if inline_zone else [])
    named = NODES.get(node)

    verdict = rule.judge(pods.read(pod), cluster, namespace=SHOP)

    possible = somewhere(pod, volumes, named.zone if named else None)
    refused = not verdict.answer.allowed
    assert not (refused and possible)
    # Only a refusal is proved, by less than is known: it has to be the same one then.
    less = cluster.only(verdict.evidence)
    assert not refused or rule.judge(pods.read(pod), less, namespace=SHOP) == verdict


@given(
    st.lists(some_zones, min_size=1, max_size=4),
    node_names,
    st.none() | st.fixed_dictionaries({ZONE: st.sampled_from(ZONES)}),
    st.none() | st.lists(st.builds(lambda at: term(ZONE, "In", *at), zone_lists), min_size=1),
)
def test_a_pod_that_speaks_of_zones_alone_is_always_refused_then(zones, node, selector, required):
    pod, cluster = made(list(zones), None, node=node, selector=selector, terms=required)
    named = NODES.get(node)
    anywhere = a_pod()

    answer = rule.judge(pods.read(pod), cluster, namespace=SHOP).answer

    by_demands = somewhere(pod, zones, None)
    by_node = somewhere(anywhere, zones, named.zone if named else None)
    assert answer.allowed == (by_demands and by_node)
