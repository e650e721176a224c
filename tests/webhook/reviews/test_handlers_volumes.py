"""Reviews of persistent volumes, from the request to the answer."""

import json
from base64 import b64decode
from typing import Any

import pytest

from provisioner.model.errors import Ec2Error, Reason
from tests.webhook.edges import (
    Ec2,
    Kube,
    a_csi_node,
    a_node,
    a_persistent_volume,
    failing,
)
from tests.webhook.reviews.persistent_volumes import applied
from tests.webhook.world import BUDGET_S, World
from webhook.model.review import Answer, Json
from webhook.serving.dispatch import Dispatcher, Reply

A, B = "us-east-1a", "us-east-1b"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
UNREACHABLE = Ec2Error(Reason.UNREACHABLE, "no route", action="DescribeVolumes")


def in_zone_a(**more: Any) -> World:
    """A node with the driver in zone a, and vol-1 there too."""
    kube = Kube()
    kube.put("nodes", a_node())
    kube.put("csinodes", a_csi_node())
    return World(kube, Ec2({"vol-1": A}), **more)


def zones_of(document: Json) -> list[Any]:
    terms = document["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return [each["values"] for term in terms for each in term["matchExpressions"]]


def after(document: Json, answer: Answer) -> Json:
    assert answer.allowed
    return applied(document, answer.patch)


def test_a_bare_volume_gains_the_zone_that_ec2_has_it_in():
    bare = a_persistent_volume(zone=None)

    result = after(bare, in_zone_a().answer("mutate", bare))

    assert result["metadata"]["labels"] == {ZONE: A}
    assert zones_of(result) == [[A]]


def test_a_label_that_not_every_node_of_the_zone_has_is_left_out():
    world = in_zone_a()
    named = a_node("node-2")
    named["metadata"]["labels"][REGION] = "us-east-1"
    world.kube.put("nodes", named)
    world.kube.put("csinodes", a_csi_node("node-2"))
    bare = a_persistent_volume(zone=None)

    assert after(bare, world.answer("mutate", bare))["metadata"]["labels"] == {ZONE: A}

    world.kube.remove("nodes", "node-1")
    result = after(bare, world.answer("mutate", bare))
    assert result["metadata"]["labels"] == {ZONE: A, REGION: "us-east-1"}


@pytest.mark.parametrize("terms", [None, [{"matchExpressions": [SSD]}]], ids=["nil", "a user's"])
def test_the_affinity_has_the_key_that_nodes_have(terms: list[Json] | None):
    world = in_zone_a()
    node = a_node(zone=None)
    node["metadata"]["labels"]["topology.ebs.csi.aws.com/zone"] = A
    world.kube.put("nodes", node)
    bare = a_persistent_volume(zone=None)
    if terms:
        bare["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}

    result = after(bare, world.answer("mutate", bare))

    (term,) = result["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    within = {"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [A]}
    assert term["matchExpressions"][-1] == within
    assert "labels" not in result["metadata"]


@pytest.mark.parametrize("word", ["acme-east-1", "us-east1"])
def test_words_of_the_clusters_own_for_a_region_are_neither_refused_nor_taken_away(word: str):
    world = in_zone_a()
    named = a_persistent_volume(labels={REGION: word})
    within = {"key": REGION, "operator": "In", "values": [word]}
    pinned = named["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    pinned.append(within)

    result = after(named, world.answer("mutate", named))
    answer = world.answer("validate", result)

    assert result["metadata"]["labels"] == {ZONE: A, REGION: word}
    assert (answer.allowed, answer.warnings) == (True, ())


def test_labels_that_need_escaping_survive_a_whole_review():
    odd = {'say "hi"/~0~1': 'a\\"\u2028b\n', "~/": "~1", REGION: "us-west-2", ZONE: B}
    wrong = a_persistent_volume(labels=odd)
    world = in_zone_a()
    request = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"version": "v1", "resource": "persistentvolumes"},
        "object": wrong,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    async def story() -> Reply:
        assert world._handlers is not None
        dispatcher = Dispatcher(world._handlers.by_path(), strict=False, metrics=world.metrics)
        body = json.dumps(review).encode()
        return await dispatcher.answer("/mutate/persistentvolumes", body, 5.0)

    response = json.loads(world.tell(story).body)["response"]

    assert [f"label {ZONE} says {B};" in each for each in response["warnings"]] == [True, False]
    patch = json.loads(b64decode(response["patch"]))
    assert sorted((each["op"], each["path"].rpartition("/")[2]) for each in patch) == [
        ("remove", "topology.kubernetes.io~1region"),
        ("replace", "topology.kubernetes.io~1zone"),
    ]
    kept = {key: value for key, value in odd.items() if key != REGION}
    assert applied(wrong, patch)["metadata"]["labels"] == kept | {ZONE: A}


def test_both_reviews_of_one_volume_ask_ec2_once():
    world = in_zone_a()
    bare = a_persistent_volume(zone=None)

    async def story() -> Answer:
        result = after(bare, await world.review("mutate", bare))
        return await world.review("validate", result)

    answer = world.tell(story)

    assert (answer.allowed, answer.warnings) == (True, ())
    assert world.ec2.asked == [["vol-1"]]


def test_an_annotation_of_the_provisioner_proves_nothing():
    world = in_zone_a()
    forged = a_persistent_volume(
        zone=B, annotations={"pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com"}
    )

    answer = world.answer("validate", forged)

    assert (answer.allowed, answer.code) == (False, 422)
    assert world.ec2.asked == [["vol-1"]]


def test_a_volume_in_another_zone_than_its_affinity_says_is_refused_by_both_names():
    answer = in_zone_a().answer("validate", a_persistent_volume(zone=B))

    assert (answer.allowed, answer.code) == (False, 422)
    assert A in answer.message
    assert B in answer.message


def test_a_volume_that_ec2_does_not_know_is_refused_after_two_questions():
    world = World()

    answer = world.answer("validate", a_persistent_volume())

    assert (answer.allowed, answer.code, answer.why) == (False, 422, "VolumeMissing")
    assert len(world.ec2.asked) == 2
    assert world.took_s < BUDGET_S


@pytest.mark.parametrize("about", ["mutate", "validate"])
def test_while_ec2_says_nothing_a_volume_is_let_through_with_a_warning(about: str):
    world = in_zone_a()
    world.ec2.first = failing(UNREACHABLE)

    answer = world.answer(about, a_persistent_volume(zone=None))

    assert (answer.allowed, answer.patch) == (True, ())
    assert "EC2 cannot be reached" in answer.warnings[0]


@pytest.mark.parametrize("about", ["mutate", "validate"])
def test_a_strict_webhook_has_it_tried_again_instead(about: str):
    world = in_zone_a(strict=True)
    world.ec2.first = failing(UNREACHABLE)

    answer = world.answer(about, a_persistent_volume(zone=None))

    assert (answer.allowed, answer.code, answer.retry_after_s) == (False, 503, 1)


def test_volumes_of_others_and_handles_of_no_form_cost_no_question():
    world = in_zone_a()

    other = world.answer("mutate", a_persistent_volume(driver="nfs.csi.k8s.io"))
    odd = world.answer("mutate", a_persistent_volume(volume="vol-*"))
    refused = world.answer("validate", a_persistent_volume(volume="vol-*"))

    assert (other.allowed, other.patch) == (True, ())
    assert (odd.allowed, odd.patch) == (True, ())
    assert (refused.allowed, refused.code) == (False, 422)
    assert world.ec2.asked == []


def test_before_the_nodes_are_known_a_volume_gains_its_affinity_and_no_label():
    world = in_zone_a(filled=False)
    bare = a_persistent_volume(zone=None)

    result = after(bare, world.answer("mutate", bare))

    assert zones_of(result) == [[A], [A]]  # by either key: the next node may have one alone
    assert "labels" not in result["metadata"]
    assert world.took_s == BUDGET_S


def test_a_review_changes_nothing_so_a_dry_run_is_one_like_any_other():
    world = in_zone_a()

    assert world.answer("mutate", a_persistent_volume(zone=None)).patch
    assert world.kube.read == []  # and this API server could not take a write


def test_a_wrong_label_that_is_applied_again_is_corrected_again_and_nothing_else():
    world = in_zone_a(strict=True)
    wrong = a_persistent_volume(zone=B, labels={ZONE: B})

    answer = world.answer("mutate", wrong, operation="UPDATE")

    result = after(wrong, answer)
    assert result["metadata"]["labels"] == {ZONE: A}
    assert result["spec"] == wrong["spec"]
    assert "the label was corrected" in answer.warnings[0]
