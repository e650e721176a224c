"""Which owners of pods are scaled down for a move, how far, and when they come back."""

import dataclasses
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.pods import consumer_rules as rules
from provisioner.controller.moving.pods.consumer_rules import Consumer, GiveUp, ScaleDown
from provisioner.model.volume_move import MoveConsumer
from provisioner.model.workload import ControlledPod, OwnerReference, Workload
from tests.controller.moving import test_plan_rules as plans
from tests.controller.moving.test_plan_rules import a_move, planned, refused


def owner(kind: str = "StatefulSet", name: str = "web", api: str = "apps/v1") -> OwnerReference:
    return OwnerReference(api_version=api, kind=kind, name=name, uid=f"uid-{name}", controller=True)


def a_workload(name: str = "web", replicas: int = 3, generation: int = 1, **spec: Any) -> Workload:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": generation},
        "spec": {"replicas": replicas} | spec,
    }
    return msgspec.convert(body, Workload)


DELETES: dict[str, Any] = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}


def of_set(number: int = 1, **spec: Any) -> Consumer:
    return Consumer(f"web-{number}", ("shop/data",), owner(), a_workload(**spec))


def of_deployment(name: str = "web-5d8-x2") -> Consumer:
    return Consumer(name, ("shop/data",), owner("Deployment"), a_workload())


def test_a_stateful_set_keeps_the_replicas_below_that_of_the_claim():
    (found,) = rules.to_scale([of_set(1)])

    assert (found.kind, found.name, found.scale_to) == ("StatefulSet", "web", 1)
    assert found.replicas is None
    assert rules.stopping([of_set(1)]) == ["web-1", "web-2"]
    (stops, more) = rules.stops([of_set(1)])
    assert stops == "StatefulSet web is scaled from 3 to 1, and back after the swap"
    assert "web-2 stop as well" in more


def test_its_first_replica_may_have_another_number_than_0():
    later = of_set(6, ordinals={"start": 5})

    assert rules.to_scale([later])[0].scale_to == 1
    assert rules.stopping([later]) == ["web-6", "web-7"]


def test_all_of_its_pods_that_use_the_claim_end():
    assert rules.to_scale([of_set(2), of_set(0), of_set(1)])[0].scale_to == 0


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_a_deployment_is_scaled_to_nothing(kind: str):
    consumer = Consumer("web-5", (), owner(kind), a_workload())

    assert rules.to_scale([consumer])[0].scale_to == 0
    assert rules.stopping([consumer]) == ["web-5"]


@pytest.mark.parametrize(
    ("consumer", "said"),
    [
        (Consumer("alone"), "pod alone has no owner"),
        (Consumer("a", owner=owner("DaemonSet", "logs")), "belongs to DaemonSet logs"),
        (Consumer("a", owner=owner("Job", "once", "batch/v1")), "belongs to Job once"),
        (
            Consumer("a", owner=owner(api="apps.kruise.io/v1beta1")),
            "StatefulSet web, which cannot be scaled down",
        ),
        (
            Consumer("a", (), owner(), a_workload(), owner("Kafka", "log", "kafka.io/v1")),
            "StatefulSet web belongs to Kafka log",
        ),
        (of_set(**DELETES), "deletes the claims of replicas that are scaled away"),
    ],
)
def test_what_does_not_stay_down_or_would_lose_claims_is_refused(consumer: Consumer, said: str):
    message = rules.refused([of_deployment(), consumer])

    assert message is not None
    assert said in message
    assert ". " not in message
    assert rules.to_scale([consumer]) == []


@pytest.mark.parametrize(
    "owned",
    [{}, {"owner": owner("Job", "backup", "batch/v1")}, {"owner": owner("Deployment")}],
    ids=["nobody", "Job", "Deployment"],
)
def test_a_pod_that_has_ended_is_to_be_deleted_by_hand(owned: dict[str, Any]):
    """To scale its owner down leaves it, and Kubernetes would keep the claim for it."""
    message = rules.refused([Consumer("backup-1", **owned, has_ended=True)])

    assert message == (
        "pod backup-1 has ended, and counts as a user of the claim until somebody deletes it "
        "(kubectl delete pod): do that first"
    )


def test_a_statefulset_deletes_its_pods_also_if_they_have_ended():
    assert rules.refused([dataclasses.replace(of_set(), has_ended=True)]) is None


def test_the_plan_refuses_it_only_if_it_is_to_scale_down():
    bare = [Consumer("alone", ("shop/data",))]

    scaled = a_move(consumers={"policy": "ScaleDown"})
    assert "pod alone has no owner" in refused(plans.facts(scaled, consumers=bare))
    assert planned(plans.facts(consumers=bare)).plan.pods == ["alone"]


def test_the_plan_names_all_pods_that_stop():
    move = a_move(consumers={"policy": "ScaleDown"})

    plan = planned(plans.facts(move, consumers=[of_set(1)])).plan

    assert plan.pods == ["web-1", "web-2"]
    assert any("is scaled from 3 to 1" in each for each in plan.stops)
    assert not any("scale their owner down" in note for note in plan.notes)


def test_whoever_scales_down_by_hand_is_warned_that_the_claims_would_go():
    said = rules.notes([of_set(**DELETES)])

    assert "waits until pods web-1 are gone" in said[0]
    assert "whenScaled to Retain first" in said[1]
    assert len(rules.notes([of_set()])) == 1
    assert rules.notes([]) == []
    assert rules.stops([]) == []
    assert rules.stops([of_set(replicas=1)]) == []


def test_an_owner_that_is_gone_is_not_scaled():
    gone = Consumer("web-1", (), owner())

    assert rules.refused([gone]) is None
    assert rules.to_scale([gone]) == []


WEB = MoveConsumer(kind="StatefulSet", name="web", uid="uid-web", scale_to=1)


def test_its_number_is_recorded_before_it_is_scaled_down():
    step = rules.next_stop(WEB, a_workload(generation=4))

    assert step == ScaleDown(structs.replace(WEB, replicas=3, generation=4, times=1))


def test_what_was_recorded_and_not_carried_out_is_carried_out_without_counting():
    recorded = structs.replace(WEB, replicas=3, generation=4, times=1)

    assert rules.next_stop(recorded, a_workload(generation=4)) == ScaleDown(recorded)


@pytest.mark.parametrize(
    "workload", [None, a_workload(replicas=1), a_workload(replicas=0), a_workload("other")]
)
def test_nothing_is_to_be_scaled(workload: Workload | None):
    assert rules.next_stop(WEB, workload) is None


def test_an_owner_that_is_scaled_up_each_time_ends_with_a_message():
    known, generation = WEB, 1
    for _ in range(3):
        step = rules.next_stop(known, a_workload(generation=generation))
        assert isinstance(step, ScaleDown)
        known, generation = step.consumer, generation + 2

    last = rules.next_stop(known, a_workload(generation=generation))

    assert isinstance(last, GiveUp)
    assert "StatefulSet web was scaled down 3 times" in last.message


def test_it_is_not_scaled_down_once_that_would_delete_claims():
    step = rules.next_stop(WEB, a_workload(**DELETES))

    assert isinstance(step, GiveUp)


def test_it_comes_back_only_if_it_is_as_the_move_has_left_it():
    recorded = structs.replace(WEB, replicas=3)

    assert rules.is_to_come_back(recorded, a_workload(replicas=1))
    assert not rules.is_to_come_back(recorded, a_workload(replicas=2))
    assert not rules.is_to_come_back(recorded, a_workload("other", replicas=1))
    assert not rules.is_to_come_back(recorded, None)
    assert not rules.is_to_come_back(WEB, a_workload(replicas=1))


def test_an_owner_that_is_known_keeps_its_record():
    recorded = structs.replace(WEB, replicas=3, times=1)
    other = structs.replace(WEB, name="other", uid="uid-other")

    assert rules.merged([recorded], [WEB, other]) == [recorded, other]


def test_only_the_owner_that_controls_a_pod_counts():
    owners = [
        {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"},
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "b",
            "uid": "2",
            "controller": True,
        },
    ]
    pod = msgspec.convert({"metadata": {"ownerReferences": owners}}, ControlledPod)

    found = pod.metadata.controller
    assert found is not None
    assert (found.name, found.is_scaled) == ("b", True)
    assert ControlledPod().metadata.controller is None


def test_an_owner_that_may_be_scaled_down_yet_is_not_given_up_before_that_is_over():
    recorded = structs.replace(WEB, replicas=3, generation=4, times=1)

    assert rules.may_be_scaled_yet(recorded, a_workload(generation=4))
    assert not rules.may_be_scaled_yet(recorded, a_workload(replicas=1, generation=5))
    assert not rules.may_be_scaled_yet(recorded, a_workload(generation=6))
    assert not rules.may_be_scaled_yet(recorded, a_workload("other", generation=4))
    assert not rules.may_be_scaled_yet(recorded, None)
    assert rules.is_owed([recorded])
    assert not rules.is_owed([WEB, structs.replace(recorded, is_back=True)])


def test_a_replica_below_that_comes_to_use_the_claim_has_to_end_too():
    """Replicas that share a claim: at the first look, web-0 was just being started again."""
    scaled = structs.replace(WEB, replicas=3, generation=4, times=1)
    now = a_workload(replicas=1, generation=5)
    (found,) = rules.to_scale([of_set(0, replicas=1)])

    lower = rules.lowered(scaled, [found], now)

    assert lower == structs.replace(scaled, scale_to=0, generation=5)
    assert rules.next_stop(lower, now) == ScaleDown(lower)
    # Its number of before is kept, and comes back even if this is the last that was written.
    assert rules.is_to_come_back(lower, now)
    assert rules.is_to_come_back(lower, a_workload(replicas=0, generation=6))
    assert not rules.is_to_come_back(lower, a_workload(replicas=1, generation=6))


def test_what_the_pods_of_now_require_lowers_an_owner_and_never_raises_it():
    recorded = structs.replace(WEB, replicas=3, generation=4, times=1)
    (two,) = rules.to_scale([of_set(2)])
    (none,) = rules.to_scale([of_set(0)])

    assert rules.lowered(recorded, [two], a_workload(replicas=1)) == recorded
    assert rules.lowered(recorded, [], a_workload(replicas=1)) == recorded
    assert rules.lowered(recorded, [none], a_workload(generation=4)).generation == 4
    other = structs.replace(none, uid="uid-other")
    assert rules.lowered(recorded, [other], a_workload(replicas=1)) == recorded
