"""Where the pods that wait for a claim can run."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import read
from provisioner.controller.placement.consumer_rules import (
    Consumers,
    SiblingVolumes,
    beside_siblings,
    eligible_nodes,
    is_surely_beside,
    places,
    why_no_place,
)
from provisioner.controller.placement.eligible_node_rules import EligibleNode, EligibleNodes
from provisioner.model.claim import Claim
from provisioner.model.names import PINNED_ZONE
from provisioner.model.node import Node, registered_place
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.pod import Pod
from provisioner.model.zone import Place, place_of
from tests.builders import DRIVER, VOLUME, a_claim, a_class, a_csi_node, a_node, a_term
from tests.pods import a_placed_volume, a_pod, labelled, tainted


def pinned(place: Place, uid: str = "uid-of-logs") -> Claim:
    """A bound claim, and where its volume was made by its own word."""
    made = a_claim("logs", uid=uid).pin(place.zone, place.outpost_arn)
    told = {PINNED_ZONE: made}
    own = "uid-of-logs"
    return a_claim("logs", uid=own, volume_name=MADE, node="node-a", annotations=told)


MADE = "pvc-uid-of-logs"
WAITS = a_claim(node="node-a")
A, B, C = (Place(f"us-east-1{letter}") for letter in "abc")
POD = a_pod()


def home(node: Node) -> EligibleNode:
    place = place_of(node.labels)
    assert place is not None
    return EligibleNode(node, place)


def nodes(*places: Place, **changed: Node) -> EligibleNodes:
    """A node in each of three zones, ``a``, ``b`` and ``c``; some of them changed."""
    usual = {
        place.zone[-1]: a_node(f"node-{place.zone[-1]}", zone=place.zone)
        for place in places or (A, B, C)
    }
    return only(*(usual | changed).values())


def only(*found: Node) -> EligibleNodes:
    """These nodes, each where its labels say."""
    return EligibleNodes(map(home, found))


def in_b(**changes):
    return a_node("node-b", zone=B.zone, **changes)


def test_a_pod_without_wishes_can_run_wherever_there_are_nodes():
    assert places(Consumers((POD,), nodes())) == {A: "node-a", B: "node-b", C: "node-c"}


def test_without_a_pod_nothing_is_known():
    assert places(Consumers((), nodes())) == {}


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        (POD, tainted(in_b(), "gpu")),
        (POD, tainted(in_b(), "gpu", cordoned=True)),
        (a_pod(selector={"disk": "ssd"}), labelled(in_b(), disk="hdd")),
        (a_pod(node="node-a"), in_b()),
        (
            a_pod(required=[{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]),
            in_b(),
        ),
    ],
    ids=["taint", "cordon", "selector", "nodeName", "affinity"],
)
def test_a_node_that_cannot_take_the_pod_is_none(pod, node):
    consumers = Consumers((pod,), only(node))

    assert places(consumers) == {}
    assert "us-east-1b: " in why_no_place(consumers, ())


def test_a_node_that_the_pod_tolerates_and_asks_for_is_found():
    pod = a_pod(
        selector={"disk": "ssd"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
    )
    node = tainted(labelled(in_b(), disk="ssd"), "gpu")

    assert places(Consumers((pod,), only(node))) == {B: "node-b"}


def test_the_pods_other_volumes_have_to_be_usable_there():
    consumers = Consumers((POD,), nodes(), (a_placed_volume(zone=C.zone),))

    assert places(consumers) == {C: "node-c"}
    assert "pv-of-logs" in why_no_place(consumers, {C})


def test_a_volume_that_is_tied_to_no_place_holds_no_pod():
    anywhere = msgspec.convert({"metadata": {"name": "pv-of-logs"}, "spec": {}}, PlacedVolume)

    assert set(places(Consumers((POD,), nodes(), (anywhere,)))) == {A, B, C}


def test_a_volume_that_is_being_made_holds_the_pod_too():
    assert places(Consumers((POD,), nodes(), (), frozenset({B}))) == {B: "node-b"}
    assert places(Consumers((POD,), nodes(), (), frozenset({B, C}))) == {}


def test_all_pods_need_a_node_there_if_not_the_same():
    pods = (a_pod("web", selector={"pool": "x"}), a_pod("job", selector={"pool": "y"}))
    found = only(
        labelled(a_node("node-ax", zone=A.zone), pool="x"),
        labelled(a_node("node-bx", zone=B.zone), pool="x"),
        labelled(a_node("node-by", zone=B.zone), pool="y"),
    )

    assert places(Consumers(pods, found)) == {B: "node-bx"}


def test_only_nodes_that_can_take_a_volume_of_the_class_come_into_question():
    read_class = read(a_class(waits=True, allowed=[a_term(zone=[A.zone, B.zone])]))
    known = [
        (a_node("node-2", zone=B.zone), a_csi_node("node-2")),
        (a_node("node-1", zone=A.zone), a_csi_node("node-1")),
        (a_node("not-allowed", zone=C.zone), a_csi_node("not-allowed")),
        (a_node("no-driver", zone=A.zone), a_csi_node("no-driver", driver=None)),
        (a_node("no-registration", zone=A.zone), None),
        (a_node("no-zone", zone=None), a_csi_node("no-zone")),
        (a_node("leaving", zone=A.zone, deleting=True), a_csi_node("leaving")),
    ]
    found = eligible_nodes(
        read_class,
        [(node, registered_place(node, csi_node, DRIVER)) for node, csi_node in known],
    )

    assert {(each.node.name, each.place) for each in found} == {("node-1", A), ("node-2", B)}


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        ([a_term(zone=[A.zone, B.zone], os=["linux"])], ["node-b"]),
        ([a_term(zone=[A.zone], os=["linux"]), a_term(zone=[B.zone])], ["node-b"]),
        ([a_term(os=["linux"])], ["node-b", "node-c"]),
        ([a_term(zone_id=["use1-az2", "use1-az9"])], ["node-b"]),
        ([a_term(zone_id=["use1-az2"]), a_term(zone=[C.zone])], ["node-b", "node-c"]),
        ([a_term(ebs_zone=[A.zone])], []),
        ([a_term(zone=[])], []),
        ([a_term(), a_term(zone=[A.zone])], ["node-a"]),
        ([], ["node-a", "node-b", "node-c"]),
    ],
    ids=[
        "os",
        "two terms",
        "os alone",
        "id",
        "id or zone",
        "no such label",
        "none",
        "empty",
        "all",
    ],
)
def test_a_class_that_waits_takes_the_nodes_that_the_scheduler_would_take(allowed, found):
    linux = {"kubernetes.io/os": "linux"}
    labels = {A: {}, B: linux | {"topology.k8s.aws/zone-id": "use1-az2"}, C: linux}
    known = [
        (a_node(f"node-{place.zone[-1]}", zone=place.zone, labels=labels[place]), place)
        for place in (A, B, C)
    ]

    eligible = eligible_nodes(read(a_class(waits=True, allowed=allowed)), known)

    assert [each.node.name for each in eligible] == found


def test_a_claim_that_binds_at_once_takes_nodes_whatever_other_labels_they_have():
    """The scheduler looks at the class only for claims that have no volume yet."""
    at_once = read(a_class(allowed=[a_term(zone=[A.zone, B.zone], os=["linux"])]))
    registered = [(each.node, each.place) for each in nodes()]

    assert [each.place for each in eligible_nodes(at_once, registered)] == [A, B]


def test_a_volume_that_a_pod_names_itself_holds_it_where_its_handle_says():
    assert places(Consumers((with_inline(f"aws://{B.zone}/{VOLUME}"),), nodes())) == {B: "node-b"}
    for unknown in (VOLUME, f"aws:///{VOLUME}"):
        assert set(places(Consumers((with_inline(unknown),), nodes()))) == {A, B, C}


def with_inline(handle: str) -> Pod:
    ebs = {"name": "old", "awsElasticBlockStore": {"volumeID": handle}}
    document = msgspec.to_builtins(POD)
    document["spec"]["volumes"].append(ebs)
    return msgspec.convert(document, Pod)


@pytest.mark.parametrize(
    ("claim", "is_sure"),
    [
        (a_claim("logs", uid="uid-of-logs"), True),
        (a_claim("logs", uid="uid-of-logs", volume_name="static", node="node-a"), False),
        (a_claim("logs", uid="uid-of-logs", volume_name=MADE, node="node-a"), True),
        (a_claim("logs", uid="uid-of-logs", volume_name=MADE, node="node-b"), False),
        (a_claim("logs", uid="uid-of-logs", volume_name=MADE), False),
        (pinned(A), True),
        (pinned(B), False),
        (pinned(Place(A.zone, "arn")), False),
        (pinned(B, uid="of another claim"), True),
    ],
    ids=["open", "static", "chosen", "elsewhere", "at once", "here", "moved", "Outpost", "copied"],
)
def test_a_look_is_saved_only_where_the_claim_itself_tells_that_its_volume_is_there(claim, is_sure):
    assert is_surely_beside(claim, WAITS, A) is is_sure


def test_each_pod_is_held_by_the_volumes_of_its_own_claims():
    sibling_volumes = SiblingVolumes({"shop/logs": a_placed_volume(zone=B.zone)}, {"shop/cache": C})
    [home_a, home_b, home_c] = nodes()

    def held(pod):
        return [
            sibling_volumes.exclude(pod, each.place, each.node) for each in (home_a, home_b, home_c)
        ]

    assert held(a_pod("web", "data")) == [False, False, False]
    assert held(a_pod("web", "data", "logs")) == [True, False, True]
    assert held(a_pod("web", "data", "cache")) == [True, True, False]
    assert held(a_pod("web", "data", "logs", "cache")) == [True, True, True]


@pytest.mark.parametrize(
    ("consumers", "left"),
    [
        (Consumers(), [A, B, C]),
        (Consumers((POD,), nodes()), [A, B, C]),
        (Consumers((POD,), nodes(), (a_placed_volume(zone=B.zone),)), [B]),
        (Consumers((POD,), nodes(), (), frozenset({C})), [C]),
        (Consumers((a_pod(node="node-b"),), nodes()), [B]),
        (Consumers((a_pod(selector={"kubernetes.io/os": "linux"}),), nodes()), [A, B, C]),
        # No node there now, but the volume is.
        (Consumers((POD,), nodes(A), (a_placed_volume(zone=B.zone),)), [B]),
        # The pod cannot run anywhere: its claim is bound all the same.
        (Consumers((POD,), nodes(), (a_placed_volume(zone="us-east-1f"),)), [A, B, C]),
    ],
    ids=["no pod", "free", "volume", "being made", "nodeName", "unknown", "no node", "nowhere"],
)
def test_a_claim_that_binds_at_once_goes_where_its_pod_has_to_be(consumers, left):
    assert list(beside_siblings([A, B, C], consumers)) == left


ANY = st.sampled_from([A, B, C])


@given(st.lists(ANY, unique=True, min_size=1), st.sets(ANY), st.sets(ANY), st.sets(ANY))
def test_whatever_ties_the_pod_some_candidate_is_left_and_none_is_made_up(
    candidates, with_nodes, with_volumes, in_creation
):
    consumers = Consumers(
        (POD,),
        EligibleNodes(each for each in nodes() if each.place in with_nodes),
        tuple(a_placed_volume(zone=place.zone) for place in with_volumes),
        frozenset(in_creation),
    )

    left = beside_siblings(candidates, consumers)

    assert left
    assert set(left) <= set(candidates)
