"""The drain hook against an API server on loopback."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from provisioner.model.errors import NodeError, Reason
from provisioner.node import drain as hook
from provisioner.node.drain import drain
from tests.node.kube_server import KubeServer, attachment, serving, status

Json = dict[str, Any]

GOES = {"unschedulable": True}


@pytest_asyncio.fixture
async def kube(tmp_path: Path) -> AsyncIterator[KubeServer]:
    async with serving(tmp_path) as server:
        yield server


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_AGAIN_S", 0.01)


def page(*found: Json) -> Json:
    return {"metadata": {"resourceVersion": "7"}, "items": list(found)}


def line(kind: str, found: Json) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


async def drained(kube: KubeServer, timeout_s: float = 10.0) -> None:
    async with kube.client() as client:
        await drain(client, timeout_s=timeout_s)


async def test_a_node_that_stays_is_not_waited_for(kube: KubeServer):
    kube.has_node()

    await drained(kube)

    assert kube.paths() == ["/api/v1/nodes/node-1"]


async def test_a_node_that_goes_is_waited_for_until_its_last_volume_is_off(kube: KubeServer):
    kube.has_node(spec=GOES)
    first, second = attachment("vol-1", "pv-1"), attachment("vol-2", "pv-2")
    kube.pages = [page(first)]
    kube.lines = [line("ADDED", second), line("DELETED", first), line("DELETED", second)]

    with capture_logs() as logs:
        await drained(kube)

    waited = [each["volumes"] for each in logs if "volumes" in each]
    assert waited == [["pv-1"], ["pv-1", "pv-2"], ["pv-2"]]
    assert kube.asked[-1][1]["resourceVersion"] == "7"


async def test_a_node_whose_object_is_gone_is_waited_for_too(kube: KubeServer):
    kube.pages = [page(attachment("vol-1")), page()]

    await drained(kube)

    assert kube.pages == []


async def test_a_machine_that_is_shut_down_is_waited_for_though_nobody_cordoned_it(
    kube: KubeServer,
):
    ready = {"type": "Ready", "status": "False", "message": "node is shutting down"}
    kube.has_node(status={"conditions": [ready]})
    kube.pages = [page(attachment("vol-1")), page()]

    await drained(kube)

    assert kube.pages == []


async def test_volumes_of_other_drivers_and_nodes_keep_nobody_waiting(kube: KubeServer):
    kube.has_node(spec=GOES)
    kube.pages = [page(attachment("vol-1", attacher="efs"), attachment("vol-2", node="node-2"))]

    await drained(kube)

    assert len(kube.asked) == 2


async def test_a_watch_that_ends_or_is_too_old_is_begun_anew(kube: KubeServer):
    kube.has_node(spec=GOES)
    held = attachment("vol-1")
    kube.pages = [page(held), page(held), page()]
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    kube.lines = [line("ERROR", gone)]

    await drained(kube)

    assert kube.pages == []


async def test_the_api_server_is_asked_again_until_it_answers(kube: KubeServer):
    kube.has_node()
    busy = [lambda: status(503, "ServiceUnavailable", "wait")] * 3
    kube.answers = [*busy]

    await drained(kube)

    assert kube.paths() == ["/api/v1/nodes/node-1"] * 4


async def test_after_its_time_it_says_which_volumes_are_left(kube: KubeServer):
    kube.has_node(spec=GOES)
    kube.pages = [page(attachment("vol-2", "pv-2"), attachment("vol-1", "pv-1"))] * 1000

    with pytest.raises(NodeError) as error:
        await drained(kube, timeout_s=0.3)

    assert error.value.reason is Reason.TIMED_OUT
    assert error.value.message == "gave up after 0 s on node node-1: still attached are pv-1, pv-2"


async def test_after_its_time_it_says_that_nobody_answered(kube: KubeServer):
    kube.hang = asyncio.Event()

    with pytest.raises(NodeError, match="node-1: the API server did not answer"):
        await drained(kube, timeout_s=0.2)
    kube.hang.set()


def test_it_loads_nothing_heavy():
    script = "import sys, provisioner.node.drain; print(*sys.modules)"

    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "aiohttp" in loaded
    assert not loaded & {"grpc", "boto3", "botocore", "kubernetes", "yaml", "cryptography"}
