"""What a cluster's own components are made of, as they run on real nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.page_pods import SERVE
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE, until_within, within

pytestmark = NEEDS_A_REAL_NODE


@pytest.fixture
def box(real: Background) -> Sandbox:
    real.sandbox.crew.check()
    return real.sandbox


def workload(kind: str, name: str, pod_spec: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec | {"restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


def spec_of(script: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    document = pod("unnamed", script, {}, image=POD_IMAGE, **spec)
    document["spec"]["containers"][0] |= container
    return dict(document["spec"])


async def names_of(box: Sandbox, app: str) -> list[str]:
    asked = ("get", "pods", f"--selector=app={app}", "-o", "name")
    return [each.removeprefix("pod/") for each in (await kubectl(box.plane, *asked)).split()]


async def test_a_deployment_has_its_account_and_is_replaced_when_its_probe_fails(
    box: Sandbox,
) -> None:
    # A static program of the machine, which the node sees; the image has no client.
    program = {"path": str(box.plane.binaries / "kubectl"), "type": "File"}
    page = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    spec = spec_of(
        SERVE,
        {
            "readinessProbe": page,
            "livenessProbe": page | {"failureThreshold": 2},
            "volumeMounts": [{"name": "kubectl", "mountPath": "/kubectl"}],
        },
        volumes=[{"name": "kubectl", "hostPath": program}],
        hostNetwork=False,
        serviceAccountName="worker",
        automountServiceAccountToken=True,
        nodeSelector={"ebs-provisioner.io/sandbox-node": "real"},
    )
    await kubectl(box.plane, "create", "serviceaccount", "worker")
    document = workload("Deployment", "worker", spec, replicas=2)
    await kubectl(box.plane, "create", "-f", "-", text=json.dumps(document))
    try:
        await kubectl(box.plane, "rollout", "status", "deployment/worker", "--timeout=50s")
        name, _ = await names_of(box, "worker")
        said = json.loads(await within(box, name, "/kubectl", "auth", "whoami", "-o", "json"))
        assert said["status"]["userInfo"]["username"] == "system:serviceaccount:default:worker"

        await within(box, name, "rm", "/www/index.html")  # the probe is answered 404 from now on
        back = "{.status.containerStatuses[0].restartCount}"
        wait = ("wait", f"pod/{name}", f"--for=jsonpath={back}=1", "--timeout=50s")
        await kubectl(box.plane, *wait)
        await kubectl(box.plane, "rollout", "status", "deployment/worker", "--timeout=50s")
    finally:
        await kubectl(box.plane, "delete", "deployment", "worker", "--cascade=foreground")
        await kubectl(box.plane, "delete", "serviceaccount", "worker")


async def test_a_daemon_set_sees_its_nodes_network_devices_and_kubelet(box: Sandbox) -> None:
    mounts = [
        {
            "name": "kubelet",
            "mountPath": "/var/lib/kubelet",
            "mountPropagation": "Bidirectional",
        },
        {"name": "dev", "mountPath": "/dev"},
    ]
    volumes = [
        {"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}},
        {"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}},
    ]
    healthy = {"exec": {"command": ["test", "-d", "/var/lib/kubelet/pods"]}, "periodSeconds": 1}
    container = {
        "securityContext": {"privileged": True},
        "volumeMounts": mounts,
        "readinessProbe": healthy,
        "livenessProbe": healthy,
    }
    spec = spec_of(
        "exec sleep 100000",
        container,
        volumes=volumes,
        nodeSelector={"ebs-provisioner.io/sandbox-node": "real"},
    )
    document = workload("DaemonSet", "agents", spec)
    await kubectl(box.plane, "create", "-f", "-", text=json.dumps(document))
    try:
        await kubectl(box.plane, "rollout", "status", "daemonset/agents", "--timeout=50s")
        agents = await names_of(box, "agents")
        assert len(agents) == len(box.real_nodes)
        for agent in agents:
            asked = ("get", "pod", agent, "-o", "jsonpath={.spec.nodeName} {.status.podIP}")
            name, address = (await kubectl(box.plane, *asked)).split()
            [node] = [each for each in box.real_nodes if each.name == name]
            assert address == node.instance.private_ip_address
            await within(box, agent, "test", "-b", "/dev/loop0")
            # What it mounts there, its node and with it other pods see.
            place = "/var/lib/kubelet/plugins/shared"
            await within(box, agent, "mkdir", "-p", place)
            await within(box, agent, "mount", "-t", "tmpfs", "tmpfs", place)
            assert any(f" {place} " in line for line in node.mounts())
            await within(box, agent, "umount", place)
            await until_within(box, agent, "rmdir", place)
    finally:
        await kubectl(box.plane, "delete", "daemonset", "agents", "--cascade=foreground")
