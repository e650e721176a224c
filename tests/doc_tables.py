"""The tables in docs that are made from tables in the code, each between two markers.

::

    .venv/bin/python -m tests.doc_tables     # writes them again
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from provisioner.inspect.explain.printing import cause_words
from provisioner.model import reasons
from provisioner.node.mounting import rules
from tests import messages, move_states
from tests.cluster.broken import table as broken_clusters
from tests.conformance import rule_tables, run_tables
from tests.documents import DOCS, ROOT
from tests.e2e import claims
from tests.inspect.explain import example

COMMAND = "python -m tests.doc_tables"


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name in the markers, the page that has it, and what makes it."""

    name: str
    page: Path
    make: Callable[[], str]


_CONTROLLER, _MOVING = "provisioner/controller", "provisioner/controller/moving"
_STORIES = sorted(
    f"{_CONTROLLER}/{path.name}"
    for path in (ROOT / _CONTROLLER).iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
)
MESSAGES = {
    "controller": (
        *(each for each in _STORIES if each != _MOVING),
        "provisioner/classes",
    ),
    "moving": (_MOVING,),
    "node": ("provisioner/node",),
    "webhook": ("webhook",),
    # Commands that look explain what they say; of them, the webhook repeats only `class check`.
    "shared": (
        "provisioner/ec2",
        "provisioner/kube",
        "provisioner/model",
        "provisioner/inspect/classes",
    ),
}
TABLES = (
    Table("mount options", DOCS / "reference/mount-options.md", rules.markdown),
    Table("example of explain", DOCS / "explain.md", example.markdown),
    Table("causes", DOCS / "explain.md", cause_words.markdown),
    Table("reasons", DOCS / "reference/events.md", reasons.markdown),
    Table("rules of EC2", DOCS / "reference/ec2-rules.md", rule_tables.markdown),
    Table("runs", DOCS / "reference/conformance-aws.md", run_tables.takes),
    Table("steps", DOCS / "reference/conformance-aws.md", run_tables.steps),
    Table("broken clusters", DOCS / "reference/causes.md", broken_clusters.broken),
    Table("symptoms", DOCS / "troubleshooting.md", broken_clusters.sections),
    Table("healthy clusters", DOCS / "reference/causes.md", broken_clusters.healthy_ways),
    Table("phases of a move", DOCS / "move.md", move_states.markdown),
    Table("e2e claims", DOCS / "reference/e2e.md", claims.markdown),
    *(
        Table(
            f"messages of {name}",
            DOCS / f"reference/messages/{name}.md",
            partial(messages.markdown, *folders),
        )
        for name, folders in MESSAGES.items()
    ),
)


def marked(table: Table) -> str:
    """A table with its markers, as it stands in its page."""
    return (
        f"<!-- {table.name}: made by {COMMAND} -->\n\n{table.make()}\n\n"
        f"<!-- end of {table.name} -->"
    )


def found(table: Table, text: str) -> str:
    """What stands in a page now, its markers included; "" for nothing."""
    pattern = rf"<!-- {table.name}: .*?<!-- end of {table.name} -->"
    match = re.search(pattern, text, re.DOTALL)
    return match[0] if match else ""


def written(table: Table, text: str) -> str:
    """A page with its table as the code has it."""
    old = found(table, text)
    if not old:
        raise SystemExit(f"{table.page.name} has no marker <!-- {table.name}: … --> with its end")
    return text.replace(old, marked(table))


if __name__ == "__main__":
    for each in TABLES:
        each.page.write_text(written(each, each.page.read_text()))
    sys.stdout.write(f"{', '.join(each.name for each in TABLES)}: written\n")
