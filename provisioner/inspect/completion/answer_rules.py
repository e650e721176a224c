"""How kubectl is told what may follow.

kubectl runs the executable ``kubectl_complete-NAME`` with the words after the plugin's name, the
last of which is being written, and reads a line for each possibility and a directive at the end.
Source: Kubernetes 1.36 pkg/cmd/plugin/plugin_completion.go; cobra's ShellCompDirective (read
2026-11-23).
"""

from collections.abc import Iterable, Iterator

from provisioner.inspect.object_name_rules import NAMES_OF_KINDS

NO_FILES = ":4"
FILES = ":0"


def lines(found: Iterable[tuple[str, str]], *, files: bool) -> Iterator[str]:
    """The answer: values with their help, and whether the shell completes names of files.

    Args:
        found: values, each with a sentence of help or "".
        files: whether an option's value is a file.
    """
    for value, text in found:
        first = text.splitlines()[0] if text else ""
        yield f"{value}\t{first}" if first else value
    yield FILES if files else NO_FILES


def kind_of(word: str) -> str:
    """The kind that a word names, "" if it is none."""
    return NAMES_OF_KINDS.get(word.lower(), "")


def matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Those that begin so, sorted."""
    return sorted(name for name in names if name.startswith(incomplete))
