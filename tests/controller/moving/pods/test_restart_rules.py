"""Which pods are evicted for a move, which are not, and what the plan says of it."""

import dataclasses
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods import restart_rules as rules
from provisioner.controller.moving.pods.consumer_rules import Consumer, GiveUp
from provisioner.controller.moving.pods.restart_rules import Evict
from provisioner.model.volume_move import MovePlan, VolumeMove, VolumeMoveStatus
from provisioner.model.workload import ControlledPod, PodStatus
from tests.controller.moving import test_plan_rules as plans
from tests.controller.moving.pods.test_consumer_rules import (
    a_workload,
    of_deployment,
    of_set,
    owner,
)
from tests.controller.moving.pods.test_gate_rules import GATE
from tests.controller.moving.test_plan_rules import a_move, planned, refused

RESTART = {"policy": "Restart"}


def a_restart(*evicted: str, pods: tuple[str, ...] = ("web-0",), **consumers: Any) -> VolumeMove:
    status = VolumeMoveStatus(phase="Held", plan=MovePlan(pods=[*pods]), restarts=[*evicted])
    return structs.replace(a_move(consumers=RESTART | consumers), status=status)


def a_pod(
    name: str = "web-0",
    uid: str = "first",
    kind: str = "StatefulSet",
    *,
    gates: tuple[str, ...] = (),
    node: str = "node-a",
    deleting: bool = False,
) -> ControlledPod:
    by = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "w", "controller": True}
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid,
            "ownerReferences": [by] if kind else [],
        },
        "spec": {"nodeName": node, "schedulingGates": [{"name": each} for each in gates]},
    }
    if deleting:
        body["metadata"]["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    return msgspec.convert(body, ControlledPod)


def evicted(move: VolumeMove, *pods: ControlledPod) -> Evict:
    step = rules.next_eviction(move, pods)
    assert isinstance(step, Evict), step
    return step


def test_a_pod_is_recorded_with_its_eviction():
    step = evicted(a_restart(), a_pod())

    assert (step.pod.uid, step.restarts) == ("first", ("first",))
    assert step.text.startswith("pod web-0 of StatefulSet web is evicted")


def test_pods_that_end_or_are_held_back_are_left_alone():
    pods = [a_pod(deleting=True), a_pod("web-1", "held", gates=(GATE,), node="")]

    assert rules.next_eviction(a_restart(), pods) is None
    assert rules.next_eviction(a_restart(), []) is None


def test_one_that_could_get_a_node_in_the_old_zone_at_any_time_is_evicted():
    assert evicted(a_restart(), a_pod(node="", gates=("example.com/other",))).pod.uid == "first"


def test_an_eviction_that_was_recorded_is_sent_again_without_being_counted():
    known = ("a", "b", "c", "first")

    assert evicted(a_restart(*known), a_pod()).restarts == known


def test_who_comes_back_ungated_is_evicted_three_times_more_then_the_move_ends():
    known: tuple[str, ...] = ()
    for uid in ("planned", "1st", "2nd", "3rd"):
        known = evicted(a_restart(*known), a_pod(uid=uid)).restarts
    assert known == ("planned", "1st", "2nd", "3rd")

    step = rules.next_eviction(a_restart(*known), [a_pod(uid="4th")])

    assert isinstance(step, GiveUp)
    assert "pod web-0 of StatefulSet web was not held back" in step.message
    assert "the webhook does not answer" in step.message


def test_each_pod_of_the_plan_may_come_back_as_often():
    move = a_restart(*map(str, range(7)), pods=("web-a", "web-b"))

    assert len(evicted(move, a_pod(uid="another")).restarts) == 8


@pytest.mark.parametrize("kind", ["", "DaemonSet", "Job", "Node"])
def test_one_that_nobody_would_make_again_in_another_zone_is_waited_for(kind: str):
    step = rules.next_eviction(a_restart(), [a_pod(kind=kind)])

    assert isinstance(step, Await)
    assert "end it yourself" in step.message


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_one_of_a_job_that_has_ended_is_to_be_deleted_and_not_to_be_ended(phase: str):
    ended = structs.replace(a_pod("backup-1", kind="Job"), status=PodStatus(phase=phase))
    told = "pod backup-1 has ended, and counts as a user of the claim until somebody deletes it"

    step = rules.next_eviction(a_restart(), [ended])
    assert isinstance(step, Await)
    assert step.message.startswith(told)
    refusal = rules.refused([dataclasses.replace(of_kind("Job"), name="backup-1", has_ended=True)])
    assert refusal == f"{told} (kubectl delete pod): do that first"


def test_one_that_has_ended_is_evicted_if_its_owner_makes_another():
    ended = structs.replace(a_pod(), status=PodStatus(phase="Failed"))

    assert evicted(a_restart(), ended).pod.uid == "first"


def test_such_a_one_keeps_no_other_from_being_evicted():
    step = evicted(a_restart(), a_pod("by-hand", "bare", kind=""), a_pod())

    assert step.pod.uid == "first"


def of_kind(kind: str, name: str = "web") -> Consumer:
    return Consumer("web-0", ("shop/data",), owner(kind, name, "example.com/v1"))


@pytest.mark.parametrize(
    ("consumer", "said"),
    [
        (Consumer("by-hand", ("shop/data",)), "pod by-hand has no owner"),
        (of_kind("DaemonSet"), "pod web-0 belongs to DaemonSet web, whose pods are for one node"),
        (of_kind("Job"), "pod web-0 belongs to Job web, which counts an evicted pod as failed"),
    ],
)
def test_the_plan_refuses_pods_that_would_not_come_back_elsewhere(consumer: Consumer, said: str):
    message = refused(plans.facts(a_move(consumers=RESTART), consumers=[of_set(), consumer]))

    assert message.startswith(said)
    assert message.endswith("end it yourself, with consumers.policy Wait")


def test_the_plan_names_the_pods_that_restart_of_whatever_owner():
    above = structs.replace(owner(), name="shop")
    by_operator = Consumer("db-0", ("shop/data",), owner("Postgres", "db", "example.com/v1"))
    under_operator = Consumer("web-1", ("shop/data",), owner(), a_workload(), above)
    consumers = [of_set(0), under_operator, by_operator, of_deployment()]

    plan = planned(plans.facts(a_move(consumers=RESTART), consumers=consumers)).plan

    assert plan.pods == ["web-0", "web-1", "db-0", "web-5d8-x2"]
    place = "the one in its place starts after the swap"
    places = "those in their place start after the swap"
    assert plan.stops == [
        f"Deployment web: pod web-5d8-x2 is evicted, and {place}",
        f"Postgres db: pod db-0 is evicted, and {place}",
        f"StatefulSet web: pods web-0 and web-1 are evicted, and {places}",
    ]
    assert not any("scale" in note for note in plan.notes)


def test_without_a_webhook_that_holds_pods_back_a_restart_needs_a_word():
    facts = plans.facts(a_move(consumers=RESTART), consumers=[of_set()], has_hold=False)

    message = refused(facts)
    assert "MutatingWebhookConfiguration ebs-webhook does not have new pods of namespace shop" in (
        message
    )
    assert "--without-hold" in message

    accepted = a_move(consumers=RESTART | {"withoutHold": True})
    plan = planned(plans.facts(accepted, consumers=[of_set()], has_hold=False)).plan
    assert any("evicted up to 3 times more" in note for note in plan.notes)


@pytest.mark.parametrize("policy", ["Wait", "ScaleDown"])
def test_without_a_webhook_a_move_to_another_zone_needs_a_word_whatever_stops_its_pods(policy: str):
    move = a_move(consumers={"policy": policy})
    facts = plans.facts(move, consumers=[of_set()], has_hold=False)

    assert "could get a node in the old zone, and never start there" in refused(facts)
    assert "--without-hold" in refused(facts)

    accepted = a_move(consumers={"policy": policy, "withoutHold": True})
    weak = planned(plans.facts(accepted, consumers=[of_set()], has_hold=False)).plan.notes
    strong = planned(plans.facts(accepted, consumers=[of_set()])).plan.notes
    (more,) = set(weak) - set(strong)
    assert "does not have new pods of namespace shop held back" in more
    assert "has to be deleted then" in more


def test_within_a_zone_a_pod_only_waits_where_no_webhook_holds_it_back():
    move = a_move(to={"encrypted": True}, consumers={"policy": "ScaleDown"})

    weak = planned(plans.facts(move, consumers=[of_set()], has_hold=False)).plan.notes
    strong = planned(plans.facts(move, consumers=[of_set()])).plan.notes

    (more,) = set(weak) - set(strong)
    assert "waits on its node until the move has ended" in more
