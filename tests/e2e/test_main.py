"""What the command says to bad input, before anything is started."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.sandbox.errors import SandboxError
from tests.e2e import __main__ as command
from tests.e2e import runs


@pytest.fixture(autouse=True)
def a_machine_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "demand", lambda: None)
    monkeypatch.setattr("provisioner.sandbox.binaries.find_binaries", lambda **_: None)


def said(*arguments: str) -> str:
    result = CliRunner().invoke(command.main, arguments)
    assert result.exit_code != 0
    assert result.stdout == ""
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "1", "1/", "/3", "a/b", "1/0", "-1/3", "commit", "commit/0"]
)
def test_a_part_that_is_none_is_refused(text: str):
    assert said("--part", text).endswith(
        f"{text!r} is not a part: expected one like 1/3 or commit/3"
    )


@pytest.mark.parametrize("git", ["echo 2d50a23", "exit 128", ""])
def test_the_commit_chooses_a_part_and_the_day_does_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, git: str
):
    if git:
        (tmp_path / "git").write_text(f"#!/bin/sh\n{git}\n")
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {command.Part().convert("commit/3", None, None) for _ in range(2)}

    if "echo" in git:
        assert found == {(runs.rotated("2d50a23", 3), 3)}
    assert {count for _, count in found} == {3}
    assert {number for number, _ in found} <= {1, 2, 3}


def test_a_run_that_does_not_exist_is_named_with_those_that_do():
    line = said("--only", "xsf")

    assert line == (
        "Error: there is no run xsf: "
        "expected some of plain, xfs, immediate, multi-attach, disruptive"
    )


def test_programs_that_are_not_built_are_told_with_what_builds_them():
    assert "run `ebs-provisioner sandbox binaries --conformance`" in said()


def test_a_machine_that_cannot_have_real_nodes_is_told_why(monkeypatch: pytest.MonkeyPatch):
    def refuse() -> None:
        raise SandboxError("a real node needs root: it mounts")

    monkeypatch.setattr(command, "demand", refuse)

    assert said() == "Error: a real node needs root: it mounts"


def test_nothing_is_written_when_nothing_is_run(tmp_path: Path):
    said("--out", str(tmp_path / "out"))

    assert list(tmp_path.iterdir()) == []


def test_the_runs_are_those_that_were_asked_for_in_their_order():
    chosen = command._chosen(quick=False, only=("immediate", "plain"), processes=3)

    assert [(each.name, each.processes) for each in chosen] == [("plain", 3), ("immediate", 3)]
