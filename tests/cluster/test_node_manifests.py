"""The node plugin's manifests, applied to a real API server, and the account that they make."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox import control_plane
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.installation import MANIFESTS, install_node
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.kustomizations import Json, mine, rendered

NAMESPACE = "ebs-provisioner-node"
FOLDER = MANIFESTS / "node"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:ebs-provisioner-node"
COMPONENTS = ["driver-allocatable", "driver-selinux-mount", "node-host-network"]


@pytest.fixture(scope="module")
def applied(background: Background) -> Iterator[str]:
    """The manifests as docs say to apply them; what the dry run before it answered."""
    plane, all_of_them = background.sandbox.plane, ("apply", "-k", str(FOLDER))

    async def apply() -> str:
        await kubectl(plane, "apply", "-f", str(FOLDER / "namespace.yaml"))
        answers = await kubectl(plane, *all_of_them, "--dry-run=server", "--output=name")
        await kubectl(plane, *all_of_them)
        return answers

    yield asyncio.run(apply())
    # KWOK pretends to run these pods.
    asyncio.run(kubectl(plane, "delete", "daemonsets", "--all", f"--namespace={NAMESPACE}"))


async def may(api: Api, verb: str, resource: str) -> bool:
    group, _, plural = resource.rpartition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": ACCOUNT,
            "resourceAttributes": {"verb": verb, "group": group, "resource": plural},
        },
    }
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def test_a_dry_run_on_the_server_accepts_every_object(sandbox: Sandbox, applied: str):
    assert len(applied.splitlines()) == len(await rendered(sandbox, FOLDER))


async def test_a_pod_is_made_for_each_node(sandbox: Sandbox, applied: str, api: Api):
    async def all_made() -> bool:
        return len((await api.get(PODS))["items"]) >= len(sandbox.instances)

    await asyncio.wait_for(control_plane.until(all_made), 30)


async def test_nothing_of_it_would_be_admitted_to_the_controllers_namespace(
    sandbox: Sandbox, applied: str, api: Api
):
    await kubectl(sandbox.plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
    [made] = [each for each in await rendered(sandbox, FOLDER) if each["kind"] == "DaemonSet"]
    pod = {"metadata": {"name": "strayed"}, "spec": made["spec"]["template"]["spec"]}
    pod["spec"]["serviceAccountName"] = "default"

    with pytest.raises(ApiError, match="violates PodSecurity"):
        await api.create("/api/v1/namespaces/ebs-provisioner/pods", pod)


async def test_the_account_may_read_what_it_needs_and_no_more(applied: str, api: Api):
    attachments = "storage.k8s.io/volumeattachments"
    needed = [
        ("get", "nodes"),
        ("get", "persistentvolumes"),
        ("get", attachments),
    ]
    further = [
        *((verb, "nodes") for verb in ("list", "patch", "update")),
        *((verb, attachments) for verb in ("list", "watch", "create", "patch", "delete")),
        *((verb, "persistentvolumes") for verb in ("list", "patch", "delete")),
        ("get", "secrets"),
        ("get", "persistentvolumeclaims"),
        ("get", "pods"),
        ("create", "pods"),
        ("create", "events"),
    ]

    assert [each for each in needed if not await may(api, *each)] == []
    assert [each for each in further if await may(api, *each)] == []


async def test_the_sandbox_installs_the_account_and_no_pods(background: Background, api: Api):
    account = await background.call(install_node(background.sandbox.plane))

    assert f"system:serviceaccount:{account.namespace}:{account.name}" == ACCOUNT


# -- components, beside the controller


async def test_the_api_server_accepts_them_all_together(
    sandbox: Sandbox, tmp_path: Path, applied: str
):
    folder = mine(tmp_path, resources=["", "node"], components=COMPONENTS)
    await kubectl(sandbox.plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))

    everything = ("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    await kubectl(sandbox.plane, *everything, "--dry-run=server")

    found = {each["kind"]: each for each in await rendered(sandbox, folder)}
    assert found["CSIDriver"]["metadata"]["name"] == EBS_DRIVER
    assert found["CSIDriver"]["spec"]["seLinuxMount"] is True
    assert found["CSIDriver"]["spec"]["nodeAllocatableUpdatePeriodSeconds"] >= 10
    spec = found["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["hostNetwork"] is True
    assert {"/sys/fs/selinux", "/etc/selinux", "/var/lib/kubelet"} <= paths_in(spec)


@pytest.mark.parametrize("component", COMPONENTS)
async def test_each_changes_nothing_but_its_own(sandbox: Sandbox, tmp_path: Path, component: str):
    both = mine(tmp_path, resources=["", "node"], components=[component])
    before = {
        name_of(each): each
        for path in (MANIFESTS, FOLDER)
        for each in await rendered(sandbox, path)
    }

    after = {name_of(each): each for each in await rendered(sandbox, both)}

    changed = {name for name in after if after[name] != before[name]}
    assert after.keys() == before.keys()
    assert changed <= {("CSIDriver", EBS_DRIVER), ("DaemonSet", "ebs-provisioner-node")}
    assert changed


async def test_another_folder_of_the_kubelet_is_the_same_everywhere(
    sandbox: Sandbox, tmp_path: Path, applied: str
):
    folder = mine(tmp_path, resources=["", "node"], components=["node-kubelet-root"])
    await kubectl(sandbox.plane, "apply", "-f", str(MANIFESTS / "namespace.yaml"))
    await kubectl(sandbox.plane, "apply", "-k", str(folder), "--dry-run=server")

    found = await rendered(sandbox, folder)

    [options] = [each["data"] for each in found if name_of(each)[1].startswith(f"{NAMESPACE}-")]
    kubelet = options["EBS_PROVISIONER_NODE_KUBELET_DIR"]
    [spec] = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "DaemonSet"]
    on_host = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    assert paths_in(spec) == {kubelet, "/dev"}
    assert on_host == {"kubelet": kubelet, "dev": "/dev"}
    assert kubelet != "/var/lib/kubelet"


async def test_the_option_of_selinux_works_beside_the_stock_node_plugin(
    sandbox: Sandbox, tmp_path: Path
):
    folder = mine(tmp_path, resources=[""], components=["driver-selinux-mount"])

    found = await rendered(sandbox, folder)

    assert [each["spec"]["seLinuxMount"] for each in found if each["kind"] == "CSIDriver"] == [True]
    assert not any(each["kind"] == "DaemonSet" for each in found)


def name_of(found: Json) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


def paths_in(spec: dict[str, Any]) -> set[str]:
    [container] = spec["containers"]
    mounts: list[Json] = yaml.safe_load(yaml.safe_dump(container["volumeMounts"]))
    return {each["mountPath"] for each in mounts}
