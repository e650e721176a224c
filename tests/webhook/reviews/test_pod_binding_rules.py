import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.reviews.pods import (
    SHOP,
    ZONE,
    A,
    B,
    C,
    a_node_view,
    a_pod,
    claimed,
    ephemeral,
    inline,
    known,
)
from webhook.model import pod as pods
from webhook.model.cluster_view import ClusterView, Evidence
from webhook.model.review import Json
from webhook.reviews import pod_binding_rules as rule


def a_binding(node: str | None = "node-b", kind: str | None = "Node") -> Json:
    return {
        "metadata": {"name": "web", "labels": {ZONE: A}},
        "target": {"kind": kind, "name": node},
    }


def judged(binding, pod, cluster):
    return rule.judge(binding, pods.read(pod), cluster, namespace=SHOP).answer


def evidence_of(binding, pod, cluster):
    return rule.judge(binding, pods.read(pod), cluster, namespace=SHOP).evidence


def test_a_binding_to_a_node_in_another_zone_is_refused():
    answer = judged(a_binding(), a_pod(*claimed("data")), known({"data": [A]}))

    assert (answer.allowed, answer.why, answer.code) == (False, "NodeElsewhere", 403)
    assert answer.message == (
        'pod "web" cannot be bound: one of its volumes is in us-east-1a, but node "node-b" is in '
        "us-east-1b; bind it to a node in us-east-1a; the scheduler does so if the volume's "
        "PersistentVolume has the right nodeAffinity"
    )


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param(ephemeral("data"), id="ephemeral"),
        pytest.param(inline("aws://us-east-1b/vol-0a1"), id="inline"),
    ],
)
def test_other_volumes_of_a_pod_are_looked_at_too(volume):
    cluster = known({"web-data": [A]}, zones={"vol-0a1": A})

    assert not judged(a_binding(), a_pod(volume), cluster).allowed


@pytest.mark.parametrize(
    ("binding", "cluster", "why"),
    [
        pytest.param(a_binding("node-a"), known({"data": [A]}), "ZonesAgree", id="same zone"),
        pytest.param(a_binding(), known({"data": [A, B]}), "ZonesAgree", id="one of its zones"),
        pytest.param(a_binding("new"), known({"data": [A]}), "ZonesAgree", id="unknown node"),
        pytest.param(a_binding(None), known({"data": [A]}), "ZonesAgree", id="no node"),
        pytest.param(a_binding(kind="Pool"), known({"data": [A]}), "ZonesAgree", id="no Node"),
        pytest.param({}, known({"data": [A]}), "ZonesAgree", id="no target"),
        pytest.param({"target": 5}, known({"data": [A]}), "ZonesAgree", id="rubbish"),
        pytest.param(
            a_binding(),
            known({"data": [A]}, nodes={"node-b": a_node_view(None)}),
            "ZonesAgree",
            id="node without zone",
        ),
        pytest.param(a_binding(), known({"data": None}), "NothingToDo", id="zones not known"),
        pytest.param(a_binding(), known(unbound={"data": "x"}), "NothingToDo", id="not bound"),
        pytest.param(a_binding(), ClusterView(), "NothingToDo", id="nothing known"),
    ],
)
def test_a_binding_that_is_not_proved_wrong_passes(binding, cluster, why):
    answer = judged(binding, a_pod(*claimed("data")), cluster)

    assert (answer.allowed, answer.why, answer.warnings) == (True, why, ())


@pytest.mark.parametrize("kind", [None, "", "Node"])
def test_the_target_is_a_node_unless_it_says_otherwise(kind):
    assert rule.target_of(a_binding("n", kind)) == "n"


def test_the_zone_on_the_binding_proves_nothing():
    binding = a_binding("made-up")
    binding["metadata"]["labels"][ZONE] = B

    assert judged(binding, a_pod(*claimed("data")), known({"data": [A]})).allowed


def test_a_denied_binding_rests_on_node_claim_and_volume():
    pod = a_pod(*claimed("logs", "data"))
    cluster = known({"logs": [B], "data": [A]})

    assert evidence_of(a_binding(), pod, cluster) == Evidence(
        claims=frozenset({"shop/data"}),
        volumes=frozenset({"pv-data"}),
        nodes=frozenset({"node-b"}),
    )
    assert evidence_of(a_binding("node-x"), pod, cluster) == Evidence()


@given(
    st.lists(st.none() | st.sets(st.sampled_from([A, B, C])), max_size=4),
    st.sampled_from(["node-a", "node-b", "node-c", "bare", "unknown"]),
)
def test_a_binding_is_refused_just_when_a_volume_cannot_be_used_in_the_nodes_zone(zones, node):
    names = [f"c{number}" for number in range(len(zones))]
    nodes = {"node-a": a_node_view(A), "node-b": a_node_view(B), "node-c": a_node_view(C)}
    cluster = known(dict(zip(names, zones, strict=True)), nodes=nodes | {"bare": a_node_view(None)})
    pod = a_pod(*claimed(*names))

    answer = judged(a_binding(node), pod, cluster)
    evidence = evidence_of(a_binding(node), pod, cluster)

    at = {"node-a": A, "node-b": B, "node-c": C}.get(node)
    strangers = [each for each in zones if each and at and at not in each]
    assert answer.allowed == (not strangers)
    assert judged(a_binding(node), pod, cluster.only(evidence)).allowed == answer.allowed
