"""What the kubelet is told, and what its verdict does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.node.csi.endpoint import Endpoint
from provisioner.node.csi.registration import Registration
from provisioner.node.csi.server import service
from provisioner.node.metrics.counters import NodeMetrics
from tests.node.caller import calling

SOCKET = Path("/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock")
REFUSAL: dict[str, Any] = {"plugin_registered": False, "error": "no CSINode\nyet"}


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics()


@pytest.fixture
def registration(metrics: NodeMetrics) -> Registration:
    return Registration("ebs.csi.aws.com", SOCKET, metrics)


@pytest.fixture
async def path(
    tmp_path: Path, registration: Registration, metrics: NodeMetrics
) -> AsyncIterator[Path]:
    path = tmp_path / "ebs.csi.aws.com-reg.sock"
    handler = service("pluginregistration.Registration", registration.rpcs(), metrics)
    endpoint = Endpoint(path, [handler])
    await endpoint.open()
    yield path
    await endpoint.close(0.0)


async def test_the_kubelet_learns_where_we_are(path: Path):
    async with calling(path) as kubelet:
        info = await kubelet("GetInfo")

    assert (info.type, info.name, info.endpoint) == ("CSIPlugin", "ebs.csi.aws.com", str(SOCKET))
    assert list(info.supported_versions) == ["1.0.0"]


async def test_it_is_ready_once_the_kubelet_says_so(
    path: Path, registration: Registration, metrics: NodeMetrics
):
    assert registration.not_ready() == "the kubelet has not registered ebs.csi.aws.com yet"
    async with calling(path) as kubelet:
        await kubelet("GetInfo")
        assert registration.not_ready()
        await kubelet("NotifyRegistrationStatus", plugin_registered=True)

    assert registration.not_ready() == ""
    assert metrics.registry.get_sample_value("ebs_provisioner_node_registered") == 1.0


async def test_a_refusal_is_seen_until_it_is_taken_back(
    path: Path, registration: Registration, metrics: NodeMetrics
):
    async with calling(path) as kubelet:
        await kubelet("NotifyRegistrationStatus", **REFUSAL)
        refusal = registration.not_ready()
        refused = metrics.registry.get_sample_value(
            "ebs_provisioner_node_registrations_refused_total"
        )
        await kubelet("GetInfo")
        await kubelet("NotifyRegistrationStatus", plugin_registered=True)

    assert refusal == "the kubelet refuses to register ebs.csi.aws.com: no CSINode\\nyet"
    assert refused == 1.0
    assert registration.not_ready() == ""


async def test_a_kubelet_that_restarts_in_the_middle_begins_anew(
    path: Path, registration: Registration
):
    async with calling(path) as kubelet:
        await kubelet("GetInfo")  # and dies

    assert registration.not_ready()
    async with calling(path) as kubelet:
        assert (await kubelet("GetInfo")).name == "ebs.csi.aws.com"
        await kubelet("NotifyRegistrationStatus", plugin_registered=True)

    assert registration.not_ready() == ""
    assert path.is_socket()
