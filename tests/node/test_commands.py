"""``ebs-provisioner node``: options are read whole, and a mistake is one line before anything starts."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner import cli
from provisioner.node import app
from provisioner.node.instance.kube import ApiServer
from provisioner.node.instance.volume_limit_rules import LimitOptions
from provisioner.node.settings import NodeSettings

SERVER = ("--kube-server", "http://127.0.0.1:9", "--token-file", "/t")


@pytest.fixture(autouse=True)
def a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith(("EBS_PROVISIONER_", "AWS_"))]:
        monkeypatch.delenv(name)
    for name in ("KUBERNETES_SERVICE_HOST", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "x")  # so that what is set meanwhile is taken back
        monkeypatch.delenv(name)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the plugin and the hook are started with."""
    found: list[Any] = []

    async def run(settings: NodeSettings) -> None:
        found.append(settings)

    async def drained(settings: NodeSettings, *, timeout_s: float) -> None:
        found.append((settings, timeout_s))

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(app, "drained", drained)
    return found


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ebs-provisioner", "node", *options])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code is None or isinstance(caught.value.code, int)
    return caught.value.code or 0


def test_every_option_arrives(monkeypatch: pytest.MonkeyPatch, told: list[Any]):
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    options = ["--driver-name=d.x", "--kubelet-dir=/data/kubelet/", "--metrics-address=:1"]
    kube = ["--kube-server=https://k", "--token-file=/t", "--ca-file=/c"]

    assert (
        run(
            monkeypatch, "--node-name=n", *options, *kube, "--volume-attach-limit=7", "--legacy-xfs"
        )
        == 0
    )

    (settings,) = told
    assert settings == NodeSettings(
        node_name="n",
        server=ApiServer("https://k", Path("/t"), Path("/c")),
        metadata_endpoint="http://127.0.0.1:1",
        driver="d.x",
        kubelet_dir=Path("/data/kubelet"),
        metrics_address=":1",
        legacy_xfs=True,
        limits=LimitOptions(attach_limit=7),
    )
    assert settings.csi_socket == Path("/data/kubelet/plugins/d.x/csi.sock")
    assert settings.registration_socket == Path("/data/kubelet/plugins_registry/d.x-reg.sock")


def test_a_pod_needs_its_nodes_name_alone(monkeypatch: pytest.MonkeyPatch, told: list[Any]):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("EBS_PROVISIONER_NODE_NODE_NAME", "node-1")
    monkeypatch.setenv("EBS_PROVISIONER_NODE_RESERVED_VOLUME_ATTACHMENTS", "2")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    assert run(monkeypatch) == 0

    (settings,) = told
    assert (settings.node_name, settings.server.url) == ("node-1", "https://10.96.0.1:443")
    assert settings.limits == LimitOptions(reserved=2)
    assert not settings.asks_metadata
    assert settings.kubelet_dir == Path("/var/lib/kubelet")


def test_the_hook_has_the_options_of_the_plugin(monkeypatch: pytest.MonkeyPatch, told: list[Any]):
    assert run(monkeypatch, "--node-name=n", *SERVER, "drain", "--timeout=1m") == 0

    ((settings, timeout_s),) = told
    assert (settings.node_name, settings.server.url, timeout_s) == ("n", "http://127.0.0.1:9", 60.0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (SERVER, "Missing option '--node-name'"),
        (("--node-name=n",), "no Kubernetes API server is configured"),
        (("--node-name=n", "--kube-server=http://k"), "--kube-server needs --token-file"),
        (("--node-name=n", *SERVER, "--kubelet-dir=var/lib"), "'var/lib' is not an absolute path"),
        (("--node-name=n", *SERVER, "--kubelet-dir=/"), "'/' is / or is not normalised"),
        (("--node-name=n", *SERVER, "--kubelet-dir=/a/../b"), "is not normalised"),
        (("--node-name=n", *SERVER, "--kubelet-dir=/a\n"), "is not an absolute path"),
        (("--node-name=n", *SERVER, "--driver-name=A/b"), "is not a DNS name"),
        (("--node-name=n", *SERVER, "--volume-attach-limit=0"), "0 is not in the range x>=1"),
        (
            ("--node-name=n", *SERVER, "--reserved-volume-attachments=-1"),
            "-1 is not in the range x>=0",
        ),
        (
            (
                "--node-name=n",
                *SERVER,
                "--volume-attach-limit=3",
                "--reserved-volume-attachments=1",
            ),
            "use one of them",
        ),
        (("--node-name=n", *SERVER, "drain", "--timeout=soon"), "is not a duration"),
        (("--node-name=n", *SERVER, "paint"), "No such command 'paint'"),
    ],
)
def test_a_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    told: list[Any],
    options: tuple[str, ...],
    why: str,
):
    assert run(monkeypatch, *options) != 0

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ebs-provisioner: ")
    assert why in line
    assert told == []


@pytest.mark.parametrize("command", ["node", "sandbox"])
def test_without_its_extra_a_command_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
):
    monkeypatch.setattr(cli, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["ebs-provisioner", command])
    with pytest.raises(SystemExit) as caught:
        cli.main()

    assert caught.value.code == 1
    assert f"{command} is not installed: run pip install 'ebs-provisioner[{command}]'" in (
        capsys.readouterr().err
    )


def test_without_extras_the_help_shows_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cli, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["ebs-provisioner", "--help"])
    with pytest.raises(SystemExit) as caught:
        cli.main()

    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "controller" in shown
    assert "sandbox" not in shown
