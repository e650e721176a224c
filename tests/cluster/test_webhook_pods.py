"""The webhook as its users meet it: pods, bindings and attachments across zones are refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from provisioner.sandbox.api import ApiError
from provisioner.sandbox.installation import MANIFESTS
from tests.cluster.hands import ATTACHMENTS, DRIVER, items, pods_of
from tests.cluster.replicas import eventually
from tests.cluster.static import ZONE, Store, a_pod, pinned
from tests.cluster.webhook_hands import CONFIGURATIONS, A, B, Json, refused

# -- pods


async def test_a_pod_with_two_volumes_in_different_zones_is_refused(store: Store):
    first, second = await store.claim("films", A), await store.claim("music", B)

    async with refused(403, "films", "music", A, B):
        await store.pod(first, second)


async def test_two_volumes_in_one_zone_are_fine(store: Store):
    first, second = await store.claim("films", A), await store.claim("music", A)

    assert await store.pod(first, second)


@pytest.mark.parametrize("kind", ["replicasets", "statefulsets"])
async def test_what_a_controller_makes_of_a_template_is_refused_too(store: Store, kind: str):
    for name, zone in (("films", A), ("music", B)):
        await store.claim(name, zone)
    pod = a_pod("films", "music")
    labels = {"app": "player"}
    await store.api.create(
        f"/apis/apps/v1/namespaces/{store.namespace}/{kind}",
        {
            "metadata": {"name": "player"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                **({"serviceName": "player"} if kind == "statefulsets" else {}),
                # A controller's pods always start anew, and end when they like.
                "template": {
                    "metadata": {"labels": labels},
                    "spec": pod["spec"] | {"terminationGracePeriodSeconds": 30},
                },
            },
        },
    )

    async def told() -> str:
        found = await items(store.api, f"/api/v1/namespaces/{store.namespace}/events")
        return next((each["message"] for each in found if each["reason"] == "FailedCreate"), "")

    message = await eventually(f"one of {kind} tells why it has no pod", told)
    assert "pods.ebs-provisioner.io" in message
    assert A in message
    assert B in message
    assert await items(store.api, pods_of(store.namespace)) == []


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


# -- attachments


@contextlib.asynccontextmanager
async def attachments_guarded(store: Store) -> AsyncIterator[None]:
    """The entry of the component webhook-attachments, led to the replica as all others are.

    In a configuration of its own: a replica that registers by its URL owns the usual one alone.
    """
    file = MANIFESTS / "webhook-attachments" / "attachments.yaml"
    body = yaml.safe_load(file.read_text())
    (validating,) = (path for path in CONFIGURATIONS if "validating" in path)
    known = (await store.api.get(validating))["webhooks"][0]["clientConfig"]
    (hook,) = body["webhooks"]
    path = hook["clientConfig"]["service"]["path"]
    url = f"{known['url'].partition('/validate/')[0]}{path}"
    hook["clientConfig"] = {"url": url, "caBundle": known["caBundle"]}
    body["metadata"]["name"] = f"{store.namespace}-attachments"
    kind = validating.rpartition("/")[0]
    await store.api.create(kind, body)
    try:
        yield
    finally:
        await store.api.delete(f"{kind}/{body['metadata']['name']}")


async def test_with_the_component_an_attachment_across_zones_is_refused(store: Store):
    await store.persistent_volume("data", store.volume(A))
    attachment: Json = {
        "metadata": {"name": f"{store.namespace}-by-hand"},
        "spec": {
            "attacher": DRIVER,
            "nodeName": store.node_in(B),
            "source": {"persistentVolumeName": f"{store.namespace}-data"},
        },
    }

    async with attachments_guarded(store):

        async def guarded() -> bool:
            try:
                await store.api.request("POST", ATTACHMENTS, attachment, dryRun="All")
            except ApiError as error:
                return "volumeattachments.ebs-provisioner.io" in str(error)
            return False

        await eventually("attachments are guarded", guarded)
        async with refused(403, f"{store.namespace}-data", A, B, store.node_in(B)):
            await store.api.create(ATTACHMENTS, attachment)
        attachment["spec"]["nodeName"] = store.node_in(A)
        await store.api.request("POST", ATTACHMENTS, attachment, dryRun="All")


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
    async with refused(403, "films", A, B, store.node_in(B)):
        await bind(store, store.node_in(B), path)
    await bind(store, store.node_in(A), path)


async def test_elsewhere_bindings_are_nobodys_business(store: Store):
    claim = await store.claim("films", A)
    await store.pod(claim, schedulerName="nobody")

    await bind(store, store.node_in(B))
