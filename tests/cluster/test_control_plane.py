from __future__ import annotations

import asyncio
import base64
import json
import uuid
from typing import Any

import aiohttp
import pytest

from provisioner.sandbox import credentials, kwok, nodes
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.strict_ec2.instances import Instance
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background


async def a_running_pod(api: Api, namespace: str, **spec: Any) -> dict[str, Any]:
    """Create a pod and return it once it runs."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    containers = [{"name": "web", "image": "web"}]
    await api.create(
        pods, {"metadata": {"name": "web"}, "spec": {"containers": containers, **spec}}
    )
    seen: dict[str, Any] = {}

    async def running() -> bool:
        seen.update(await api.get(f"{pods}/web"))
        return bool(seen["status"]["phase"] == "Running")

    async with asyncio.timeout(60):
        await until(running)
    return seen


async def test_the_scheduler_puts_a_pod_on_a_node_of_its_zone(
    sandbox: Sandbox, api: Api, namespace: str
) -> None:
    zone = sandbox.zones[1]
    pod = await a_running_pod(api, namespace, nodeSelector={"topology.kubernetes.io/zone": zone})

    here = {each.private_dns_name for each in sandbox.instances if each.zone == zone}
    assert pod["spec"]["nodeName"] in here


async def test_a_deleted_pod_is_gone_without_its_grace_time(api: Api, namespace: str) -> None:
    await a_running_pod(api, namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/web"
    await api.delete(path)

    async def gone() -> bool:
        try:
            await api.get(path)
        except ApiError as answer:
            return answer.status == 404
        return False

    async with asyncio.timeout(60):
        await until(gone)


async def test_nodes_match_instances_and_are_ready(sandbox: Sandbox, api: Api) -> None:
    found = {each["metadata"]["name"]: each for each in (await api.get("/api/v1/nodes"))["items"]}

    for instance in sandbox.instances:
        node = found[instance.private_dns_name]
        assert node["spec"]["providerID"] == f"aws:///{instance.zone}/{instance.instance_id}"
        assert "taints" not in node["spec"]
        ready = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
        assert [each["status"] for each in ready] == ["True"]


async def test_kwok_renews_the_leases_of_nodes(sandbox: Sandbox, api: Api) -> None:
    name = sandbox.instances[0].private_dns_name
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    seen: set[str] = set()

    async def renewed() -> bool:
        seen.add((await api.get(path))["spec"]["renewTime"])
        return len(seen) > 1

    # A kubelet renews four times within the life of its lease, and so does KWOK.
    async with asyncio.timeout(kwok.LEASE_S):
        await until(renewed)


async def test_the_csi_node_of_a_node_that_vanished_goes_with_it(api: Api) -> None:
    name = f"ip-10-9-9-{uuid.uuid4().hex[:4]}.ec2.internal"
    instance = Instance("i-0", "us-east-1a", "us-east-1", "m5.large", name)
    await nodes.add(api, [instance])
    await nodes.remove(api, name)

    async def gone() -> bool:
        items = (await api.get("/apis/storage.k8s.io/v1/csinodes"))["items"]
        return name not in {each["metadata"]["name"] for each in items}

    async with asyncio.timeout(60):
        await until(gone)


async def test_a_service_account_may_only_what_rbac_grants_it(
    sandbox: Sandbox, background: Background, namespace: str
) -> None:
    plane = sandbox.plane
    token = await background.call(plane.service_account_token(namespace, "default"))
    async with Api(plane.server, plane.credentials.authority, token) as somebody:
        with pytest.raises(ApiError, match="cannot list resource") as refusal:
            await somebody.get("/api/v1/persistentvolumes")

    assert refusal.value.status == 403


async def test_the_token_of_a_service_account_lives_as_long_as_the_certificates(
    sandbox: Sandbox, background: Background, namespace: str
) -> None:
    token = await background.call(sandbox.plane.service_account_token(namespace, "default"))

    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["exp"] - claims["iat"] == credentials.LIFE.total_seconds()


async def test_the_audit_log_names_what_a_service_account_did(
    sandbox: Sandbox, background: Background, namespace: str
) -> None:
    plane = sandbox.plane
    token = await background.call(plane.service_account_token(namespace, "default"))
    async with Api(plane.server, plane.credentials.authority, token) as somebody:
        await somebody.get("/version")
    user = f"system:serviceaccount:{namespace}:default"

    async def logged() -> bool:
        lines = map(json.loads, plane.audit_log.read_text().splitlines())
        return any(
            each["user"]["username"] == user and each["requestURI"] == "/version" for each in lines
        )

    async with asyncio.timeout(60):
        await until(logged)


async def test_work_goes_on_after_the_api_server_was_away(
    sandbox: Sandbox, background: Background, api: Api, namespace: str
) -> None:
    await background.call(sandbox.plane.stop_api_server())
    with pytest.raises(aiohttp.ClientError):
        await api.get("/version")
    await background.call(sandbox.plane.start_api_server())

    await a_running_pod(api, namespace)
    sandbox.crew.check()
