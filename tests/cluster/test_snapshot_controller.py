"""The cluster's half of snapshots in the sandbox: the real snapshot-controller, and no driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox import snapshots
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.up import Sandbox

Json = dict[str, Any]

CLASSES = f"{snapshots.GROUP}/volumesnapshotclasses"
CONTENTS = f"{snapshots.GROUP}/volumesnapshotcontents"
PVS = "/api/v1/persistentvolumes"
PATIENCE_S = 90


async def seen(look: Callable[[], Awaitable[Json | None]]) -> Json:
    """What ``look`` finds, once it does."""
    found: list[Json] = []

    async def there() -> bool:
        found.extend(each for each in [await look()] if each)
        return bool(found)

    async with asyncio.timeout(PATIENCE_S):
        await until(there)
    return found[0]


async def a_bound_claim(api: Api, namespace: str, source: Json) -> str:
    """A claim that is bound to a persistent volume made by hand; the latter's name."""
    name = f"{namespace}-data"
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand"}
    capacity = {"capacity": {"storage": "8Gi"}, "persistentVolumeReclaimPolicy": "Retain"}
    await api.create(PVS, {"metadata": {"name": name}, "spec": {**body, **capacity, **source}})
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    wish = {"volumeName": name, "resources": {"requests": {"storage": "8Gi"}}}
    await api.create(claims, {"metadata": {"name": "data"}, "spec": {**body, **wish}})

    async def bound() -> Json | None:
        claim: Json = await api.get(f"{claims}/data")
        return claim if claim["status"].get("phase") == "Bound" else None

    await seen(bound)
    return name


async def a_snapshot(api: Api, namespace: str) -> str:
    """A snapshot of the claim, of a class of its own; the path of the former."""
    # Unlike its own kinds, the API server wants these named in what is sent.
    made = {"apiVersion": "snapshot.storage.k8s.io/v1", "metadata": {"name": namespace}}
    rules = {"driver": EBS_DRIVER, "deletionPolicy": "Delete"}
    await api.create(CLASSES, {**made, "kind": "VolumeSnapshotClass", **rules})
    path = f"{snapshots.GROUP}/namespaces/{namespace}/volumesnapshots"
    source = {"source": {"persistentVolumeClaimName": "data"}}
    spec = {"spec": {"volumeSnapshotClassName": namespace, **source}}
    await api.create(path, {**made, "kind": "VolumeSnapshot", **spec})
    return f"{path}/{namespace}"


async def content_of(api: Api, path: str) -> Json | None:
    uid = (await api.get(path))["metadata"]["uid"]
    try:
        content: Json = await api.get(f"{CONTENTS}/snapcontent-{uid}")
    except ApiError:
        return None
    return content


async def test_a_snapshot_of_a_claim_becomes_a_content_for_the_driver(
    api: Api, namespace: str
) -> None:
    csi = {"csi": {"driver": EBS_DRIVER, "volumeHandle": "vol-0123456789abcdef0"}}
    pv = await a_bound_claim(api, namespace, csi)
    path = await a_snapshot(api, namespace)

    content = await seen(lambda: content_of(api, path))

    assert content["spec"]["driver"] == EBS_DRIVER
    assert content["spec"]["source"] == {"volumeHandle": "vol-0123456789abcdef0"}
    assert content["spec"]["deletionPolicy"] == "Delete"
    # What the driver would say: the controller tells it on.
    status = {"snapshotHandle": "snap-1", "readyToUse": True, "restoreSize": 8 << 30}
    name = content["metadata"]["name"]
    await api.patch(f"{CONTENTS}/{name}/status", {"status": status})

    async def told() -> Json | None:
        snapshot: Json = await api.get(path)
        return snapshot if (snapshot.get("status") or {}).get("readyToUse") else None

    assert (await seen(told))["status"]["restoreSize"] == "8Gi"
    await api.delete(path)

    async def to_be_deleted() -> Json | None:
        content: Json = await api.get(f"{CONTENTS}/{name}")
        return content if content["metadata"].get("deletionTimestamp") else None

    deleted = await seen(to_be_deleted)
    # There is no driver here that would take it off.
    assert deleted["metadata"]["finalizers"]
    await api.patch(f"{CONTENTS}/{name}", {"metadata": {"finalizers": None}})
    await api.delete(f"{CLASSES}/{namespace}")
    await api.delete(f"{PVS}/{pv}")


async def test_a_snapshot_of_an_in_tree_volume_is_refused_by_the_cluster(
    api: Api, namespace: str
) -> None:
    in_tree = {"awsElasticBlockStore": {"volumeID": "vol-0123456789abcdef1"}}
    pv = await a_bound_claim(api, namespace, in_tree)
    path = await a_snapshot(api, namespace)

    async def refused() -> Json | None:
        return ((await api.get(path)).get("status") or {}).get("error")

    error = await seen(refused)
    assert "cannot find CSI PersistentVolumeSource" in error["message"]
    assert await content_of(api, path) is None
    await api.delete(path)
    await api.delete(f"{CLASSES}/{namespace}")
    await api.delete(f"{PVS}/{pv}")


async def test_to_define_the_kinds_again_changes_nothing(sandbox: Sandbox, api: Api) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    before = {each["metadata"]["name"] for each in (await api.get(crds))["items"]}

    await snapshots.define(api, sandbox.plane.binaries)

    assert before == {each["metadata"]["name"] for each in (await api.get(crds))["items"]}
    assert {name.partition(".")[0] for name in before} >= {
        *("volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"),
    }


@pytest.mark.usefixtures("sandbox")
async def test_only_the_version_that_is_supported_is_served(api: Api) -> None:
    group = await api.get("/apis/snapshot.storage.k8s.io")

    assert [each["version"] for each in group["versions"]] == ["v1"]
