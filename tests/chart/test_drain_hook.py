"""The preStop hook of the chart's node plugins is told what the plugin is told."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from provisioner.node import app
from provisioner.node.commands import node
from provisioner.node.settings import NodeSettings
from tests.chart.helm import built, one, rendered

pytestmark = built

SERVER = ["--kube-server=https://k:6443", "--token-file=/run/token", '--ca-file=/run/ca\'s & "own"']
ENVIRONMENT = {"EBS_PROVISIONER_NODE_NODE_NAME": "n", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[NodeSettings]:
    """What the plugin and the hook are started with."""
    found: list[NodeSettings] = []

    async def run(settings: NodeSettings) -> None:
        found.append(settings)

    async def drained(settings: NodeSettings, *, timeout_s: float) -> None:
        assert timeout_s == 30.0
        found.append(settings)

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(app, "drained", drained)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "")  # so that what is set meanwhile is taken back
    return found


def start(command: list[str]) -> None:
    name, *arguments = command
    assert name == "node"
    prefix = "EBS_PROVISIONER_NODE"
    result = CliRunner().invoke(node, arguments, env=ENVIRONMENT, auto_envvar_prefix=prefix)
    assert result.exit_code == 0, result.output


def container(values: dict[str, Any], name: str) -> dict[str, Any]:
    daemon_set = one(rendered(values), "DaemonSet", name)
    [found] = daemon_set["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize(
    ("values", "name", "server"),
    [
        ({}, "ebs-provisioner-node", "https://10.96.0.1:443"),
        ({"node": {"additionalArgs": None}}, "ebs-provisioner-node", "https://10.96.0.1:443"),
        ({"node": {"additionalArgs": SERVER}}, "ebs-provisioner-node", "https://k:6443"),
        (
            {
                "additionalDaemonSets": {
                    "big": {"nodeSelector": {"size": "big"}, "additionalArgs": SERVER}
                }
            },
            "ebs-provisioner-node-big",
            "https://k:6443",
        ),
    ],
)
def test_the_hook_asks_the_plugins_api_server(
    values: dict[str, Any], name: str, server: str, told: list[NodeSettings]
):
    found = container(values, name)
    program, *hook = found["lifecycle"]["preStop"]["exec"]["command"]

    start(found["args"])
    start(hook)

    plugin, drain = told
    assert program == "ebs-provisioner"
    assert plugin.server == drain.server
    assert plugin.server.url == server
