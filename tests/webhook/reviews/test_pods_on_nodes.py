"""Reviews of pods where nodes are labelled by their owners, or a pod names its node itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webhook.edges import Kube, a_claim, a_csi_node, a_node, a_persistent_volume
from tests.webhook.reviews.pods import BETA_ZONE, EBS_ZONE, REGION, ZONE, A, B, a_pod, claimed, term
from tests.webhook.world import World
from webhook.model.review import Answer, Json

RACK, ACME = "rack-1", "acme-east-1"


def a_world(*, pinned_by: str = ZONE, value: str = A, **labels: str | None) -> World:
    """A claim bound in zone a, a node with the driver there, labelled so, and one in zone b."""
    kube = Kube()
    node = a_node("node-a")
    keys = {"zone": ZONE, "ebs": EBS_ZONE, "beta": BETA_ZONE, "region": REGION}
    written = node["metadata"]["labels"] | {keys[key]: each for key, each in labels.items()}
    node["metadata"]["labels"] = {key: each for key, each in written.items() if each}
    kube.put("nodes", node, a_node("node-b", zone=B))
    kube.put("csinodes", a_csi_node("node-a"), a_csi_node("node-b"))
    volume = a_persistent_volume(zone=None)
    required = {"nodeSelectorTerms": [term(pinned_by, "In", value)]}
    volume["spec"]["nodeAffinity"] = {"required": required}
    kube.put("persistentvolumes", volume)
    kube.put("persistentvolumeclaims", a_claim("data", bound="pv"))
    return World(kube)


def by_name(*names: str) -> list[Json]:
    """Terms as a DaemonSet writes them."""
    field = {"key": "metadata.name", "operator": "In", "values": list(names)}
    return [{"matchFields": [field]}]


@pytest.mark.parametrize(
    ("labels", "demand"),
    [
        pytest.param({"region": ACME}, {"selector": {REGION: ACME}}, id="a Region of its own"),
        pytest.param({"zone": RACK, "ebs": A}, {"selector": {ZONE: RACK}}, id="a rack"),
        pytest.param({"beta": RACK}, {"selector": {BETA_ZONE: RACK}}, id="a rack, beta key"),
    ],
)
def test_a_pod_that_a_node_beside_its_volume_could_take_is_let_through(
    labels: dict[str, Any], demand: dict[str, Any]
):
    answer = a_world(pinned_by=EBS_ZONE, **labels).answer("pod", a_pod(*claimed("data"), **demand))

    assert (answer.allowed, answer.warnings) == (True, ())


@pytest.mark.parametrize("labels", [{"ebs": A}, {"zone": RACK, "ebs": A}, {"zone": None, "ebs": A}])
def test_a_pod_that_wants_another_zone_is_refused_however_nodes_are_labelled(
    labels: dict[str, Any],
):
    world = a_world(pinned_by=EBS_ZONE, **labels)

    answer = world.answer("pod", a_pod(*claimed("data"), selector={ZONE: B}))

    assert (answer.allowed, answer.why) == (False, "SelectorElsewhere")
    assert not any(each.startswith("nodes") for each in world.kube.read)


def test_a_node_that_is_too_new_for_the_cache_is_no_reason_to_refuse_a_word_of_its_owner():
    world = a_world()
    world.kube.remove("nodes", "node-a")

    assert world.answer("pod", a_pod(*claimed("data"), selector={REGION: ACME})).allowed


def test_a_pod_that_asks_for_a_rack_is_let_through_while_no_node_of_it_is_up():
    world = a_world(zone=RACK, ebs=A, pinned_by=EBS_ZONE)
    world.kube.remove("nodes", "node-a")

    assert world.answer("pod", a_pod(*claimed("data"), selector={ZONE: RACK})).allowed


# A pod that names its node.


def test_a_pod_whose_affinity_names_one_node_elsewhere_is_refused_after_that_was_read():
    world = a_world()

    answer = world.answer("pod", a_pod(*claimed("data"), terms=by_name("node-b")))

    assert (answer.allowed, answer.why) == (False, "NodeElsewhere")
    assert f'matchFields metadata.name is "node-b", a node in {B}' in answer.message
    assert "nodes node-b" in world.kube.read
    assert world.live_reads() == {"confirmed": 1}


def test_a_node_that_was_made_anew_since_is_no_reason_to_refuse_a_pod_that_names_it():
    world = a_world()

    async def story() -> Answer:
        world.kube.put("nodes", a_node("node-b", zone=A), unseen=True)
        return await world.review("pod", a_pod(*claimed("data"), terms=by_name("node-b")))

    assert world.tell(story).allowed
    assert world.live_reads() == {"overturned": 1}


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param(by_name("node-a"), id="beside it"),
        pytest.param(by_name("node-z"), id="unknown"),
        pytest.param(by_name("node-a", "node-b"), id="several"),
        pytest.param([*by_name("node-b"), *by_name("node-a")], id="in several terms"),
        pytest.param([*by_name("node-b"), term("disk", "In", "ssd")], id="or others"),
    ],
)
def test_a_pod_whose_affinity_leaves_another_node_is_let_through(terms: list[Json]):
    assert a_world().answer("pod", a_pod(*claimed("data"), terms=terms)).allowed


def test_pods_of_a_daemonset_are_let_through_for_one_refusal_holds_up_those_of_other_nodes():
    pod = a_pod(*claimed("data"), terms=by_name("node-b"))
    pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "cache", "uid": "1"}]

    assert a_world().answer("pod", pod).allowed
