import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import read
from provisioner.controller.placement.zone_rules import (
    DecidingNode,
    NoZone,
    deciding_node,
    for_selected_node,
    have_other_claims,
    spread,
)
from provisioner.model.errors import Reason
from provisioner.model.zone import Place
from tests.builders import DRIVER, a_claim, a_class, a_csi_node, a_node, a_term
from tests.pods import a_pod, zone_at_once

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
PLACES = tuple(map(Place, ZONES))
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


CHOSEN, SETTLED = DecidingNode("chosen"), DecidingNode("there", is_settled=True)
FREE, THERE, ELSEWHERE = a_pod("a"), a_pod("b", node="there"), a_pod("c", node="elsewhere")


@pytest.mark.parametrize(
    ("waits", "chosen", "pods", "expected"),
    [
        pytest.param(True, "chosen", [], CHOSEN, id="the scheduler's choice"),
        pytest.param(True, "chosen", [FREE], CHOSEN, id="its choice for the pod"),
        pytest.param(True, "chosen", [FREE, THERE], CHOSEN, id="its choice for one of the pods"),
        pytest.param(True, "chosen", [THERE], SETTLED, id="a choice for a pod that is gone"),
        pytest.param(True, "chosen", [THERE, ELSEWHERE], SETTLED, id="the first of two nodes"),
        pytest.param(True, "", [FREE, THERE], SETTLED, id="a pod that no scheduler has seen"),
        pytest.param(True, "", [FREE], None, id="nothing yet"),
        pytest.param(False, "", [THERE], None, id="binds at once"),
        pytest.param(False, "chosen", [THERE], CHOSEN, id="binds at once, with a choice"),
    ],
)
def test_a_node_decides_by_its_pods_or_by_the_scheduler(waits, chosen, pods, expected):
    claim = a_claim(node=chosen)

    assert deciding_node(claim, read(a_class(waits=waits)), pods) == expected


def test_a_pod_with_another_claim_may_have_a_volume_elsewhere():
    assert not have_other_claims([FREE, THERE], a_claim())
    assert have_other_claims([FREE, a_pod("d", "data", "logs")], a_claim())


def test_a_claim_that_waited_gets_the_zone_of_the_selected_node():
    chosen = for_selected_node(
        read(a_class()), DRIVER, "node-1", a_node(zone="us-east-1b"), a_csi_node()
    )

    assert chosen == Place("us-east-1b")


@pytest.mark.parametrize(
    ("node", "csi_node"),
    [
        pytest.param(None, a_csi_node(), id="node gone"),
        pytest.param(a_node(), None, id="CSINode gone"),
        pytest.param(None, None, id="both gone"),
    ],
)
def test_a_selected_node_that_is_gone_means_another_node_must_be_chosen(node, csi_node):  # race 5
    answer = for_selected_node(read(a_class()), DRIVER, "node-1", node, csi_node)

    assert isinstance(answer, NoZone)
    assert answer.choose_again
    assert "'node-1'" in answer.message


@pytest.mark.parametrize(
    ("node", "csi_node", "sentence"),
    [
        pytest.param(a_node(), a_csi_node(driver=None), "is not registered", id="no driver"),
        pytest.param(a_node(zone=None), a_csi_node(), "has no label", id="no zone label"),
    ],
)
def test_a_live_node_that_is_not_ready_for_the_driver_is_waited_for(node, csi_node, sentence):
    answer = for_selected_node(read(a_class()), DRIVER, "node-1", node, csi_node)

    assert isinstance(answer, NoZone)
    assert sentence in answer.message
    assert not answer.choose_again


def test_a_selected_node_outside_the_allowed_zones_is_refused_with_both_named():
    storage_class = a_class(allowed=[a_term(zone=["us-east-1c", "us-east-1b"])])

    answer = for_selected_node(read(storage_class), DRIVER, "node-1", a_node(), a_csi_node())

    assert isinstance(answer, NoZone)
    assert answer.message == (
        "node 'node-1' is in zone us-east-1a, but class 'fast' allows only us-east-1b or us-east-1c"
    )


def test_a_selected_node_is_not_checked_against_keys_that_the_scheduler_checks():
    storage_class = a_class(allowed=[a_term(zone_id=["use1-az1"])])

    assert for_selected_node(read(storage_class), DRIVER, "n", a_node(), a_csi_node()) == Place(
        "us-east-1a"
    )


@pytest.mark.parametrize(
    ("allowed", "zones"),
    [
        pytest.param(None, set(ZONES), id="class says nothing: where nodes are"),
        pytest.param([], set(ZONES), id="an empty list says nothing"),
        pytest.param([a_term(zone=["us-east-1f"])], {"us-east-1f"}, id="class wins over nodes"),
        pytest.param([a_term(zone=["x"]), a_term(ebs_zone=["y"])], {"x", "y"}, id="alternatives"),
        pytest.param([a_term(zone=["x", "y"], os=["linux"])], {"x", "y"}, id="zone and more"),
    ],
)
def test_a_claim_that_binds_at_once_is_spread_over_all_usable_zones(allowed, zones):
    storage_class = a_class(allowed=allowed)

    answers = {zone_at_once(read(storage_class), f"data-web-{i}", PLACES) for i in range(6)}

    assert answers == {Place(zone) for zone in zones}


@pytest.mark.parametrize(
    ("allowed", "registered", "reason", "sentence"),
    [
        pytest.param(None, (), Reason.NO_ZONE, "no node has the driver registered", id="no node"),
        pytest.param([a_term(zone=[])], PLACES, Reason.NO_ZONE, "allow no zone", id="no value"),
        pytest.param(
            [a_term(zone=["x"], ebs_zone=["y"])],
            PLACES,
            Reason.NO_ZONE,
            "allow no zone",
            id="both keys",
        ),
        pytest.param(
            [a_term(zone_id=["use1-az1"])],
            PLACES,
            Reason.INVALID_CLASS,
            "topology.k8s.aws/zone-id",
            id="zone id",
        ),
        pytest.param(
            [a_term(zone=["x"]), a_term(os=["linux"])],
            PLACES,
            Reason.INVALID_CLASS,
            "kubernetes.io/os",
            id="one open",
        ),
    ],
)
def test_without_a_usable_zone_the_message_says_why(allowed, registered, reason, sentence):
    answer = zone_at_once(read(a_class(allowed=allowed)), "data", registered)

    assert isinstance(answer, NoZone)
    assert answer.reason is reason
    assert sentence in answer.message
    assert not answer.choose_again


def test_zones_that_overlap_nothing_are_shown_side_by_side():
    allowed = [a_term(zone=["us-east-1a"], ebs_zone=["us-east-1b", "us-east-1c"])]

    answer = zone_at_once(read(a_class(allowed=allowed)), "data", PLACES)

    assert isinstance(answer, NoZone)
    assert answer.message == (
        "allowedTopologies of class 'fast' allow no zone: the lists of one term have no zone in "
        "common: topology.kubernetes.io/zone in [us-east-1a] and topology.ebs.csi.aws.com/zone in "
        "[us-east-1b, us-east-1c]"
    )


def test_the_hash_is_fnv_1_of_32_bits_as_upstream_has_it():
    assert spread("foo") == 1083137555


@pytest.mark.parametrize(
    ("name", "base", "ordinal"),
    [
        ("data-web-0", "web", 0),
        ("logs-web-3", "web", 3),
        ("web-2", "web", 2),
        ("data-web-4294967295", "web", 4294967295),
        ("data-web-007", "web", 7),
    ],
)
def test_a_name_with_an_ordinal_counts_on_from_the_hash_of_its_pods_set(name, base, ordinal):
    assert spread(name) == (spread(base) + ordinal) % 2**32


@pytest.mark.parametrize("name", ["data-web-4294967296", "data-web", "data-web-", "data-1a", "7"])
def test_a_name_without_an_ordinal_is_hashed_whole(name):
    value = 2166136261
    for byte in name.encode():
        value = (value * 16777619 % 2**32) ^ byte

    assert spread(name) == value


@given(names, st.integers(0, 10_000), st.sets(st.text("abc", min_size=1), min_size=1, max_size=7))
def test_successive_ordinals_get_successive_zones(name, first, zones):
    order = sorted(zones)

    registered = set(map(Place, zones))
    claims = [f"data-{name}-{first + i}" for i in range(len(order))]
    places = [zone_at_once(read(a_class()), claim, registered) for claim in claims]

    begin = order.index(places[0].zone)  # type: ignore[union-attr]  # fails the test if it is NoZone
    assert places == [Place(zone) for zone in order[begin:] + order[:begin]]


@given(names.filter(lambda name: "-" not in name), st.integers(0, 10_000))
def test_claims_of_one_pod_share_a_zone(stateful_set, ordinal):
    claims = [f"{template}-{stateful_set}-{ordinal}" for template in ("data", "logs", "a-b")]

    assert len({zone_at_once(read(a_class()), claim, PLACES) for claim in claims}) == 1


@given(st.text(max_size=300), st.sets(st.text(max_size=3), max_size=4))
def test_any_name_and_any_zones_give_an_answer(name, zones):
    answer = zone_at_once(read(a_class()), name, set(map(Place, zones)))

    assert answer.zone in zones if isinstance(answer, Place) else not zones
