"""The manifests, applied to a real API server, and the account that they make."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.model import leadership
from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox import control_plane
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.kustomizations import rendered
from tests.documents import DOCS

NAMESPACE = "ebs-provisioner"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SINCE_1_34 = "change.yaml"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:ebs-provisioner-controller"


@pytest.fixture(scope="module")
def applied(background: Background) -> Iterator[str]:
    """The manifests as docs say to apply them; what the dry run before it answered."""
    plane, all_of_them = background.sandbox.plane, ("apply", "-k", str(MANIFESTS))

    async def apply() -> str:
        await kubectl(plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
        answers = await kubectl(plane, *all_of_them, "--dry-run=server", "--output=name")
        await kubectl(plane, *all_of_them)
        return answers

    yield asyncio.run(apply())
    # KWOK pretends to run these pods; other tests run the controller themselves.
    workloads = ("delete", "deployments,poddisruptionbudgets", "--all", f"--namespace={NAMESPACE}")
    asyncio.run(kubectl(plane, *workloads))


async def may(api: Api, verb: str, resource: str, **where: str) -> bool:
    group, _, plural = resource.rpartition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": ACCOUNT,
            "resourceAttributes": {"verb": verb, "group": group, "resource": plural, **where},
        },
    }
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def test_a_dry_run_on_the_server_accepts_every_object(sandbox: Sandbox, applied: str):
    rendered = await kubectl(sandbox.plane, "kustomize", str(MANIFESTS))

    assert len(applied.splitlines()) == len(list(yaml.safe_load_all(rendered)))


@pytest.mark.parametrize(
    "path", sorted((DOCS / "examples").glob("*.yaml")), ids=lambda path: path.name
)
async def test_every_example_in_docs_is_accepted(sandbox: Sandbox, path: Path, api: Api):
    wanted = [each for each in yaml.safe_load_all(path.read_text()) if each]
    dry_run = ("apply", "-f", str(path), "--dry-run=server", "--output=name")
    if path.name == SINCE_1_34 and int((await api.get("/version"))["minor"]) < 34:
        with pytest.raises(SandboxError, match='no matches for kind "VolumeAttributesClass"'):
            await kubectl(sandbox.plane, *dry_run)
        return

    answers = await kubectl(sandbox.plane, *dry_run)

    assert [answer.rpartition("/")[2] for answer in answers.split()] == [
        each["metadata"]["name"] for each in wanted
    ]


async def test_the_kustomization_of_the_examples_is_the_manifests_with_its_own_names(
    sandbox: Sandbox,
):
    mine = await rendered(sandbox, DOCS / "examples/my-cluster")

    shipped = [*await rendered(sandbox, MANIFESTS), *await rendered(sandbox, MANIFESTS / "node")]
    assert len(mine) == len(shipped)
    (options,) = [
        each["data"]
        for each in mine
        if each["kind"] == "ConfigMap" and "EBS_PROVISIONER_CONTROLLER_CLUSTER_ID" in each["data"]
    ]
    assert options["EBS_PROVISIONER_CONTROLLER_CLUSTER_ID"] == "production"
    images = {
        container["image"]
        for each in mine
        if each["kind"] in ("Deployment", "DaemonSet")
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    shipped_tag = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["images"][0][
        "newTag"
    ]
    assert images == {f"REGISTRY/ebs-provisioner:{shipped_tag}"}


async def test_the_pods_are_admitted_under_the_restricted_standard(applied: str, api: Api):
    async def both_made() -> bool:
        return len((await api.get(PODS))["items"]) == 2

    await asyncio.wait_for(control_plane.until(both_made), 30)

    # The standard is enforced there, or the pods would prove nothing.
    careless: dict[str, Any] = {
        "metadata": {"name": "careless"},
        "spec": {"containers": [{"name": "main", "image": "ebs-provisioner:1"}]},
    }
    with pytest.raises(ApiError, match="violates PodSecurity"):
        await api.create(PODS, careless)


async def test_the_account_may_hold_its_four_leases_and_no_other(applied: str, api: Api):
    leases, there = "coordination.k8s.io/leases", "kube-system"

    for name in leadership.lease_names(EBS_DRIVER):
        assert await may(api, "get", leases, namespace=there, name=name)
        assert await may(api, "patch", leases, namespace=there, name=name)
    assert await may(api, "create", leases, namespace=there)
    assert not await may(api, "patch", leases, namespace=there, name="kube-scheduler")
    assert not await may(api, "create", leases, namespace=NAMESPACE)


async def test_the_account_may_not_reach_further(applied: str, api: Api):
    further = [
        ("get", "secrets"),
        ("get", "pods"),
        ("create", "pods"),
        *((verb, "nodes") for verb in ("create", "update", "delete")),
        ("update", "persistentvolumeclaims"),
        ("delete", "persistentvolumeclaims"),
        ("delete", "storage.k8s.io/volumeattachments"),
        ("patch", "storage.k8s.io/csidrivers"),
    ]

    assert [each for each in further if await may(api, *each)] == []
