"""What a claim and its pod wait for, by what the API server has."""

import pytest

from tests.bench.kwok.life_rules import LATE_S, Life, Step, Wait, next_step, nodes_each_s, share_of
from tests.bench.kwok.mirror import Meta, Source, Spec, Status, Thing

BOUND = Thing(Meta("data"), status=Status(phase="Bound"))
PENDING = Thing(Meta("data"), status=Status(phase="Pending"))
RUNNING = Thing(Meta("app"), Spec(node_name="n1"), Status(phase="Running"))
ENDING = Thing(Meta("app", deletion_timestamp="2026-11-28T00:00:00Z"), Spec(node_name="n1"))


def attached(node: str, *, is_done: bool = True) -> Thing:
    spec = Spec(node_name=node, source=Source("pvc-1"))
    return Thing(Meta("csi-1"), spec, Status(attached=is_done))


def step(
    waits_for: Wait,
    claim: Thing | None,
    pod: Thing | None,
    *attachments: Thing,
    has_volume: bool = True,
    wants_pod: bool = True,
) -> Step:
    life = Life(1, "team-1/data", wants_pod=wants_pod, waits_for=waits_for)
    return next_step(life, claim, pod, attachments, has_volume=has_volume)


def test_a_new_claim_waits_until_it_is_bound():
    assert step(Wait.BOUND, PENDING, RUNNING) is Step.WAIT
    assert step(Wait.BOUND, BOUND, RUNNING) is Step.AWAIT_ATTACHMENT


def test_a_volume_counts_as_mounted_only_on_the_node_of_its_running_pod():
    assert step(Wait.ATTACHED, BOUND, RUNNING) is Step.WAIT
    assert step(Wait.ATTACHED, BOUND, RUNNING, attached("n2")) is Step.WAIT
    assert step(Wait.ATTACHED, BOUND, RUNNING, attached("n1", is_done=False)) is Step.WAIT
    assert step(Wait.ATTACHED, BOUND, ENDING, attached("n1")) is Step.WAIT
    assert step(Wait.ATTACHED, BOUND, RUNNING, attached("n1")) is Step.SAY_MOUNTED


def test_a_pod_that_went_with_its_node_is_made_again():
    assert step(Wait.ATTACHED, BOUND, None) is Step.CREATE_POD


def test_a_pod_comes_back_only_after_its_volume_was_detached():
    assert step(Wait.DETACHED, BOUND, RUNNING, attached("n1")) is Step.REMOVE_POD
    assert step(Wait.DETACHED, BOUND, ENDING, attached("n1")) is Step.WAIT
    assert step(Wait.DETACHED, BOUND, None, attached("n1")) is Step.WAIT
    assert step(Wait.DETACHED, BOUND, None) is Step.CREATE_POD
    assert step(Wait.DETACHED, BOUND, None, wants_pod=False) is Step.REST


def test_a_life_ends_when_nothing_is_left_of_it():
    assert step(Wait.GONE, BOUND, RUNNING, attached("n1")) is Step.REMOVE_POD
    assert step(Wait.GONE, BOUND, None) is Step.WAIT
    assert step(Wait.GONE, None, None, attached("n1")) is Step.WAIT
    assert step(Wait.GONE, None, None) is Step.WAIT
    assert step(Wait.GONE, None, None, has_volume=False) is Step.END


def test_who_waits_for_nothing_is_never_behind():
    life = Life(1, "team-1/data", waits_for=Wait.BOUND, since_s=100.0)

    assert not life.is_late(100.0 + LATE_S)
    assert life.is_late(100.1 + LATE_S)
    life.waits_for = Wait.NOTHING
    assert not life.is_late(10_000.0)


@pytest.mark.parametrize(
    ("volumes", "minutes", "events"), [(20_000, 20.0, 1000), (2_000, 5.0, 100), (500, 3.0, 60)]
)
def test_a_run_has_an_hours_churn_and_never_less_than_twenty_events_a_minute(
    volumes: int, minutes: float, events: int
):
    assert share_of(volumes, minutes) * minutes * 60 == pytest.approx(events)


def test_a_twentieth_of_the_nodes_is_replaced_and_at_least_six():
    assert nodes_each_s(2000, 20.0) == 12.0
    assert nodes_each_s(51, 3.0) == 30.0
