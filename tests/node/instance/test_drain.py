"""The drain hook against an API server on loopback."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs

from provisioner.model.errors import NodeError, Reason
from provisioner.node.instance import drain as hook
from provisioner.node.instance.documents import NodeView
from provisioner.node.instance.drain import drain, why_going
from provisioner.node.runtime.sysfs import SystemDirs
from tests.node.kube_server import KubeServer, serving, status

Json = dict[str, Any]

GOES = {"unschedulable": True}
SHUTTING_DOWN = {"type": "Ready", "status": "False", "message": "node is shutting down"}
DIRS = SystemDirs()
STAGES = Path("/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com")
A, B = "ebs.csi.aws.com^vol-0a", "ebs.csi.aws.com^aws://us-east-1a/vol-0b"
OTHERS = "efs.csi.aws.com^vol-0c"


@pytest_asyncio.fixture
async def kube(tmp_path: Path) -> AsyncIterator[KubeServer]:
    async with serving(tmp_path) as server:
        yield server


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_AGAIN_S", 0.01)


def in_use(*volumes: str) -> Json:
    return {"volumesInUse": [f"kubernetes.io/csi/{each}" for each in volumes]}


async def drained(kube: KubeServer, timeout_s: float = 10.0, dirs: SystemDirs = DIRS) -> None:
    async with kube.client() as client:
        await drain(client, dirs, STAGES, timeout_s=timeout_s)


async def test_a_node_that_stays_is_not_waited_for(kube: KubeServer):
    kube.has_node()

    await drained(kube)

    assert kube.paths() == ["/api/v1/nodes/node-1"]


@pytest.mark.parametrize(
    "going",
    [
        {"spec": GOES},
        {"status": {"conditions": [SHUTTING_DOWN]}},
    ],
    ids=["cordoned", "shut down by systemd"],
)
async def test_a_node_that_goes_is_waited_for_until_the_kubelet_uses_none_of_our_volumes(
    kube: KubeServer, going: Json
):
    said = [in_use(A, B, OTHERS), in_use(B, OTHERS), in_use(OTHERS)]

    def answer() -> web.Response:
        status = {**going.get("status", {}), **said.pop(0)}
        return web.json_response({"metadata": {"name": "node-1"}, **going, "status": status})

    kube.answers = [answer] * 3

    with capture_logs() as logs:
        await drained(kube)

    waited = [each["volumes"] for each in logs if "volumes" in each]
    assert waited == [["vol-0a", "vol-0b"], ["vol-0b"]]
    assert kube.paths() == ["/api/v1/nodes/node-1"] * 3


async def test_a_volume_that_is_mounted_though_the_kubelet_uses_it_no_more_is_waited_for(
    kube: KubeServer, tmp_path: Path
):
    """One that the kubelet has forgotten, and the plugin unmounts."""
    kube.has_node(spec=GOES, status=in_use(OTHERS))
    table = tmp_path / "self" / "mountinfo"
    table.parent.mkdir()
    path = STAGES / "0" / "globalmount"
    table.write_text(f"36 35 259:1 / {path} rw - ext4 /dev/nvme1n1 rw\n")

    with capture_logs() as logs:
        draining = asyncio.ensure_future(drained(kube, dirs=SystemDirs(proc=tmp_path)))
        await kube.times(3)
        assert not draining.done()
        table.write_text("")
        await draining

    assert [each["volumes"] for each in logs if "volumes" in each] == [[str(path)]]


@pytest.mark.parametrize("code", [401, 403])
async def test_a_plugin_that_lost_its_rights_waits_only_while_a_volume_is_mounted(
    kube: KubeServer, tmp_path: Path, code: int
):
    """So uninstalling is not delayed: Helm deletes the rights before the pods have ended."""
    kube.answers = [lambda: status(code, "Gone", "no rights")] * 1000
    table = tmp_path / "self" / "mountinfo"
    table.parent.mkdir()
    table.write_text(f"36 35 259:1 / {STAGES / '0' / 'globalmount'} rw - ext4 /dev/nvme1n1 rw\n")

    draining = asyncio.ensure_future(drained(kube, dirs=SystemDirs(proc=tmp_path)))
    await kube.times(4)
    assert not draining.done()
    table.write_text("")
    await draining


async def test_one_refusal_of_an_api_server_that_has_just_started_is_no_reason_to_end(
    kube: KubeServer,
):
    """A volume may be in use before it is mounted, and then only the Node says so."""
    kube.answers = [lambda: status(403, "Forbidden", "not yet")] * 2
    kube.has_node(spec=GOES, status=in_use(A))

    draining = asyncio.ensure_future(drained(kube))
    await kube.times(4)
    assert not draining.done()
    kube.has_node(spec=GOES)
    await draining


async def test_a_node_whose_object_is_gone_is_waited_for_while_a_volume_is_staged_there(
    kube: KubeServer, tmp_path: Path
):
    table = tmp_path / "self" / "mountinfo"
    table.parent.mkdir()
    line = "36 35 259:1 / {path} rw - ext4 /dev/nvme1n1 rw\n"
    table.write_text(line.format(path=STAGES / "0" / "globalmount"))

    draining = asyncio.ensure_future(drained(kube, dirs=SystemDirs(proc=tmp_path)))
    await kube.times(3)
    assert not draining.done()
    table.write_text(line.format(path="/var/lib/kubelet/plugins/other"))

    await draining


def a_block_volume(kubelet: Path, name: str, driver: str) -> Path:
    """What kubelet 1.36 keeps of one (pkg/volume/csi/csi_block.go); the folder of all of them."""
    devices = kubelet / "plugins/kubernetes.io/csi/volumeDevices"
    note = devices / name / "data" / "vol_data.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"driverName": driver, "volumeHandle": f"aws://a/vol-{name}"}))
    return devices


@pytest.mark.parametrize("path", ["publish/0a/pod-uid", "0a/dev/pod-uid"])
async def test_a_raw_block_volume_is_waited_for_while_it_is_mounted_for_a_pod(
    kube: KubeServer, tmp_path: Path, path: str
):
    devices = a_block_volume(tmp_path, "0a", "ebs.csi.aws.com")
    table = tmp_path / "self" / "mountinfo"
    table.parent.mkdir()
    table.write_text(f"36 35 0:5 /nvme1n1 {devices / path} rw - devtmpfs udev rw\n")
    stages = devices.parent / "ebs.csi.aws.com"

    async def draining() -> None:
        async with kube.client() as client:
            await drain(client, SystemDirs(proc=tmp_path), stages, timeout_s=10.0)

    with capture_logs() as logs:
        kube.has_node(spec=GOES)
        work = asyncio.ensure_future(draining())
        await kube.times(3)
        assert not work.done()
        table.write_text("")
        await work

    assert [each["volumes"] for each in logs if "volumes" in each] == [["vol-0a"]]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("0c", "publish/0c/pod-uid"),
        ("0c", "0c/dev/pod-uid"),
        ("0c", "publish/unknown/pod-uid"),
        ("0c", "../other"),
    ],
)
async def test_a_raw_block_volume_of_another_driver_or_of_none_is_not_waited_for(
    kube: KubeServer, tmp_path: Path, name: str, path: str
):
    kube.has_node(spec=GOES)
    devices = a_block_volume(tmp_path, name, "rbd.csi.ceph.com")
    table = tmp_path / "self" / "mountinfo"
    table.parent.mkdir()
    table.write_text(f"36 35 0:5 /nvme1n1 {devices / path} rw - devtmpfs udev rw\n")

    async with kube.client() as client:
        stages = devices.parent / "ebs.csi.aws.com"
        await drain(client, SystemDirs(proc=tmp_path), stages, timeout_s=2.0)

    assert kube.paths() == ["/api/v1/nodes/node-1"]


async def test_what_is_mounted_where_the_node_is_gone_and_the_table_cannot_be_read_is_not_guessed(
    kube: KubeServer, tmp_path: Path
):
    with pytest.raises(NodeError, match="the mount table cannot be read"):
        await drained(kube, 0.5, SystemDirs(proc=tmp_path))


async def test_the_api_server_is_asked_again_until_it_answers(kube: KubeServer):
    kube.has_node()
    busy = [lambda: status(503, "ServiceUnavailable", "wait")] * 3
    kube.answers = [*busy]

    await drained(kube)

    assert kube.paths() == ["/api/v1/nodes/node-1"] * 4


async def test_after_its_time_it_says_which_volumes_are_left(kube: KubeServer):
    kube.has_node(spec=GOES, status=in_use(B, A))

    with pytest.raises(NodeError) as error:
        await drained(kube, timeout_s=0.3)

    assert error.value.reason is Reason.TIMED_OUT
    assert error.value.message == "timed out after 0 s on node node-1: still in use: vol-0a, vol-0b"


async def test_after_its_time_it_says_that_nobody_answered(kube: KubeServer):
    kube.hang = asyncio.Event()

    with pytest.raises(NodeError, match="node-1: the API server did not answer"):
        await drained(kube, timeout_s=0.2)
    kube.hang.set()


def test_it_loads_nothing_heavy():
    script = "import sys, provisioner.node.instance.drain; print(*sys.modules)"

    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "aiohttp" in loaded
    assert not loaded & {"grpc", "boto3", "botocore", "kubernetes", "yaml", "cryptography"}


def a_node(**parts: object) -> NodeView:
    return msgspec.convert({"metadata": {"name": "node-1"}, **parts}, NodeView)


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unschedulable",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.kubernetes.io/out-of-service",
    ],
)
def test_a_node_with_such_a_taint_goes_away(key: str):
    taints = [{"key": "dedicated", "effect": "NoSchedule"}, {"key": key, "effect": "NoSchedule"}]

    assert why_going(a_node(spec={"taints": taints})) == f"it has the taint {key}"


def test_a_node_goes_away_whose_object_is_gone_or_going_or_cordoned():
    deleted = {"name": "node-1", "deletionTimestamp": "2026-11-22T05:00:00Z"}

    assert why_going(None) == "its Node is gone"
    assert why_going(a_node(metadata=deleted)) == "its Node is being deleted"
    assert why_going(a_node(spec={"unschedulable": True})) == "it is cordoned"


def ready(status: str, message: str) -> dict[str, object]:
    other = {"type": "DiskPressure", "status": "False", "message": "node is shutting down"}
    return {"conditions": [other, {"type": "Ready", "status": status, "message": message}]}


@pytest.mark.parametrize(
    "message",
    ["node is shutting down", "[PLEG is not healthy: 3m, node is shutting down]"],
)
def test_a_node_goes_away_whose_kubelet_was_told_of_the_shutdown(message: str):
    assert why_going(a_node(status=ready("False", message))) == "its machine is shut down"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"conditions": None},
        ready("False", "container runtime network not ready: cni plugin not initialized"),
        ready("True", "kubelet is posting ready status"),
        # The machine was shut down, and nobody has written here since it is back.
        ready("Unknown", "node is shutting down"),
    ],
)
def test_a_node_that_is_only_not_ready_stays(status: dict[str, object]):
    assert why_going(a_node(status=status)) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"taints": None},
        # Pods leave it for other reasons, and may come back.
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
        {"taints": [{"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}]},
    ],
)
def test_any_other_node_stays(spec: dict[str, object]):
    assert why_going(a_node(spec=spec)) == ""
