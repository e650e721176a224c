"""What somebody can and cannot do with the token of one of our accounts.

RBAC, and where it cannot tell policies, on a real API server. SECURITY.md names these tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from tests.cluster.audit import THIEF
from tests.cluster.background import Background
from tests.cluster.hands import PVS, pods_of
from tests.cluster.replicas import eventually
from tests.cluster.static import a_pod, pinned

NAMESPACE = "ebs-provisioner"
ZONE = "topology.kubernetes.io/zone"
NODES = "/api/v1/nodes"
WEBHOOK, CONTROLLER, NODE = "ebs-webhook", "ebs-provisioner-controller", "ebs-provisioner-node"
FOLDERS = {
    WEBHOOK: MANIFESTS / "webhook",
    CONTROLLER: MANIFESTS,
    NODE: MANIFESTS / "node",
}

Json = dict[str, Any]


@contextlib.asynccontextmanager
async def as_account(background: Background, account: str) -> AsyncIterator[Api]:
    """A client with the rights, and the name, of an account of ours, as the manifests make it."""
    plane = background.sandbox.plane
    folder, namespace = FOLDERS[account], NODE if account == NODE else NAMESPACE
    found = [folder / name for name in ("service-account.yaml", "rbac.yaml", "policy.yaml")]
    files = [argument for path in found if path.exists() for argument in ("-f", str(path))]
    await kubectl(plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
    await kubectl(plane, "apply", "-f", str(MANIFESTS / "node/namespace.yaml"))
    await kubectl(plane, "apply", *files)
    token = await background.call(plane.service_account_token(namespace, account))
    async with Api(plane.server, plane.credentials.authority, token, THIEF) as client:
        yield client


async def is_denied(client: Api, path: str, change: Json | None, method: str = "PATCH") -> bool:
    try:
        if method == "PATCH":
            await client.patch(path, change, dryRun="All")
        else:
            await client.request(method, path, change, dryRun="All")
    except ApiError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return True
    return False


async def in_force(client: Api, path: str, change: Json) -> None:
    """Wait until a change is denied: a policy counts a moment after it was written."""

    async def denied() -> bool:
        return await is_denied(client, path, change)

    await eventually("the policy is in force", denied)


def a_volume(name: str, **source: Json) -> Json:
    return {
        "metadata": {"name": name, "annotations": {"a": "b"}},
        "spec": {
            "capacity": {"storage": "4Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            **source,
        },
    }


CSI: Json = {"csi": {"driver": EBS_DRIVER, "volumeHandle": "vol-0123"}}
FOREIGN: Json = {"csi": {"driver": "share.csi.test", "volumeHandle": "//server/share"}}
SECRET: Json = {"namespace": "shop", "name": "password"}
SECRET_REFS = (
    *("controllerPublishSecretRef", "controllerExpandSecretRef"),
    *("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"),
)
HOST_PATH: Json = {"hostPath": {"path": "/"}}
# The garbage collector deletes what has no owner that exists.
OWNER: Json = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "1-2-3"}
ORPHANED: Json = {"metadata": {"ownerReferences": [OWNER]}}


@contextlib.asynccontextmanager
async def kept(api: Api, collection: str, body: Json) -> AsyncIterator[str]:
    """An object, as long as the test needs it; its path."""
    path = f"{collection}/{body['metadata']['name']}"
    await api.create(collection, body)
    try:
        yield path
    finally:
        await api.delete(path)


@pytest.fixture
async def volume(api: Api, namespace: str) -> AsyncIterator[str]:
    async with kept(api, PVS, a_volume(f"{namespace}-held", **CSI)) as path:
        yield path


async def test_the_webhooks_account_writes_labels_and_affinities_and_nothing_else(
    background: Background, volume: str
):
    async with as_account(background, WEBHOOK) as client:
        theft = {"spec": {"claimRef": {"namespace": "shop", "name": "mine"}}}

        await in_force(client, volume, theft)
        for change in (
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
            {"spec": {"storageClassName": "mine"}},
            {"spec": {"capacity": {"storage": "8Gi"}}},
            {"spec": {"mountOptions": ["suid"]}},
            {"metadata": {"annotations": {"a": "c"}}},
            {"metadata": {"finalizers": ["mine.example/held"]}},
            {"metadata": {"labels": {"app": "mine"}}},
            theft | {"metadata": {"labels": {ZONE: "us-east-1a"}}},
        ):
            assert await is_denied(client, volume, change), change
        right = {
            "metadata": {"labels": {ZONE: "us-east-1a", "topology.kubernetes.io/region": "r"}},
            "spec": {"nodeAffinity": pinned("us-east-1a")},
        }
        assert not await is_denied(client, volume, right)
        await client.patch(volume, right)
        assert not await is_denied(client, volume, {"metadata": {"labels": {ZONE: None}}})


async def test_the_controllers_account_writes_of_nodes_what_is_its_own(
    background: Background, api: Api
):
    found = (await api.get(NODES))["items"][0]
    node = f"{NODES}/{found['metadata']['name']}"
    others = found["spec"].get("taints") or []

    def tainted(key: str, effect: str = "NoSchedule") -> Json:
        return {"spec": {"taints": [*others, {"key": key, "effect": effect}]}}

    async with as_account(background, CONTROLLER) as client:
        await in_force(client, node, {"spec": {"unschedulable": True}})
        for change in (
            tainted("example.com/mine"),
            tainted("ebs.csi.aws.com/agent-not-ready"),
            tainted("node.cloudprovider.kubernetes.io/uninitialized"),
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            {"metadata": {"annotations": {"example.com/mine": "1"}}},
            {"metadata": {"finalizers": ["example.com/mine"]}},
        ):
            assert await is_denied(client, node, change), change
        for change in (
            {"metadata": {"annotations": {"ebs-provisioner.io/attachment-limit": "27"}}},
            {"metadata": {"labels": {"node.kubernetes.io/instance-type": "m7i.large"}}},
        ):
            assert not await is_denied(client, node, change), change


async def test_the_controllers_account_takes_startup_taints_away(background: Background, api: Api):
    taint = {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoSchedule"}
    node = {"metadata": {"name": "starting.example"}, "spec": {"taints": [taint]}}
    async with kept(api, NODES, node) as path, as_account(background, CONTROLLER) as client:
        there = (await api.get(path))["spec"]["taints"]
        left = [each for each in there if each["key"] != taint["key"]]
        assert not await is_denied(client, path, {"spec": {"taints": left}})


async def test_only_who_may_release_dead_nodes_evicts_their_pods(background: Background, api: Api):
    plane = background.sandbox.plane
    rights = str(MANIFESTS / "release-dead-nodes" / "rbac.yaml")
    found = (await api.get(NODES))["items"][0]
    node = f"{NODES}/{found['metadata']['name']}"
    out = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    change = {"spec": {"taints": [*(found["spec"].get("taints") or []), out]}}

    async with as_account(background, CONTROLLER) as client:

        async def is_denied_now(*, denied: bool) -> bool:
            return await is_denied(client, node, change) is denied

        await kubectl(plane, "delete", "--ignore-not-found", "-f", rights)
        try:
            await eventually("it is denied", lambda: is_denied_now(denied=True))
            await kubectl(plane, "apply", "-f", rights)
            await eventually("it is allowed", lambda: is_denied_now(denied=False))
        finally:
            await kubectl(plane, "delete", "--ignore-not-found", "-f", rights)


async def test_the_controllers_account_gives_nobody_another_volume_or_a_directory_of_a_node(
    background: Background, api: Api, namespace: str, volume: str
):
    theft = {"spec": {"claimRef": {"namespace": "shop", "name": "mine"}}}
    async with (
        as_account(background, CONTROLLER) as client,
        kept(api, PVS, a_volume(f"{namespace}-host", **HOST_PATH)) as directory,
        kept(api, PVS, a_volume(f"{namespace}-share", **FOREIGN)) as share,
    ):
        await in_force(client, volume, theft)
        for change in (
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
            {"spec": {"storageClassName": "mine"}},
            {"spec": {"mountOptions": ["suid"]}},
            {"spec": {"nodeAffinity": pinned("us-east-1a")}},
            ORPHANED,
        ):
            assert await is_denied(client, volume, change), change
        with_secrets = [{"csi": CSI["csi"] | {each: SECRET}} for each in SECRET_REFS]
        nfs = {"nfs": {"server": "evil.example", "path": "/"}}
        for source in (HOST_PATH, nfs, FOREIGN, *with_secrets):
            body = a_volume(f"{namespace}-new", **source)
            assert await is_denied(client, PVS, body, "POST"), source
        for others in (directory, share):
            assert await is_denied(client, others, {"metadata": {"annotations": {"a": "c"}}})
            assert await is_denied(client, others, None, "DELETE")

        right = {"spec": {"capacity": {"storage": "8Gi"}}, "metadata": {"finalizers": ["a.test/b"]}}
        assert not await is_denied(client, volume, right)
        assert not await is_denied(client, PVS, a_volume(f"{namespace}-new", **CSI), "POST")
        inline = {"awsElasticBlockStore": {"volumeID": "vol-0123"}}
        assert not await is_denied(client, PVS, a_volume(f"{namespace}-new", **inline), "POST")
        assert not await is_denied(client, volume, None, "DELETE")


async def test_the_controllers_account_changes_no_claims_request(
    background: Background, api: Api, namespace: str
):
    body = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "policies-test",
            "resources": {"requests": {"storage": "4Gi"}},
        },
    }
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    async with kept(api, claims, body) as claim, as_account(background, CONTROLLER) as client:
        await in_force(client, claim, {"spec": {"volumeName": "somebodys"}})
        right = {"metadata": {"annotations": {"ebs-provisioner.io/zone": "us-east-1a"}}}
        assert not await is_denied(client, claim, right)
        status = {"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}
        assert not await is_denied(client, f"{claim}/status", status)
        for path in (claim, f"{claim}/status"):
            assert await is_denied(client, path, ORPHANED), path


async def test_the_controllers_account_has_no_attachment_deleted_by_an_owner(
    background: Background, api: Api, namespace: str
):
    spec = ATTACHMENT["spec"] | {"attacher": "policies.ebs.test"}
    body = {"metadata": {"name": f"{namespace}-held"}, "spec": spec}
    attached = {"status": {"attached": True}}
    async with (
        kept(api, ATTACHMENTS, body) as attachment,
        as_account(background, CONTROLLER) as client,
    ):
        await in_force(client, attachment, ORPHANED)
        assert not await is_denied(client, f"{attachment}/status", attached)
        held = {"metadata": {"finalizers": ["a.test/b"]}}
        assert not await is_denied(client, attachment, held)


RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRETS = "/api/v1/namespaces/ebs-provisioner/secrets"
TOKENS = "/api/v1/namespaces/kube-system/serviceaccounts/default/token"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
SYSTEM = "/api/v1/namespaces/kube-system"
ADMIN: Json = {
    "metadata": {"name": "mine"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}],
}
ATTACHMENT: Json = {
    "metadata": {"name": "mine"},
    "spec": {
        "attacher": "ebs.csi.aws.com",
        "nodeName": "mine",
        "source": {"persistentVolumeName": "somebodys"},
    },
}
Request = tuple[str, str, Json | None]
NOBODYS: list[Request] = [
    ("GET", "/api/v1/secrets", None),
    ("GET", f"{SYSTEM}/secrets", None),
    ("GET", f"{SECRETS}/another", None),
    ("GET", f"{SYSTEM}/configmaps", None),
    ("POST", pods_of(NAMESPACE), a_pod("data")),
    ("POST", pods_of("kube-system"), a_pod("data")),
    ("POST", f"{pods_of(NAMESPACE)}/any/exec?command=sh", None),
    ("POST", TOKENS, {"spec": {"expirationSeconds": 3600}}),
    ("POST", f"{RBAC}/clusterrolebindings", ADMIN),
    ("PATCH", f"{RBAC}/clusterroles/ebs-provisioner-controller", {"rules": []}),
    ("POST", ATTACHMENTS, ATTACHMENT),
    ("DELETE", f"{NODES}/any", None),
    ("DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/any", None),
    ("PATCH", "/apis/storage.k8s.io/v1/csidrivers/ebs.csi.aws.com", {"metadata": {}}),
    ("PATCH", "/apis/apps/v1/namespaces/ebs-provisioner/deployments/any", {"metadata": {}}),
]
WRITES: list[Request] = [
    ("PATCH", f"{NODES}/any", {"metadata": {}}),
    ("PATCH", f"{ATTACHMENTS}/any", {"metadata": {}}),
    ("PATCH", f"{ATTACHMENTS}/any/status", {"status": {}}),
    ("POST", PVS, a_volume("mine", **CSI)),
    ("DELETE", f"{PVS}/any", None),
    ("PATCH", "/api/v1/namespaces/default/persistentvolumeclaims/any", {"metadata": {}}),
]
# Besides NOBODYS: what this account is refused, and what shows that its token is good.
REFUSED: dict[str, tuple[list[Request], str]] = {
    CONTROLLER: ([("GET", f"{SECRETS}/ebs-webhook-tls", None)], NODES),
    WEBHOOK: (
        [
            *WRITES,
            ("GET", pods_of(NAMESPACE), None),
            ("GET", SECRETS, None),
            ("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {}),
        ],
        NODES,
    ),
    NODE: (
        [
            *WRITES,
            ("GET", f"{SECRETS}/ebs-webhook-tls", None),
            ("PATCH", f"{PVS}/any", {"metadata": {}}),
            ("POST", "/api/v1/namespaces/default/events", {}),
            *(("GET", listed, None) for listed in (NODES, PVS, ATTACHMENTS, "/api/v1/pods")),
        ],
        f"{NODES}/{{node}}",
    ),
}


@pytest.mark.parametrize("account", REFUSED)
async def test_a_stolen_token_is_refused_what_its_program_never_does(
    background: Background, api: Api, account: str
):
    refused, allowed = REFUSED[account]
    node = (await api.get(NODES))["items"][0]["metadata"]["name"]
    answers = {}
    async with as_account(background, account) as client:
        assert await client.get(allowed.format(node=node))
        for method, path, body in [*NOBODYS, *refused]:
            answers[method, path] = await status_of(client, method, path, body)

    assert {each for each, status in answers.items() if status != 403} == set()


async def status_of(client: Api, method: str, path: str, body: Json | None) -> int:
    is_patch = method == "PATCH"
    content_type = "application/merge-patch+json" if is_patch else "application/json"
    query = {} if method == "GET" or "exec" in path else {"dryRun": "All"}
    try:
        await client.request(method, path, body, content_type=content_type, **query)
    except ApiError as error:
        return error.status
    return 200


async def test_where_it_is_asked_for_no_pod_names_a_volume_by_its_id(
    background: Background, api: Api, namespace: str
):
    plane, folder = background.sandbox.plane, str(MANIFESTS / "no-inline-volumes")
    inline = a_pod(volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-0123"}}])

    async def refused() -> bool:
        try:
            await api.request("POST", pods_of(namespace), inline, dryRun="All")
        except ApiError as error:
            return "use a persistentVolumeClaim" in str(error)
        return False

    assert not await refused()
    try:
        await kubectl(plane, "apply", "-k", folder)
        await eventually("inline volumes are refused", refused)
        await api.request("POST", pods_of(namespace), a_pod("data"), dryRun="All")
    finally:
        await kubectl(plane, "delete", "-k", folder, "--ignore-not-found")
