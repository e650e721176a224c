"""The command line of ``conformance``."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.conformance.commands import conformance
from tests.conformance.account_world import Account

ROOT = Path(__file__).parents[2]


def answer(*options: str) -> tuple[int, str]:
    found = CliRunner().invoke(conformance, list(options))
    return found.exit_code, found.output


def test_the_rules_are_listed_with_their_sources():
    status, text = answer("rules", "--only", "create-default-type")

    assert status == 0
    assert "create-default-type (documented)" in text
    assert "read 2026-11-21" in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "create-default-typ"], "did you mean create-default-type?"),
        (["--sweep", "../x"], "'../x' is not a run's id"),
        (["--resume", "*"], "'*' is not a run's id"),
        (["--budget-usd", "-1"], "is not in the range"),
        (["--budget-usd", "much"], "'much' is not a valid float"),
        ([*("--instance", "i-1"), *("--instance", "i-2"), *("--instance", "i-3")], "twice at most"),
        (["--kubeconfig", "k"], "--kubeconfig needs --context: no cluster is used unnamed"),
        (["--only", "cluster"], "--only cluster needs --context"),
        (["--context", "c", "--only", "gp3-defaults"], "--context needs --only cluster beside"),
        (["--context", "c", "--file-system", "ntfs"], "'ntfs' is not one of"),
        (["--endpoint-url", "http://127.0.0.1:9", "--region", "us-east-1"], "cannot be reached"),
    ],
)
def test_a_mistake_is_one_line_and_no_run(
    aws_environment: None, tmp_path: Path, options: list[str], says: str
):
    status, text = answer("aws", "--state", str(tmp_path), *options)

    assert status != 0
    assert says in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_nobody_can_agree_to_is_none(owned: Account):
    place = ("--endpoint-url", owned.endpoint, "--region", "us-east-1")
    status, text = answer("aws", *place, "--state", str(owned.folder), "--only", "gp3-defaults")

    assert status == 2
    assert "Nobody can be asked here: give --yes." in text
    assert "Nothing was made." in text
    assert owned.made() == set()


def test_a_run_writes_its_report(owned: Account, tmp_path: Path):
    place = ("--endpoint-url", owned.endpoint, "--region", "us-east-1", "--yes")
    report = tmp_path / "report.md"
    rules = ("--only", "create-of-unknown-type", "--only", "create-needs-a-zone")
    status, text = answer(
        "aws", *place, "--state", str(owned.folder), *rules, "--report", str(report)
    )

    assert status == 0, text
    assert "0 refuted, 2 confirmed, 0 not run" in report.read_text()
    assert '"verdict": "confirmed"' in (tmp_path / "report.md.json").read_text()


def test_other_commands_do_not_load_it():
    script = "import sys, provisioner.cli; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert "provisioner.cli" in run.stdout
    assert "conformance" not in run.stdout


@pytest.mark.parametrize(
    ("kubeconfig", "says"),
    [
        (None, "there is no kubeconfig {folder}/.kube/config"),
        ("none", "there is no kubeconfig {here}/none"),
        ("odd", "Invalid kube-config file"),
    ],
)
def test_a_cluster_that_cannot_be_found_is_one_line_and_no_run(
    owned: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kubeconfig: str | None,
    says: str,
):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # never the cluster that this is in
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd").write_text("kind: Config\napiVersion: v1\n")
    place = ("--endpoint-url", owned.endpoint, "--region", "us-east-1", "--yes")
    named = ("--kubeconfig", kubeconfig) if kubeconfig else ()
    status, text = answer("aws", *place, "--state", str(owned.folder), "--context", "c", *named)

    assert status == 2
    assert "the context c: " in text
    assert says.format(folder=tmp_path, here=tmp_path) in text
    assert len(text.strip().splitlines()) == 1
    assert owned.made() == set()
