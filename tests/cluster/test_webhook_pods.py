"""The webhook as its users meet it: pods and bindings across zones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.sandbox.api import ApiError
from tests.cluster.hands import items, pods_of
from tests.cluster.replicas import eventually
from tests.cluster.static import ZONE, Store, a_pod, pinned
from tests.cluster.webhook_hands import A, B, refused

# -- pods


async def test_a_pod_with_two_volumes_in_different_zones_is_refused(store: Store):
    first, second = await store.claim("films", A), await store.claim("music", B)

    async with refused(403, "films", "music", A, B):
        await store.pod(first, second)


async def test_two_volumes_in_one_zone_are_fine(store: Store):
    first, second = await store.claim("films", A), await store.claim("music", A)

    assert await store.pod(first, second)


def a_controller(kind: str, **spec: Any) -> tuple[str, dict[str, Any]]:
    """The path of a kind of controllers, and one of them whose pod uses both claims."""
    labels = {"app": "player"}
    # A controller's pods always start anew, and end when they like.
    pod = a_pod("films", "music")["spec"] | {"terminationGracePeriodSeconds": 30} | spec
    body = {
        "metadata": {"name": "player"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            **({"serviceName": "player"} if kind == "statefulsets" else {}),
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    return kind, body


@pytest.mark.parametrize("kind", ["replicasets", "statefulsets"])
async def test_what_a_controller_makes_past_the_scheduler_is_refused_too(store: Store, kind: str):
    for name, zone in (("films", A), ("music", B)):
        await store.claim(name, zone)
    kind, body = a_controller(kind, nodeName=store.node_in(A))
    await store.api.create(f"/apis/apps/v1/namespaces/{store.namespace}/{kind}", body)

    async def told() -> str:
        found = await items(store.api, f"/api/v1/namespaces/{store.namespace}/events")
        return next((each["message"] for each in found if each["reason"] == "FailedCreate"), "")

    message = await eventually(f"one of {kind} tells why it has no pod", told)
    assert "pods.ebs-provisioner.io" in message
    assert A in message
    assert B in message
    assert "kubectl rollout restart" in message
    assert await items(store.api, pods_of(store.namespace)) == []


async def test_what_the_scheduler_holds_back_anyway_runs_as_soon_as_it_can(store: Store):
    """A refusal would have its ReplicaSet wait for minutes."""
    for name, zone in (("films", A), ("music", B)):
        await store.claim(name, zone)
    kind, body = a_controller("replicasets")
    await store.api.create(f"/apis/apps/v1/namespaces/{store.namespace}/{kind}", body)

    async def why() -> str:
        found = await items(store.api, pods_of(store.namespace))
        conditions = [c for each in found for c in each["status"].get("conditions", ())]
        return next((each["message"] for each in conditions if each["status"] == "False"), "")

    assert "affinity" in await eventually("the scheduler says why the pod waits", why)


async def test_an_inline_volume_of_another_namespaces_claim_is_refused(store: Store):
    await store.claim("films", A)
    path = f"/api/v1/namespaces/{store.namespace}/persistentvolumeclaims/films"

    async def bound() -> bool:
        return bool((await store.api.get(path))["status"].get("phase") == "Bound")

    await eventually("the claim is bound", bound)
    inline = a_pod(volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": store.made[-1]}}])

    async def refused_there() -> bool:
        try:
            await store.api.request("POST", pods_of("default"), inline, dryRun="All")
        except ApiError as error:
            return "belongs to a claim in another namespace" in str(error)
        return False

    await eventually("a pod of another namespace is refused", refused_there)
    assert await store.pod(volumes=inline["spec"]["volumes"])


@pytest.mark.parametrize("by", ["nodeName", "nodeSelector", "affinity"])
async def test_a_pod_that_wants_to_be_elsewhere_than_its_volume_is_refused(store: Store, by: str):
    claim = await store.claim("films", A)
    wanted: dict[str, Any] = {
        "nodeName": store.node_in(B),
        "nodeSelector": {ZONE: B},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": pinned(B)["required"]
            }
        },
    }

    async with refused(403, "films", A, B):
        await store.pod(claim, **{by: wanted[by]})
    right = {**wanted, "nodeName": store.node_in(A), "nodeSelector": {ZONE: A}}
    right["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pinned(A)["required"]}
    }
    assert await store.pod(claim, **{by: right[by]})


async def test_an_inline_volume_on_a_node_elsewhere_is_refused(store: Store):
    inline = [{"name": "old", "awsElasticBlockStore": {"volumeID": store.volume(A)}}]

    async with refused(403, A, B):
        await store.pod(volumes=inline, nodeName=store.node_in(B))


async def test_a_pod_whose_claims_do_not_exist_yet_passes(store: Store):
    assert await store.pod("not-yet", "nor-this")


# -- bindings


async def bind(store: Store, node: str, path: str = "pods/pod/binding", **query: str) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "pod", "namespace": store.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await store.api.request(
        "POST", f"/api/v1/namespaces/{store.namespace}/{path}", binding, **query
    )


@pytest.mark.parametrize("path", ["pods/pod/binding", "bindings"])
async def test_where_it_is_asked_for_a_pod_is_not_bound_across_zones(store: Store, path: str):
    claim = await store.claim("films", A)
    await store.pod(claim, schedulerName="nobody")
    labels = {"ebs-provisioner.io/zone-guard": "enforce"}
    namespace = f"/api/v1/namespaces/{store.namespace}"
    await store.api.patch(namespace, {"metadata": {"labels": labels}})

    async def guarded() -> bool:
        # The API server hears of the label by a watch of its own; a dry run binds nothing.
        try:
            await bind(store, store.node_in(B), path, dryRun="All")
        except ApiError as error:
            return "bindings.ebs-provisioner.io" in str(error)
        return False

    await eventually("the namespace is guarded", guarded)
    async with refused(403, A, B, store.node_in(B)):
        await bind(store, store.node_in(B), path)
    await bind(store, store.node_in(A), path)


async def test_elsewhere_bindings_are_nobodys_business(store: Store):
    claim = await store.claim("films", A)
    await store.pod(claim, schedulerName="nobody")

    await bind(store, store.node_in(B))
