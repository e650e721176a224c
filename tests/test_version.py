"""One version, in pyproject.toml; all that names one names the same."""

import http.server
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator

import boto3
import pytest
import yaml
from click.testing import CliRunner

from image.source import describe
from provisioner.cli import commands as provisioner_commands
from provisioner.ec2 import botocore_client
from provisioner.metrics import Metrics
from provisioner.model.errors import StorageError
from provisioner.node.csi.registration import Identity
from provisioner.node.csi.wire import csi_pb2
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.version import our_version
from tests.documents import ROOT, all_documents
from webhook.cli import commands as webhook_commands
from webhook.metrics import WebhookMetrics

VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
NUMBER = r"(\d+\.\d+\.\d+)"


@pytest.fixture(autouse=True)
def _installed() -> None:
    assert our_version() == VERSION, "pyproject.toml has another version than .venv: run make setup"


def test_it_is_a_semantic_version():
    assert re.fullmatch(NUMBER, VERSION)


@pytest.mark.parametrize("group", [provisioner_commands, webhook_commands], ids=lambda g: g.name)
def test_each_program_tells_it(group):
    said = CliRunner().invoke(group, ["--version"], prog_name=group.name).output

    assert said == f"{group.name}, version {VERSION}\n"


@pytest.mark.parametrize(
    ("made", "prefix"),
    [
        (Metrics, "ebs_provisioner"),
        (WebhookMetrics, "ebs_provisioner"),
        (NodeMetrics, "ebs_provisioner_node"),
    ],
    ids=["controller", "webhook", "node plugin"],
)
def test_each_program_exports_it(made: Callable[[], Metrics | NodeMetrics], prefix: str):
    found = made().registry.get_sample_value(f"{prefix}_build_info", {"version": VERSION})

    assert found == 1.0


async def test_the_kubelet_is_given_it():
    info = await Identity("ebs.csi.aws.com").info(csi_pb2.GetPluginInfoRequest())

    assert info.vendor_version == VERSION


class _Endpoint(http.server.BaseHTTPRequestHandler):
    agents: list[str]

    def do_POST(self):
        self.agents.append(self.headers["User-Agent"])
        self.send_error(400)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    _Endpoint.agents = []
    with http.server.HTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_ec2_is_sent_it_with_each_call(endpoint: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    client = botocore_client.connect(region="eu-central-1", endpoint=endpoint, at_once=1)

    with pytest.raises(Exception) as caught:  # noqa: PT011 -- this endpoint refuses everything
        client.describe_volumes()
    client.close()

    assert not isinstance(caught.value, StorageError)
    [agent] = _Endpoint.agents
    assert agent.startswith(f"ebs-provisioner/{VERSION} Boto3/{boto3.__version__} ")


def test_the_image_is_labelled_with_it():
    labelled = describe(ROOT).version

    assert re.fullmatch(rf"{re.escape(VERSION)}(-g[0-9a-f]{{12}})?(-dirty)?", labelled)


def test_the_chart_installs_it():
    chart = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


NAMED = [
    *all_documents(),
    *ROOT.glob("manifests/**/kustomization.yaml"),
    *ROOT.glob("docs/examples/**/kustomization.yaml"),
    ROOT / ".ci/publish.yaml",
]
MANIFESTS_WITH_IMAGES = ("manifests", "manifests/node", "manifests/webhook")
OF_AN_IMAGE = re.compile(rf"(?:\bebs-provisioner:|\bnewTag: |refs/tags/v|the tag `v){NUMBER}")


def test_every_image_that_is_named_has_it():
    found = {
        path.relative_to(ROOT).as_posix(): versions
        for path in NAMED
        if path.name != "upgrading.md" and (versions := set(OF_AN_IMAGE.findall(path.read_text())))
    }

    assert {name for name, versions in found.items() if versions != {VERSION}} == set()
    assert found.keys() >= {f"{folder}/kustomization.yaml" for folder in MANIFESTS_WITH_IMAGES}
    assert found.keys() >= {"README.md", "docs/install.md", "docs/image.md", ".ci/publish.yaml"}


def test_the_newest_release_of_the_changelog_is_it_and_has_a_date_once_it_is_published():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    upgrading = (ROOT / "docs/upgrading.md").read_text()
    published = f"{VERSION} is not published yet" not in upgrading

    assert headings[0] == "[Unreleased]"
    when = r"20\d\d-[01]\d-[0-3]\d" if published else "not published yet"
    assert re.fullmatch(rf"\[{re.escape(VERSION)}\] - {when}", headings[1])


def test_no_release_lists_a_change_twice():
    """A merge can keep an entry beside its older wording."""
    for release in (ROOT / "CHANGELOG.md").read_text().split("\n## "):
        begins = Counter(line[:40] for line in release.splitlines() if line.startswith("- "))
        assert [each for each, count in begins.items() if count > 1] == []
