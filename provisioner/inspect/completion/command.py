"""``kubectl_complete-ebs``: what kubectl asks after ``kubectl ebs`` and a press of TAB."""

import sys
from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete

from provisioner.inspect.commands import ebs
from provisioner.inspect.completion import answer_rules

_PROGRAM = "kubectl-ebs"
_VARIABLE = "_KUBECTL_EBS_COMPLETE"


def answer(words: Sequence[str]) -> list[str]:
    """The lines for kubectl; the last word is being written."""
    *before, incomplete = words or [""]
    found = ShellComplete(ebs, {}, _PROGRAM, _VARIABLE).get_completions(list(before), incomplete)
    files = any(each.type in {"file", "dir"} for each in found)
    values = [(each.value, each.help or "") for each in found if each.type == "plain"]
    return list(answer_rules.lines(values, files=files))


def main() -> None:
    """Print the answer; a completion that fails says nothing."""
    for line in answer(sys.argv[1:]):
        click.echo(line)
