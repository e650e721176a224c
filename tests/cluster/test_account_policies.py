"""What somebody can and cannot do with the token of one of our accounts, on a real API server.

SECURITY.md names these tests. ``test_account_writes`` has what only the policies refuse.
"""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from tests.cluster.account_writes import EBS, NODES, a_volume
from tests.cluster.accounts import CONTROLLER, NAMESPACE, NODE, WEBHOOK, as_account
from tests.cluster.background import Background
from tests.cluster.hands import ATTACHMENTS, PVS, pods_of
from tests.cluster.replicas import eventually
from tests.cluster.static import a_pod

Json = dict[str, Any]


async def is_denied(client: Api, path: str, change: Json) -> bool:
    try:
        await client.patch(path, change, dryRun="All")
    except ApiError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return True
    return False


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


RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRETS = "/api/v1/namespaces/ebs-provisioner/secrets"
TOKENS = "/api/v1/namespaces/kube-system/serviceaccounts/default/token"
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
    ("POST", PVS, a_volume("mine", csi=EBS)),
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
