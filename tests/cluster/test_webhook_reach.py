"""What the webhook's manifests have the API server ask about.

Nothing answers: the webhook configurations lead nowhere and fail, so that it can be told who would
have been asked. All that is made meanwhile is a dry run, and each test takes them away again, for
the sandbox is shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.installation import MANIFESTS, unregister_webhook
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.up import Sandbox
from tests.cluster.hands import PVS, claims_of, pods_of
from tests.cluster.kustomizations import rendered
from tests.cluster.replicas import eventually

NAMESPACE = "ebs-provisioner"
NOWHERE = "https://127.0.0.1:9"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"

Json = dict[str, Any]


@pytest.fixture(autouse=True)
async def its_namespace(sandbox: Sandbox) -> None:
    await kubectl(sandbox.plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))


@contextlib.asynccontextmanager
async def unanswered(sandbox: Sandbox, api: Api, folder: Path) -> AsyncIterator[None]:
    """The webhook configurations of a kustomization, leading nowhere, and failing for it."""
    kinds = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    found = [each for each in await rendered(sandbox, folder) if each["kind"] in kinds]
    for each in found:
        for hook in each["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"]["url"] = f"{NOWHERE}{path}"
            hook["failurePolicy"] = "Fail"
    # The API server hears of the two configurations by watches of their own.
    of_each_kind = [(PVS, a_volume()), (pods_of("default"), a_pod(CLAIMED))]
    await unregister_webhook(sandbox.plane)
    try:
        await kubectl(sandbox.plane, "create", "-f", "-", text=yaml.safe_dump_all(found))
        for path, body in of_each_kind:
            await eventually("the webhooks are asked", partial(asked, api, path, body))
        yield
    finally:
        await unregister_webhook(sandbox.plane)
        for path, body in of_each_kind:
            await eventually("nobody is asked any more", partial(not_asked, api, path, body))


async def asked(api: Api, path: str, body: Json) -> bool:
    """Whether the webhook would be asked about an object that somebody creates."""
    try:
        await api.request("POST", path, body, dryRun="All")
    except ApiError as error:
        if "failed calling webhook" in str(error):
            return True
        if error.status != 404:  # a binding of no pod
            raise
    return False


async def not_asked(api: Api, path: str, body: Json) -> bool:
    return not await asked(api, path, body)


def a_volume(**source: Json) -> Json:
    source = source or {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "probe"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source},
    }


def a_claim(**spec: Any) -> Json:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "probe"}, "spec": wanted | spec}


def a_pod(*sources: Json) -> Json:
    volumes = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    containers = [{"name": "main", "image": "main"}]
    return {"metadata": {"name": "probe"}, "spec": {"containers": containers, "volumes": volumes}}


BINDING: Json = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "no-such-pod"},
    "target": {"kind": "Node", "name": "nowhere"},
}
CLAIMED = {"persistentVolumeClaim": {"claimName": "data"}}
INLINE = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": a_claim()["spec"]}}}


async def label(api: Api, namespace: str, value: str | None) -> None:
    labels = {"ebs-provisioner.io/zone-guard": value}
    await api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})


async def test_only_what_may_be_about_ebs_reaches_the_webhook(
    sandbox: Sandbox, api: Api, namespace: str
):
    claims, pods = claims_of(namespace), pods_of(namespace)

    async with unanswered(sandbox, api, MANIFESTS / "webhook"):
        assert await asked(api, PVS, a_volume(**INLINE))
        assert not await asked(api, PVS, a_volume(hostPath={"path": "/data"}))
        other = {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}
        assert not await asked(api, PVS, a_volume(csi=other))

        assert await asked(api, claims, a_claim(storageClassName="fast"))
        assert not await asked(api, claims, a_claim(storageClassName=""))
        assert not await asked(api, claims, a_claim(storageClassName="fast", volumeName="pv"))

        for source in (CLAIMED, INLINE, EPHEMERAL):
            assert await asked(api, pods, a_pod({"emptyDir": {}}, source)), source
        assert not await asked(api, pods, a_pod())
        assert not await asked(api, pods, a_pod({"emptyDir": {}}, {"configMap": {"name": "x"}}))


@pytest.mark.parametrize("excluded", ["kube-system", NAMESPACE])
async def test_nothing_of_the_systems_namespaces_and_of_its_own_reaches_it(
    sandbox: Sandbox, api: Api, excluded: str
):
    pod = a_pod(CLAIMED)
    account = f"/api/v1/namespaces/{excluded}/serviceaccounts/default"
    await eventually("the namespace accepts pods", lambda: api.get(account))
    pod["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }

    async with unanswered(sandbox, api, MANIFESTS / "webhook"):
        assert not await asked(api, pods_of(excluded), pod)
        assert not await asked(api, claims_of(excluded), a_claim(storageClassName="fast"))


def ways_to_bind(namespace: str) -> list[str]:
    return [f"{pods_of(namespace)}/no-such-pod/binding", f"/api/v1/namespaces/{namespace}/bindings"]


async def test_bindings_reach_it_where_a_namespace_asks_for_it(
    sandbox: Sandbox, api: Api, namespace: str
):
    async with unanswered(sandbox, api, MANIFESTS / "webhook"):
        for path in ways_to_bind(namespace):
            assert not await asked(api, path, BINDING)

        await label(api, namespace, "enforce")
        for path in ways_to_bind(namespace):
            await eventually(f"{path} is guarded", partial(asked, api, path, BINDING))


async def test_in_the_overlay_bindings_reach_it_unless_a_namespace_asks_not(
    sandbox: Sandbox, api: Api, namespace: str
):
    async with unanswered(sandbox, api, MANIFESTS / "webhook-zone-guard"):
        for path in ways_to_bind(namespace):
            assert await asked(api, path, BINDING)
        for system in ("kube-system", "kube-public", "kube-node-lease", NAMESPACE):
            for path in ways_to_bind(system):
                assert not await asked(api, path, BINDING)

        await label(api, namespace, "off")
        for path in ways_to_bind(namespace):
            await eventually(f"{path} is free", partial(not_asked, api, path, BINDING))
        # All else is as without the overlay.
        assert await asked(api, pods_of(namespace), a_pod(CLAIMED))
