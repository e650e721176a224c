"""What ``make compat`` runs, and the row that it prints."""

import datetime as dt
import re
from pathlib import Path

import pytest

from provisioner.sandbox.binaries import KUBELET_VARIABLE
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import CONTROL_PLANE, REAL_NODE, RELEASES
from tests import compat
from tests.documents import DOCS

ROOT = Path(__file__).parents[1]
PAGE = DOCS / "kubernetes-versions.md"


@pytest.mark.parametrize("minor", RELEASES)
def test_every_file_that_is_run_exists(minor: int):
    files = compat.chosen(minor)

    assert [each for each in files if not (ROOT / each).exists()] == []


def test_an_older_kubernetes_is_not_asked_for_what_it_lacks():
    assert "tests/cluster/test_change.py" not in compat.chosen(33)
    assert "tests/cluster/test_change.py" in compat.chosen(34)


def test_an_older_kubelet_is_met_by_the_tests_that_have_kubelets():
    files = compat.chosen(37, nodes_only=True)

    assert files
    assert all("test_real_node_" in each for each in files)


@pytest.mark.parametrize(
    ("demo", "tests", "cells"),
    [
        (True, (40, 0, 0, 0), "complete | 40 of 40 passed"),
        (False, (40, 2, 1, 3), "**not complete** | 34 of 37 passed, 3 skipped"),
    ],
)
def test_a_row_says_what_passed_and_what_did_not(*, demo: bool, tests: tuple[int, ...], cells: str):
    counted = dict(zip(("tests", "failures", "errors", "skipped"), tests, strict=True))
    day = dt.date(2026, 11, 23)

    row = compat.row("v1.37.2", "v1.36.3", demo=demo, tests=counted, today=day)

    assert row == f"| 1.37.2 | 1.36.3 | {cells} | 2026-11-23 |"


def test_a_row_names_no_kubelet_where_none_ran():
    tests = {"tests": 3, "failures": 0, "errors": 0, "skipped": 1}

    row = compat.row("v1.37.2", "", demo=True, tests=tests, today=dt.date(2026, 11, 23))

    assert row == "| 1.37.2 | | complete | 2 of 2 passed, 1 skipped | 2026-11-23 |"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of programs that are found on PATH and only say that they are 1.37.2."""
    folder = tmp_path / "programs"
    folder.mkdir()
    said = '{"clientVersion": {"gitVersion": "v1.37.2"}}'
    for name in (*CONTROL_PLANE, *REAL_NODE):
        path = folder / name
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SANDBOX_KUBERNETES", KUBELET_VARIABLE, "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name, raising=False)
    return folder


NO_NODES = "a real node needs root"


@pytest.mark.parametrize(("why", "kubelet"), [("", "v1.37.2"), (NO_NODES, "")])
def test_a_kubelet_counts_where_it_can_run(programs: Path, why: str, kubelet: str):
    assert programs.is_dir()
    assert compat.versions(why) == ("v1.37.2", kubelet)


def test_another_kubelet_is_refused_where_none_can_run(
    programs: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SANDBOX_KUBERNETES", "1.37")
    monkeypatch.setenv(KUBELET_VARIABLE, "1.37")
    assert programs.is_dir()
    assert compat.versions(NO_NODES) == ("v1.37.2", "")

    monkeypatch.setenv(KUBELET_VARIABLE, "1.36")
    with pytest.raises(SandboxError, match=f"^kubelet 1.36 cannot be tested .*: {NO_NODES}$"):
        compat.versions(NO_NODES)


def test_an_api_server_that_says_no_version_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(compat, "ensure_binaries", lambda **_: tmp_path)

    assert compat.main() == 1
    said = f"{tmp_path}/kube-apiserver does not say which version it is\n"
    assert capsys.readouterr().err == said


def a_report(folder: Path, text: str) -> Path:
    path = folder / "report.xml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", ["", "<testsuites>"])
def test_a_report_that_pytest_did_not_write_is_one_sentence(tmp_path: Path, text: str):
    report = a_report(tmp_path, text) if text else tmp_path / "none.xml"

    with pytest.raises(SandboxError, match=r"^pytest ended without a report: "):
        compat.counted(report)


@pytest.mark.parametrize(("tests", "skipped"), [(0, 0), (4, 4)])
def test_there_is_no_row_if_no_test_ran(tmp_path: Path, tests: int, skipped: int):
    suite = f'<testsuite tests="{tests}" failures="0" errors="0" skipped="{skipped}"/>'
    report = a_report(tmp_path, f"<testsuites>{suite}</testsuites>")

    with pytest.raises(SandboxError, match=re.escape(f"no test ran: {skipped} were skipped")):
        compat.counted(report)


def test_tests_that_ran_are_counted(tmp_path: Path):
    suite = '<testsuite tests="5" failures="1" errors="0" skipped="2"/>'

    counted = compat.counted(a_report(tmp_path, f"<testsuites>{suite}</testsuites>"))

    assert counted == {"tests": 5, "failures": 1, "errors": 0, "skipped": 2}


def test_the_page_names_each_release_that_a_minor_means():
    text = PAGE.read_text()

    assert [each for each in RELEASES.values() if f"| {each.removeprefix('v')} |" not in text] == []
