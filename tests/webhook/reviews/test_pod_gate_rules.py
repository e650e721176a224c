"""Which new pods are held back for a VolumeMove, and how that is written to them."""

from typing import Any

import pytest

from tests.webhook.reviews.pods import A, a_pod, claimed, ephemeral
from webhook.model.pod import read
from webhook.model.review import Json
from webhook.reviews import pod_gate_rules as rules

GATE = "ebs-provisioner.io/volume-move"
NOTE = "/metadata/annotations/ebs-provisioner.io~1held-for-move"
OTHER = {"name": "example.com/other"}


def holder_of(claim_key: str) -> str:
    return {"shop/data": "shop/to-b", "shop/logs": "shop/logs-to-b"}.get(claim_key, "")


def patched(pod: Json) -> list[Json]:
    return list(rules.hold(read(pod), holder_of, "shop").patch)


def test_a_pod_of_a_claim_that_is_moved_gets_the_gate_and_names_the_move():
    answer = rules.hold(read(a_pod(*claimed("cache", "data"))), holder_of, "shop")

    assert (answer.allowed, answer.why) == (True, "HeldForMove")
    assert list(answer.patch) == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]},
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"ebs-provisioner.io/held-for-move": "shop/to-b"},
        },
    ]
    (warning,) = answer.warnings
    assert "VolumeMove shop/to-b" in warning
    assert 'claim "data"' in warning


def test_the_gates_and_annotations_of_others_stay():
    pod = a_pod(*claimed("data"))
    pod["spec"]["schedulingGates"] = [OTHER]
    pod["metadata"]["annotations"] = {"team": "shop"}

    assert patched(pod) == [
        {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}},
        {"op": "add", "path": NOTE, "value": "shop/to-b"},
    ]


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(*claimed("cache")),
        a_pod(*claimed("data"), node="node-a"),
        a_pod(ephemeral("data"), name="shop"),
        {"metadata": {"name": "web"}},
        {},
    ],
    ids=["another claim", "it has its node", "an ephemeral volume", "no spec", "nothing"],
)
def test_other_pods_are_left_as_they_are(pod: Json):
    answer = rules.hold(read(pod), holder_of, "shop")

    assert (answer.allowed, answer.why, answer.patch) == (True, "NothingToDo", ())


def test_a_claim_of_that_name_in_another_namespace_is_another_claim():
    assert rules.hold(read(a_pod(*claimed("data"))), holder_of, "lab").patch == ()


def test_asked_again_it_adds_no_second_gate():
    pod = a_pod(*claimed("data"))
    pod["spec"]["schedulingGates"] = [OTHER, {"name": GATE}]

    assert patched(pod) == []


def test_only_the_claims_that_are_moved_do_not_count_for_the_zone_of_a_pod():
    left = rules.without_held(read(a_pod(*claimed("cache", "data"))), holder_of, "shop")

    assert [each.name for each in left.volumes] == ["v-cache"]


@pytest.mark.parametrize("how", [{"node": "node-a"}, {"selector": {"zone": A}}])
def test_all_claims_count_of_a_pod_that_has_its_node_or_uses_none_that_is_moved(
    how: dict[str, Any],
):
    pod = read(a_pod(*claimed("data" if "node" in how else "cache"), **how))

    assert rules.without_held(pod, holder_of, "shop") is pod
