"""Where a clone is made, and what it cannot be."""

from __future__ import annotations

import pytest

from provisioner.classes.storage_class_rules import read
from provisioner.controller.placement.clone_rules import (
    at_once,
    for_node,
    may_use_pinned_zone,
    refusal,
)
from provisioner.controller.placement.consumer_rules import Consumers
from provisioner.controller.placement.failover_rules import NO_REFUSALS, Moved, Refusals
from provisioner.controller.placement.zone_rules import NoZone
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import CLONE_ACROSS_ZONES
from provisioner.model.volume import VolumeState
from provisioner.model.zone import Place
from tests.builders import VOLUME, a_class, a_node, a_term, a_volume
from tests.controller.placement.test_consumer_rules import A, B, C, nodes
from tests.pods import a_placed_volume, a_pod, tainted
from tests.sources import replaced

FULL = Reason.ZONE_OUT_OF_CAPACITY
POD = a_pod()
FREE = Consumers((POD,), nodes())
OPEN = read(a_class())
ONLY_B = read(a_class(allowed=[a_term(zone=[B.zone])]))
IN_A, IN_B = A, B
TWICE = NO_REFUSALS.and_in(A, FULL, others_too=True)


def beside(
    where: Place = IN_B,
    consumers: Consumers = FREE,
    refusals: Refusals = NO_REFUSALS,
    *,
    is_settled: bool = False,
    is_held: bool = False,
) -> Place | Moved | NoZone:
    return for_node("node-b", where, A, consumers, refusals, is_settled=is_settled, is_held=is_held)


@pytest.mark.parametrize(
    ("annotations", "goes"),
    [({CLONE_ACROSS_ZONES: "true"}, True), ({CLONE_ACROSS_ZONES: "True"}, False), (None, False)],
)
def test_a_class_says_whether_clones_go_across(annotations: dict[str, str] | None, *, goes: bool):
    storage_class = replaced(a_class(), metadata=ObjectMeta(name="x", annotations=annotations))

    assert storage_class.clones_across_zones is goes


def test_a_clone_that_binds_at_once_lies_beside_its_source_even_where_no_node_is():
    no_node = NoZone(Reason.NO_ZONE, "no node")

    assert at_once(OPEN, A, no_node, NO_REFUSALS) == IN_A
    assert at_once(OPEN, A, (B, C), NO_REFUSALS) == IN_A
    assert at_once(ONLY_B, B, (B,), NO_REFUSALS) == IN_B


def test_a_class_that_excludes_the_zone_of_the_source_is_told_with_a_way_out():
    answer = at_once(ONLY_B, A, (B,), NO_REFUSALS)

    assert isinstance(answer, NoZone)
    for words in (A.zone, B.zone, CLONE_ACROSS_ZONES, "restore a snapshot"):
        assert words in answer.message
    assert not answer.choose_again


def test_a_class_that_leaves_no_zone_says_so_itself():
    none = NoZone(Reason.INVALID_CLASS, "misspelt")

    assert at_once(ONLY_B, A, none, NO_REFUSALS) == none


def test_what_ec2_has_refused_beside_the_source_is_asked_for_again_there_and_not_at_once():
    once = NO_REFUSALS.and_in(A, FULL, others_too=False)

    for answer in (at_once(OPEN, A, (A, B), once), beside(refusals=TWICE)):
        assert isinstance(answer, NoZone)
        assert answer.reason is FULL
        assert answer.retry_after_s


def test_one_refusal_leaves_a_waiting_clone_its_place():
    once = NO_REFUSALS.and_in(A, FULL, others_too=False)

    assert beside(IN_A, refusals=once) == IN_A


def test_a_node_beside_the_source_is_right():
    assert beside(IN_A) == IN_A
    assert beside(IN_A, Consumers()) == IN_A
    assert beside(IN_A, is_settled=True) == IN_A


def test_a_node_beside_the_source_is_wrong_where_another_volume_keeps_the_pod_away():
    tied = Consumers((POD,), nodes(), (a_placed_volume(zone=B.zone),))

    answer = beside(IN_A, tied, is_held=True)

    assert isinstance(answer, NoZone)
    assert "is elsewhere" in answer.message
    assert beside(IN_A, tied, is_held=True, is_settled=True) == IN_A


@pytest.mark.parametrize(
    ("pin", "annotations", "allowed", "goes"),
    [
        (A, None, (), True),
        (B, None, (), False),
        (B, {CLONE_ACROSS_ZONES: "true"}, (), True),
        (B, {CLONE_ACROSS_ZONES: "true"}, (B.zone, C.zone), True),
        (B, {CLONE_ACROSS_ZONES: "true"}, (A.zone, C.zone), False),
        (A, {CLONE_ACROSS_ZONES: "true"}, (B.zone,), False),
        (A, None, (B.zone,), False),
        (Place(A.zone, "arn:o"), None, (), False),
    ],
)
def test_what_is_written_is_followed_as_far_as_the_class_goes(
    pin: Place, annotations: dict[str, str] | None, allowed: tuple[str, ...], *, goes: bool
):
    terms = [a_term(zone=list(allowed))] if allowed else None
    meta = ObjectMeta(name="fast", annotations=annotations)

    assert (
        may_use_pinned_zone(read(replaced(a_class(allowed=terms), metadata=meta)), pin, A) is goes
    )


def test_a_node_elsewhere_is_left_for_one_that_can_take_the_pod():
    answer = beside()

    assert isinstance(answer, Moved)
    assert answer.where == IN_A
    assert "node node-b is in us-east-1b" in answer.why
    assert "node-a" in answer.why


def test_a_pod_that_is_on_its_node_cannot_follow():
    answer = beside(is_settled=True)

    assert isinstance(answer, NoZone)
    assert "already" in answer.message
    assert not answer.choose_again


@pytest.mark.parametrize(
    ("consumers", "words"),
    [
        pytest.param(
            Consumers((POD,), nodes(a=tainted(a_node("node-a", zone=A.zone), "gpu"))),
            "taint gpu",
            id="taint",
        ),
        pytest.param(
            Consumers((POD,), nodes(B, C)),
            "no node in us-east-1a",
            id="no node",
        ),
        pytest.param(
            Consumers((POD,), nodes(), (a_placed_volume(zone=B.zone),)), "is elsewhere", id="tied"
        ),
    ],
)
def test_a_pod_that_can_run_nowhere_beside_the_source_is_told_why(consumers: Consumers, words: str):
    answer = beside(consumers=consumers)

    assert isinstance(answer, NoZone)
    assert words in answer.message
    assert CLONE_ACROSS_ZONES in answer.message
    assert answer.retry_after_s


def test_without_a_pod_the_scheduler_chooses_again():
    answer = beside(consumers=Consumers((), nodes()))

    assert isinstance(answer, NoZone)
    assert answer.choose_again


def test_the_place_of_a_volume_on_an_outpost():
    assert a_volume(outpost_arn="arn:o").place == Place("us-east-1a", "arn:o")


@pytest.mark.parametrize("state", [VolumeState.DELETING, VolumeState.DELETED, None])
def test_what_is_gone_in_ec2_cannot_be_cloned(state: VolumeState | None):
    answer = refusal(OPEN, VOLUME, a_volume(state=state) if state else None)

    assert isinstance(answer, Refuse)
    assert answer.reason is Reason.VOLUME_NOT_FOUND
    assert VOLUME in answer.message


def test_what_has_failed_cannot_be_cloned():
    answer = refusal(OPEN, VOLUME, a_volume(state=VolumeState.ERROR))

    assert isinstance(answer, Refuse)
    assert "state error" in answer.message


@pytest.mark.parametrize("says", [None, "true", "false"])
@pytest.mark.parametrize("encrypted", [True, False])
def test_only_an_encrypted_source_refuses_to_become_plain(says: str | None, *, encrypted: bool):
    read_class = read(a_class(parameters={"encrypted": says} if says else {}))

    answer = refusal(read_class, VOLUME, a_volume(encrypted=encrypted))

    assert (answer is not None) is (encrypted and says == "false")
    assert answer is None or "encrypted: false" in answer.message
