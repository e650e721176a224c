"""What kubectl is answered after a press of TAB."""

import asyncio
from typing import Any

import pytest

from provisioner.inspect.commands import ebs
from provisioner.inspect.completion import answer_rules, objects
from provisioner.inspect.completion.command import answer
from provisioner.kube.resources import Resource


def values(*words: str) -> list[str]:
    *found, directive = answer(words)
    assert directive in {answer_rules.FILES, answer_rules.NO_FILES}
    return [line.partition("\t")[0] for line in found]


def test_commands_are_completed_with_their_help():
    assert "doctor" in values("")
    assert values("doc") == ["doctor"]
    assert answer(["doc"])[0].startswith("doctor\tCheck what")


def test_no_word_at_all_is_an_empty_one():
    assert answer([]) == answer([""])


def test_kinds_are_completed():
    assert values("explain", "p") == ["pod", "pv", "pvc"]


def test_options_and_their_values_are_completed():
    assert {"--role", "--as-controller", "--output"} <= set(values("doctor", "--"))
    assert values("doctor", "-o", "j") == ["json", "junit"]


def test_an_unknown_command_has_no_completion():
    assert values("no-such-command", "x") == []


@pytest.fixture
def cluster_of(monkeypatch: pytest.MonkeyPatch):
    def of(names: object) -> list[str]:
        asked: list[str] = []

        async def read(_: object, resource: Resource[Any], **__: object) -> list[str]:
            asked.append(resource.plural)
            await asyncio.sleep(0)
            if isinstance(names, Exception):
                raise names
            return list(names)  # type: ignore[call-overload, no-any-return]

        monkeypatch.setattr(objects, "_names", read)
        return asked

    return of


def test_names_are_those_of_the_kind_that_is_named(cluster_of):
    asked = cluster_of(["web-1", "web-0", "db-0"])

    assert values("explain", "pods", "web") == ["web-0", "web-1"]
    assert values("explain", "pvc", "") == ["db-0", "web-0", "web-1"]
    assert values("explain", "pvc", "web-0", "") == []
    assert asked == ["pods", "persistentvolumeclaims"]


def test_reasons_are_completed_where_explain_takes_one(cluster_of):
    asked = cluster_of([])

    assert values("explain", "r") == ["reason"]
    assert {"QuotaExceeded", "FailedMount"} <= set(values("explain", "reason", ""))
    assert values("explain", "reason", "QuotaE") == ["QuotaExceeded"]
    assert asked == []


def test_history_completes_claims_only(cluster_of):
    asked = cluster_of(["data"])

    assert values("history", "") == ["pvc"]
    assert values("history", "claim", "") == ["data"]
    assert values("history", "pod", "") == []
    assert asked == ["persistentvolumeclaims"]


def test_move_completes_claims_and_names_of_moves(cluster_of):
    asked = cluster_of(["data-1a2b3c4d", "logs-1a2b3c4d"])

    assert values("move", "") == ["pvc"]
    assert values("move", "pvc", "da") == ["data-1a2b3c4d"]
    assert values("move", "--resume", "da") == ["data-1a2b3c4d"]
    assert values("move", "--abort", "") == ["data-1a2b3c4d", "logs-1a2b3c4d"]
    assert asked == ["persistentvolumeclaims", "volumemoves", "volumemoves"]


def test_a_cluster_that_does_not_answer_completes_nothing(cluster_of):
    cluster_of(TimeoutError())

    assert values("explain", "pod", "") == []


def test_files_are_left_to_the_shell_where_an_option_wants_one():
    assert list(answer_rules.lines([], files=True)) == [":0"]
    assert list(answer_rules.lines([("a", "x\ny")], files=False)) == ["a\tx", ":4"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_the_plugin(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("_KUBECTL_EBS_COMPLETE", f"{shell}_source")

    with pytest.raises(SystemExit) as ended:
        ebs.main(prog_name="kubectl-ebs")

    script = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"_KUBECTL_EBS_COMPLETE={shell}_complete" in script
    assert "kubectl-ebs" in script


def test_the_script_of_a_shell_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("_KUBECTL_EBS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kubectl-ebs doc")
    monkeypatch.setenv("COMP_CWORD", "1")

    with pytest.raises(SystemExit):
        ebs.main(prog_name="kubectl-ebs")

    assert capsys.readouterr().out.splitlines() == ["plain,doctor"]
