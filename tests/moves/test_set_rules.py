"""In which order the replicas of a StatefulSet are moved, and what is in the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from provisioner.model.volume_move import MoveTarget
from provisioner.moves.sets import set_rules as rules
from provisioner.moves.sets.kind_rules import DisruptionBudget, SetPod, StatefulSet
from provisioner.moves.sets.set_rules import Replica, SetWish
from provisioner.moves.wish_rules import Wish

TO_B = MoveTarget(zone="us-east-1b")
TEMPLATES: list[dict[str, Any]] = [
    {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}},
    {"metadata": {"name": "logs"}},
]


def a_set(replicas: int = 3, status: Any = None, **spec: Any) -> StatefulSet:
    wanted: dict[str, Any] = {
        "replicas": replicas,
        "template": {"metadata": {"labels": {"app": "web", "tier": "db"}}},
        "volumeClaimTemplates": TEMPLATES,
    }
    body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": wanted | spec}
    return msgspec.convert(body | {"status": status or {}}, StatefulSet)


def a_budget(allowed: int, healthy: int = 3, selector: Any = None) -> DisruptionBudget:
    chosen = {"matchLabels": {"app": "web"}} if selector is None else selector
    status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "expectedPods": 3}
    body = {"metadata": {"name": "pdb"}, "spec": {"selector": chosen}, "status": status}
    return msgspec.convert(body, DisruptionBudget)


def wish(to: MoveTarget = TO_B, *, scale_down: bool = False, at_once: int = 1) -> SetWish:
    return SetWish(Wish("shop", "", to, scale_down=scale_down, set_name="web"), at_once)


def replicas(*numbers: int, runs: bool = True) -> list[Replica]:
    return [Replica(n, f"web-{n}", (f"data-web-{n}",), runs=runs) for n in numbers]


def said(found: StatefulSet, **changes: Any) -> list[str]:
    given: dict[str, Any] = {"budgets": [], "down": set(), "zones": {}} | changes
    those = given.pop("replicas", replicas(0, 1, 2))
    asked = given.pop("wish", wish())
    return rules.notes(found, those, asked, **given)


def test_a_replica_has_a_claim_of_each_template():
    assert rules.claims_of(a_set(), 7) == ("data-web-7", "logs-web-7")


def test_replicas_that_were_scaled_away_have_no_pod():
    found = a_set(2, ordinals={"start": 5})

    assert [rules.replica(found, number, ()).runs for number in (5, 6, 7)] == [True, True, False]


# -- the order


def test_the_highest_goes_first_and_one_that_is_down_anyway_before_it():
    assert [each.number for each in rules.in_order(replicas(0, 2, 1), set())] == [2, 1, 0]
    assert [each.number for each in rules.in_order(replicas(0, 2, 1), {"web-0"})] == [0, 2, 1]
    stopped = replicas(9, runs=False)
    assert [e.number for e in rules.in_order([*stopped, *replicas(0)], set())] == [0, 9]


@pytest.mark.parametrize(
    ("going", "down", "at_once", "next_pod"),
    [
        ((), set(), 1, "web-1"),
        ((2,), set(), 1, None),
        ((2,), {"web-2"}, 1, None),
        ((2,), {"web-2"}, 2, "web-1"),
        ((), {"web-2"}, 1, None),
        ((), {"web-1"}, 1, "web-1"),
        ((), {"web-1", "web-2"}, 1, None),
        ((), {"web-1", "web-2"}, 2, "web-1"),
        ((2,), {"web-2", "web-9"}, 2, None),
    ],
)
def test_no_more_are_stopped_at_once_than_asked(
    going: tuple[int, ...], down: set[str], at_once: int, next_pod: str | None
):
    chosen = rules.next_one(replicas(0, 1), replicas(*going), down, at_once)

    assert (chosen and chosen.pod) == next_pod


def test_claims_without_a_pod_stop_nobody_so_they_need_not_wait():
    chosen = rules.next_one(replicas(5, runs=False), replicas(2), {"web-1"}, 1)

    assert chosen is not None
    assert rules.next_one(replicas(50, runs=False), replicas(*range(10), runs=False), (), 1) is None


# -- what is in the way


def test_a_budget_that_never_allows_a_pod_to_be_stopped_refuses():
    never = rules.refused(a_set(), [a_budget(0)], wish())

    assert never == (
        "PodDisruptionBudget pdb lets no pod of StatefulSet shop/web be stopped, although all are "
        "healthy: change it for that time"
    )
    assert rules.refused(a_set(), [a_budget(1)], wish()) is None
    assert rules.refused(a_set(), [a_budget(0, healthy=2)], wish()) is None
    assert rules.refused(a_set(), [a_budget(0)], wish(scale_down=True)) is None
    assert rules.refused(a_set(0), [a_budget(0)], wish()) is None


@pytest.mark.parametrize(
    ("selector", "is_about_it"),
    [
        ({"matchLabels": {"app": "other"}}, False),
        ({}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["db"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_only_budgets_that_select_its_pods_count(selector: Any, is_about_it: Any):
    assert bool(rules.refused(a_set(), [a_budget(0, selector=selector)], wish())) is is_about_it


def test_a_set_without_claims_of_its_own_is_refused():
    message = rules.refused(a_set(volumeClaimTemplates=[]), [], wish())

    assert message is not None
    assert "has no volumeClaimTemplates: name the claims" in message


def test_a_budget_that_allows_none_for_now_is_a_note():
    (note,) = said(a_set(), budgets=[a_budget(0, healthy=2)])

    assert note == "PodDisruptionBudget pdb lets no pod be stopped now, so the move waits"


def test_pods_that_are_not_ready_are_named():
    those = replicas(1, 2)

    assert said(a_set(), down={"web-1"}, replicas=those) == ["pod web-1 is not Ready: moved first"]
    (other,) = said(a_set(), down={"web-0"}, replicas=those)
    assert other == "pod web-0 is not Ready: the others wait for that"
    assert said(a_set(), down={"web-1"}, wish=wish(scale_down=True)) == []


def test_a_set_that_deletes_claims_or_rolls_out_is_named():
    deletes = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
    (note,) = said(a_set(**deletes))
    assert "deletes the claims of replicas that are scaled away" in note
    (note,) = said(a_set(status={"currentRevision": "a", "updateRevision": "b"}))
    assert "rollout is not finished" in note
    assert said(a_set(status={"currentRevision": "a", "updateRevision": "a"})) == []


def test_new_replicas_that_would_go_elsewhere_are_named():
    (note,) = said(a_set(), zones={"fast": ["us-east-1a"]})
    assert note.startswith(
        "new replicas get volumes in us-east-1a still (template data, class fast)"
    )
    assert said(a_set(), zones={"fast": ["us-east-1a", "us-east-1b"]}) == []

    to_class = wish(MoveTarget(storage_class_name="fast"))
    (note,) = said(a_set(), wish=to_class)
    assert note.startswith("new replicas get volumes of the default class still (template logs)")

    sized = [
        {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "4Gi"}}}}
    ]
    (note,) = said(a_set(volumeClaimTemplates=sized), wish=wish(MoveTarget(size="9Gi")))
    assert note.startswith("new replicas get volumes of 4Gi still (template data)")


# -- readiness


def a_pod(status: str = "True", *, for_s: int = 60, deleting: bool = False) -> SetPod:
    at = datetime.now(UTC)
    ready = {"type": "Ready", "status": status, "lastTransitionTime": at - timedelta(seconds=for_s)}
    meta = {"name": "web-0", "deletionTimestamp": at.isoformat() if deleting else None}
    return msgspec.convert({"metadata": meta, "status": {"conditions": [ready]}}, SetPod)


@pytest.mark.parametrize(
    ("pod", "least_s", "is_ready"),
    [
        (a_pod(), 0, True),
        (a_pod("False"), 0, False),
        (a_pod(deleting=True), 0, False),
        (a_pod(for_s=20), 3000, False),
        (a_pod(for_s=4000), 3000, True),
        (SetPod(), 0, False),
    ],
)
def test_a_pod_is_ready_once_its_set_counts_it_as_available(
    pod: SetPod, least_s: int, is_ready: Any
):
    assert pod.is_ready(datetime.now(UTC), least_s) is is_ready
