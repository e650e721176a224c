"""The webhook's manifests, applied to a real API server: what is accepted and granted.

Nothing of it runs, and its webhook configurations are taken away at once: the sandbox is shared,
and they lead nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.sandbox.api import Api
from provisioner.sandbox.installation import MANIFESTS, unregister_webhook
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.hands import pods_of
from tests.cluster.kustomizations import mine, rendered
from tests.cluster.replicas import eventually

NAMESPACE = "ebs-provisioner"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:ebs-webhook"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/ebs-webhook-tls"


@pytest.fixture(scope="module")
def applied(background: Background) -> Iterator[str]:
    """The manifests as docs say to apply them; what the dry run before it answered."""
    plane, all_of_them = background.sandbox.plane, ("apply", "-k", str(MANIFESTS / "webhook"))

    async def apply() -> str:
        await kubectl(plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
        answers = await kubectl(plane, *all_of_them, "--dry-run=server", "--output=name")
        try:
            await kubectl(plane, *all_of_them)
        finally:
            await unregister_webhook(plane)
        return answers

    yield asyncio.run(apply())
    workloads = ("delete", "deployments,poddisruptionbudgets", "ebs-webhook", "-n", NAMESPACE)
    asyncio.run(kubectl(plane, *workloads))


@pytest.mark.parametrize("folder", ["webhook", "webhook-zone-guard"])
async def test_a_dry_run_on_the_server_accepts_every_object(
    sandbox: Sandbox, applied: str, folder: str
):
    objects = await rendered(sandbox, MANIFESTS / folder)

    accepted = await kubectl(
        sandbox.plane,
        *("apply", "-k", str(MANIFESTS / folder), "--dry-run=server", "--output=name"),
    )

    assert len(accepted.splitlines()) == len(objects)


async def test_in_its_hosts_network_its_pod_is_let_in_by_the_namespaces_level(
    sandbox: Sandbox, tmp_path: Path
):
    folder = mine(tmp_path, resources=["webhook"], components=["webhook-host-network"])
    objects = {each["kind"]: each for each in await rendered(sandbox, folder)}
    namespace, deployment = objects["Namespace"], objects["Deployment"]
    there = namespace["metadata"]["name"]
    account = objects["ServiceAccount"]
    pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
    pod["metadata"] |= {"name": "one", "namespace": there}
    assert pod["spec"]["hostNetwork"]
    try:
        for needed in (namespace, account):
            text = yaml.safe_dump(needed)
            await kubectl(sandbox.plane, "apply", "--server-side", "-f", "-", text=text)
        dry_run = ("create", "--dry-run=server", "-o", "name", "-f", "-")
        made = await kubectl(sandbox.plane, *dry_run, text=yaml.safe_dump(pod))
    finally:
        await kubectl(sandbox.plane, "delete", "namespace", there, "--wait=false")

    assert made.strip() == "pod/one"
    every = await rendered(sandbox, folder)
    namespaces = {each["metadata"].get("namespace", "") for each in every}
    assert namespaces == {"", "default", there}
    assert "NetworkPolicy" not in objects
    (held,) = objects["ValidatingAdmissionPolicy"]["spec"]["matchConditions"]
    assert f'"system:serviceaccount:{there}:{account["metadata"]["name"]}"' in held["expression"]


async def test_controller_and_webhook_and_guards_make_one_kustomization(
    sandbox: Sandbox, applied: str, tmp_path: Path
):
    folder = mine(
        tmp_path,
        resources=[".", "webhook"],
        images=[{"name": "ebs-provisioner", "newName": "registry.example/ebs", "newTag": "1"}],
        configMapGenerator=[
            {
                "name": "ebs-webhook-options",
                "namespace": NAMESPACE,
                "behavior": "merge",
                "literals": ["AWS_REGION=eu-central-1"],
            }
        ],
    )
    objects = await rendered(sandbox, folder)
    text = yaml.safe_dump_all(objects)

    accepted = await kubectl(
        sandbox.plane, "apply", "-f", "-", "--dry-run=server", "--output=name", text=text
    )

    assert len(accepted.splitlines()) == len(objects)
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    assert [pod["containers"][0]["image"] for pod in pods] == ["registry.example/ebs:1"] * 2
    options = [each["data"] for each in objects if each["kind"] == "ConfigMap"]
    assert {"AWS_REGION": "eu-central-1", "EBS_WEBHOOK_SERVE_STRICT": "false"} in options


async def test_the_pods_are_admitted_under_the_restricted_standard(applied: str, api: Api):
    async def both_made() -> bool:
        found = await api.get(
            pods_of(NAMESPACE), labelSelector="app.kubernetes.io/component=webhook"
        )
        return len(found["items"]) == 2

    await eventually("both pods are made", both_made)


async def test_what_the_webhook_keeps_outlives_applying_again(
    sandbox: Sandbox, applied: str, api: Api
):
    kept = await api.patch(SECRET, {"data": {"tls.crt": "a2VwdA=="}})
    try:
        state = MANIFESTS / "webhook" / "state.yaml"
        await kubectl(sandbox.plane, "apply", "-f", str(state))
        await kubectl(
            sandbox.plane, "apply", "--server-side", "--force-conflicts", "-f", str(state)
        )

        assert (await api.get(SECRET))["data"] == kept["data"]
    finally:
        await api.patch(SECRET, {"data": None})


# -- rights


async def may(api: Api, verb: str, resource: str, **where: str) -> bool:
    group, _, plural = resource.rpartition("/")
    attributes = {"verb": verb, "group": group, "resource": plural, **where}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": attributes},
    }
    return bool((await api.create(REVIEWS, review))["status"]["allowed"])


@pytest.mark.parametrize(
    ("resource", "name", "where"),
    [
        ("secrets", "ebs-webhook-tls", {"namespace": NAMESPACE}),
        ("coordination.k8s.io/leases", "ebs-webhook-repairs", {"namespace": NAMESPACE}),
        ("admissionregistration.k8s.io/mutatingwebhookconfigurations", "ebs-webhook", {}),
        ("admissionregistration.k8s.io/validatingwebhookconfigurations", "ebs-webhook", {}),
    ],
)
async def test_what_is_its_own_is_granted_by_name(
    applied: str, api: Api, resource: str, name: str, where: dict[str, str]
):
    # Also that kustomize has left the name alone.
    for verb in ("get", "patch"):
        assert await may(api, verb, resource, name=name, **where)
        assert not await may(api, verb, resource, name="another", **where)
        assert not await may(api, verb, resource, **where)
    assert not await may(api, "delete", resource, name=name, **where)
    # RBAC grants this without a name; it is asked for here with one, which means a subresource.
    assert await may(api, "create", resource, name=name, **where) is resource.endswith("/leases")


async def test_the_account_may_not_reach_further(applied: str, api: Api):
    further = [
        ("list", "secrets"),
        ("list", "pods"),
        ("create", "pods/binding"),
        ("patch", "persistentvolumeclaims"),
        ("patch", "nodes"),
        ("create", "persistentvolumes"),
        ("delete", "persistentvolumes"),
        ("patch", "storage.k8s.io/volumeattachments"),
        ("create", "events"),
        ("create", "coordination.k8s.io/leases"),
    ]

    assert [each for each in further if await may(api, *each)] == []
    assert await may(api, "create", "events", namespace="default")
