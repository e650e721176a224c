"""Who would interfere with a move: autoscalers, GitOps programs, quotas of the namespace."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.pods import interference_rules as rules
from provisioner.controller.moving.pods.consumer_rules import Consumer
from provisioner.model.claim import Claim, LabelledClaim
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.volume import GIB
from provisioner.model.workload import Autoscaler, Workload
from tests.builders import a_claim
from tests.controller.moving import test_plan_rules as plans
from tests.controller.moving.pods.test_consumer_rules import a_workload, of_set, owner
from tests.controller.moving.test_plan_rules import a_move, planned, refused

GIB_1 = rules.Asked("fast", GIB)


def a_quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> ResourceQuota:
    body = {"metadata": {"name": "all"}, "spec": spec, "status": {"hard": hard, "used": used}}
    return msgspec.convert(body, ResourceQuota)


def an_autoscaler(kind: str = "StatefulSet", name: str = "web") -> Autoscaler:
    body = {
        "metadata": {"name": "more"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name}},
    }
    return msgspec.convert(body, Autoscaler)


def marked(workload: Workload, **meta: Any) -> Workload:
    changes = msgspec.convert(meta, type(workload.metadata))
    found = msgspec.structs.replace(
        workload.metadata,
        labels=changes.labels,
        annotations=changes.annotations,
        managed_fields=changes.managed_fields,
    )
    return msgspec.structs.replace(workload, metadata=found)


def notes(workload: Workload, *autoscalers: Autoscaler, number: int = 1) -> list[str]:
    consumer = Consumer(f"web-{number}", ("shop/data",), owner(), workload)
    return rules.notes([consumer], LabelledClaim(), autoscalers)


@pytest.mark.parametrize(
    ("hard", "used", "key"),
    [
        ({"requests.storage": "9Gi"}, {"requests.storage": "8Gi"}, "requests.storage"),
        (
            {"slow.storageclass.storage.k8s.io/requests.storage": "0"},
            {},
            "slow.storageclass.storage.k8s.io/requests.storage",
        ),
        (
            {"slow.storageclass.storage.k8s.io/persistentvolumeclaims": "2"},
            {"slow.storageclass.storage.k8s.io/persistentvolumeclaims": "2"},
            "slow.storageclass",
        ),
        # It was lowered since: what is there stays, and is not let in again.
        ({"persistentvolumeclaims": "2"}, {"persistentvolumeclaims": "3"}, "persistentvolume"),
        ({"count/persistentvolumeclaims": "0"}, {"count/persistentvolumeclaims": "1"}, "count/"),
    ],
)
def test_a_claim_that_a_quota_would_not_let_in_again_is_not_deleted(
    hard: dict[str, str], used: dict[str, str], key: str
):
    new = rules.Asked("slow", 3 * GIB)

    said = rules.no_room([a_quota(hard, used)], (GIB_1, new))

    assert said is not None
    assert key in said
    assert "ResourceQuota all" in said


@pytest.mark.parametrize(
    "quota",
    [
        a_quota({"requests.storage": "10Gi"}, {"requests.storage": "8Gi"}),
        a_quota({"requests.storage": "8Gi", "pods": "0"}, {"requests.storage": "6Gi", "pods": "4"}),
        a_quota({"persistentvolumeclaims": "3"}, {"persistentvolumeclaims": "3"}),
        a_quota({"other.storageclass.storage.k8s.io/requests.storage": "0"}, {}),
        a_quota({"persistentvolumeclaims": "0"}, {}, scopes=["BestEffort"]),
        ResourceQuota(),
    ],
)
def test_the_room_of_the_old_claim_counts(quota: ResourceQuota):
    assert rules.no_room([quota], (GIB_1, rules.Asked("slow", 3 * GIB))) is None


def test_a_claim_asks_for_more_only_if_the_size_is_larger():
    claim: Claim = a_claim(size="1500Mi")

    assert rules.asked(claim, "fast", "").size_bytes == 1500 * 1024**2
    assert rules.asked(claim, "fast", "1Gi").size_bytes == 1500 * 1024**2
    assert rules.asked(claim, "fast", "3G").size_bytes == 3 * GIB


def test_the_plan_is_refused_for_want_of_room():
    full = a_quota({"requests.storage": "4Gi"}, {"requests.storage": "4Gi"})
    grown = a_move(to={"size": "10Gi"})

    message = refused(plans.facts(grown, quotas=[full]))

    assert "ResourceQuota all does not let the claim be created again" in message
    assert ". " not in message
    assert planned(plans.facts(quotas=[full])).request is not None


def test_the_plan_is_refused_if_there_is_no_room_for_all_claims_that_are_moved_together():
    gold = "gold.storageclass.storage.k8s.io/requests.storage"
    move = a_move(to={"storageClassName": "gold"}, movedWith=["logs"])
    both = plans.facts(
        move,
        storage_class=plans.a_storage_class("gold"),
        moved_with=[a_claim(size="60Gi")],
    )

    message = refused(replace(both, quotas=[a_quota({gold: "60Gi"}, {})]))

    assert "the 2 claims that are moved at the same time" in message
    assert planned(replace(both, quotas=[a_quota({gold: "61Gi"}, {})])).request is None


@pytest.mark.parametrize(
    ("changes", "storage", "claims"),
    [({"check": True}, 4, 1), ({"to": {"size": "3Gi"}}, 7, 2)],  # of a volume of 4 GiB
    ids=["check", "copy"],
)
def test_the_claims_of_the_moves_own_pod_need_room_before_pods_are_stopped(
    changes: dict[str, Any], storage: int, claims: int
):
    made = a_move(to=changes.get("to", {"zone": plans.THERE}))
    spec = msgspec.structs.replace(made.spec, check=changes.get("check", False))
    move = msgspec.structs.replace(made, spec=spec)
    used = {"requests.storage": "4Gi", "persistentvolumeclaims": "1"}
    enough = {"requests.storage": f"{4 + storage}Gi", "persistentvolumeclaims": f"{1 + claims}"}
    assert planned(plans.facts(move, quotas=[a_quota(enough, used)])).request is not None

    # Enough for the claim alone.
    for key, hard in {"requests.storage": "6Gi", "persistentvolumeclaims": "1"}.items():
        message = refused(plans.facts(move, quotas=[a_quota({key: hard}, used)]))
        assert f"does not let the move's own pod have its claims ({key}: {used[key]} of" in message
        assert ". " not in message


def test_an_autoscaler_is_named_unless_the_owner_is_scaled_to_nothing():
    (said,) = notes(a_workload(), an_autoscaler(), an_autoscaler("Deployment"))

    assert "HorizontalPodAutoscaler more scales StatefulSet web" in said
    assert notes(a_workload(), an_autoscaler(), number=0) == []
    assert notes(a_workload(), an_autoscaler(name="other")) == []


@pytest.mark.parametrize(
    ("meta", "whose"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "shop"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}, "Flux"),
        (
            {
                "managedFields": [
                    {
                        "manager": "kustomize-controller",
                        "fieldsV1": {"f:spec": {"f:replicas": {}}},
                    }
                ]
            },
            "Flux",
        ),
    ],
)
def test_a_gitops_program_that_manages_the_owner_is_named(meta: dict[str, Any], whose: str):
    (said,) = notes(marked(a_workload(), **meta))

    assert said.startswith(f"{whose} manages StatefulSet web")


def test_who_has_set_other_fields_does_not_matter():
    managers = [
        {"manager": "kustomize-controller", "fieldsV1": {"f:spec": {"f:template": {}}}},
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "helm-controller"},
    ]

    assert notes(marked(a_workload(), managedFields=managers)) == []


def test_the_plan_names_them_and_who_manages_the_claim():
    given = plans.facts(consumers=[of_set()], autoscalers=[an_autoscaler()])
    claim = plans.bound()
    labels = {"argocd.argoproj.io/instance": "shop"}
    meta = msgspec.structs.replace(claim.metadata, labels=labels)

    found = planned(replace(given, claim=msgspec.structs.replace(claim, metadata=meta))).plan.notes

    assert any("HorizontalPodAutoscaler more" in note for note in found)
    assert any(note.startswith("Argo CD manages the claim") for note in found)
